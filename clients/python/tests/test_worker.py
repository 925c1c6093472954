"""What a worker does with jobs: both kinds, with a real server."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import math
import threading
from typing import Any

import pytest
from conftest import Background, until

import spindle
from spindle import Backoff, Failure, RunningJob, Spindle, current_job
from spindle._flow import Exchange
from spindle._http import Request
from spindle._threads import Line


def history(job: spindle.Job[Any]) -> list[dict[str, Any]]:
    return list(job.info().fields["history"])


def test_functions_and_coroutines_are_worked(app: Spindle, worker: Background) -> None:
    @app.task
    def add(a: int, b: int = 2) -> int:
        return a + b

    @app.task
    async def aadd(a: int, b: int = 2) -> int:
        await asyncio.sleep(0)
        return a + b

    worker.start(app)
    assert [add.delay(1).result(30), aadd.delay(1, b=5).result(30)] == [3, 6]
    worker.stop()
    counts = worker.join()
    assert counts is not None
    assert (counts.completed, counts.failed) == (2, 0)


def test_a_task_knows_its_job(app: Spindle, worker: Background) -> None:
    seen: list[RunningJob] = []

    @app.task
    def one() -> None:
        seen.append(current_job())

    @app.task
    async def other() -> None:
        seen.append(current_job())

    ids = {one.delay().id, other.delay().id}
    worker.drain(app)
    assert {job.id for job in seen} == ids
    assert [(job.attempt, job.is_cancelled) for job in seen] == [(1, False), (1, False)]
    with pytest.raises(LookupError):
        current_job()


def output_of(job: spindle.Job[Any]) -> list[str]:
    """The pieces of a job's output, which come in pages."""
    pieces: list[str] = []
    offset = 0
    while True:
        page = job.app.request("GET", f"/api/v1/jobs/{job.id}/output?from={offset}")
        if page["next"] == offset:
            return pieces
        pieces += [piece["text"] for piece in page["pieces"]]
        offset = page["next"]


@pytest.mark.parametrize("is_coroutine", [False, True])
def test_progress_and_output_are_seen_while_a_task_runs(
    app: Spindle, worker: Background, is_coroutine: bool
) -> None:
    go_on = threading.Event()

    @app.task(queue="long")
    def long() -> None:
        job = current_job()
        job.report_progress(3, 8)
        job.write_output("250 ok\n")
        job.write_output("x" + "ä" * 40_000 + "\ud800")
        go_on.wait(30)

    @app.task(queue="along")
    async def along() -> None:
        job = current_job()
        await job.areport_progress(3, 8)
        await job.awrite_output("250 ok\n")
        await job.awrite_output("x" + "ä" * 40_000 + "\ud800")
        await asyncio.get_running_loop().run_in_executor(None, go_on.wait, 30)

    worker.start(app)
    job = along.delay() if is_coroutine else long.delay()
    until(lambda: len(output_of(job)) == 3)
    progress = job.info().fields["progress"]
    assert (progress["numerator"], progress["denominator"]) == ("3", "8")
    pieces = output_of(job)
    assert [len(piece.encode()) for piece in pieces] == [7, 65_535, 14_467]
    assert pieces[0] == "250 ok\n"
    assert pieces[2].endswith("ä?")
    go_on.set()
    assert job.result(30) is None


@pytest.mark.parametrize("is_coroutine", [False, True])
def test_a_report_of_a_job_that_was_cancelled_ends_its_task(
    app: Spindle, worker: Background, is_coroutine: bool
) -> None:
    reasons: list[str] = []

    @app.task
    def long() -> None:
        job = current_job()
        app.job(job.id).cancel()
        try:
            job.write_output("too late\n")
        except spindle.JobCancelledError as error:
            reasons.append(error.reason)
            assert job.is_cancelled
            raise

    @app.task
    async def along() -> None:
        job = current_job()
        await app.job(job.id).acancel()
        try:
            await job.areport_progress(1)
        except spindle.JobCancelledError as error:
            reasons.append(error.reason)
            assert job.is_cancelled
            raise

    worker.start(app)
    job = along.delay() if is_coroutine else long.delay()
    until(lambda: reasons)
    worker.stop()
    counts = worker.join()
    assert counts is not None
    assert (reasons, counts.lost, job.info().code) == (["cancelled"], 1, "cancelled")


