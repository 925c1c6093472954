"""Answers as bytes, however they are cut."""

from __future__ import annotations

import pytest

from spindle._http import ProtocolError, Request, Response, ResponseReader

PLAIN = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-Odd:\r\n\r\nhello"
EMPTY = b"HTTP/1.1 204 No Content\r\n\r\n"
CHUNKED = (
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"3;x=y\r\nhel\r\n2\r\nlo\r\n0\r\nTrailer: x\r\n\r\n"
)
INTERIM = b"HTTP/1.1 100 Continue\r\n\r\n" + PLAIN


def bodies(pieces: list[bytes]) -> list[tuple[int, bytes]]:
    reader = ResponseReader()
    found: list[Response] = []
    for piece in pieces:
        reader.feed(piece)
        while (response := reader.next()) is not None:
            found.append(response)
    assert not reader.has_begun
    return [(response.status, response.body) for response in found]


def test_answers_are_the_same_wherever_the_bytes_are_cut() -> None:
    data = PLAIN + EMPTY + CHUNKED + INTERIM
    expected = [(200, b"hello"), (204, b""), (200, b"hello"), (200, b"hello")]
    assert bodies([data[at : at + 1] for at in range(len(data))]) == expected
    for cut in range(len(data)):
        assert bodies([data[:cut], data[cut:]]) == expected


def test_an_answer_without_a_length_ends_with_the_connection() -> None:
    reader = ResponseReader()
    reader.feed(b"HTTP/1.1 200 OK\r\n\r\nhel")
    assert reader.next() is None
    reader.feed(b"lo")
    assert reader.next() is None
    response = reader.end()
    assert response is not None
    assert (response.body, response.keeps_alive) == (b"hello", False)


@pytest.mark.parametrize("cut", [PLAIN[:-1], CHUNKED[:-3], b"HTTP/1.1 200 OK\r\n", b""])
def test_an_answer_that_breaks_off_is_none(cut: bytes) -> None:
    reader = ResponseReader()
    reader.feed(cut)
    assert reader.next() is None
    assert reader.end() is None


@pytest.mark.parametrize(
    "garbage",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
        b"HTTP/1.1 2x0 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1" * 5000,
        b"x" * (64 * 1024 + 1),
    ],
)
def test_what_is_no_answer_is_refused(garbage: bytes) -> None:
    reader = ResponseReader()
    reader.feed(garbage)
    with pytest.raises(ProtocolError):
        reader.next()


def test_fields_of_a_head_are_found_by_their_names() -> None:
    reader = ResponseReader()
    reader.feed(
        b"HTTP/1.1 429 Slow\r\nX-Retry-After: 9\r\nRETRY-AFTER:7\r\nContent-Length: 0\r\n\r\n"
    )
    response = reader.next()
    assert response is not None
    found = [response.header(name) for name in ("retry-after", "content-length", "after", "")]
    assert found == ["7", "0", None, None]


def test_a_request_names_what_it_brings() -> None:
    with_body = Request("POST", "/jobs", b"{}", "key").encode("/x", "Host: h\r\n")
    assert with_body == (
        b"POST /x/jobs HTTP/1.1\r\nHost: h\r\nIdempotency-Key: key\r\n"
        b"Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
    )
    assert Request("GET", "/a").encode("", "Host: h\r\n") == b"GET /a HTTP/1.1\r\nHost: h\r\n\r\n"
    assert b"Content-Length: 0\r\n" in Request("POST", "/a").encode("", "Host: h\r\n")
