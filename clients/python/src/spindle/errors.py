"""What can go wrong. Every error that this package raises is a :class:`SpindleError`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Optional

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ._http import Response
    from .job import JobInfo


class SpindleError(Exception):
    """The base of all errors of this package."""


class ConfigError(SpindleError, ValueError):
    """A setting is missing, malformed or cannot be read."""


class ConnectionFailedError(SpindleError, ConnectionError):
    """The server could not be reached, went away, or did not answer in time."""

    def __init__(self, message: str, *, maybe_received: bool) -> None:
        super().__init__(message)
        #: Whether the server may have received the request and done what it asks for.
        self.maybe_received = maybe_received


class ApiError(SpindleError):
    """The server refused a request. Subclasses are the refusals that programs tell apart."""

    def __init__(
        self, status: int, problem: Mapping[str, Any], retry_after: Optional[float] = None
    ) -> None:
        #: The status of the HTTP answer.
        self.status = status
        #: The whole problem (RFC 9457), with the fields that some codes bring.
        self.problem = problem
        #: For programs; it never changes. docs/api.md lists all codes.
        self.code: str = str(problem.get("code") or f"http_{status}")
        #: For people.
        self.detail: str = str(problem.get("detail") or problem.get("title") or f"status {status}")
        #: How many seconds the server asks to wait before another try.
        self.retry_after = retry_after
        #: What the server's log calls the request.
        self.request_id: Optional[str] = problem.get("request_id")
        super().__init__(f"{self.detail} ({self.code})")


class UnauthorizedError(ApiError):
    """401: the request needs a token that the server knows."""


class ForbiddenError(ApiError):
    """403: the token is not for this."""


class NotFoundError(ApiError):
    """404 or 410: there is no such job, queue or path (any more)."""


class ConflictError(ApiError):
    """409 or 412: the state of the job or the queue does not allow it."""


class KeyTakenError(ConflictError):
    """Another unfinished job has the unique key."""

    @property
    def job_id(self) -> Optional[int]:
        """The job that has the key."""
        job = self.problem.get("job")
        return job if isinstance(job, int) else None


class TooLargeError(ApiError):
    """413: the request is larger than the server takes (16 MiB)."""


class FullError(ApiError):
    """The queue, the server, its log or its disk has no room for more jobs now."""


class UnavailableError(ApiError):
    """The server cannot take the request now, and could not while it was repeated."""


class JobFailedError(SpindleError):
    """A job that somebody waited for is dead."""

    def __init__(self, info: JobInfo) -> None:
        #: The job as it was then.
        self.info = info
        #: What its last attempt reported: a code for programs, ...
        self.code = info.code
        #: ... a sentence for people, ...
        self.message = info.message
        #: ... and the error, with the traceback if its worker was one of this package.
        self.error = info.error
        first_line = info.error.partition("\n")[0]
        why = info.message or first_line or info.code or "it failed"
        super().__init__(f"job {info.id} of {info.queue} is dead: {why}")


class ResultTimeoutError(SpindleError, TimeoutError):
    """A job that somebody waited for was neither done nor dead in time."""


class SubmitManyError(SpindleError):
    """Some jobs of a submit of many were refused; the others were taken."""

    def __init__(self, taken: Mapping[int, int], errors: Mapping[int, ApiError]) -> None:
        #: The ids of the jobs that were taken, by the place of their message.
        self.taken = taken
        #: Why the others were refused, by the place of their message.
        self.errors = errors
        place, first = next(iter(errors.items()))
        super().__init__(f"{len(errors)} jobs were refused, the first at place {place}: {first}")


class SerializationError(SpindleError, ValueError):
    """A payload or a result that its serializer cannot write or read."""

    def __init__(self, code: str, message: str) -> None:
        #: ``unreadable_payload``, ``unreadable_result``, ``unwritable_payload`` or
        #: ``unwritable_result``.
        self.code = code
        super().__init__(message)


class JobCancelledError(SpindleError):
    """The job that a task runs for is no longer this worker's."""

    def __init__(self, reason: str) -> None:
        #: ``cancelled``, ``timeout``, ``leased_again``, ``released``, ``finished`` as the server
        #: says; ``gone`` if the job was deleted; ``stopping`` if the worker cannot wait longer.
        self.reason = reason
        super().__init__(f"the job is no longer this worker's: {reason}")


class WorkerError(SpindleError):
    """A worker cannot go on: the server refuses it, and would do so again."""


class Failure(Exception):  # noqa: N818 - a report that a task raises, not an error of this package
    """A task raises this to say exactly how its attempt failed."""

    def __init__(self, message: str, *, code: str = "failed", retry: bool = True) -> None:
        #: For people, up to 4,096 characters.
        self.message = message
        #: For programs, up to 64 characters.
        self.code = code
        #: Whether the job may be tried again, as far as it has tries left.
        self.retry = retry
        super().__init__(message)


_BY_CODE: dict[str, type[ApiError]] = {
    "key_taken": KeyTakenError,
    "queue_full": FullError,
    "server_full": FullError,
}
_BY_STATUS: dict[int, type[ApiError]] = {
    401: UnauthorizedError,
    403: ForbiddenError,
    404: NotFoundError,
    409: ConflictError,
    410: NotFoundError,
    412: ConflictError,
    413: TooLargeError,
    429: UnavailableError,
    502: UnavailableError,
    503: UnavailableError,
    504: UnavailableError,
    507: FullError,
}


def api_error_of(
    status: int, problem: Mapping[str, Any], retry_after: Optional[float] = None
) -> ApiError:
    """The error for a problem that the server describes."""
    kind = _BY_CODE.get(str(problem.get("code"))) or _BY_STATUS.get(status, ApiError)
    return kind(status, problem, retry_after)


def refusal(response: Response) -> ApiError:
    """The error for an answer that is no success, whoever gave it: a proxy may have."""
    try:
        problem = json.loads(response.body)
    except ValueError:
        problem = None
    if not isinstance(problem, dict):
        text = response.body[:200].decode("utf-8", "replace").strip()
        problem = {"detail": f"status {response.status}: {text}" if text else None}
    try:
        retry_after: Optional[float] = float(response.header("retry-after") or "")
    except ValueError:
        retry_after = None
    return api_error_of(response.status, problem, retry_after)
