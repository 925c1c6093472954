"""What a client can ask of the server, as flows."""

from __future__ import annotations

import json
import math
import time
import uuid
from base64 import b64encode
from typing import TYPE_CHECKING, Any, Callable, Optional
from urllib.parse import quote

from . import batch as batches
from . import job as jobs
from . import schedule as schedules
from ._flow import Flow, call
from ._http import Request
from .errors import (
    ApiError,
    ConnectionFailedError,
    JobFailedError,
    NotFoundError,
    ResultTimeoutError,
    SerializationError,
    SubmitManyError,
    api_error_of,
)
from .serializers import Serializer, json_bytes, read

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from ._settings import Settings
    from .task import Message

API = "/api/v1"
#: One long poll: shorter than what proxies allow, and soon enough to notice a dead server.
WAIT_S = 20
#: Refusals of the server that say that a lease has ended.
LEASE_ENDED = ("lease_not_live", "lease_gone")
#: So much output the server takes at once.
_OUTPUT_BYTES_MAX = 65_536
_BATCH_JOBS_MAX = 1000
_BATCH_BYTES_MAX = 8 * 1024 * 1024


def content_fields(content_type: str, content: bytes, name: str) -> bytes:
    """The members of a JSON object that bring a payload or a result."""
    if content_type == "json":
        return b'"%s":%s' % (name.encode(), content)
    kind = json_bytes(content_type)
    return b'"%s_base64":"%s","%s_type":%s' % (
        name.encode(),
        b64encode(content),
        name.encode(),
        kind,
    )


def submit_body(message: Message[Any]) -> bytes:
    """The JSON of one job."""
    content = content_fields(message.content_type, message.content, "payload")
    fields = json_bytes({"queue": message.queue, **message.fields})
    return fields[:-1] + b"," + content + b"}"


def _named_body(message: Message[Any]) -> bytes:
    """The same for one of many, which has its key in it."""
    body = submit_body(message)
    if message.idempotency_key is None:
        return body
    return body[:-1] + b',"idempotency_key":%s}' % json_bytes(message.idempotency_key)


def submit(settings: Settings, message: Message[Any]) -> Flow[dict[str, Any]]:
    """Submits a job: its id, and whether it existed already."""
    key = message.idempotency_key or uuid.uuid4().hex
    request = Request("POST", f"{API}/jobs", submit_body(message), key)
    response = yield from call(settings, request)
    answer: dict[str, Any] = json.loads(response.body)
    return answer


def submit_many(settings: Settings, messages: Sequence[Message[Any]]) -> Flow[list[dict[str, Any]]]:
    """Submits jobs in as few requests as the server takes, in one if jobs are named."""
    answers: list[dict[str, Any]] = []
    all_bodies = [_named_body(message) for message in messages]
    are_together = any("ref" in message.fields for message in messages)
    for bodies in [all_bodies] if are_together else _batches(all_bodies):
        body = b'{"jobs":[%s]}' % b",".join(bodies)
        request = Request("POST", f"{API}/jobs/batch", body, uuid.uuid4().hex)
        try:
            response = yield from call(settings, request)
        except ApiError as error:
            answers += [{"problem": {**error.problem, "status": error.status}}] * len(bodies)
            continue
        answers += json.loads(response.body)["answers"]
    errors = {
        place: api_error_of(answer["problem"].get("status", 400), answer["problem"])
        for place, answer in enumerate(answers)
        if "problem" in answer
    }
    if errors:
        taken = {place: answer["id"] for place, answer in enumerate(answers) if "id" in answer}
        raise SubmitManyError(taken, errors)
    return answers


def _batches(bodies: list[bytes]) -> list[list[bytes]]:
    batches: list[list[bytes]] = []
    size = 0
    for body in bodies:
        is_full = not batches or len(batches[-1]) == _BATCH_JOBS_MAX
        if is_full or size + len(body) > _BATCH_BYTES_MAX:
            batches.append([])
            size = 0
        batches[-1].append(body)
        size += len(body)
    return batches


def request(settings: Settings, method: str, path: str, body: Any) -> Flow[Any]:
    """Any request of the API. A GET is repeated when its answer was lost; nothing else is."""
    content = b"" if body is None else json_bytes(body)
    answer = yield from call(settings, Request(method, path, content), is_safe=method == "GET")
    return json.loads(answer.body) if answer.body else None


def info(settings: Settings, job_id: int) -> Flow[jobs.JobInfo]:
    """A job as it is now."""
    response = yield from call(settings, Request("GET", f"{API}/jobs/{job_id}"))
    return jobs.JobInfo.of(json.loads(response.body))


