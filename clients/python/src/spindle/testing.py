"""A server of one's own for tests: in a temporary folder, on a free port.

The ``pytest`` fixtures are in :mod:`spindle.pytest_plugin`.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Optional, Union

from .errors import SpindleError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from typing_extensions import Self

_START_S = 30.0
_STOP_S = 30.0
_OPEN = re.compile(r"spindle \S+: .*http on (\S+?),")
_OTHER_DOORS = ("--workq", "off", "--gearman", "off", "--jobd-master", "off")


class ServerFailedError(SpindleError):
    """The server did not start, or not in time."""


class SpindleServer:
    """A server with its data in a folder. As a context manager it runs inside the block.

    The program is ``program``, else the variable ``SPINDLE_BIN``, else ``spindle`` in the path.
    """

    def __init__(
        self,
        folder: Optional[Union[str, os.PathLike[str]]] = None,
        *,
        program: Optional[str] = None,
        options: Sequence[str] = (),
    ) -> None:
        """Without ``folder`` there is a temporary one, gone after :meth:`close`.

        ``options`` are further ones of ``spindle serve``.
        """
        self._program = program or os.environ.get("SPINDLE_BIN") or shutil.which("spindle")
        self._is_temporary = folder is None
        self.folder = Path(folder or tempfile.mkdtemp(prefix="spindle-"))
        self._options = list(options)
        self._process: Optional[subprocess.Popen[bytes]] = None
        self._address = "127.0.0.1:0"

    @property
    def url(self) -> str:
        """Where it is; the same after a restart."""
        is_tls = "--tls-cert" in self._options
        return f"{'https' if is_tls else 'http'}://{self._address}"

    @property
    def output(self) -> str:
        """What it has logged."""
        return self._log.read_text("utf-8", "replace") if self._log.exists() else ""

    def start(self) -> Self:
        """Starts it, and waits until it takes requests."""
        if self._process is not None:
            raise RuntimeError("the server runs already")
        if self._program is None or not Path(self._program).exists():
            raise ServerFailedError(
                f"there is no server program {self._program or 'spindle'}: name it in SPINDLE_BIN"
            )
        begins_at = len(self.output)
        command = [self._program, "serve", "--http", self._address, *_OTHER_DOORS]
        command += ["--data", str(self.folder / "data"), *self._options]
        environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("SPINDLE_SERVE_")
        }
        self.folder.mkdir(parents=True, exist_ok=True)
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 - the program that the caller names
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment
            )
        self._address = self._await_open(self._process, begins_at)
        return self

    def stop(self) -> None:
        """Stops it in order. :meth:`start` goes on with the same data."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Ends it as a crash does. :meth:`start` goes on with the same data."""
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        """Kills it and starts it again."""
        self.kill()
        self.start()

    def close(self) -> None:
        """Ends it for good; a temporary folder goes."""
        self.kill()
        if self._is_temporary:
            shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def _log(self) -> Path:
        return self.folder / "server.log"

    def _end(self, number: int) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(number)
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _await_open(self, process: subprocess.Popen[bytes], begins_at: int) -> str:
        deadline = time.monotonic() + _START_S
        while True:
            is_running = process.poll() is None
            found = _OPEN.search(self.output[begins_at:])
            if found:
                return found.group(1)
            if not is_running or time.monotonic() > deadline:
                self._end(signal.SIGKILL)
                raise ServerFailedError(f"the server did not start:\n{self.output[begins_at:]}")
            time.sleep(0.01)