def test_jobs_of_other_doors_and_languages_are_worked(app: Spindle, worker: Background) -> None:
    @app.task
    def greet(name: str = "nobody") -> str:
        return name

    def submit(**fields: Any) -> spindle.Job[Any]:
        answer = app.request("POST", "/api/v1/jobs", {"queue": "greet", **fields})
        return app.job(answer["id"])

    text = json.dumps({"name": "bytes"}).encode()
    jobs = [
        submit(payload={"name": "json"}),
        submit(payload_base64=base64.b64encode(text).decode()),
        submit(),
    ]
    worker.drain(app)
    assert [job.result(5) for job in jobs] == ["json", "bytes", "nobody"]


def test_failures_are_retried_after_their_backoff(app: Spindle, worker: Background) -> None:
    attempts: list[int] = []

    @app.task(retries=2, backoff=Backoff(0.02, factor=2))
    def flaky() -> str:
        attempts.append(current_job().attempt)
        if len(attempts) < 3:
            raise ConnectionError("db-7 does not answer")
        return "at last"

    worker.start(app)
    job = flaky.delay()
    assert job.result(30) == "at last"
    assert attempts == [1, 2, 3]
    failed = history(job)[0]
    assert (failed["message"], failed["code"]) == ("db-7 does not answer", "ConnectionError")
    assert failed["error"].startswith("ConnectionError: db-7 does not answer\n  File ")
    assert job.info().fields["backoff"] == {
        "base_ms": 20,
        "factor": 2,
        "cap_ms": 3_600_000,
        "jitter": 0,
    }


def test_a_job_is_dead_after_its_retries(app: Spindle, worker: Background) -> None:
    @app.task(retries=1, backoff=0)
    async def fails(text: str) -> None:
        raise ValueError(text)

    worker.start(app)
    job = fails.delay("x" * 10_000)
    with pytest.raises(spindle.JobFailedError) as failed:
        job.result(30)
    assert (failed.value.code, len(failed.value.message)) == ("ValueError", 4096)
    assert (failed.value.info.fails, failed.value.info.attempts) == (2, 2)


def test_failures_that_no_try_can_help_are_final(app: Spindle, worker: Background) -> None:
    @app.task(no_retry=LookupError)
    def unknown() -> None:
        raise KeyError("user 7")

    @app.task
    async def says_so() -> None:
        raise Failure("no such user", code="no_user", retry=False)

    @app.task
    def leaves() -> None:
        raise SystemExit(3)

    jobs = [unknown.delay(), says_so.delay(), leaves.configure(retries=0).delay()]
    assert worker.drain(app).failed == 3
    reports = []
    for job in jobs:
        with pytest.raises(spindle.JobFailedError) as failed:
            job.result(5)
        reports.append((failed.value.code, failed.value.message, failed.value.info.attempts))
    assert reports == [
        ("KeyError", "'user 7'", 1),
        ("no_user", "no such user", 1),
        ("SystemExit", "3", 1),
    ]


def test_a_text_that_cannot_be_sent_is_reported_all_the_same(
    app: Spindle, worker: Background
) -> None:
    @app.task(retries=0)
    def fails() -> None:
        raise ValueError("half of \ud83d a letter")

    job = fails.delay()
    worker.drain(app)
    assert job.info().message == "half of ? a letter"


