"""Several processes of a worker, and the one that watches over them."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

from ._flow import Backoff
from ._worker_base import SIGNALS

if TYPE_CHECKING:
    from collections.abc import Sequence

LOG = logging.getLogger("spindle.worker")
#: Exit codes after which another process would end in the same way.
_FINAL = (0, 1, 2, 5)
_LOOK_S = 0.2


class Processes:
    """Starts processes that run the same command, passes signals on, replaces what crashed."""

    def __init__(self, arguments: Sequence[str], count: int) -> None:
        self._command = [sys.executable, "-m", "spindle", *arguments, "--processes", "1"]
        self._count = count
        self._signals: list[int] = []

    def run(self) -> int:
        """Until all have ended; the highest of their exit codes."""
        # When this process is gone, whatever killed it, the others read the end of the pipe.
        theirs, ours = os.pipe()
        command = [*self._command, "--parent-pipe", str(theirs)]
        before = [(number, signal.signal(number, self._note)) for number in SIGNALS]
        try:
            return self._watch(command, theirs)
        finally:
            for number, handler in before:
                signal.signal(number, handler)
            os.close(ours)
            os.close(theirs)

    def _watch(self, command: list[str], pipe: int) -> int:
        backoff = Backoff(0.5, 30)
        running = [_start(command, pipe) for _ in range(self._count)]
        code = passed_on = 0
        while running:
            for process in list(running):
                if process.poll() is None:
                    continue
                running.remove(process)
                if process.returncode in _FINAL or self._signals:
                    code = max(code, process.returncode, 1 if process.returncode < 0 else 0)
                    if process.returncode in (1, 2) and not self._signals:
                        self._signals.append(signal.SIGTERM)
                    continue
                LOG.error(
                    "process %d ended with %d: starting another", process.pid, process.returncode
                )
                time.sleep(backoff.next())
                running.append(_start(command, pipe))
            for number in self._signals[passed_on:]:
                for process in running:
                    process.send_signal(number)
            passed_on = len(self._signals)
            if running:
                _wait(running[0])
        return code

    def _note(self, number: int, _frame: Any) -> None:
        self._signals.append(number)


def _start(command: list[str], pipe: int) -> subprocess.Popen[bytes]:
    # A session of its own: a terminal's Ctrl-C reaches it through this process, and once.
    return subprocess.Popen(command, pass_fds=[pipe], start_new_session=True)  # noqa: S603


def _wait(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(_LOOK_S)
    except subprocess.TimeoutExpired:
        return
