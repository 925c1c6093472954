"""Takes the steps of flows with blocking sockets."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import threading
import time
import weakref
from typing import TYPE_CHECKING, Optional

from ._flow import Exchange, Exchanged, Flow, T
from ._http import ProtocolError, ResponseReader
from .errors import ConnectionFailedError

if TYPE_CHECKING:
    from ._http import Response
    from ._settings import Settings

_READ_BYTES = 64 * 1024
_CONNECT_TIMEOUT_S = 10.0
#: A connection that rested longer is looked at before it is used: servers close idle ones.
_LOOK_AFTER_S = 1.0
#: How long an answer that was on its way when a wait was ended may take.
_LAST_ANSWER_S = 5.0


class Line:
    """A connection to the server that is opened when it is needed, for one thread at a time."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._socket: Optional[socket.socket] = None
        self._reader = ResponseReader()
        self._used_at = 0.0
        self._lock = threading.Lock()
        self._is_waiting = False
        self._is_hung_up = False

    def exchange(self, step: Exchange) -> Exchanged:
        """Sends requests and reads their answers. The last one of a wait can be hung up."""
        requests = step.requests
        exchanged = Exchanged()
        deadline = time.monotonic() + step.timeout_s
        is_sent = False
        try:
            sock = self._open(deadline)
            headers = self._settings.fixed_headers()
            prefix = self._settings.prefix
            data = b"".join([request.encode(prefix, headers) for request in requests])
            is_sent = True
            sock.settimeout(max(deadline - time.monotonic(), 0.001))
            sock.sendall(data)
            for number in range(1, len(requests) + 1):
                if step.is_wait and number == len(requests):
                    self._begin_wait()
                response = self._read(sock, deadline)
                exchanged.responses.append(response)
                if not response.keeps_alive:
                    self.close()
                    break
        except (OSError, ProtocolError) as error:
            self.close()
            exchanged.failure = _failure(self._settings, error, is_sent)
        except BaseException:
            # Such as a KeyboardInterrupt: who reads next must not get this answer.
            self.close()
            raise
        finally:
            if step.is_wait:
                self._end_wait()
        if len(exchanged.responses) < len(requests) and exchanged.failure is None:
            exchanged.failure = _failure(self._settings, ProtocolError("it closed early"), True)
        self._used_at = time.monotonic()
        return exchanged

    def hang_up(self) -> None:
        """From another thread: ends the wait on this line. A job that is on its way arrives."""
        with self._lock:
            self._is_hung_up = True
            if self._is_waiting:
                self._say_no_more()

    def close(self) -> None:
        """Closes the connection; the next exchange opens another."""
        sock, self._socket = self._socket, None
        self._reader = ResponseReader()
        if sock is not None:
            with contextlib.suppress(OSError):
                sock.close()

    def abandon(self) -> None:
        """Closes the descriptor alone: after a fork the connection is the parent's."""
        sock, self._socket = self._socket, None
        if sock is not None:
            os.close(sock.detach())

    def _begin_wait(self) -> None:
        with self._lock:
            self._is_waiting = True
            if self._is_hung_up:
                self._say_no_more()

    def _end_wait(self) -> None:
        with self._lock:
            self._is_waiting = False
            if self._is_hung_up:
                self._is_hung_up = False
                self.close()

    def _say_no_more(self) -> None:
        # Of the socket itself, also under TLS: what the server has sent can still be read then.
        if self._socket is not None:
            with contextlib.suppress(OSError):
                socket.socket.shutdown(self._socket, socket.SHUT_WR)

    def _open(self, deadline: float) -> socket.socket:
        is_rested = time.monotonic() - self._used_at > _LOOK_AFTER_S
        if self._socket is not None and is_rested and _has_news(self._socket):
            self.close()
        if self._socket is None:
            settings = self._settings
            timeout = max(min(deadline - time.monotonic(), _CONNECT_TIMEOUT_S), 0.001)
            sock = socket.create_connection((settings.host, settings.port), timeout)
            try:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                if settings.tls is not None:
                    sock = settings.tls.wrap_socket(sock, server_hostname=settings.host)
            except BaseException:
                sock.close()
                raise
            self._socket = sock
        return self._socket

    def _read(self, sock: socket.socket, deadline: float) -> Response:
        reader = self._reader
        while True:
            response = reader.next()
            if response is not None:
                return response
            limit = deadline
            if self._is_hung_up:
                limit = min(deadline, time.monotonic() + _LAST_ANSWER_S)
            left = limit - time.monotonic()
            if left <= 0:
                raise socket.timeout("it did not answer in time")
            sock.settimeout(left)
            data = sock.recv(_READ_BYTES)
            if data:
                reader.feed(data)
                continue
            response = reader.end()
            if response is None:
                raise ProtocolError("the server closed the connection")
            return response


def _has_news(sock: socket.socket) -> bool:
    """Whether an idle connection was closed by the server, or speaks unasked."""
    if hasattr(select, "poll"):
        poll = select.poll()
        poll.register(sock, select.POLLIN)
        return bool(poll.poll(0))
    return bool(select.select([sock], [], [], 0)[0])


def _failure(settings: Settings, error: Exception, is_sent: bool) -> ConnectionFailedError:
    message = f"{settings.url}: {str(error) or type(error).__name__}"
    failure = ConnectionFailedError(message, maybe_received=is_sent)
    failure.__cause__ = error
    return failure


class Pool:
    """The connections of a client, for all its threads and for the processes it forks into."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._idle: list[Line] = []
        _POOLS.add(self)

    def run(self, flow: Flow[T]) -> T:
        """Takes the steps of a flow, in this thread."""
        answer: Optional[Exchanged] = None
        try:
            while True:
                step = flow.send(answer)
                if isinstance(step, Exchange):
                    answer = self._exchange(step)
                else:
                    answer = None
                    time.sleep(step.seconds)
        except StopIteration as end:
            value: T = end.value
            return value
        finally:
            flow.close()

    def close(self) -> None:
        """Closes the connections that nobody uses."""
        with self._lock:
            lines, self._idle = self._idle, []
        for line in lines:
            line.close()

    def _exchange(self, step: Exchange) -> Exchanged:
        with self._lock:
            line = self._idle.pop() if self._idle else Line(self._settings)
        try:
            return line.exchange(step)
        finally:
            with self._lock:
                self._idle.append(line)

    def _after_fork(self) -> None:
        lines, self._idle = self._idle, []
        self._lock = threading.Lock()
        for line in lines:
            line.abandon()


_POOLS: weakref.WeakSet[Pool] = weakref.WeakSet()


def _after_fork() -> None:
    for pool in list(_POOLS):
        pool._after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
