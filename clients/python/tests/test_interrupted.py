"""The server is killed in the middle of each call.

Before it has seen the request, and after it has answered, with the answer lost. The call must come
out right, and nothing may happen twice.
"""

from __future__ import annotations

import asyncio
import threading
from typing import Any, Callable, TypeVar

import pytest
from conftest import Background, Cutter, until

import spindle
from spindle import Batch, Job, Spindle, current_job
from spindle.testing import SpindleServer

T = TypeVar("T")

pytestmark = pytest.mark.parametrize("is_before", [True, False], ids=["before", "after"])


class Bench:
    """An app through the proxy, and another one around it."""

    def __init__(self, server: SpindleServer, app: Spindle, cutter: Cutter, is_before: bool):
        self.app = app
        self.direct = Spindle(server.url, retry_for=60)
        self.cutter = cutter
        app.configure(url=cutter.url)
        cutter.is_before = is_before
        cutter.meanwhile = server.restart

    def broken_off(self, request: str, call: Callable[[], T]) -> T:
        """Makes a call, the first request of which is broken off."""
        self.cutter.path, self.cutter.lose = request.encode(), 1
        lost = self.cutter.lost
        try:
            return call()
        finally:
            until(lambda: self.cutter.lost == lost + 1, request)

    def jobs(self, queue: str) -> int:
        answer = self.direct.request("GET", f"/api/v1/jobs?queue={queue}&count=true")
        return int(answer["total"])


@pytest.fixture
def bench(spindle_server: SpindleServer, app: Spindle, cutter: Cutter, is_before: bool) -> Any:
    bench = Bench(spindle_server, app, cutter, is_before)
    yield bench
    bench.direct.close()


def test_submits_are_one_job(bench: Bench) -> None:
    app = bench.app
    job = bench.broken_off("POST /api/v1/jobs ", lambda: app.submit(app.message("once", 7)))
    assert not job.existing
    messages = [app.message("once", n) for n in range(50)]
    many = "POST /api/v1/jobs/batch "
    jobs = bench.broken_off(many, lambda: app.submit_many(messages))
    assert (len({job.id for job in jobs}), bench.jobs("once")) == (50, 51)
    named = [app.message("named", ref="one"), app.message("named", after="one")]
    one, two = bench.broken_off(many, lambda: app.submit_many(named))
    assert two.info().fields["after"] == [{"id": one.id, "status": "ready"}]
    assert bench.jobs("named") == 2


def test_submits_with_asyncio_are_one_job(bench: Bench) -> None:
    async def submit() -> None:
        async with bench.app as app:
            job = await app.asubmit(app.message("once"))
            await job.ainfo()

    bench.broken_off("POST /api/v1/jobs ", lambda: asyncio.run(submit()))
    assert bench.jobs("once") == 1


@pytest.mark.parametrize(
    ("call", "request_line", "status"),
    [
        ("info", "GET /api/v1/jobs/1 ", "ready"),
        ("cancel", "POST /api/v1/jobs/1/cancel ", "dead"),
        ("park", "POST /api/v1/jobs/1/park ", "parked"),
        ("release", "POST /api/v1/jobs/1/release ", "ready"),
        ("retry", "POST /api/v1/jobs/1/retry ", "ready"),
        ("delete", "DELETE /api/v1/jobs/1 ", None),
    ],
)
def test_calls_of_a_job_come_out_as_alone(
    bench: Bench, call: str, request_line: str, status: Any
) -> None:
    job = bench.direct.submit(bench.direct.message("q", parked=call == "release"))
    if call == "retry":
        job.cancel()
    bench.broken_off(request_line, getattr(bench.app.job(job.id), call))
    if status is None:
        with pytest.raises(spindle.NotFoundError):
            job.info()
    else:
        assert job.info().status == status


def test_a_result_is_asked_for_again(bench: Bench) -> None:
    job = bench.direct.submit(bench.direct.message("nobody"))
    job.cancel()
    with pytest.raises(spindle.JobFailedError):
        bench.broken_off("/wait?", lambda: bench.app.job(job.id).result(30))


def test_queues_are_paused_and_resumed(bench: Bench) -> None:
    app = bench.app
    bench.direct.submit(app.message("a/b"))
    bench.broken_off("POST /api/v1/queues/a%2Fb/pause ", lambda: app.pause("a/b"))
    assert bench.direct.request("GET", "/api/v1/queues/a%2Fb")["paused"]
    bench.broken_off("POST /api/v1/queues/a%2Fb/resume ", lambda: app.resume("a/b"))
    assert not bench.direct.request("GET", "/api/v1/queues/a%2Fb")["paused"]


def test_a_batch_is_opened_filled_sealed_and_cancelled_once(bench: Bench) -> None:
    app = bench.app
    batch: Batch = bench.broken_off("POST /api/v1/batches ", lambda: app.open_batch("photos"))
    assert not batch.existing
    there = f"/api/v1/batches/{batch.id}"
    bench.broken_off("POST /api/v1/jobs ", lambda: batch.add(app.message("resize")))
    bench.broken_off(f"POST {there}/seal ", batch.seal)
    info = bench.broken_off(f"GET {there} ", batch.info)
    assert (info.status, info.total, info.unfinished) == ("sealed", 1, 1)
    bench.broken_off(f"POST {there}/cancel ", batch.cancel)
    ended = bench.broken_off(f"GET {there}/wait?", lambda: batch.ended(30))
    assert (ended.status, ended.dead) == ("ended", 1)
    listed = bench.broken_off("GET /api/v1/batches?", app.batches)
    assert [batch.id for batch in listed] == [batch.id]


