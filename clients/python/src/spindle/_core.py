"""What a worker does, apart from how it waits: shared by threads and asyncio.

A worker has slots. Each leases a job, runs it, and sends its report together with the request for
the next job, so that a job costs one round trip. Reports are repeated until the server has
answered them. The heart extends the leases of jobs that take long, and hears there if a job is no
longer this worker's.
"""

from __future__ import annotations

import heapq
import json
import logging
import threading
import time
import traceback
from collections.abc import Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Callable, Optional, Union

from ._flow import Backoff, Exchange, Exchanged, Pause, check_size, is_passing
from ._http import Request
from ._operations import API, WAIT_S, content_fields
from .errors import (
    ApiError,
    Failure,
    JobCancelledError,
    SerializationError,
    WorkerError,
    refusal,
)
from .running import RunningJob
from .serializers import json_bytes, written

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ._http import Response
    from ._settings import Settings
    from .task import BaseTask

LOG = logging.getLogger("spindle.worker")

_BEAT_MAX_S = 5.0
_BEAT_MIN_S = 0.02
#: A heartbeat that failed is tried again after this.
_BEAT_AGAIN_S = 1.0
#: The longest that a server extends a lease.
_EXTEND_MS_MAX = 31 * 24 * 3_600_000
_TEXT_CHARS_MAX = 4096
_CODE_CHARS_MAX = 64
#: Refusals of a report after which it is no use to repeat it.
_LEASE_ENDED = ("lease_not_live", "lease_gone")
_INTEGER_DIGITS_MAX = 4000


@dataclass(frozen=True)
class Run:
    """Run the function for this job. -> bytes of the report."""

    attempt: Attempt


SlotStep = Union[Exchange, Pause, Run]
SlotFlow = Generator[SlotStep, Any, None]


@dataclass
class Attempt:
    """A job that was leased, with its task and arguments if they could be read."""

    job: RunningJob
    task: BaseTask[Any, Any]
    args: tuple[Any, ...] = ()
    kwargs: Optional[dict[str, Any]] = None
    unreadable: Optional[SerializationError] = None


@dataclass
class Report:
    """How an attempt ended, on its way to the server."""

    job: RunningJob
    verb: str
    body: bytes
    #: Whether it was sent and its answer did not arrive.
    is_repeated: bool = False

    def request(self) -> Request:
        """The request that delivers it."""
        return Request("POST", f"{API}/leases/{self.job._token}/{self.verb}", self.body)


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


