"""A server for the tests: SPINDLE_BIN, or the workspace's debug build. Without it they fail."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Callable, Optional, Union

import pytest

from spindle import AsyncWorker, Counts, Spindle, Worker
from spindle.testing import SpindleServer

WORKSPACE = Path(__file__).resolve().parents[3]
DEADLINE_S = 30.0

os.environ.setdefault("SPINDLE_BIN", str(WORKSPACE / "target/debug/spindle"))


def until(condition: Callable[[], object], what: str = "the condition") -> None:
    """Waits for a condition, with a deadline."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not come true"
        time.sleep(0.01)


@pytest.fixture
def app(spindle_server: SpindleServer) -> Iterator[Spindle]:
    """An app whose server is of this test alone."""
    with Spindle(spindle_server.url, retry_for=60) as app:
        yield app


@pytest.fixture(autouse=True)
def _log_level(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="spindle")


@pytest.fixture(autouse=True)
def _no_threads_left() -> Iterator[None]:
    """No test leaves a thread behind."""
    before = set(threading.enumerate())
    yield
    until(lambda: set(threading.enumerate()) <= before, "the end of all threads")


class Background:
    """A worker of either kind that runs in a thread of its own until the test's end."""

    def __init__(self, pool: str) -> None:
        self.pool = pool
        self.counts: Optional[Counts] = None
        self.error: Optional[BaseException] = None
        self._worker: Union[Worker, AsyncWorker, None] = None
        self._thread: Optional[threading.Thread] = None

    def start(self, app: Spindle, **arguments: Any) -> None:
        """Starts it."""
        arguments.setdefault("concurrency", 2)
        self._thread = threading.Thread(target=self._run, args=(app, arguments))
        self._thread.start()

    def drain(self, app: Spindle, **arguments: Any) -> Counts:
        """Works until no job is ready."""
        arguments.setdefault("concurrency", 2)
        if self.pool == "threads":
            return app.worker(**arguments).drain()

        async def drain() -> Counts:
            return await app.async_worker(**arguments).drain()

        return asyncio.run(drain())

    def stop(self) -> None:
        """Tells it to stop."""
        until(lambda: self._worker is not None or self.error, "a worker")
        if self._worker is not None:
            self._worker.stop()

    def join(self) -> Optional[Counts]:
        """Waits for its end."""
        if self._thread is not None:
            self._thread.join(DEADLINE_S)
            assert not self._thread.is_alive(), "the worker does not end"
        return self.counts

    def _run(self, app: Spindle, arguments: dict[str, Any]) -> None:
        try:
            if self.pool == "threads":
                self._worker = app.worker(**arguments)
                self.counts = self._worker.run()
            else:
                self.counts = asyncio.run(self._run_asyncio(app, arguments))
        except BaseException as error:
            self.error = error

    async def _run_asyncio(self, app: Spindle, arguments: dict[str, Any]) -> Counts:
        worker = app.async_worker(**arguments)
        self._worker = worker
        return await worker.run()


@pytest.fixture(params=["threads", "asyncio"])
def worker(request: pytest.FixtureRequest) -> Iterator[Background]:
    """A worker of each kind, stopped at the end."""
    background = Background(request.param)
    yield background
    if background._thread is not None and background._thread.is_alive():
        background.stop()
        background.join()


class Cutter:
    """A proxy before the server that can lose answers: the request has come through by then.

    It can also lose requests, hold them back, and do something meanwhile, such as kill the server.
    """

    def __init__(self, server: SpindleServer) -> None:
        self._server = server
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        #: How many answers are to be lost, and which requests they are of.
        self.lose = 0
        self.path = b""
        self.lost = 0
        #: Whether the requests are lost instead: the server does not see them.
        self.is_before = False
        #: Called when something is lost.
        self.meanwhile: Callable[[], None] = lambda: None
        #: The paths that were asked for, in their order.
        self.asked: list[str] = []
        #: Requests with this in them come through once it is set.
        self.hold = b""
        self.let_go = threading.Event()
        self._start(self._accept)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def close(self) -> None:
        self.let_go.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for sock in self._sockets:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(DEADLINE_S)
        for sock in self._sockets:
            sock.close()

    def _start(self, target: Callable[..., None], *args: Any) -> None:
        thread = threading.Thread(target=target, args=args)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            host, port = self._server._address.rsplit(":", 1)
            try:
                upstream = socket.create_connection((host, int(port)))
            except OSError:
                # While the server is away, so is the proxy.
                client.close()
                continue
            self._sockets += [client, upstream]
            asked: list[bytes] = []
            self._start(self._pump, client, upstream, asked, False)
            self._start(self._pump, upstream, client, asked, True)

    def _pump(
        self, source: socket.socket, target: socket.socket, asked: list[bytes], is_answer: bool
    ) -> None:
        with contextlib.suppress(OSError):
            while True:
                data = source.recv(65536)
                if not data:
                    break
                if not is_answer:
                    asked.append(data)
                    self.asked += re.findall(r"[A-Z]+ (/\S+) HTTP/1.1\r", data.decode("latin-1"))
                    if self.is_before and self._loses(data):
                        break
                    if self.hold and self.hold in data:
                        self.let_go.wait(DEADLINE_S)
                elif not self.is_before and self._loses(b"".join(asked)):
                    break
                else:
                    asked.clear()
                target.sendall(data)
        for sock in (source, target):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def _loses(self, asked: bytes) -> bool:
        if self.lose == 0 or self.path not in asked:
            return False
        self.lose -= 1
        self.meanwhile()
        self.lost += 1
        return True


@pytest.fixture
def cutter(spindle_server: SpindleServer) -> Iterator[Cutter]:
    """A proxy that loses answers."""
    cutter = Cutter(spindle_server)
    yield cutter
    cutter.close()