def test_a_batch_with_asyncio_is_sealed_once(bench: Bench) -> None:
    async def use() -> Batch:
        async with bench.app as app, await app.aopen_batch("photos") as batch:
            await batch.aadd(app.message("resize"))
        return batch

    batch = bench.broken_off("/seal ", lambda: asyncio.run(use()))
    assert bench.direct.batch(batch.id).info().status == "sealed"


def test_schedules_come_out_as_alone_and_run_once(bench: Bench, is_before: bool) -> None:
    app, report = bench.app, bench.app.message("reports", 1)
    schedule, there = app.schedule("daily/report"), "/api/v1/schedules/daily%2Freport"
    preview = bench.broken_off(f"PUT {there}?dry", lambda: schedule.preview("@yearly", report))
    put = bench.broken_off(f"PUT {there} ", lambda: schedule.put("@yearly", report))
    assert put.next_times == preview.next_times
    assert bench.broken_off(f"GET {there} ", schedule.info).name == "daily/report"
    bench.broken_off(f"POST {there}/pause ", schedule.pause)
    assert schedule.info().paused
    bench.broken_off(f"POST {there}/resume ", schedule.resume)
    assert not schedule.info().paused
    # It is not repeated: the client cannot know that a request which it sent did not arrive.
    with pytest.raises(spindle.ConnectionFailedError) as lost:
        bench.broken_off(f"POST {there}/run ", schedule.run)
    assert lost.value.maybe_received
    assert schedule.info().fields["submitted"] == (0 if is_before else 1)
    listed = bench.broken_off("GET /api/v1/schedules?", app.schedules)
    assert [schedule.name for schedule in listed] == ["daily/report"]
    bench.broken_off(f"DELETE {there} ", schedule.remove)
    assert bench.direct.schedules() == []


def meanwhile(
    bench: Bench, worker: Background, request: str, run: Callable[[], Any], after: list[Job[Any]]
) -> Any:
    """What a task comes to while one of its requests is broken off. It has one attempt."""
    bench.app.task(queue="saying", attempts=1)(run)
    message = bench.direct.message("saying", {}, attempts=1, after=after)

    def work() -> Any:
        job = bench.direct.submit(message)
        worker.start(bench.app, queues=["saying"])
        return job.result(30)

    return bench.broken_off(request, work)


@pytest.mark.parametrize("what", ["progress", "output"])
def test_what_a_task_says_is_perhaps_lost_and_its_job_goes_on(
    bench: Bench, worker: Background, what: str
) -> None:
    def say() -> bool:
        job = current_job()
        try:
            job.report_progress(3, 8) if what == "progress" else job.write_output("250 ok\n")
        except spindle.ConnectionFailedError as error:
            return error.maybe_received
        return False

    # Progress is sent once, output again only if it was not sent.
    assert meanwhile(bench, worker, f"/{what} ", say, []) is True


def test_the_result_of_a_job_before_is_read_again(bench: Bench, worker: Background) -> None:
    seven = bench.direct.task(queue="seven")(lambda: 7)
    before = seven.delay()
    bench.direct.worker().drain()

    def read() -> Any:
        return current_job().result_of(before)

    assert meanwhile(bench, worker, "/after/", read, [before]) == 7


@pytest.mark.parametrize("verb", ["/lease ", "/complete ", "/fail ", "/extend "])
def test_a_job_ends_once_whatever_a_worker_s_request_comes_to(
    bench: Bench, worker: Background, verb: str, is_before: bool
) -> None:
    calls: list[int] = []

    @bench.app.task
    def work() -> str:
        calls.append(current_job().attempt)
        if verb == "/extend ":
            assert lost.wait(30)
        if verb == "/fail ":
            raise ValueError("no")
        return "done"

    lost = threading.Event()
    restart = bench.cutter.meanwhile

    def note() -> None:
        restart()
        lost.set()

    bench.cutter.meanwhile = note
    # A lease outlives a restart, but for the one that nobody knows of.
    ttr = 0.5 if verb == "/lease " else 60
    job = bench.direct.submit(bench.direct.message("work", {}, ttr=ttr, retries=0, attempts=3))
    bench.cutter.path, bench.cutter.lose = verb.encode(), 1
    worker.start(bench.app, concurrency=1)
    if verb == "/fail ":
        with pytest.raises(spindle.JobFailedError):
            job.result(30)
    else:
        assert job.result(30) == "done"
    worker.stop()
    counts = worker.join()
    assert counts is not None
    assert (counts.completed + counts.failed, counts.lost) == (1, 0)
    # A lease whose answer is lost runs out, and is another attempt.
    assert calls == [2 if verb == "/lease " and not is_before else 1]
    assert job.info().fails == (1 if verb == "/fail " else 0)
