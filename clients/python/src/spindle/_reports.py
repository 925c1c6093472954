"""Reports about attempts: what each says, and which go to the server in one request."""

from __future__ import annotations

import json
import traceback
from dataclasses import dataclass
from typing import TYPE_CHECKING, Optional

from ._http import Request
from ._operations import API
from .errors import ApiError, SerializationError, api_error_of, refusal
from .serializers import json_bytes

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Sequence

    from ._http import Response
    from .running import RunningJob

#: So many the server takes in one request.
_REPORTS_MAX = 100
#: A larger one goes alone: a request of many stays far below what the server takes.
_SHARED_BYTES_MAX = 64 * 1024
_TEXT_CHARS_MAX = 4096
_CODE_CHARS_MAX = 64


@dataclass
class Report:
    """How an attempt ended, on its way to the server."""

    job: RunningJob
    #: ``complete``, ``fail`` or ``release``.
    verb: str
    #: A JSON object: the fields of the request of that name.
    body: bytes = b"{}"
    #: Whether it was sent and its answer did not arrive.
    is_repeated: bool = False


def next_reports(waiting: deque[Report]) -> list[Report]:
    """Takes from the left what goes in one request: up to a hundred reports, or one large one."""
    reports: list[Report] = []
    while waiting and len(reports) < _REPORTS_MAX:
        is_large = len(waiting[0].body) > _SHARED_BYTES_MAX
        if is_large and reports:
            break
        reports.append(waiting.popleft())
        if is_large:
            break
    return reports


def request_of(reports: Sequence[Report]) -> Request:
    """The request that delivers these reports."""
    if len(reports) == 1:
        report = reports[0]
        return Request("POST", f"{API}/leases/{report.job._token}/{report.verb}", report.body)
    entries = [
        b'{"lease_token":"%s","%s":%s}'
        % (report.job._token.encode(), report.verb.encode(), report.body)
        for report in reports
    ]
    return Request("POST", f"{API}/leases/batch", b'{"leases":[%s]}' % b",".join(entries))


def refusals_of(reports: Sequence[Report], response: Response) -> list[Optional[ApiError]]:
    """What the server refuses of these reports, one entry for each; None is a report it took."""
    if response.status >= 300:
        return [refusal(response)] * len(reports)
    if len(reports) == 1:
        return [None]
    problems = [answer.get("problem") for answer in json.loads(response.body)["answers"]]
    return [problem and api_error_of(problem.get("status", 0), problem) for problem in problems]


def failure_report(job: RunningJob, message: str, error: str, code: str, retry: bool) -> Report:
    fields = {
        "message": _text(message, _TEXT_CHARS_MAX),
        "error": _text(error, _TEXT_CHARS_MAX),
        "code": _text(code, _CODE_CHARS_MAX),
        "retry": retry,
    }
    return Report(job, "fail", json_bytes(fields))


def message_of(error: BaseException) -> str:
    """What an exception says of itself, if it can."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - a task's exception must not end the worker
        return f"{type(error).__name__} without a text"


def _text(text: str, chars_max: int) -> str:
    """At most so many characters, each of which can be sent."""
    return text[:chars_max].encode("utf-8", "replace").decode()


def trace_of(error: BaseException) -> str:
    """What was raised, in one line, and the end of where.

    The server groups failures by the first line.
    """
    head = "".join(traceback.format_exception_only(type(error), error)).strip()
    if isinstance(error, SerializationError):
        return head
    frames = "".join(traceback.format_tb(error.__traceback__))
    room = max(_TEXT_CHARS_MAX - len(head) - 1, 0)
    return f"{head}\n{frames[-room:]}" if room else head
