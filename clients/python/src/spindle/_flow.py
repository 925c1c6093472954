"""What a client does, apart from how it is done.

An operation is a generator that yields steps and gets what came of them. :mod:`spindle._threads`
takes the steps with blocking sockets, :mod:`spindle._asyncio` with asyncio. So what is retried,
and when, is written once.
"""

from __future__ import annotations

import random
import time
from collections.abc import Collection, Generator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Optional, TypeVar, Union

from ._http import Request, Response
from .errors import ApiError, ConnectionFailedError, UnavailableError, api_error_of, refusal

if TYPE_CHECKING:
    from ._settings import Settings

T = TypeVar("T")

#: The longest body that the server takes. A longer one is not even sent: the server would refuse it
#: and close the connection while it is still being written, and that refusal may get lost.
BODY_BYTES_MAX = 16 * 1024 * 1024
_FIRST_PAUSE_S = 0.05
_PAUSE_MAX_S = 2.0
#: Refusals that pass, and that leave nothing done.
_PASSING_CODES = frozenset({"busy", "overloaded", "stopping", "too_fast", "too_many"})


@dataclass(frozen=True)
class Exchange:
    """Send these requests at once on one connection, and read their answers. -> Exchanged."""

    requests: tuple[Request, ...]
    #: How long the answers may take, in seconds.
    timeout_s: float
    #: Whether the last request waits for a job, and can be hung up.
    is_wait: bool = False


@dataclass(frozen=True)
class Pause:
    """Wait so long. -> None."""

    seconds: float


@dataclass(frozen=True)
class Rest:
    """Wait until somebody wakes the flow. -> None."""


@dataclass
class Exchanged:
    """What came of an exchange."""

    #: The answers, in the order of the requests; fewer than those if there was a failure.
    responses: list[Response] = field(default_factory=list)
    failure: Optional[ConnectionFailedError] = None


Step = Union[Exchange, Pause]
Flow = Generator[Step, Any, T]


class Backoff:
    """Growing pauses between tries, each shortened by chance so that clients do not march."""

    def __init__(self, first_s: float = _FIRST_PAUSE_S, max_s: float = _PAUSE_MAX_S) -> None:
        self._first_s = first_s
        self._max_s = max_s
        self._next_s = first_s

    def next(self) -> float:
        """The next pause, in seconds."""
        pause = self._next_s
        self._next_s = min(pause * 2, self._max_s)
        return pause * random.uniform(0.5, 1.0)  # noqa: S311 - chance, not secrecy

    def reset(self) -> None:
        """It went well: the next pause is the first again."""
        self._next_s = self._first_s


def is_passing(error: ApiError) -> bool:
    """Whether a refusal passes by itself and left nothing done."""
    return isinstance(error, UnavailableError) and error.code in _PASSING_CODES


def check_size(request: Request) -> None:
    """Raises a TooLargeError for a request that the server does not take."""
    size = len(request.body)
    if size > BODY_BYTES_MAX:
        detail = f"the request has {size} bytes, and the server takes {BODY_BYTES_MAX}"
        raise api_error_of(413, {"code": "too_large", "detail": detail})


def call(
    settings: Settings,
    request: Request,
    *,
    timeout_s: Optional[float] = None,
    deadline: Optional[float] = None,
    is_safe: bool = True,
    retry_for_s: Optional[float] = None,
    done_codes: Collection[str] = (),
) -> Flow[Response]:
    """Sends a request and repeats it while the server is away or busy.

    A request that may have been received is repeated only if that is safe. After that a refusal
    with one of ``done_codes`` means that the first one did what was asked. With a ``deadline`` (of
    the monotonic clock) it is repeated until then, and not only for ``retry_for_s``, which is the
    client's unless given; with 0 it is sent once.
    """
    check_size(request)
    give_up = _give_up_at(settings, retry_for_s) if deadline is None else deadline
    backoff = Backoff()
    was_lost = was_reloaded = False
    while True:
        token = settings.token.current
        timeout = settings.request_timeout_s if timeout_s is None else timeout_s
        if deadline is not None:
            timeout = min(timeout, max(deadline - time.monotonic(), 0.001))
        exchanged: Exchanged = yield Exchange((request,), timeout)
        pause = backoff.next()
        error: Union[ApiError, ConnectionFailedError]
        if exchanged.failure is not None:
            error = exchanged.failure
            if exchanged.failure.maybe_received and not is_safe:
                raise error
            was_lost = was_lost or exchanged.failure.maybe_received
        else:
            response = exchanged.responses[0]
            if response.status < 300:
                return response
            error = refusal(response)
            if was_lost and error.code in done_codes:
                return response
            if response.status == 401 and not was_reloaded and settings.token.reload(token):
                was_reloaded = True
                continue
            if not (is_passing(error) or (is_safe and _is_of_proxy(error))):
                raise error
            pause = max(pause, error.retry_after or 0)
        if time.monotonic() + pause >= give_up:
            raise error
        yield Pause(pause)


def _give_up_at(settings: Settings, retry_for_s: Optional[float]) -> float:
    return time.monotonic() + (settings.retry_for_s if retry_for_s is None else retry_for_s)


def _is_of_proxy(error: ApiError) -> bool:
    """Whether a proxy did not reach the server, or not in time: it may have got the request."""
    return error.status in (502, 503, 504) and error.code.startswith("http_")
