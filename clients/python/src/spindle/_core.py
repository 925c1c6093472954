"""What a worker does, apart from how it waits: shared by threads and asyncio.

One flow leases as many jobs at once as there is room for; their tasks run beside it. Another flow
reports how they ended: what ends while a report is under way goes with the next one, so that the
busier a worker is, the more jobs share a wait for the server's disk. Reports are repeated until
the server has answered them. Heartbeats extend the leases of jobs that take long; their answers
say if a job is no longer this worker's.
"""

from __future__ import annotations

import json
import logging
import threading
from collections import deque
from collections.abc import Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Callable, NamedTuple, Optional, Union

from ._flow import Backoff, Exchange, Exchanged, Pause, Rest, check_size, is_passing
from ._heartbeats import Heartbeats, nothing
from ._http import Request
from ._operations import API, LEASE_ENDED, WAIT_S, content_fields
from ._reports import (
    Report,
    failure_report,
    message_of,
    next_reports,
    refusals_of,
    request_of,
    trace_of,
)
from .errors import (
    ApiError,
    ConnectionFailedError,
    Failure,
    JobCancelledError,
    SerializationError,
    WorkerError,
    refusal,
)
from .running import RunningJob
from .serializers import json_bytes, written

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ._settings import Settings
    from .task import BaseTask

LOG = logging.getLogger("spindle.worker")

#: So many jobs the server gives at once.
_COUNT_MAX = 100
_INTEGER_DIGITS_MAX = 4000
#: Tasks that are short end within about so long of each other.
_GATHER_S = 0.0003


#: What goes on beside the tasks of a worker.
WorkerFlow = Generator[Union[Exchange, Pause, Rest], Any, None]


@dataclass
class Attempt:
    """A job that was leased, with its task and arguments if they could be read."""

    job: RunningJob
    task: BaseTask[Any, Any]
    args: tuple[Any, ...] = ()
    kwargs: Optional[dict[str, Any]] = None
    unreadable: Optional[SerializationError] = None


class Room(NamedTuple):
    """What a worker has room for."""

    #: So many jobs.
    places: int
    #: Whether tasks of others run.
    is_partial: bool
    #: Whether it has nothing to do.
    is_idle: bool


@dataclass
class Counts:
    """What became of the jobs of a worker."""

    completed: int = 0
    failed: int = 0
    #: Given back when the worker stopped.
    released: int = 0
    #: Cancelled, deleted, or another worker's before this one could report.
    lost: int = 0

    def __str__(self) -> str:
        text = f"{self.completed} completed, {self.failed} failed"
        for count, what in ((self.released, "given back"), (self.lost, "lost")):
            if count:
                text += f", {count} {what}"
        return text


@dataclass
class Abandoned:
    """The jobs of a worker that ends before they do."""

    #: Their tasks still run.
    running: list[RunningJob]
    #: Their tasks have ended, and the server has not answered the report.
    unreported: list[RunningJob]

    def exchange(self, settings: Settings) -> Exchange:
        """What gives the jobs back whose tasks still run."""
        reports = deque(Report(job, "release") for job in self.running)
        requests = []
        while reports:
            requests.append(request_of(next_reports(reports)))
        return Exchange(tuple(requests), settings.request_timeout_s)

    def error(self, failure: Optional[ConnectionFailedError]) -> WorkerError:
        """What the worker ends with; ``failure`` if the jobs could not be given back."""
        texts = []
        if self.running:
            fate = "were given back"
            if failure is not None:
                fate = f"come back after their leases ({failure})"
            texts.append(f"some jobs did not end in time and {fate}: {_names(self.running)}")
        if self.unreported:
            names = _names(self.unreported)
            texts.append(f"the server did not answer the reports about some jobs: {names}")
        return WorkerError("; ".join(texts))


def _names(jobs: Iterable[RunningJob]) -> str:
    return ", ".join(f"{job.id} of {job.queue}" for job in jobs)