def test_an_exception_without_words_fails_its_job_alone(app: Spindle, worker: Background) -> None:
    class WordlessError(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    @app.task(retries=0)
    def fails() -> None:
        raise WordlessError

    job = fails.delay()
    assert worker.drain(app).failed == 1
    assert job.info().message == "WordlessError without a text"


@pytest.mark.parametrize(
    "fields",
    [
        {"payload": [1, 2]},
        {"payload": "text"},
        {"payload": {"b": 1}},
        {"payload": {"a": 1, "c": 2}},
        {"payload_base64": "/w=="},
        {"payload_base64": "gaFhAQ==", "payload_type": "msgpack"},
    ],
)
def test_a_payload_that_is_unreadable_fails_its_job_and_nothing_else(
    app: Spindle, worker: Background, fields: dict[str, Any]
) -> None:
    @app.task
    def show(a: int) -> int:
        return a

    bad = app.request("POST", "/api/v1/jobs", {"queue": "show", **fields})
    good = show.delay(7)
    counts = worker.drain(app, concurrency=1)
    assert (counts.completed, counts.failed) == (1, 1)
    assert good.result(5) == 7
    with pytest.raises(spindle.JobFailedError) as failed:
        app.job(bad["id"]).result(5)
    assert (failed.value.code, failed.value.info.attempts) == ("unreadable_payload", 1)
    assert failed.value.message


def test_a_number_that_python_does_not_read_fails_its_job_alone(
    app: Spindle, worker: Background
) -> None:
    @app.task
    def show(a: int) -> int:
        return 1

    huge = b'{"queue":"show","payload":{"a":%s}}' % (b"9" * 5000)
    line = Line(app.settings)
    line.exchange(Exchange((Request("POST", "/api/v1/jobs", huge),), 30))
    line.close()
    good = show.delay(1)
    counts = worker.drain(app, concurrency=2)
    assert good.result(5) == 1
    # Python 3.9 has no limit on digits, and runs both.
    assert (counts.completed, counts.failed) in ((1, 1), (2, 0))


@pytest.mark.parametrize("value", [math.inf, {1, 2}, "x" * (16 * 1024 * 1024)])
def test_a_result_that_cannot_be_written_fails_its_job_for_good(
    app: Spindle, worker: Background, value: Any
) -> None:
    @app.task
    def give() -> Any:
        return value

    job = give.delay()
    assert worker.drain(app).failed == 1
    with pytest.raises(spindle.JobFailedError) as failed:
        job.result(5)
    assert (failed.value.code, failed.value.info.attempts) == ("unwritable_result", 1)


def test_a_result_at_the_limit_is_kept(app: Spindle, worker: Background) -> None:
    size = 16 * 1024 * 1024 - len(b'{"result":""}')

    @app.task
    def give() -> str:
        return "x" * size

    job = give.delay()
    assert worker.drain(app).completed == 1
    assert len(job.result(30)) == size


def test_heartbeats_keep_a_job_that_takes_longer_than_its_lease(
    app: Spindle, worker: Background
) -> None:
    @app.task(ttr=0.3, attempts=1)
    def long() -> str:
        deadlines: set[str] = set()

        def is_kept() -> bool:
            lease = app.job(current_job().id).info().fields["lease"]
            deadlines.add(lease["deadline_at"])
            return len(deadlines) > 6

        until(is_kept, "six extensions")
        return "done"

    job = long.delay()
    assert worker.drain(app).completed == 1
    assert (job.result(5), job.info().attempts) == ("done", 1)


def test_a_cancel_is_told_to_the_task(app: Spindle, worker: Background) -> None:
    reasons: list[Any] = []
    begun = threading.Event()

    @app.task(ttr=0.5)
    def patient() -> None:
        begun.set()
        assert current_job().wait_cancelled(30)
        reasons.append(current_job().cancel_reason)
        current_job().raise_if_cancelled()

    @app.task(ttr=0.5)
    async def apatient() -> None:
        begun.set()
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            reasons.append(current_job().cancel_reason)
            raise

    worker.start(app)
    for task in (patient, apatient):
        begun.clear()
        job = task.delay()
        assert begun.wait(30)
        job.cancel()
        until(lambda: len(reasons) == 1, "the end of the task")
        assert reasons.pop() == "cancelled"
        assert job.info().code == "cancelled"
    # The worker goes on.
    follower = app.task(queue="next")(lambda: "next")
    worker.stop()
    counts = worker.join()
    assert counts is not None
    assert counts.lost == 2
    assert follower.delay().id
    assert worker.drain(app, queues=["next"]).completed == 1


def test_a_deleted_job_is_told_as_gone(app: Spindle, worker: Background) -> None:
    reasons: list[Any] = []
    begun = threading.Event()

    @app.task(ttr=0.3)
    def patient() -> None:
        begun.set()
        current_job().wait_cancelled(30)
        reasons.append(current_job().cancel_reason)

    worker.start(app)
    job = patient.delay()
    assert begun.wait(30)
    job.delete()
    until(lambda: reasons == ["gone"])


def test_a_stop_finishes_what_runs_and_takes_nothing_more(
    app: Spindle, worker: Background, caplog: pytest.LogCaptureFixture
) -> None:
    begun, go_on = threading.Event(), threading.Event()

    @app.task
    def slow() -> str:
        begun.set()
        assert go_on.wait(30)
        return "finished"

    worker.start(app, concurrency=1)
    running = slow.delay()
    assert begun.wait(30)
    waiting = slow.delay()
    worker.stop()
    until(lambda: "waiting for 1 running" in caplog.text, "the worker's word")
    go_on.set()
    counts = worker.join()
    assert counts is not None
    assert (counts.completed, running.result(5)) == (1, "finished")
    assert waiting.info().status == "ready"
    assert waiting.info().attempts == 0


def test_an_idle_worker_stops_without_waiting_for_its_poll(
    app: Spindle, worker: Background, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spindle._core.WAIT_S", 300)
    app.task(queue="q")(lambda: None)
    worker.start(app, concurrency=3)
    queue = {"waiting_leases": 0}

    def waiting() -> int:
        try:
            queue.update(app.request("GET", "/api/v1/queues/q"))
        except spindle.NotFoundError:
            return 0
        return queue["waiting_leases"]

    until(lambda: waiting() == 1, "the wait")
    worker.stop()
    counts = worker.join()
    assert counts is not None
    assert (counts.completed, worker.error) == (0, None)
    until(lambda: waiting() == 0, "the end of the wait")


def test_tasks_that_listen_are_ended_and_given_back_when_the_time_to_stop_is_over(
    app: Spindle, worker: Background
) -> None:
    begun = threading.Barrier(3)

    @app.task
    def patient() -> None:
        begun.wait(30)
        current_job().wait_cancelled(30)
        current_job().raise_if_cancelled()

    @app.task
    async def apatient() -> None:
        begun.wait(30)
        await asyncio.sleep(30)

    worker.start(app, stop_timeout=0.1)
    jobs = [patient.delay(), apatient.delay()]
    begun.wait(30)
    worker.stop()
    counts = worker.join()
    assert counts is not None
    assert (counts.released, worker.error) == (2, None)
    assert [job.info().status for job in jobs] == ["ready", "ready"]


def test_a_second_stop_does_not_wait_and_deaf_tasks_are_given_back(
    app: Spindle, worker: Background, caplog: pytest.LogCaptureFixture
) -> None:
    begun, go_on = threading.Event(), threading.Event()

    @app.task
    def deaf() -> None:
        begun.set()
        go_on.wait(60)

    worker.start(app, stop_timeout=None)
    job = deaf.delay()
    assert begun.wait(30)
    worker.stop()
    until(lambda: "waiting for 1 running" in caplog.text, "the worker's word")
    worker.stop()
    until(lambda: worker.error is not None or worker.counts is not None)
    until(lambda: job.info().status == "ready", "the job's return")
    go_on.set()
    worker.join()
    assert isinstance(worker.error, spindle.WorkerError)
    assert str(job.id) in str(worker.error)


def test_a_worker_without_tasks_or_with_unknown_queues_does_not_begin(app: Spindle) -> None:
    with pytest.raises(ValueError, match="no task to work on"):
        app.worker()
    app.task(queue="mail")(lambda: None)
    with pytest.raises(ValueError, match="no task has the queue sms"):
        app.async_worker(queues=["mail", "sms"])


def test_a_worker_takes_the_chosen_queues_only(app: Spindle, worker: Background) -> None:
    one, other = app.task(queue="one")(lambda: 1), app.task(queue="other")(lambda: 2)
    jobs = [one.delay(), other.delay()]
    worker.drain(app, queues=["other"])
    assert [job.info().status for job in jobs] == ["ready", "done"]


def test_many_jobs_run_once_each(app: Spindle, worker: Background) -> None:
    lock = threading.Lock()
    seen: list[int] = []

    @app.task
    def count(number: int) -> int:
        with lock:
            seen.append(number)
        return number

    jobs = app.submit_many(count.message(number) for number in range(300))
    counts = worker.drain(app, concurrency=8)
    assert (counts.completed, sorted(seen)) == (300, list(range(300)))
    assert jobs[299].result(5) == 299


def test_the_server_lists_the_worker_by_its_name(app: Spindle, worker: Background) -> None:
    @app.task
    def names() -> list[str]:
        workers = app.request("GET", "/api/v1/workers")["workers"]
        return [entry["name"] for entry in workers if entry["jobs"]]

    job = names.delay()
    worker.drain(app, name="mailer-1")
    assert job.result(5) == ["mailer-1"]


def test_failed_jobs_are_logged_without_their_payload(
    app: Spindle, worker: Background, caplog: pytest.LogCaptureFixture
) -> None:
    @app.task(retries=0)
    def fails(secret: str) -> None:
        raise ValueError("bad")

    job = fails.delay("xyzzy")
    worker.drain(app)
    warnings = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert [record.getMessage() for record in warnings] == [
        f"job {job.id} of fails failed: ValueError: bad"
    ]
    assert "xyzzy" not in caplog.text