class Core:
    """What the slots and the heart of a worker share."""

    def __init__(
        self,
        settings: Settings,
        tasks: Mapping[str, BaseTask[Any, Any]],
        name: str,
        *,
        is_drain: bool,
    ) -> None:
        self.settings = settings
        self.tasks = tasks
        self.counts = Counts()
        self.fatal: Optional[BaseException] = None
        self.is_stopping = False
        self.heart = Heart(settings)
        #: How many slots have ended, and what is called when one does.
        self.slots_ended = 0
        self.on_end: Callable[[], None] = _nothing
        self._is_drain = is_drain
        self._lock = threading.Lock()
        self._is_away = False
        self._is_abandoned = False
        wait_s = 0 if is_drain else WAIT_S
        body = json_bytes({"queues": list(tasks), "wait_s": wait_s, "worker": name})
        self._lease = Request("POST", f"{API}/lease", body)
        self._timeout_s = settings.request_timeout_s + wait_s

    def slot(self) -> SlotFlow:
        """Works until the worker stops, or, in a drain, until no job is ready."""
        reports: list[Report] = []
        backoff = Backoff()
        while not self._is_abandoned:
            is_asking = not self.is_stopping
            requests = [report.request() for report in reports]
            if is_asking:
                requests.append(self._lease)
            if not requests:
                return
            token = self.settings.token.current
            exchanged: Exchanged = yield Exchange(
                tuple(requests), self._timeout_s, is_wait=is_asking
            )
            is_away = self._note_away(exchanged)
            reports, answers = self._settle(reports, exchanged.responses, token)
            attempt = None
            if is_asking and answers:
                is_away = is_away or answers[0].status >= 400
                attempt = self._leased(answers[0], token)
                if attempt is None and self._is_drain and not (is_away or reports):
                    return
            if attempt is not None:
                reports.append((yield Run(attempt)))
            if is_away or (attempt is None and reports):
                yield Pause(backoff.next())
            else:
                backoff.reset()

    def outcome(self, attempt: Attempt, value: Any) -> Report:
        """The report of a task that returned."""
        try:
            content = written(attempt.task.serializer, value, "unwritable_result")
        except SerializationError as error:
            return self.failure(attempt, error)
        body = b"{%s}" % content_fields(*content, "result") if content[1] else b"{}"
        report = Report(attempt.job, "complete", body)
        try:
            check_size(report.request())
        except ApiError as error:
            return self._unwritable(attempt.job, error)
        return report

    def failure(self, attempt: Attempt, error: BaseException) -> Report:
        """The report of a task that raised."""
        job = attempt.job
        if job.cancel_reason == "stopping":
            LOG.warning("job %d of %s is given back: the worker stops", job.id, job.queue)
            return Report(job, "release", b"")
        retry = not isinstance(error, attempt.task.no_retry)
        message = _message(error)
        code = type(error).__name__
        if isinstance(error, Failure):
            code, retry = error.code, error.retry
        elif isinstance(error, SerializationError):
            code, retry = error.code, False
        if not job.is_cancelled:
            LOG.warning("job %d of %s failed: %s: %s", job.id, job.queue, code, message)
        return _failure_report(job, message, _trace(error), code, retry)

    def abandon(self) -> tuple[list[RunningJob], Exchange]:
        """Leaves the slots to themselves: the jobs that they have, and how to give them back."""
        self._is_abandoned = True
        jobs = self.heart.jobs()
        for job in jobs:
            self.heart.remove(job)
        requests = tuple(Report(job, "release", b"").request() for job in jobs)
        return jobs, Exchange(requests, self.settings.request_timeout_s)

    @staticmethod
    def abandoned(jobs: list[RunningJob], exchanged: Exchanged) -> WorkerError:
        """The error of a worker that abandoned jobs."""
        fate = "were given back"
        if exchanged.failure is not None:
            fate = f"come back after their leases ({exchanged.failure})"
        names = ", ".join(f"{job.id} of {job.queue}" for job in jobs)
        return WorkerError(f"some jobs did not end in time and {fate}: {names}")

    def end_slot(self) -> None:
        """A slot has ended."""
        with self._lock:
            self.slots_ended += 1
        self.on_end()

    @staticmethod
    def _unwritable(job: RunningJob, error: ApiError) -> Report:
        """A result that the server does not take."""
        message = f"the server does not take the result: {error}"
        LOG.warning("job %d of %s: %s", job.id, job.queue, message)
        return _failure_report(job, message, "", "unwritable_result", retry=False)

    def fail(self, error: BaseException) -> None:
        """Something that no try can help."""
        with self._lock:
            if self.fatal is None:
                self.fatal = error
        self.is_stopping = True

    def _note_away(self, exchanged: Exchanged) -> bool:
        """Says once that the server is away, and once that it is back. True if it is away."""
        failure = exchanged.failure
        if failure is None:
            if self._is_away:
                LOG.info("the server answers again")
            self._is_away = False
            return False
        if self.is_stopping and failure.maybe_received:
            # The wait was ended by hanging up.
            return True
        with self._lock:
            if not self._is_away:
                LOG.warning("%s; trying again until it answers", failure)
            self._is_away = True
        return True

    def _leased(self, response: Response, token: Optional[str]) -> Optional[Attempt]:
        if response.status == 204:
            return None
        if response.status != 200:
            error = refusal(response)
            is_renewed = response.status == 401 and self.settings.token.reload(token)
            if not (is_passing(error) or is_renewed or response.status >= 500):
                raise WorkerError(f"the server refuses to give jobs: {error}") from error
            LOG.warning("no job now: %s", error)
            return None
        leased, unreadable = _parsed(response.body)
        job = RunningJob(leased)
        task = self.tasks[job.queue]
        attempt = Attempt(job, task, unreadable=unreadable)
        if unreadable is None:
            try:
                attempt.args, attempt.kwargs = task.arguments_of(leased)
            except SerializationError as error:
                attempt.unreadable = error
        self.heart.add(job)
        return attempt

    def _settle(
        self, reports: list[Report], responses: list[Response], token: Optional[str]
    ) -> tuple[list[Report], list[Response]]:
        """What is left to be reported, and the answers to other requests."""
        left: list[Report] = []
        for place, report in enumerate(reports):
            if place >= len(responses):
                report.is_repeated = True
                left.append(report)
                continue
            again = self._settle_one(report, responses[place], token)
            if again is None:
                self.heart.remove(report.job)
            else:
                left.append(again)
        return left, responses[len(reports) :]

    def _settle_one(
        self, report: Report, response: Response, token: Optional[str]
    ) -> Optional[Report]:
        if response.status < 300:
            self._count(report.verb)
            return None
        error = refusal(response)
        job = report.job
        if error.code in _LEASE_ENDED:
            reason = error.problem.get("reason", "gone")
            if report.is_repeated and reason == "finished":
                self._count(report.verb)
                return None
            LOG.warning("job %d of %s is no longer this worker's: %s", job.id, job.queue, reason)
            self._count("lost")
            return None
        is_renewed = response.status == 401 and self.settings.token.reload(token)
        if is_passing(error) or is_renewed or response.status >= 500:
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


