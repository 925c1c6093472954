"""Tasks: functions whose calls can be jobs."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Coroutine
from copy import copy
from dataclasses import dataclass
from functools import update_wrapper
from typing import TYPE_CHECKING, Any, Callable, Generic, Optional, TypeVar

from . import _options
from ._options import JobOptions
from .errors import SerializationError
from .serializers import Serializer, read, written

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from typing_extensions import ParamSpec, Self, Unpack

    from .client import Spindle
    from .job import Job

    P = ParamSpec("P")
else:
    P = TypeVar("P")

R = TypeVar("R")
TaskT = TypeVar("TaskT", bound="BaseTask[Any, Any]")

_KEY_CHARS_MAX = 255
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.VAR_POSITIONAL)


@dataclass(frozen=True)
class Message(Generic[R]):
    """A job that can be submitted: a queue, a payload, options."""

    queue: str
    content_type: str
    content: bytes
    fields: Mapping[str, Any]
    #: Reads the job's result.
    serializer: Serializer
    idempotency_key: Optional[str] = None


class BaseTask(Generic[P, R]):
    """A kind of job: its queue, the function that does its jobs, how they are submitted.

    The payload is an object of the function's arguments by their names, so that other languages
    and other doors can submit and work the same jobs. With ``raw`` it is the one argument itself.
    """

    def __init__(
        self,
        app: Spindle,
        function: Callable[..., Any],
        queue: str,
        *,
        serializer: Serializer,
        raw: bool,
        no_retry: tuple[type[BaseException], ...],
        options: JobOptions,
    ) -> None:
        self.app = app
        self.function = function
        #: The queue of its jobs, which is the task's name everywhere.
        self.queue = queue
        self.serializer = serializer
        #: Exceptions that another try cannot help: they make the job dead at once.
        self.no_retry = no_retry
        self._raw = raw
        self._options = options
        self._signature = inspect.signature(function)
        self._accepts_all = _takes_any_names(self._signature)
        if raw:
            _check_raw(queue, self._signature)
        else:
            _check_named(queue, self._signature)
        _options.check(options)
        # mypy has no type for a wrapper that is an object.
        update_wrapper(self, function)  # type: ignore[arg-type]

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.queue!r}>"

    def configure(self, **options: Unpack[JobOptions]) -> Self:
        """The same task with other options, for submits:
        ``send.configure(delay=60).delay("a@example.org")``.
        """
        configured = copy(self)
        merged: JobOptions = {**self._options, **options}
        # A new time takes the place of the one before, whichever way each is given.
        if "delay" in options and "run_at" not in options:
            merged.pop("run_at", None)
        if "run_at" in options and "delay" not in options:
            merged.pop("delay", None)
        _options.check(merged)
        configured._options = merged
        return configured

    def message(self, *args: P.args, **kwargs: P.kwargs) -> Message[R]:
        """A job that is not submitted yet, for :meth:`~spindle.Spindle.submit_many`."""
        arguments = self._signature.bind(*args, **kwargs).arguments
        value = self._payload(arguments)
        content_type, content = written(self.serializer, value, "unwritable_payload")
        key = self._unique_key(args, kwargs, content)
        fields = _options.fields_of(self._options, key)
        idempotency_key = self._options.get("idempotency_key")
        return Message(self.queue, content_type, content, fields, self.serializer, idempotency_key)

    def delay(self, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        """Submits a job with these arguments. It is on the server's disk when this returns."""
        return self.app.submit(self.message(*args, **kwargs))

    async def adelay(self, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        """As :meth:`delay`, with asyncio."""
        return await self.app.asubmit(self.message(*args, **kwargs))

    def arguments_of(self, leased: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments in a job's payload. Raises a :class:`SerializationError`."""
        value = read(self.serializer, leased, "payload", "unreadable_payload")
        if self._raw:
            return (value,), {}
        if value is None:
            value = {}
        if not isinstance(value, dict):
            kind = type(value).__name__
            raise _unreadable(f"the payload is no object of arguments but a {kind}")
        try:
            self._signature.bind(**value)
        except TypeError as error:
            raise _unreadable(f"the arguments do not fit: {error}") from error
        return (), value

    def _payload(self, arguments: Mapping[str, Any]) -> Any:
        if self._raw:
            return next(iter(arguments.values()), None)
        if not self._accepts_all:
            return dict(arguments)
        named: dict[str, Any] = {}
        for name, value in arguments.items():
            if self._signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD:
                named.update(value)
            else:
                named[name] = value
        return named

    def _unique_key(self, args: Any, kwargs: Any, content: bytes) -> Optional[str]:
        unique = self._options.get("unique")
        if unique is None or unique is False:
            return None
        if unique is True:
            return hashlib.sha256(content).hexdigest()
        key = unique if isinstance(unique, str) else unique(*args, **kwargs)
        if not 1 <= len(key) <= _KEY_CHARS_MAX:
            raise ValueError(f"a unique key has 1 to {_KEY_CHARS_MAX} characters, not {len(key)}")
        return key


class Task(BaseTask[P, R]):
    """A task whose function is an ordinary one."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Calls the function here and now, without any job."""
        result: R = self.function(*args, **kwargs)
        return result


class AsyncTask(BaseTask[P, R]):
    """A task whose function is a coroutine function."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        """Calls the function here and now, without any job."""
        result: Coroutine[Any, Any, R] = self.function(*args, **kwargs)
        return result


class Registry:
    """The tasks of an app by their queues."""

    def __init__(self) -> None:
        self._tasks: dict[str, BaseTask[Any, Any]] = {}

    def add(self, task: TaskT) -> TaskT:
        """Adds a task. Two functions cannot do the jobs of one queue."""
        other = self._tasks.get(task.queue)
        if other is not None and not _is_same(other.function, task.function):
            raise ValueError(f"the queue {task.queue!r} has a task already: {other.function}")
        self._tasks[task.queue] = task
        return task

    def serializer_of(self, queue: str) -> Optional[Serializer]:
        """How the results of a queue's task are written, if it has one here."""
        task = self._tasks.get(queue)
        return None if task is None else task.serializer

    def chosen(self, queues: Optional[Iterable[str]]) -> dict[str, BaseTask[Any, Any]]:
        """All tasks, or those of some queues."""
        if queues is None:
            chosen = dict(self._tasks)
        else:
            missing = [queue for queue in queues if queue not in self._tasks]
            if missing:
                raise ValueError(f"no task has the queue {', '.join(missing)}")
            chosen = {queue: self._tasks[queue] for queue in queues}
        if not chosen:
            raise ValueError("there is no task to work on: is the module with them imported?")
        return chosen


def _is_same(one: Callable[..., Any], other: Callable[..., Any]) -> bool:
    """Whether two functions are one that was imported twice, as ``__main__`` and by name."""
    return one.__code__.co_filename == other.__code__.co_filename and (
        one.__code__.co_firstlineno == other.__code__.co_firstlineno
    )


def _takes_any_names(signature: inspect.Signature) -> bool:
    kinds = [parameter.kind for parameter in signature.parameters.values()]
    return inspect.Parameter.VAR_KEYWORD in kinds


def _check_named(queue: str, signature: inspect.Signature) -> None:
    for parameter in signature.parameters.values():
        if parameter.kind in _POSITIONAL:
            raise TypeError(
                f"task {queue!r}: the parameter {parameter.name!r} has no name in a payload; give "
                "it one, or take the payload as it is with raw=True"
            )


def _check_raw(queue: str, signature: inspect.Signature) -> None:
    required = [
        parameter
        for parameter in signature.parameters.values()
        if parameter.default is inspect.Parameter.empty
    ]
    if len(signature.parameters) != 1 or len(required) > 1:
        raise TypeError(f"task {queue!r}: a raw task takes one argument, the payload")


def _unreadable(message: str) -> SerializationError:
    return SerializationError("unreadable_payload", message)
