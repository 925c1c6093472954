"""Takes the steps of flows with asyncio."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import TYPE_CHECKING, Optional

from ._flow import Exchange, Exchanged, Flow, T
from ._http import ProtocolError, ResponseReader
from ._threads import _CONNECT_TIMEOUT_S, _LAST_ANSWER_S, _READ_BYTES, _failure

if TYPE_CHECKING:
    from ._http import Response
    from ._settings import Settings


class AsyncLine:
    """A connection to the server that is opened when it is needed, for one task at a time."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._streams: Optional[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = None
        self._reader = ResponseReader()
        self._is_waiting = False
        self._is_hung_up = False
        self._is_late = False

    async def exchange(self, step: Exchange) -> Exchanged:
        """Sends requests and reads their answers. The last one of a wait can be hung up."""
        requests = step.requests
        exchanged = Exchanged()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + step.timeout_s
        is_sent = False
        timer: Optional[asyncio.TimerHandle] = None
        try:
            reader, writer = await self._open(step.timeout_s)
            self._is_late = False
            timer = loop.call_at(deadline, self._time_out)
            headers = self._settings.fixed_headers()
            prefix = self._settings.prefix
            data = b"".join([request.encode(prefix, headers) for request in requests])
            is_sent = True
            writer.write(data)
            await writer.drain()
            for number in range(1, len(requests) + 1):
                if step.is_wait and number == len(requests):
                    self._begin_wait()
                response = await self._read(reader)
                exchanged.responses.append(response)
                if not response.keeps_alive:
                    self.close()
                    break
        except (OSError, ProtocolError, asyncio.TimeoutError) as error:
            self.close()
            cause: Exception = error
            if self._is_late or isinstance(error, asyncio.TimeoutError):
                cause = socket.timeout("it did not answer in time")
            exchanged.failure = _failure(self._settings, cause, is_sent)
        except BaseException:
            # Such as a cancelled task: who reads next must not get this answer.
            self.close()
            raise
        finally:
            if timer is not None:
                timer.cancel()
            if step.is_wait:
                self._end_wait()
        if len(exchanged.responses) < len(requests) and exchanged.failure is None:
            exchanged.failure = _failure(self._settings, ProtocolError("it closed early"), True)
        return exchanged

    def hang_up(self) -> None:
        """Ends the wait on this line. A job that is on its way arrives."""
        self._is_hung_up = True
        if self._is_waiting:
            self._say_no_more()

    def close(self) -> None:
        """Closes the connection; the next exchange opens another."""
        streams, self._streams = self._streams, None
        self._reader = ResponseReader()
        if streams is not None:
            # Nothing is on its way: no farewell under TLS that the loop's end would cut off.
            with contextlib.suppress(RuntimeError):  # the loop may be closed already
                streams[1].transport.abort()

    async def aclose(self) -> None:
        """Closes the connection, and waits until it is closed."""
        streams = self._streams
        self.close()
        if streams is not None:
            with contextlib.suppress(OSError):
                await streams[1].wait_closed()

    def _begin_wait(self) -> None:
        self._is_waiting = True
        if self._is_hung_up:
            self._say_no_more()

    def _end_wait(self) -> None:
        self._is_waiting = False
        if self._is_hung_up:
            self._is_hung_up = False
            self.close()

    def _say_no_more(self) -> None:
        if self._streams is None:
            return
        # Of the socket itself, also under TLS: what the server has sent can still be read then.
        sock = self._streams[1].get_extra_info("socket")
        with contextlib.suppress(OSError):
            sock.shutdown(socket.SHUT_WR)
        asyncio.get_running_loop().call_later(_LAST_ANSWER_S, self._time_out_of, self._streams)

    def _time_out(self) -> None:
        self._is_late = True
        if self._streams is not None:
            self._streams[1].transport.abort()

    def _time_out_of(self, streams: tuple[asyncio.StreamReader, asyncio.StreamWriter]) -> None:
        if self._streams is streams:
            self._time_out()

    async def _open(self, timeout_s: float) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._streams is not None:
            reader, writer = self._streams
            if reader.at_eof() or writer.is_closing():
                self.close()
        if self._streams is None:
            settings = self._settings
            opening = asyncio.open_connection(
                settings.host, settings.port, ssl=settings.tls, limit=4 * _READ_BYTES
            )
            self._streams = await asyncio.wait_for(opening, min(timeout_s, _CONNECT_TIMEOUT_S))
            sock = self._streams[1].get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        return self._streams

    async def _read(self, stream: asyncio.StreamReader) -> Response:
        while True:
            response = self._reader.next()
            if response is not None:
                return response
            data = await stream.read(_READ_BYTES)
            if data:
                self._reader.feed(data)
                continue
            response = None if self._is_late else self._reader.end()
            if response is None:
                raise ProtocolError("the server closed the connection")
            return response


class AsyncPool:
    """The connections of a client in one event loop."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._idle: list[AsyncLine] = []

    async def run(self, flow: Flow[T]) -> T:
        """Takes the steps of a flow, in this task."""
        answer: Optional[Exchanged] = None
        try:
            while True:
                step = flow.send(answer)
                if isinstance(step, Exchange):
                    answer = await self._exchange(step)
                else:
                    answer = None
                    await asyncio.sleep(step.seconds)
        except StopIteration as end:
            value: T = end.value
            return value
        finally:
            flow.close()

    async def aclose(self) -> None:
        """Closes the connections that nobody uses."""
        lines, self._idle = self._idle, []
        for line in lines:
            await line.aclose()

    async def _exchange(self, step: Exchange) -> Exchanged:
        line = self._idle.pop() if self._idle else AsyncLine(self._settings)
        try:
            return await line.exchange(step)
        finally:
            self._idle.append(line)