class Heart:
    """Extends leases in time. Only jobs that take longer than a beat cost anything."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._jobs: dict[str, RunningJob] = {}
        self._due: list[tuple[float, str]] = []
        #: Called when the heart must look earlier than it thought.
        self.wake: Callable[[], None] = _nothing
        self._looks_at: Optional[float] = None

    def add(self, job: RunningJob) -> None:
        """Keeps the lease of a job from now on."""
        if job._lease_s is None:
            return
        due = time.monotonic() + _interval(job._lease_s)
        with self._lock:
            self._jobs[job._token] = job
            heapq.heappush(self._due, (due, job._token))
            is_early = self._looks_at is None or due < self._looks_at
            if is_early:
                self._looks_at = due
        if is_early:
            self.wake()

    def remove(self, job: RunningJob) -> None:
        """The attempt has ended."""
        with self._lock:
            self._jobs.pop(job._token, None)

    def jobs(self) -> list[RunningJob]:
        """The jobs that the worker has."""
        with self._lock:
            return list(self._jobs.values())

    def rest_s(self) -> Optional[float]:
        """How long the heart may rest now; None until it is woken."""
        with self._lock:
            while self._due and self._due[0][1] not in self._jobs:
                heapq.heappop(self._due)
            now = time.monotonic()
            if self._due:
                self._looks_at = self._due[0][0]
                return max(self._looks_at - now, 0)
            # After work it looks once more, so that a row of short jobs does not wake it each time.
            if self._looks_at is not None and self._looks_at <= now:
                self._looks_at = None
                return None
            return None if self._looks_at is None else self._looks_at - now

    def beat(self) -> tuple[list[RunningJob], Optional[Exchange]]:
        """The jobs whose leases are to be extended now, and the requests for that."""
        now = time.monotonic()
        jobs = []
        with self._lock:
            while self._due and self._due[0][0] <= now:
                job = self._jobs.get(heapq.heappop(self._due)[1])
                if job is not None and not job.is_cancelled:
                    jobs.append(job)
        if not jobs:
            return [], None
        requests = tuple(_extend(job) for job in jobs)
        return jobs, Exchange(requests, self._settings.request_timeout_s)

    def took(self, jobs: list[RunningJob], exchanged: Exchanged) -> None:
        """What came of a beat."""
        for place, job in enumerate(jobs):
            again_s = _interval(job._lease_s or _BEAT_MAX_S)
            if place >= len(exchanged.responses):
                again_s = min(again_s, _BEAT_AGAIN_S)
            elif exchanged.responses[place].status >= 300:
                error = refusal(exchanged.responses[place])
                if error.code in _LEASE_ENDED:
                    reason = str(error.problem.get("reason", "gone"))
                    self._lose(job, reason)
                    continue
                again_s = min(again_s, _BEAT_AGAIN_S)
            with self._lock:
                heapq.heappush(self._due, (time.monotonic() + again_s, job._token))

    def _lose(self, job: RunningJob, reason: str) -> None:
        with self._lock:
            has_job = job._token in self._jobs
        if has_job:
            LOG.warning("job %d of %s must stop: %s", job.id, job.queue, reason)
            job._cancel(reason)


def _nothing() -> None:
    pass


def _interval(lease_s: float) -> float:
    return min(max(lease_s / 3, _BEAT_MIN_S), _BEAT_MAX_S)


def _extend(job: RunningJob) -> Request:
    ttr_ms = min(round((job._lease_s or 0) * 1000), _EXTEND_MS_MAX)
    body = b'{"ttr_ms":%d}' % ttr_ms
    return Request("POST", f"{API}/leases/{job._token}/extend", body)


def _failure_report(job: RunningJob, message: str, error: str, code: str, retry: bool) -> Report:
    fields = {
        "message": _text(message, _TEXT_CHARS_MAX),
        "error": _text(error, _TEXT_CHARS_MAX),
        "code": _text(code, _CODE_CHARS_MAX),
        "retry": retry,
    }
    return Report(job, "fail", json_bytes(fields))


def _message(error: BaseException) -> str:
    """What an exception says of itself, if it can."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - a task's exception must not end the worker
        return f"{type(error).__name__} without a text"


def _text(text: str, chars_max: int) -> str:
    """At most so many characters, each of which can be sent."""
    return text[:chars_max].encode("utf-8", "replace").decode()


def _trace(error: BaseException) -> str:
    """What was raised, in one line, and the end of where.

    The server groups failures by the first line.
    """
    head = "".join(traceback.format_exception_only(type(error), error)).strip()
    if isinstance(error, SerializationError):
        return head
    frames = "".join(traceback.format_tb(error.__traceback__))
    room = max(_TEXT_CHARS_MAX - len(head) - 1, 0)
    return f"{head}\n{frames[-room:]}" if room else head


class _TooLong:
    """Stands for an integer with more digits than Python reads."""


def _parsed(body: bytes) -> tuple[dict[str, Any], Optional[SerializationError]]:
    """A leased job. One whose payload Python cannot read is a job all the same."""
    try:
        return json.loads(body), None
    except ValueError as error:
        unreadable = SerializationError("unreadable_payload", f"{type(error).__name__}: {error}")
    leased = json.loads(body, parse_int=_integer)
    return leased, unreadable


def _integer(digits: str) -> Any:
    return int(digits) if len(digits) < _INTEGER_DIGITS_MAX else _TooLong()


def as_error(error: BaseException, job: RunningJob) -> BaseException:
    """What a task was ended with: asyncio's own word says nothing to people."""
    if job.cancel_reason is not None:
        return JobCancelledError(job.cancel_reason)
    return error
