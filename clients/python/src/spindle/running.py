"""The job that a task runs for."""

from __future__ import annotations

import threading
import time
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Callable, Optional

from .errors import JobCancelledError

if TYPE_CHECKING:
    from collections.abc import Mapping

_CURRENT: ContextVar[RunningJob] = ContextVar("spindle_job")


def current_job() -> RunningJob:
    """The job that the calling task runs for. Raises a LookupError outside of one."""
    try:
        return _CURRENT.get()
    except LookupError:
        raise LookupError("no task of a worker runs here") from None


class RunningJob:
    """A job that a worker has. Its lease is extended as long as its task runs."""

    def __init__(self, leased: Mapping[str, Any]) -> None:
        self.id: int = leased["id"]
        self.queue: str = leased["queue"]
        #: Which attempt this is, from 1.
        self.attempt: int = leased["attempt"]
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
