"""The job that a task runs for."""

from __future__ import annotations

import contextlib
import threading
import time
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Callable, Optional, Union

from . import _operations as operations
from .errors import ApiError, JobCancelledError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ._flow import Flow
    from .client import Spindle
    from .job import Job

_CURRENT: ContextVar[RunningJob] = ContextVar("spindle_job")


def current_job() -> RunningJob:
    """The job that the calling task runs for. Raises a LookupError outside of one."""
    try:
        return _CURRENT.get()
    except LookupError:
        raise LookupError("no task of a worker runs here") from None


@dataclass(frozen=True)
class Before:
    """A job or a batch that the job of a task waited for."""

    id: int
    #: Where it stood when the task began; ``gone`` if it was not kept any more.
    status: str
    is_batch: bool = False

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> Before:
        """From an answer of the API."""
        return cls(fields["id"], fields["status"], fields.get("is_batch", False))


class RunningJob:
    """A job that a worker has. Its lease is extended as long as its task runs.

    Methods with an ``a`` before their name are for asyncio.
    """

    def __init__(self, app: Spindle, leased: Mapping[str, Any]) -> None:
        self.app = app
        self.id: int = leased["id"]
        self.queue: str = leased["queue"]
        #: Which attempt this is, from 1.
        self.attempt: int = leased["attempt"]
        #: The jobs and batches that it waited for, by their numbers.
        self.after = tuple(map(Before.of, leased.get("after", ())))
        #: The trace that the job was submitted in (W3C Trace Context), if there is one.
        self.traceparent: Optional[str] = leased.get("traceparent")
        self._token: str = leased["lease_token"]
        self._lease_s: Optional[float] = None
        if leased.get("lease_ms") is not None:
            self._lease_s = leased["lease_ms"] / 1000
        self._reason: Optional[str] = None
        self._ended = threading.Event()
        self._on_cancel: Optional[Callable[[], None]] = None
        self._lock = threading.Lock()
        self._started = time.monotonic()

    def __repr__(self) -> str:
        return f"<RunningJob {self.id} of {self.queue!r}, attempt {self.attempt}>"

    @property
    def is_cancelled(self) -> bool:
        """Whether the task should stop: the job was cancelled, or is another worker's now.

        The worker learns of it at its next heartbeat: after a third of the lease, at most 5 s.
        """
        return self._ended.is_set()

    @property
    def cancel_reason(self) -> Optional[str]:
        """Why it should stop: see :class:`~spindle.errors.JobCancelledError`."""
        return self._reason

    def raise_if_cancelled(self) -> None:
        """Raises a :class:`~spindle.errors.JobCancelledError` if the task should stop."""
        if self._reason is not None:
            raise JobCancelledError(self._reason)

    def wait_cancelled(self, timeout: Optional[float] = None) -> bool:
        """Waits until the task should stop, at most so many seconds: a sleep that can end early."""
        return self._ended.wait(timeout)

    def result_of(self, job: Union[int, Job[Any], Before]) -> Any:
        """The result of a job that this one waited for, whatever its queue is.

        It is read as the results of the app's task with that queue are, if there is one, else by
        the app's serializer. Raises a JobFailedError when that job is dead, a NotFoundError when it
        is not kept any more, a SerializationError when the result is unreadable.
        """
        with self._noting_its_end():
            return self.app._run(self._results([job]))[0]

    async def aresult_of(self, job: Union[int, Job[Any], Before]) -> Any:
        """As :meth:`result_of`, with asyncio."""
        with self._noting_its_end():
            return (await self.app._arun(self._results([job])))[0]

    def results_before(self) -> list[Any]:
        """The results of all jobs that this one waited for, in the order of their numbers.

        That is the order in which they were submitted. Batches have no result. Raises what
        :meth:`result_of` raises for the first job without a result.
        """
        with self._noting_its_end():
            return self.app._run(self._results(self._jobs_before()))

    async def aresults_before(self) -> list[Any]:
        """As :meth:`results_before`, with asyncio."""
        with self._noting_its_end():
            return await self.app._arun(self._results(self._jobs_before()))

    def report_progress(self, numerator: int, denominator: int = 100) -> None:
        """Says how far the task is: ``numerator`` of ``denominator``.

        People see it until the attempt ends. It is sent once, and the server keeps it in memory
        only. Raises a :class:`~spindle.errors.JobCancelledError` if the task should stop.
        """
        with self._noting_its_end():
            self.app._run(self._progress(numerator, denominator))

    async def areport_progress(self, numerator: int, denominator: int = 100) -> None:
        """As :meth:`report_progress`, with asyncio."""
        with self._noting_its_end():
            await self.app._arun(self._progress(numerator, denominator))

    def write_output(self, text: str) -> None:
        """Appends a text to the job's output, which people follow with ``spindle logs``.

        Lines end with a line feed, which is not added. The server keeps the newest 256 KiB of a
        job, in memory only. It is repeated while the server is away or busy, unless it may have
        been received. Raises a :class:`~spindle.errors.JobCancelledError` if the task should stop.
        """
        with self._noting_its_end():
            self.app._run(operations.write_output(self.app.settings, self._token, text))

    async def awrite_output(self, text: str) -> None:
        """As :meth:`write_output`, with asyncio."""
        with self._noting_its_end():
            await self.app._arun(operations.write_output(self.app.settings, self._token, text))

    def _jobs_before(self) -> list[Before]:
        return [before for before in self.after if not before.is_batch]

    def _results(self, jobs: Sequence[Union[int, Job[Any], Before]]) -> Flow[list[Any]]:
        ids = [job if isinstance(job, int) else job.id for job in jobs]
        app = self.app
        return operations.results_before(app.settings, self._token, ids, app._serializer_of)

    def _progress(self, numerator: int, denominator: int) -> Flow[None]:
        return operations.report_progress(self.app.settings, self._token, numerator, denominator)

    @contextlib.contextmanager
    def _noting_its_end(self) -> Iterator[None]:
        """An answer that says that the lease has ended cancels the job, as one to a heartbeat."""
        try:
            yield
        except ApiError as error:
            if error.code not in operations.LEASE_ENDED:
                raise
            self._cancel(str(error.problem.get("reason", "gone")))
            raise JobCancelledError(self._reason or "gone") from error

    def _cancel(self, reason: str) -> None:
        with self._lock:
            if self._reason is not None:
                return
            self._reason = reason
            tell = self._on_cancel
        self._ended.set()
        if tell is not None:
            tell()

    def _when_cancelled(self, tell: Callable[[], None]) -> None:
        """What to call if it is cancelled from now on; at once if it is already."""
        with self._lock:
            self._on_cancel = tell
            is_late = self._reason is not None
        if is_late:
            tell()

    def _is_over(self) -> None:
        with self._lock:
            self._on_cancel = None
