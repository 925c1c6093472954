"""The client: an app with its tasks, and the server where their jobs are."""

from __future__ import annotations

import asyncio
import threading
import weakref
from typing import TYPE_CHECKING, Any, Callable, Optional, TypeVar, Union, overload

from . import _operations as operations
from ._asyncio import AsyncPool
from ._settings import DEFAULT_REQUEST_TIMEOUT_S, DEFAULT_RETRY_FOR_S, Settings
from ._threads import Pool
from .async_worker import AsyncWorker
from .job import Job
from .serializers import JsonSerializer, Serializer, written
from .task import AsyncTask, BaseTask, Message, Registry, Task
from .worker import Worker

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable

    from typing_extensions import ParamSpec, Protocol, Self, Unpack

    from ._flow import Flow
    from ._options import JobOptions

    P = ParamSpec("P")

    class _Decorator(Protocol):
        @overload
        def __call__(  # type: ignore[overload-overlap]
            self, function: Callable[P, Coroutine[Any, Any, R]]
        ) -> AsyncTask[P, R]: ...

        @overload
        def __call__(self, function: Callable[P, R]) -> Task[P, R]: ...


R = TypeVar("R")
T = TypeVar("T")


class Spindle:
    """An app: its tasks, and the server where their jobs are.

    ``app = Spindle()`` takes everything from the environment, as the ``spindle`` commands do. No
    connection is opened before something is asked of the server. An app may be used by many
    threads, event loops and forked processes at once.
    """

    def __init__(
        self,
        url: Optional[str] = None,
        *,
        token: Optional[str] = None,
        token_file: Optional[str] = None,
        ca_file: Optional[str] = None,
        cert_file: Optional[str] = None,
        key_file: Optional[str] = None,
        serializer: Optional[Serializer] = None,
        request_timeout: float = DEFAULT_REQUEST_TIMEOUT_S,
        retry_for: float = DEFAULT_RETRY_FOR_S,
    ) -> None:
        """What is not given comes from the environment.

        url: ``http://`` or ``https://``, with the path that a proxy puts before the server's own
            (``SPINDLE_URL``, else http://127.0.0.1:7420)
        token: says who asks (``SPINDLE_TOKEN``)
        token_file: a file with the token, which others must not be able to read; it is read again
            when the server refuses the token (``SPINDLE_TOKEN_FILE``)
        ca_file: certificates in PEM, one of which vouches for the server (``SPINDLE_CA_FILE``,
            else the public authorities)
        cert_file, key_file: a certificate to show to the server, and its key (``SPINDLE_CERT``,
            ``SPINDLE_KEY``)
        serializer: how payloads and results are written, unless a task has its own (JSON)
        request_timeout: how many seconds a request may take, besides what it waits for
        retry_for: how many seconds a request is repeated while the server is away or busy
        """
        self.serializer: Serializer = serializer or JsonSerializer()
        #: Its tasks.
        self.tasks = Registry()
        self._arguments: dict[str, Any] = {
            "url": url,
            "token": token,
            "token_file": token_file,
            "ca_file": ca_file,
            "cert_file": cert_file,
            "key_file": key_file,
            "request_timeout": request_timeout,
            "retry_for": retry_for,
        }
        self._lock = threading.Lock()
        self._connected: Optional[_Connected] = None

    def configure(self, **settings: Any) -> None:
        """Changes settings (those of the constructor, but for ``serializer``) from now on.

        Nothing but tests needs this.
        """
        unknown = set(settings) - set(self._arguments)
        if unknown:
            raise TypeError(f"there is no setting {', '.join(sorted(unknown))}")
        self._arguments.update(settings)
        self.close()

    @property
    def settings(self) -> Settings:
        """Where the server is, with the environment and the defaults in."""
        return self._connections().settings

    @overload
    def task(  # type: ignore[overload-overlap]
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> AsyncTask[P, R]: ...

    @overload
    def task(self, function: Callable[P, R], /) -> Task[P, R]: ...

    @overload
    def task(
        self,
        function: None = None,
        /,
        *,
        queue: Optional[str] = None,
        serializer: Optional[Serializer] = None,
        raw: bool = False,
        no_retry: Union[type[BaseException], tuple[type[BaseException], ...]] = (),
        **options: Unpack[JobOptions],
    ) -> _Decorator: ...

    def task(
        self,
        function: Optional[Callable[..., Any]] = None,
        /,
        *,
        queue: Optional[str] = None,
        serializer: Optional[Serializer] = None,
        raw: bool = False,
        no_retry: Union[type[BaseException], tuple[type[BaseException], ...]] = (),
        **options: Unpack[JobOptions],
    ) -> Any:
        """Makes a task of a function: ``@app.task`` or ``@app.task(retries=3)``.

        queue: the queue of its jobs, by default the function's name
        serializer: how its payloads and results are written, by default the app's
        raw: the function takes one argument, the payload as it is
        no_retry: exceptions that make a job dead at once, because no other try can help
        options: how its jobs are submitted, see :class:`~spindle.JobOptions`
        """

        def decorate(function: Callable[..., Any]) -> BaseTask[Any, Any]:
            kind = AsyncTask if asyncio.iscoroutinefunction(function) else Task
            task: BaseTask[Any, Any] = kind(
                self,
                function,
                queue or function.__name__,
                serializer=serializer or self.serializer,
                raw=raw,
                no_retry=no_retry if isinstance(no_retry, tuple) else (no_retry,),
                options=options,
            )
            return self.tasks.add(task)

        return decorate if function is None else decorate(function)

    def submit(self, message: Message[R]) -> Job[R]:
        """Submits a job. It is on the server's disk when this returns.

        It is repeated while the server is away or busy, and adds one job however often it is sent.
        """
        answer = self._run(operations.submit(self.settings, message))
        return self._job_of(answer, message.serializer)

    async def asubmit(self, message: Message[R]) -> Job[R]:
        """As :meth:`submit`, with asyncio."""
        answer = await self._arun(operations.submit(self.settings, message))
        return self._job_of(answer, message.serializer)

    def submit_many(self, messages: Iterable[Message[R]]) -> list[Job[R]]:
        """Submits jobs, up to 1,000 in one request, with one wait for the disk.

        Each is taken or refused on its own: a :class:`~spindle.errors.SubmitManyError` says which.
        """
        known = list(messages)
        answers = self._run(operations.submit_many(self.settings, known))
        return [self._job_of(*pair) for pair in _with_serializers(answers, known)]

    async def asubmit_many(self, messages: Iterable[Message[R]]) -> list[Job[R]]:
        """As :meth:`submit_many`, with asyncio."""
        known = list(messages)
        answers = await self._arun(operations.submit_many(self.settings, known))
        return [self._job_of(*pair) for pair in _with_serializers(answers, known)]

    def message(
        self, queue: str, payload: Any = None, **options: Unpack[JobOptions]
    ) -> Message[Any]:
        """A job for a task that is not here, such as one in another language."""
        from . import _options

        _options.check(options)
        content = written(self.serializer, payload, "unwritable_payload")
        unique = options.get("unique")
        if unique is not None and not isinstance(unique, str):
            raise TypeError("unique: without a task a key must be a text")
        fields = _options.fields_of(options, unique)
        return Message(queue, *content, fields, self.serializer, options.get("idempotency_key"))

    def job(self, job_id: int) -> Job[Any]:
        """A job by its number, to wait for its result or to cancel it."""
        return Job(self, job_id, self.serializer)

    def request(self, method: str, path: str, body: Any = None) -> Any:
        """Anything else that the API can do: ``app.request("POST", "/api/v1/queues/mail/pause")``.

        Returns the JSON of the answer, or None. Raises as the other methods do.
        """
        return self._run(operations.request(self.settings, method, path, body))

    async def arequest(self, method: str, path: str, body: Any = None) -> Any:
        """As :meth:`request`, with asyncio."""
        return await self._arun(operations.request(self.settings, method, path, body))

    def worker(self, **arguments: Any) -> Worker:
        """A worker for the app's tasks; the arguments are those of the :class:`~spindle.Worker`."""
        return Worker(self, **arguments)

    def async_worker(self, **arguments: Any) -> AsyncWorker:
        """A worker for asyncio; the arguments are those of the :class:`~spindle.AsyncWorker`."""
        return AsyncWorker(self, **arguments)

    def close(self) -> None:
        """Closes idle connections. The app can be used again."""
        with self._lock:
            connected, self._connected = self._connected, None
        if connected is not None:
            connected.pool.close()

    async def aclose(self) -> None:
        """As :meth:`close`, also for the connections of this event loop."""
        await self._aclose_loop()
        self.close()

    async def _aclose_loop(self) -> None:
        """Closes the connections of this event loop that nobody uses."""
        with self._lock:
            connected = self._connected
        if connected is not None:
            pool = connected.async_pools.get(asyncio.get_running_loop())
            if pool is not None:
                await pool.aclose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def _run(self, flow: Flow[T]) -> T:
        return self._connections().pool.run(flow)

    async def _arun(self, flow: Flow[T]) -> T:
        pools = self._connections().async_pools
        loop = asyncio.get_running_loop()
        pool = pools.get(loop)
        if pool is None:
            pool = pools[loop] = AsyncPool(self.settings)
        return await pool.run(flow)

    def _connections(self) -> _Connected:
        connected = self._connected
        if connected is None:
            with self._lock:
                if self._connected is None:
                    self._connected = _Connected(Settings(**self._arguments))
                connected = self._connected
        return connected

    def _job_of(self, answer: dict[str, Any], serializer: Serializer) -> Job[Any]:
        return Job(self, answer["id"], serializer, existing=answer["existing"])


class _Connected:
    """What a client has once it knows where its server is."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.pool = Pool(settings)
        self.async_pools: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, AsyncPool]
        self.async_pools = weakref.WeakKeyDictionary()


def _with_serializers(
    answers: list[dict[str, Any]], messages: list[Message[R]]
) -> Iterable[tuple[dict[str, Any], Serializer]]:
    return zip(answers, (message.serializer for message in messages))
