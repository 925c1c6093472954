"""The client: an app with its tasks, and the server where their jobs are."""

from __future__ import annotations

import asyncio
import threading
import weakref
from typing import TYPE_CHECKING, Any, Callable, Optional, TypeVar, Union, overload

from . import _operations as operations
from ._asyncio import AsyncPool
from ._options import milliseconds
from ._settings import DEFAULT_REQUEST_TIMEOUT_S, DEFAULT_RETRY_FOR_S, Settings
from ._threads import Pool
from .async_worker import AsyncWorker
from .batch import Batch, BatchInfo
from .job import Job
from .schedule import Schedule, ScheduleInfo
from .serializers import JsonSerializer, Serializer, written
from .task import AsyncTask, BaseTask, Message, Registry, Task
from .worker import Worker

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable

    from typing_extensions import ParamSpec, Protocol, Self, Unpack

    from ._flow import Flow
    from ._options import Duration, JobOptions

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
        return self._job_of(answer, message)

    async def asubmit(self, message: Message[R]) -> Job[R]:
        """As :meth:`submit`, with asyncio."""
        answer = await self._arun(operations.submit(self.settings, message))
        return self._job_of(answer, message)

    def submit_many(self, messages: Iterable[Message[R]]) -> list[Job[R]]:
        """Submits jobs, up to 1,000 in one request, with one wait for the disk.

        Each is taken or refused on its own: a :class:`~spindle.errors.SubmitManyError` says which.
        If jobs are named (``ref``), all go in one request.
        """
        known = list(messages)
        answers = self._run(operations.submit_many(self.settings, known))
        return [self._job_of(*pair) for pair in zip(answers, known)]

    async def asubmit_many(self, messages: Iterable[Message[R]]) -> list[Job[R]]:
        """As :meth:`submit_many`, with asyncio."""
        known = list(messages)
        answers = await self._arun(operations.submit_many(self.settings, known))
        return [self._job_of(*pair) for pair in zip(answers, known)]

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

    def open_batch(
        self,
        queue: str,
        *,
        name: Optional[str] = None,
        key: Optional[str] = None,
        parent: Union[int, Batch, None] = None,
        keep: Optional[Duration] = None,
    ) -> Batch:
        """Opens a batch: jobs that belong together.

        queue: who may do something with this queue may do so with the batch; its jobs may be of any
        name: for people
        key: however often a batch is opened with it, it is one batch, as long as that is kept
        parent: the open batch that it belongs to, where it counts as one job
        keep: how long it is kept once it has ended. Default a day
        """
        fields = _batch_fields(queue, name, parent, keep)
        number, existing = self._run(operations.open_batch(self.settings, fields, key))
        return Batch(self, number, existing=existing)

    async def aopen_batch(
        self,
        queue: str,
        *,
        name: Optional[str] = None,
        key: Optional[str] = None,
        parent: Union[int, Batch, None] = None,
        keep: Optional[Duration] = None,
    ) -> Batch:
        """As :meth:`open_batch`, with asyncio."""
        fields = _batch_fields(queue, name, parent, keep)
        number, existing = await self._arun(operations.open_batch(self.settings, fields, key))
        return Batch(self, number, existing=existing)

    def batch(self, batch_id: int) -> Batch:
        """A batch by its number. Nothing is sent."""
        return Batch(self, batch_id)

    def batches(self) -> list[BatchInfo]:
        """All batches, the newest first."""
        pages = self._run(operations.listed(self.settings, "batches", "batches"))
        return [BatchInfo.of(fields) for fields in pages]

    async def abatches(self) -> list[BatchInfo]:
        """As :meth:`batches`, with asyncio."""
        pages = await self._arun(operations.listed(self.settings, "batches", "batches"))
        return [BatchInfo.of(fields) for fields in pages]

    def schedule(self, name: str) -> Schedule:
        """A schedule by its name, to put, look at, pause, run or remove. Nothing is sent."""
        return Schedule(self, name)

    def schedules(self) -> list[ScheduleInfo]:
        """All schedules, by name."""
        pages = self._run(operations.listed(self.settings, "schedules", "schedules"))
        return [ScheduleInfo.of(fields) for fields in pages]

    async def aschedules(self) -> list[ScheduleInfo]:
        """As :meth:`schedules`, with asyncio."""
        pages = await self._arun(operations.listed(self.settings, "schedules", "schedules"))
        return [ScheduleInfo.of(fields) for fields in pages]

    def pause(self, queue: str) -> None:
        """Stops leasing a queue's jobs; those that workers have go on."""
        self._run(operations.hold(self.settings, operations.queue_path(queue), "pause"))

    async def apause(self, queue: str) -> None:
        """As :meth:`pause`, with asyncio."""
        await self._arun(operations.hold(self.settings, operations.queue_path(queue), "pause"))

    def resume(self, queue: str) -> None:
        """Leases a queue's jobs again."""
        self._run(operations.hold(self.settings, operations.queue_path(queue), "resume"))

    async def aresume(self, queue: str) -> None:
        """As :meth:`resume`, with asyncio."""
        await self._arun(operations.hold(self.settings, operations.queue_path(queue), "resume"))

    def request(self, method: str, path: str, body: Any = None) -> Any:
        """Anything else that the API can do: ``app.request("POST", "/api/v1/queues/mail/drain")``.

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

    def _serializer_of(self, queue: str) -> Serializer:
        """Reads the results of a queue."""
        return self.tasks.serializer_of(queue) or self.serializer

    def _job_of(self, answer: dict[str, Any], message: Message[Any]) -> Job[Any]:
        # A random key is known to the server only if this very submit was sent twice.
        may_exist = "unique" in message.fields or message.idempotency_key is not None
        existing = may_exist and answer["existing"]
        return Job(self, answer["id"], message.serializer, existing=existing)


def _batch_fields(
    queue: str,
    name: Optional[str],
    parent: Union[int, Batch, None],
    keep: Optional[Duration],
) -> dict[str, Any]:
    fields: dict[str, Any] = {"queue": queue}
    if name is not None:
        fields["name"] = name
    if parent is not None:
        fields["parent"] = parent if isinstance(parent, int) else parent.id
    if keep is not None:
        fields["keep_ms"] = milliseconds(keep, "keep")
    return fields


class _Connected:
    """What a client has once it knows where its server is."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.pool = Pool(settings)
        self.async_pools: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, AsyncPool]
        self.async_pools = weakref.WeakKeyDictionary()