def result(
    settings: Settings, job_id: int, serializer: Serializer, timeout_s: Optional[float]
) -> Flow[Any]:
    """Waits for a job's end. What its result is, read by a serializer."""
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    late = f"job {job_id} has no result within {timeout_s} s"
    while True:
        fields = yield from _awaited(settings, f"jobs/{job_id}", deadline, timeout_s == 0, late)
        job = jobs.JobInfo.of(fields)
        if job.status == "dead":
            raise JobFailedError(job)
        if job.status == "done":
            return _value(fields.get("result") or {}, serializer)
        if deadline is not None and time.monotonic() >= deadline:
            raise ResultTimeoutError(f"job {job_id} is still {job.status} after {timeout_s} s")


def _awaited(
    settings: Settings, path: str, deadline: Optional[float], is_look: bool, late: str
) -> Flow[dict[str, Any]]:
    """A job or a batch at its end, or as it is when a request has waited long enough.

    ``late`` is what a ResultTimeoutError says if there is no answer before the deadline.
    """
    left = WAIT_S if deadline is None else max(deadline - time.monotonic(), 0)
    wait_s = min(math.ceil(left), WAIT_S)
    try:
        response = yield from call(
            settings,
            Request("GET", f"{API}/{path}/wait?wait_s={wait_s}"),
            timeout_s=settings.request_timeout_s + wait_s,
            # A look that waits for nothing gets the time that any request gets.
            deadline=None if is_look else deadline,
        )
    except ConnectionFailedError as error:
        if is_look or deadline is None:
            raise
        raise ResultTimeoutError(late) from error
    fields: dict[str, Any] = json.loads(response.body)
    return fields


def _value(result: dict[str, Any], serializer: Serializer) -> Any:
    if not result.get("bytes"):
        return None
    if "value" not in result and "base64" not in result:
        message = "the server does not show the result: the token needs the role inspect"
        raise SerializationError("unreadable_result", message)
    return read(serializer, result, "value", "unreadable_result")


def cancel(settings: Settings, job_id: int) -> Flow[None]:
    """Ends a job as dead."""
    request = Request("POST", f"{API}/jobs/{job_id}/cancel")
    yield from call(settings, request, done_codes=("job_finished",))


def delete(settings: Settings, job_id: int) -> Flow[None]:
    """Deletes a job, if there is one."""
    try:
        yield from call(settings, Request("DELETE", f"{API}/jobs/{job_id}"))
    except NotFoundError as error:
        if error.code != "job_not_found":
            raise


def retry(settings: Settings, job_id: int) -> Flow[None]:
    """Lets a finished job run again."""
    request = Request("POST", f"{API}/jobs/{job_id}/retry")
    yield from call(settings, request, done_codes=("job_not_finished",))


def hold(settings: Settings, path: str, verb: str) -> Flow[None]:
    """Parks or releases a job, pauses or resumes a queue: twice is as once."""
    yield from call(settings, Request("POST", f"{API}/{path}/{verb}"))


def queue_path(name: str) -> str:
    """Where a queue is."""
    return f"queues/{quote(name, safe='')}"


def listed(settings: Settings, path: str, name: str) -> Flow[list[dict[str, Any]]]:
    """All items of a list, page by page. ``name`` is the field of a page that has them."""
    items: list[dict[str, Any]] = []
    cursor = ""
    while True:
        response = yield from call(settings, Request("GET", f"{API}/{path}?limit=512{cursor}"))
        page = json.loads(response.body)
        items += page[name]
        if "next_cursor" not in page:
            return items
        cursor = f"&cursor={quote(page['next_cursor'], safe='')}"


def open_batch(
    settings: Settings, fields: Mapping[str, Any], key: Optional[str]
) -> Flow[tuple[int, bool]]:
    """Opens a batch: its number, and whether it was there before."""
    # A random key makes the same opening, sent twice, one batch.
    body = json_bytes({**fields, "key": key or uuid.uuid4().hex})
    response = yield from call(settings, Request("POST", f"{API}/batches", body))
    return json.loads(response.body)["id"], response.status == 200 and key is not None


def batch_info(settings: Settings, batch_id: int) -> Flow[batches.BatchInfo]:
    """A batch as it is now."""
    response = yield from call(settings, Request("GET", f"{API}/batches/{batch_id}"))
    return batches.BatchInfo.of(json.loads(response.body))


def seal_batch(settings: Settings, batch_id: int) -> Flow[None]:
    """Lets no more jobs into a batch."""
    request = Request("POST", f"{API}/batches/{batch_id}/seal")
    yield from call(settings, request, done_codes=("batch_sealed",))