class Core:
    """What a worker's flows, tasks and heartbeats share."""

    def __init__(
        self,
        settings: Settings,
        tasks: Mapping[str, BaseTask[Any, Any]],
        name: str,
        *,
        concurrency: int,
        is_drain: bool,
    ) -> None:
        self.settings = settings
        self.tasks = tasks
        self.counts = Counts()
        self.fatal: Optional[BaseException] = None
        self.is_stopping = False
        #: Whether every job that was leased has been reported, and no more come.
        self.has_ended = False
        self.heartbeats = Heartbeats(settings)
        #: Begins an attempt. Its end is told with :meth:`attempt_ended`.
        self.begin: Callable[[Attempt], None] = nothing
        #: Wake the flow of that name when it rests.
        self.wake_leasing: Callable[[], None] = nothing
        self.wake_reporting: Callable[[], None] = nothing
        #: Called when the worker has ended, or must.
        self.on_end: Callable[[], None] = nothing
        self._concurrency = concurrency
        self._is_drain = is_drain
        self._lock = threading.Lock()
        self._is_leasing = True
        #: How many attempts have begun and not ended.
        self._running = 0
        #: Reports that wait for the request that is under way.
        self._waiting: deque[Report] = deque()
        #: Reports that are under way.
        self._sent: list[Report] = []
        self._is_away = False
        self._is_abandoned = False
        self._wait_s = 0 if is_drain else WAIT_S
        self._lease_fields = {"queues": list(tasks), "wait_s": self._wait_s, "worker": name}

    def leasing(self) -> WorkerFlow:
        """Leases jobs until the worker stops, or, in a drain, until there are none."""
        backoff = Backoff()
        try:
            while not self.is_stopping:
                room = self._room()
                if room.places == 0:
                    yield Rest()
                    continue
                if room.is_partial:
                    # One request for the places of tasks that end together, and not one for the
                    # first of them: each waits for the disk. No place is lost meanwhile.
                    yield Pause(_GATHER_S)
                    room = self._room()
                token = self.settings.token.current
                timeout_s = self.settings.request_timeout_s + self._wait_s
                exchanged: Exchanged = yield Exchange(
                    (self._lease(room.places),), timeout_s, is_wait=True
                )
                jobs = self._leased(exchanged, token)
                if jobs is None:
                    yield Pause(backoff.next())
                    continue
                backoff.reset()
                if jobs:
                    self._begin_all(jobs)
                elif self._is_drain and room.is_idle:
                    return
                elif self._is_drain:
                    # What runs may make further jobs ready, such as its own next try.
                    yield Rest()
        finally:
            with self._lock:
                self._is_leasing = False
            self.wake_reporting()

    def reporting(self) -> WorkerFlow:
        """Reports the ends of attempts, until the last one."""
        backoff = Backoff()
        try:
            while not self._is_abandoned:
                if not self._collect():
                    if self._is_over():
                        return
                    yield Rest()
                    continue
                token = self.settings.token.current
                exchanged: Exchanged = yield Exchange(
                    (request_of(self._sent),), self.settings.request_timeout_s
                )
                self._note_away(exchanged)
                if self._settle(exchanged, token):
                    backoff.reset()
                else:
                    yield Pause(backoff.next())
                self.wake_leasing()
        finally:
            self.has_ended = True
            self.on_end()

    def attempt_ended(self, report: Report) -> None:
        """The task of an attempt has ended."""
        with self._lock:
            self._running -= 1
            self._waiting.append(report)
        self.wake_reporting()
        self.wake_leasing()

    def attempt_crashed(self, attempt: Attempt, error: BaseException) -> None:
        """An attempt has ended that cannot be reported: its job comes back after its lease."""
        self.heartbeats.remove(attempt.job)
        with self._lock:
            self._running -= 1
        self.fail(error)

    def outcome(self, attempt: Attempt, value: Any) -> Report:
        """The report of a task that returned."""
        try:
            content = written(attempt.task.serializer, value, "unwritable_result")
        except SerializationError as error:
            return self.failure(attempt, error)
        body = b"{%s}" % content_fields(*content, "result") if content[1] else b"{}"
        report = Report(attempt.job, "complete", body)
        try:
            check_size(request_of([report]))
        except ApiError as error:
            return self._unwritable(attempt.job, error)
        return report

    def failure(self, attempt: Attempt, error: BaseException) -> Report:
        """The report of a task that raised."""
        job = attempt.job
        if job.cancel_reason == "stopping":
            LOG.warning("job %d of %s is given back: the worker stops", job.id, job.queue)
            return Report(job, "release")
        retry = not isinstance(error, attempt.task.no_retry)
        message = message_of(error)
        code = type(error).__name__
        if isinstance(error, Failure):
            code, retry = error.code, error.retry
        elif isinstance(error, SerializationError):
            code, retry = error.code, False
        if not job.is_cancelled:
            LOG.warning("job %d of %s failed: %s: %s", job.id, job.queue, code, message)
        return failure_report(job, message, trace_of(error), code, retry)

    def is_running(self) -> bool:
        """Whether the task of an attempt still runs."""
        with self._lock:
            return self._running > 0

    def stop(self) -> None:
        """Leases no more."""
        self.is_stopping = True
        self.wake_leasing()

    def abandon(self) -> Optional[Abandoned]:
        """Leaves the jobs to themselves that the worker still has, if it has any."""
        self._is_abandoned = True
        self.wake_reporting()
        with self._lock:
            unreported = [report.job for report in (*self._sent, *self._waiting)]
        jobs = self.heartbeats.jobs()
        for job in jobs:
            self.heartbeats.remove(job)
        running = [job for job in jobs if job not in unreported]
        return Abandoned(running, unreported) if running or unreported else None

    def fail(self, error: BaseException) -> None:
        """Something that no try can help."""
        with self._lock:
            if self.fatal is None:
                self.fatal = error
        self.stop()
        self.wake_reporting()
        self.on_end()

    def _room(self) -> Room:
        """How many jobs to lease now."""
        with self._lock:
            free = self._concurrency - self._running
            unreported = len(self._sent) + len(self._waiting)
        # The next jobs begin while the ends of the last ones are on their way to the disk; but
        # when the server takes no reports, it gives no jobs.
        count = min(free, self._concurrency + free - unreported, _COUNT_MAX)
        is_partial = free < self._concurrency
        return Room(max(count, 0), is_partial, not is_partial and unreported == 0)

    def _lease(self, count: int) -> Request:
        return Request("POST", f"{API}/lease", json_bytes({**self._lease_fields, "count": count}))

    def _begin_all(self, jobs: list[Attempt]) -> None:
        with self._lock:
            self._running += len(jobs)
        for attempt in jobs:
            self.heartbeats.add(attempt.job)
        for attempt in jobs:
            self.begin(attempt)

    def _collect(self) -> bool:
        """Whether there are reports to send: those that could not be delivered, or the next."""
        with self._lock:
            if not self._sent:
                self._sent = next_reports(self._waiting)
            return bool(self._sent)

    def _is_over(self) -> bool:
        with self._lock:
            return not (self._is_leasing or self._running or self._waiting)

    @staticmethod
    def _unwritable(job: RunningJob, error: ApiError) -> Report:
        """A result that the server does not take."""
        message = f"the server does not take the result: {error}"
        LOG.warning("job %d of %s: %s", job.id, job.queue, message)
        return failure_report(job, message, "", "unwritable_result", retry=False)

    def _note_away(self, exchanged: Exchanged) -> bool:
        """Says once that the server is away, and once that it is back. True if it is away."""
        failure = exchanged.failure
        with self._lock:
            was_away, self._is_away = self._is_away, failure is not None
        if failure is None and was_away:
            LOG.info("the server answers again")
        elif failure is not None and not was_away:
            LOG.warning("%s; trying again until it answers", failure)
        return failure is not None

    def _leased(self, exchanged: Exchanged, token: Optional[str]) -> Optional[list[Attempt]]:
        """The jobs that came; None if they are to be asked for again after a pause."""
        if self.is_stopping and not exchanged.responses:
            # The wait was ended by hanging up.
            return []
        if self._note_away(exchanged):
            return None
        response = exchanged.responses[0]
        if response.status == 204:
            return []
        if response.status != 200:
            error = refusal(response)
            if not self._passes(error, token):
                raise WorkerError(f"the server refuses to give jobs: {error}") from error
            LOG.warning("no job now: %s", error)
            return None
        return [self._attempt(*parsed) for parsed in _parsed(response.body)]

    def _attempt(self, leased: dict[str, Any], unreadable: Optional[SerializationError]) -> Attempt:
        task = self.tasks[leased["queue"]]
        job = RunningJob(task.app, leased)
        attempt = Attempt(job, task, unreadable=unreadable)
        if unreadable is None:
            try:
                attempt.args, attempt.kwargs = task.arguments_of(leased)
            except SerializationError as error:
                attempt.unreadable = error
        return attempt

    def _passes(self, error: ApiError, token: Optional[str]) -> bool:
        """Whether the same request may succeed later, or now with the token that is in its file."""
        is_renewed = error.status == 401 and self.settings.token.reload(token)
        return is_passing(error) or is_renewed or error.status >= 500

    def _settle(self, exchanged: Exchanged, token: Optional[str]) -> bool:
        """Takes the server's answer to what was sent. False if some of it is to be sent again."""
        if not exchanged.responses:
            for report in self._sent:
                report.is_repeated = True
            return False
        errors = refusals_of(self._sent, exchanged.responses[0])
        left = []
        for report, error in zip(self._sent, errors):
            again = self._settle_one(report, error, token)
            if again is None:
                self.heartbeats.remove(report.job)
            else:
                left.append(again)
        with self._lock:
            self._sent = []
            # What is left goes with the next request; a report may be a large one now.
            self._waiting.extendleft(reversed(left))
        return not left

    def _settle_one(
        self, report: Report, error: Optional[ApiError], token: Optional[str]
    ) -> Optional[Report]:
        """What is to be reported again, if anything."""
        if error is None:
            self._count(report.verb)
            return None
        job = report.job
        if error.code in LEASE_ENDED:
            reason = error.problem.get("reason", "gone")
            if report.is_repeated and reason == "finished":
                self._count(report.verb)
                return None
            LOG.warning("job %d of %s is no longer this worker's: %s", job.id, job.queue, reason)
            self._count("lost")
            return None
        if self._passes(error, token):
            return report
        if report.verb == "complete":
            # Such as a result that is too large: another try would give the same.
            return self._unwritable(job, error)
        LOG.error("job %d of %s: the server refuses its report: %s", job.id, job.queue, error)
        self._count("lost")
        return None

    def _count(self, verb: str) -> None:
        with self._lock:
            if verb == "complete":
                self.counts.completed += 1
            elif verb == "fail":
                self.counts.failed += 1
            elif verb == "release":
                self.counts.released += 1
            else:
                self.counts.lost += 1


class _TooLong:
    """Stands for an integer with more digits than Python reads."""


def _parsed(body: bytes) -> list[tuple[dict[str, Any], Optional[SerializationError]]]:
    """Leased jobs. One whose payload Python cannot read is a job all the same."""
    try:
        return [(leased, None) for leased in json.loads(body)["jobs"]]
    except ValueError as error:
        unreadable = SerializationError("unreadable_payload", f"{type(error).__name__}: {error}")
    jobs = json.loads(body, parse_int=_integer)["jobs"]
    return [(leased, unreadable if _has_too_long(leased) else None) for leased in jobs]


def _integer(digits: str) -> Any:
    return int(digits) if len(digits) < _INTEGER_DIGITS_MAX else _TooLong()


def _has_too_long(value: Any) -> bool:
    left = [value]
    while left:
        one = left.pop()
        if isinstance(one, _TooLong):
            return True
        if isinstance(one, dict):
            left += one.values()
        elif isinstance(one, list):
            left += one
    return False


def as_error(error: BaseException, job: RunningJob) -> BaseException:
    """What a task was ended with: asyncio's own word says nothing to people."""
    if job.cancel_reason is not None:
        return JobCancelledError(job.cancel_reason)
    return error
