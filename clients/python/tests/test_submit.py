"""Submits and results, with a real server."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any

import pytest
from conftest import Background, Cutter

import spindle
from spindle import BytesSerializer, JsonSerializer, Spindle
from spindle.testing import SpindleServer

LIMIT = 16 * 1024 * 1024


def job_fields(app: Spindle, job: spindle.Job[Any]) -> dict[str, Any]:
    return dict(job.info().fields)


def jobs_of(app: Spindle, queue: str) -> int:
    answer = app.request("GET", f"/api/v1/jobs?queue={queue}&count=true")
    return int(answer["total"])


def test_a_submitted_job_is_what_was_asked_for(app: Spindle) -> None:
    @app.task(queue="mail", priority=5, retries=2, tags=["news"], ttr=90)
    def send(to: str) -> None: ...

    job = send.configure(priority=7, parked=True).delay("a@example.org")
    fields = job_fields(app, job)
    expected = {
        "queue": "mail",
        "priority": 7,
        "fails_max": 3,
        "tags": ["news"],
        "ttr_ms": 90_000,
        "status": "parked",
        "payload": {"to": "a@example.org"},
    }
    assert {name: fields[name] for name in expected} == expected
    assert not job.existing


def test_an_app_is_also_for_asyncio(app: Spindle) -> None:
    @app.task
    async def add(a: int, b: int) -> int:
        return a + b

    async def use() -> None:
        async with app:
            jobs = await asyncio.gather(*(add.adelay(number, 1) for number in range(20)))
            assert (await jobs[0].ainfo()).status == "ready"
            waits = [asyncio.ensure_future(job.aresult(30)) for job in jobs]
            await app.async_worker(concurrency=4).drain()
            assert await asyncio.gather(*waits) == [number + 1 for number in range(20)]
            await jobs[0].adelete()
            with pytest.raises(spindle.NotFoundError):
                await jobs[0].ainfo()
            cancelled = await add.adelay(1, 1)
            await cancelled.acancel()
            with pytest.raises(spindle.JobFailedError) as failed:
                await cancelled.aresult()
            assert failed.value.code == "cancelled"
            await cancelled.aretry()
            assert (await cancelled.ainfo()).status == "ready"

    asyncio.run(use())


def test_unique_jobs_exist_are_refused_or_replaced(app: Spindle) -> None:
    @app.task(unique=True)
    def report(month: str) -> None: ...

    first = report.delay("2026-01")
    again = report.delay("2026-01")
    other = report.delay("2026-02")
    assert (again.id, again.existing, other.existing) == (first.id, True, False)
    with pytest.raises(spindle.KeyTakenError) as refused:
        report.configure(unique_mode="reject").delay("2026-01")
    assert refused.value.job_id == first.id
    replacing = report.configure(unique_mode="replace").delay("2026-01")
    assert replacing.id > other.id
    with pytest.raises(spindle.NotFoundError):
        first.info()


def test_an_idempotency_key_makes_repeated_submits_one_job(app: Spindle) -> None:
    @app.task
    def pay(order: int) -> None: ...

    once = pay.configure(idempotency_key="order-4711")
    assert once.delay(4711).id == once.delay(4711).id
    with pytest.raises(spindle.ApiError) as refused:
        once.delay(4712)
    assert (refused.value.status, refused.value.code) == (422, "idempotency_key_reused")


def test_many_jobs_go_in_few_requests_and_keep_their_order(app: Spindle) -> None:
    @app.task
    def number(value: int) -> None: ...

    jobs = app.submit_many(number.message(value) for value in range(2100))
    assert [job.id for job in jobs] == sorted(job.id for job in jobs)
    assert jobs[2099].info().fields["payload"] == {"value": 2099}
    assert app.submit_many([]) == []


def test_refused_jobs_of_many_are_named_and_the_others_taken(app: Spindle) -> None:
    messages = [app.message("q", 1), app.message("", 2), app.message("q", 3)]
    with pytest.raises(spindle.SubmitManyError) as refused:
        app.submit_many(messages)
    assert list(refused.value.taken) == [0, 2]
    assert [(place, error.code) for place, error in refused.value.errors.items()] == [
        (1, "out_of_range")
    ]
    assert jobs_of(app, "q") == 2


def payload_of(app: Spindle, room: int) -> str:
    """A payload whose request has so many bytes."""
    empty = len(spindle._operations.submit_body(app.message("big", "")))
    return "x" * (room - empty)


def test_a_payload_at_the_limit_is_taken_and_one_byte_more_is_refused(app: Spindle) -> None:
    content = payload_of(app, LIMIT)
    job = app.submit(app.message("big", content))
    assert job.info().fields["payload"] == content
    for submit in (app.submit, lambda message: app.submit_many([message])):
        with pytest.raises((spindle.TooLargeError, spindle.SubmitManyError)) as refused:
            submit(app.message("big", content + "x"))
    assert isinstance(refused.value, spindle.SubmitManyError)
    assert refused.value.errors[0].code == "too_large"
    assert jobs_of(app, "big") == 1


def test_a_full_queue_says_so_at_once(app: Spindle) -> None:
    app.request("PUT", "/api/v1/queues/q/settings", {"jobs_max": 1})
    app.submit(app.message("q"))
    with pytest.raises(spindle.FullError) as refused:
        app.submit(app.message("q"))
    assert refused.value.code == "queue_full"


def test_results_come_in_every_encoding(app: Spindle, worker: Background) -> None:
    @app.task(raw=True, serializer=BytesSerializer())
    def reverse(content: bytes) -> bytes:
        return content[::-1]

    @app.task(serializer=JsonSerializer(default=sorted))
    def letters(text: str) -> Any:
        return set(text)

    @app.task
    def nothing() -> None: ...

    jobs = (reverse.delay(b"\x00\xff\n"), letters.delay("hello"), nothing.delay())
    assert worker.drain(app).completed == 3
    results = [job.result(5) for job in jobs]
    assert results == [b"\n\xff\x00", ["e", "h", "l", "o"], None]


def test_a_result_that_the_client_cannot_read_is_its_own_error(app: Spindle) -> None:
    @app.task(raw=True, serializer=BytesSerializer())
    def raw(content: bytes) -> bytes:
        return content

    job = raw.delay(b"\xff")
    app.worker().drain()
    with pytest.raises(spindle.SerializationError) as unreadable:
        app.job(job.id).result(5)
    assert unreadable.value.code == "unreadable_result"


def test_waiting_ends_in_time_and_says_what_the_job_is(app: Spindle) -> None:
    job = app.submit(app.message("nobody"))
    for timeout in (0, 0.05, 1.2):
        with pytest.raises(spindle.ResultTimeoutError, match=r"ready|no result within"):
            job.result(timeout)
    with pytest.raises(TimeoutError):
        job.result(0)
    with pytest.raises(spindle.NotFoundError):
        app.job(999_999).result(5)


def test_what_is_gone_or_cancelled_while_somebody_waits(app: Spindle) -> None:
    import threading

    job = app.submit(app.message("nobody"))
    errors: list[BaseException] = []

    def wait() -> None:
        try:
            job.result(30)
        except spindle.SpindleError as error:
            errors.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    job.cancel()
    thread.join(30)
    assert isinstance(errors[0], spindle.JobFailedError)
    assert str(errors[0]) == f"job {job.id} of nobody is dead: cancelled"
    job.delete()
    job.delete()


def test_lost_answers_of_submits_add_one_job(app: Spindle, cutter: Cutter) -> None:
    app.configure(url=cutter.url)
    cutter.path, cutter.lose = b"/api/v1/jobs", 2
    job = app.submit(app.message("once", {"n": 1}))
    cutter.lose = 1
    jobs = app.submit_many([app.message("once"), app.message("once")])

    async def submit() -> int:
        cutter.lose = 2
        async with app:
            return (await app.asubmit(app.message("once"))).id

    ids = [job.id, *(job.id for job in jobs), asyncio.run(submit())]
    assert cutter.lost == 5
    assert (len(set(ids)), jobs_of(app, "once")) == (4, 4)


@pytest.mark.parametrize("call", ["info", "result", "cancel", "delete", "retry"])
def test_lost_answers_of_other_calls_are_asked_for_again(
    app: Spindle, cutter: Cutter, call: str
) -> None:
    @app.task
    def seven() -> int:
        return 7

    job = seven.delay()
    if call in ("retry", "result"):
        app.worker().drain()
    app.configure(url=cutter.url)
    cutter.path, cutter.lose = str(job.id).encode(), 1
    getattr(job, call)()
    assert cutter.lost == 1


def test_a_write_of_unknown_kind_is_not_repeated(app: Spindle, cutter: Cutter) -> None:
    app.configure(url=cutter.url)
    cutter.path, cutter.lose = b"pause", 1
    with pytest.raises(spindle.ConnectionFailedError) as failed:
        app.request("POST", "/api/v1/queues/q/pause")
    assert failed.value.maybe_received
    assert app.request("GET", "/api/v1/queues/q")["paused"]


def test_no_server_is_a_connection_error_within_the_time_for_retries(
    spindle_server: SpindleServer,
) -> None:
    spindle_server.kill()
    app = Spindle(spindle_server.url, retry_for=0.3)
    with pytest.raises(ConnectionError) as failed:
        app.submit(app.message("q"))
    assert isinstance(failed.value, spindle.ConnectionFailedError)
    assert not failed.value.maybe_received
    assert spindle_server.url in str(failed.value)

    async def submit() -> None:
        async with app:
            await app.asubmit(app.message("q"))

    with pytest.raises(spindle.ConnectionFailedError):
        asyncio.run(submit())


def test_something_else_at_the_address_is_no_server() -> None:
    import socket
    import threading

    listener = socket.create_server(("127.0.0.1", 0))

    def answer() -> None:
        client, _ = listener.accept()
        with client:
            client.recv(65536)
            client.sendall(b"220 mail.example ESMTP\r\n\r\n")

    thread = threading.Thread(target=answer)
    thread.start()
    app = Spindle(f"http://127.0.0.1:{listener.getsockname()[1]}", retry_for=0)
    with pytest.raises(spindle.ConnectionFailedError, match="no HTTP answer"):
        app.job(1).info()
    thread.join()
    listener.close()


def test_a_proxy_s_page_is_an_error_with_its_words() -> None:
    response = spindle._http.Response(404, "\r\nretry-after: soon", b"<h1>Not here</h1>")
    error = spindle.errors.refusal(response)
    assert isinstance(error, spindle.NotFoundError)
    assert (error.code, error.retry_after) == ("http_404", None)
    assert "Not here" in str(error)
    assert json.dumps(error.problem)


def test_a_connection_is_used_again_also_after_the_server_closed_it(
    app: Spindle, cutter: Cutter
) -> None:
    app.configure(url=cutter.url)
    job = app.submit(app.message("q"))
    for _ in range(5):
        job.info()
    assert len(cutter._sockets) == 2
    for sock in cutter._sockets:
        # The end of one side may have ended the other one already.
        with contextlib.suppress(OSError):
            sock.shutdown(2)
    job.info()
    assert len(cutter._sockets) == 4


def test_a_forked_process_has_connections_of_its_own(app: Spindle, cutter: Cutter) -> None:
    import os

    app.configure(url=cutter.url)
    job = app.submit(app.message("q"))
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if job.info().status == "ready" else 1)
        except BaseException:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    connections = len(cutter._sockets) // 2
    assert job.info().status == "ready"
    assert (connections, len(cutter._sockets) // 2) == (2, 2)
