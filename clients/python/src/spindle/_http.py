"""HTTP/1.1 as bytes, without any I/O: requests are written, answers are read as they arrive."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Optional

#: An answer's head longer than this is not from a server of jobs.
HEAD_BYTES_MAX = 64 * 1024
_LINE_BYTES_MAX = 4096


class ProtocolError(Exception):
    """What arrived is no HTTP/1.1 answer."""


@dataclass(frozen=True)
class Request:
    """A request, but for what the connection adds: the host, the token, the path's prefix."""

    method: str
    path: str
    body: bytes = b""
    #: Makes a repeated submit one job.
    idempotency_key: Optional[str] = None

    def encode(self, prefix: str, fixed_headers: str) -> bytes:
        """The bytes of the request. ``fixed_headers`` are whole lines."""
        head = f"{self.method} {prefix}{self.path} HTTP/1.1\r\n{fixed_headers}"
        if self.idempotency_key is not None:
            head += f"Idempotency-Key: {self.idempotency_key}\r\n"
        if self.body:
            head += f"Content-Type: application/json\r\nContent-Length: {len(self.body)}\r\n\r\n"
            return head.encode("ascii") + self.body
        if self.method != "GET":
            head += "Content-Length: 0\r\n"
        return (head + "\r\n").encode("ascii")


@dataclass
class Response:
    """An answer."""

    status: int
    #: The lines of its head after the first, in lower case, each with a line break before it.
    head: str = field(repr=False)
    body: bytes = b""
    #: Whether another request may be sent on the connection.
    keeps_alive: bool = True

    def header(self, name: str) -> Optional[str]:
        """A field of the head in lower case; ``name`` is in lower case too."""
        # Most of what a head says is never asked for, so nothing is taken apart before.
        at = self.head.find(f"\r\n{name}:")
        if at < 0:
            return None
        begin = at + len(name) + 3
        end = self.head.find("\r\n", begin)
        return self.head[begin : end if end >= 0 else None].strip()


class ResponseReader:
    """Makes answers of the bytes of one connection, however they are cut."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._response: Optional[Response] = None
        self._left: Optional[int] = None
        self._chunks: Optional[bytearray] = None

    def feed(self, data: bytes) -> None:
        """More bytes have arrived."""
        self._buffer += data

    @property
    def has_begun(self) -> bool:
        """Whether a part of an answer is here that is not complete."""
        return bool(self._buffer) or self._response is not None

    def next(self) -> Optional[Response]:
        """The next whole answer, or None until more bytes have arrived."""
        while self._response is None:
            if not self._read_head():
                return None
        response = self._response
        if self._chunks is not None:
            if not self._read_chunks(self._chunks):
                return None
            response.body = bytes(self._chunks)
        elif self._left is not None:
            if len(self._buffer) < self._left:
                return None
            response.body = bytes(self._buffer[: self._left])
            del self._buffer[: self._left]
        else:
            return None
        self._reset()
        return response

    def end(self) -> Optional[Response]:
        """The connection has ended: an answer without a length ends with it."""
        response = self._response
        if response is None or self._left is not None or self._chunks is not None:
            return None
        response.body = bytes(self._buffer)
        self._buffer.clear()
        self._reset()
        return response

    def _reset(self) -> None:
        self._response = self._left = self._chunks = None

    def _read_head(self) -> bool:
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            if len(self._buffer) > HEAD_BYTES_MAX:
                raise ProtocolError("the answer's head is too long")
            return False
        text = self._buffer[:end].decode("latin-1")
        del self._buffer[: end + 4]
        first, line_break, head = text.partition("\r\n")
        version, _, rest = first.partition(" ")
        if version not in ("HTTP/1.1", "HTTP/1.0") or not rest[:3].isdigit():
            raise ProtocolError(f"this is no HTTP answer: {first[:80]!r}")
        status = int(rest[:3])
        if status < 200:
            return True
        response = Response(status, line_break + head.lower())
        connection = response.header("connection") or ""
        response.keeps_alive = "close" not in connection and version == "HTTP/1.1"
        self._response = response
        self._expect_body(response)
        return True

    def _expect_body(self, response: Response) -> None:
        length = response.header("content-length")
        coding = response.header("transfer-encoding")
        if response.status in (204, 304):
            self._left = 0
        elif coding is not None:
            if coding != "chunked":
                raise ProtocolError("the answer is in a coding that was not asked for")
            self._chunks = bytearray()
        elif length is not None:
            if not length.isdigit():
                raise ProtocolError(f"the answer's length is no number: {length[:20]!r}")
            self._left = int(length)
        else:
            response.keeps_alive = False

    def _read_chunks(self, body: bytearray) -> bool:
        """Moves whole chunks into the body; true when the last one was there."""
        while True:
            end = self._buffer.find(b"\r\n")
            if end < 0:
                if len(self._buffer) > _LINE_BYTES_MAX:
                    raise ProtocolError("the line before a chunk is too long")
                return False
            digits = bytes(self._buffer[:end]).partition(b";")[0].strip()
            try:
                size = int(digits, 16)
            except ValueError:
                raise ProtocolError(f"the size of a chunk is no number: {digits[:20]!r}") from None
            if size == 0:
                return self._read_trailer(end)
            whole = end + 2 + size + 2
            if len(self._buffer) < whole:
                return False
            body += self._buffer[end + 2 : end + 2 + size]
            del self._buffer[:whole]

    def _read_trailer(self, end: int) -> bool:
        """Drops what follows the last chunk: its line, fields nobody asked for, an empty line."""
        trailer_end = self._buffer.find(b"\r\n\r\n", end)
        if trailer_end < 0:
            if len(self._buffer) > HEAD_BYTES_MAX:
                raise ProtocolError("the answer's trailer is too long")
            return False
        del self._buffer[: trailer_end + 4]
        return True
