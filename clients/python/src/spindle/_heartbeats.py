"""Heartbeats: the leases of jobs that take long are extended in time."""

from __future__ import annotations

import heapq
import logging
import threading
import time
from typing import TYPE_CHECKING, Callable, Optional

from ._flow import Exchange, Exchanged
from ._http import Request
from ._operations import API, LEASE_ENDED
from .errors import refusal

if TYPE_CHECKING:
    from ._settings import Settings
    from .running import RunningJob

LOG = logging.getLogger("spindle.worker")

_BEAT_MAX_S = 5.0
_BEAT_MIN_S = 0.02
#: A heartbeat that failed is tried again after this.
_BEAT_AGAIN_S = 1.0
#: The longest that a server extends a lease.
_EXTEND_MS_MAX = 31 * 24 * 3_600_000


class Heartbeats:
    """Extends leases in time. Only jobs that take longer than a beat cost anything."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._jobs: dict[str, RunningJob] = {}
        self._due: list[tuple[float, str]] = []
        #: Called when a heartbeat is due before the time that :meth:`rest_s` gave.
        self.wake: Callable[[], None] = nothing
        #: When :meth:`rest_s` is asked again without a call of :attr:`wake`.
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
        """How long there is nothing to do; None: until :attr:`wake` is called."""
        with self._lock:
            while self._due and self._due[0][1] not in self._jobs:
                heapq.heappop(self._due)
            now = time.monotonic()
            if self._due:
                self._looks_at = self._due[0][0]
                return max(self._looks_at - now, 0)
            # No job is left. The time that was set stays: a job that comes before it is due later,
            # and needs no call of `wake`.
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
                if error.code in LEASE_ENDED:
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


def nothing(*_: object) -> None:
    """Stands for a callback that nobody has given yet."""


def _interval(lease_s: float) -> float:
    return min(max(lease_s / 3, _BEAT_MIN_S), _BEAT_MAX_S)


def _extend(job: RunningJob) -> Request:
    ttr_ms = min(round((job._lease_s or 0) * 1000), _EXTEND_MS_MAX)
    body = b'{"ttr_ms":%d}' % ttr_ms
    return Request("POST", f"{API}/leases/{job._token}/extend", body)