def cancel_batch(settings: Settings, batch_id: int) -> Flow[None]:
    """Cancels the jobs of a batch, in as many requests as that takes."""
    while True:
        request = Request("POST", f"{API}/batches/{batch_id}/cancel")
        response = yield from call(settings, request)
        if not json.loads(response.body)["is_partial"]:
            return


def batch_ended(
    settings: Settings, batch_id: int, timeout_s: Optional[float]
) -> Flow[batches.BatchInfo]:
    """Waits for the end of a batch."""
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    late = f"batch {batch_id} was not seen to end within {timeout_s} s"
    while True:
        fields = yield from _awaited(
            settings, f"batches/{batch_id}", deadline, timeout_s == 0, late
        )
        batch = batches.BatchInfo.of(fields)
        if batch.has_ended:
            return batch
        if deadline is not None and time.monotonic() >= deadline:
            raise ResultTimeoutError(f"batch {batch_id} is still {batch.status}")


def schedule_body(fields: Mapping[str, Any], message: Message[Any]) -> bytes:
    """The JSON of a schedule for a job."""
    return json_bytes(fields)[:-1] + b',"job":' + submit_body(message) + b"}"


def _schedule_path(name: str) -> str:
    return f"{API}/schedules/{quote(name, safe='')}"


def put_schedule(
    settings: Settings, name: str, body: bytes, *, is_preview: bool = False
) -> Flow[schedules.ScheduleInfo]:
    """Makes or changes a schedule, or only says what would come of it."""
    path = _schedule_path(name) + ("?dry_run=true" if is_preview else "")
    response = yield from call(settings, Request("PUT", path, body))
    return schedules.ScheduleInfo.of(json.loads(response.body))


def schedule_info(settings: Settings, name: str) -> Flow[schedules.ScheduleInfo]:
    """A schedule as it is now."""
    response = yield from call(settings, Request("GET", _schedule_path(name)))
    return schedules.ScheduleInfo.of(json.loads(response.body))


def pause_schedule(settings: Settings, name: str, verb: str) -> Flow[None]:
    """Pauses or resumes a schedule."""
    yield from call(settings, Request("POST", f"{_schedule_path(name)}/{verb}"))


def run_schedule(settings: Settings, name: str) -> Flow[int]:
    """Submits the job of a schedule: its number."""
    request = Request("POST", f"{_schedule_path(name)}/run")
    response = yield from call(settings, request, is_safe=False)
    number: int = json.loads(response.body)["job"]
    return number


def remove_schedule(settings: Settings, name: str) -> Flow[None]:
    """Removes a schedule, if there is one."""
    try:
        yield from call(settings, Request("DELETE", _schedule_path(name)))
    except NotFoundError as error:
        if error.code != "schedule_not_found":
            raise


def results_before(
    settings: Settings, token: str, job_ids: Iterable[int], reader: Callable[[str], Serializer]
) -> Flow[list[Any]]:
    """The results of jobs that the job of a lease waited for. ``reader`` is for a queue's."""
    values = []
    for job_id in job_ids:
        response = yield from call(settings, Request("GET", f"{API}/leases/{token}/after/{job_id}"))
        fields = json.loads(response.body)
        job = jobs.JobInfo.of(fields)
        if job.status == "dead":
            raise JobFailedError(job)
        if job.status != "done":
            raise ResultTimeoutError(f"job {job_id} is {job.status} again")
        values.append(_value(fields.get("result") or {}, reader(job.queue)))
    return values


def report_progress(settings: Settings, token: str, numerator: int, denominator: int) -> Flow[None]:
    """Says how far the job of a lease is. It is sent once: the next report says more."""
    body = json_bytes({"numerator": numerator, "denominator": denominator})
    request = Request("POST", f"{API}/leases/{token}/progress", body)
    yield from call(settings, request, retry_for_s=0)


def write_output(settings: Settings, token: str, text: str) -> Flow[None]:
    """Appends to the output of the job of a lease, in as many requests as it needs."""
    for piece in _pieces(text):
        request = Request("POST", f"{API}/leases/{token}/output", json_bytes({"text": piece}))
        yield from call(settings, request, is_safe=False)


def _pieces(text: str) -> Iterator[str]:
    """A text, cut between characters, each of which can be sent."""
    data = text.encode("utf-8", "replace")
    begin = 0
    while begin < len(data):
        end = min(begin + _OUTPUT_BYTES_MAX, len(data))
        while end < len(data) and data[end] & 0xC0 == 0x80:
            end -= 1
        yield data[begin:end].decode()
        begin = end
