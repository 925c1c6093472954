"""What the worker with threads and the worker for asyncio share, beside the core."""

from __future__ import annotations

import os
import signal
import socket
from typing import TYPE_CHECKING, Optional

from ._core import LOG, Core, Counts

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .client import Spindle

DEFAULT_STOP_TIMEOUT_S = 30.0
#: How long tasks that were told to stop have for it.
GRACE_S = 1.0
#: What stops a worker.
SIGNALS = (signal.SIGINT, signal.SIGTERM)


class WorkerBase:
    """The settings of a worker, and what it logs."""

    def __init__(
        self,
        app: Spindle,
        queues: Optional[Iterable[str]],
        concurrency: int,
        stop_timeout: Optional[float],
        name: Optional[str],
    ) -> None:
        if concurrency < 1:
            raise ValueError("the concurrency of a worker is at least 1")
        self.app = app
        self.concurrency = concurrency
        self.stop_timeout = stop_timeout
        #: What people see in the server's list of workers.
        self.name = (name or f"{socket.gethostname()}-{os.getpid()}")[:256]
        self._tasks = app.tasks.chosen(queues)

    def _core(self, *, is_drain: bool) -> Core:
        return Core(
            self.app.settings,
            self._tasks,
            self.name,
            concurrency=self.concurrency,
            is_drain=is_drain,
        )

    def _log_start(self) -> None:
        LOG.info("worker %s: %s", self.name, ", ".join(self._tasks))

    def _log_stop(self, core: Core) -> None:
        running = len(core.heartbeats.jobs())
        if running:
            LOG.info("worker %s stops: waiting for %d running", self.name, running)

    def _ended(self, core: Core) -> Counts:
        """What became of its jobs. Raises what has ended the worker, if that is an error."""
        LOG.info("worker %s ends: %s", self.name, core.counts)
        if core.fatal is not None:
            raise core.fatal
        return core.counts
