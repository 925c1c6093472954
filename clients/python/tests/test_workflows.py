"""Jobs that wait for others, batches, fair keys, and results of the jobs before."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from conftest import Background

import spindle
from spindle import BytesSerializer, Spindle, current_job


def test_a_job_waits_for_jobs_and_batches_by_handles_and_numbers(app: Spindle) -> None:
    @app.task
    def album(name: str) -> None: ...

    one, two = app.submit(app.message("resize", 1)), app.submit(app.message("resize", 2))
    batch = app.open_batch("photos")
    waiting = album.configure(after=[one, two.id, batch], on_dead="run", fair_key="acme")
    job = waiting.delay("holidays")
    fields = job.info().fields
    assert (fields["status"], fields["on_dead"], fields["fair_key"]) == ("blocked", "run", "acme")
    assert fields["after"] == [
        {"id": one.id, "status": "ready"},
        {"id": two.id, "status": "ready"},
        {"id": batch.id, "is_batch": True, "status": "open"},
    ]
    one.cancel()
    two.delete()
    batch.seal()
    assert job.info().status == "ready"
    with pytest.raises(spindle.NotFoundError) as refused:
        album.configure(after=999_999).delay("x")
    assert refused.value.code == "after_not_found"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"after": 1.5}, "after: 1.5 is no job"),
        ({"after": [True]}, "after: True is no job"),
        ({"after": object()}, "is no job or batch"),
        ({"batch": "7"}, "batch: '7' is no job or batch"),
        ({"on_dead": "die"}, "none of cancel, run, wait"),
    ],
)
def test_what_nobody_can_wait_for_is_refused_at_once(options: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        Spindle().message("q", **options)


def test_messages_of_one_request_wait_for_each_other(app: Spindle) -> None:
    album = app.message("album", "holidays", after=["one", "two"])
    one = app.message("resize", "photo-1.jpg", ref="one", idempotency_key="photo-1")
    two = app.message("resize", "photo-2.jpg", ref="two")
    jobs = app.submit_many([album, one, two])
    info = jobs[0].info()
    assert info.status == "blocked"
    assert [before["id"] for before in info.fields["after"]] == [jobs[1].id, jobs[2].id]
    again = app.submit_many([one])
    assert (again[0].id, again[0].existing) == (jobs[1].id, True)


def test_circles_are_refused_and_named_messages_go_in_one_request_or_in_none(app: Spindle) -> None:
    circle = [app.message("q", ref="a", after="b"), app.message("q", ref="b", after="a")]
    with pytest.raises(spindle.SubmitManyError) as refused:
        app.submit_many(circle)
    assert {error.code for error in refused.value.errors.values()} == {"bad_field"}
    many = [*(app.message("many") for _ in range(1000)), app.message("many", ref="last")]
    with pytest.raises(spindle.SubmitManyError) as refused:
        app.submit_many(many)
    assert {error.code for error in refused.value.errors.values()} == {"out_of_range"}
    assert refused.value.taken == {}


def test_a_batch_is_opened_filled_sealed_and_ends(app: Spindle, worker: Background) -> None:
    @app.task
    def resize(n: int) -> int:
        return n

    with app.open_batch("photos", name="holidays", key="2026", keep=60) as batch:
        assert not batch.existing
        again = app.open_batch("photos", key="2026")
        assert (again.id, again.existing) == (batch.id, True)
        with app.open_batch("photos", parent=batch) as inner:
            assert not inner.existing
        job = batch.add(resize.message(1))
        assert job.info().fields["batch"] == batch.id
        assert len(batch.add_many(resize.message(n) for n in (2, 3))) == 2
        resize.configure(batch=batch).delay(4)
        info = batch.info()
        assert (info.status, info.name) == ("open", "holidays")
        assert (info.total, info.unfinished, info.done) == (5, 4, 1)
        assert not info.has_ended
    assert batch.info().status == "sealed"
    for call in (batch.seal, lambda: batch.add(resize.message(5))):
        with pytest.raises(spindle.ConflictError) as refused:
            call()
        assert refused.value.code == "batch_sealed"
    for timeout in (0, 0.05):
        with pytest.raises(spindle.ResultTimeoutError, match=r"is still sealed|was not seen"):
            batch.ended(timeout)
    worker.start(app)
    ended = batch.ended(30)
    assert (ended.status, ended.done, ended.has_ended) == ("done", 5, True)
    assert [one.id for one in app.batches()] == [inner.id, batch.id]
    with pytest.raises(spindle.NotFoundError):
        app.batch(999_999).info()


def test_a_batch_whose_block_fails_stays_open(app: Spindle) -> None:
    with pytest.raises(RuntimeError), app.open_batch("photos") as batch:
        raise RuntimeError
    assert batch.info().status == "open"
    job = batch.add(app.message("nobody"))
    batch.cancel()
    ended = batch.ended()
    assert (ended.status, ended.dead, ended.fields["cancelled"]) == ("ended", 1, True)
    assert job.info().code == "cancelled"


def test_batches_are_also_for_asyncio(app: Spindle) -> None:
    @app.task
    async def resize(n: int) -> int:
        return n

    async def use() -> None:
        async with app:
            async with await app.aopen_batch("photos") as batch:
                await batch.aadd(resize.message(1))
                await batch.aadd_many([resize.message(2)])
                assert (await batch.ainfo()).unfinished == 2
            ended = asyncio.ensure_future(batch.aended(30))
            await app.async_worker().drain()
            assert (await ended).done == 2
            other = await app.aopen_batch("photos")
            await other.acancel()
            assert (await other.aended(0)).status == "done"
            assert len(await app.abatches()) == 2

    asyncio.run(use())


@pytest.mark.parametrize("is_coroutine", [False, True])
def test_a_task_reads_the_results_of_the_jobs_before(
    app: Spindle, worker: Background, is_coroutine: bool
) -> None:
    @app.task(retries=0)
    def resize(n: int) -> dict[str, int]:
        if n == 0:
            raise ValueError("no picture")
        return {"size": n}

    @app.task(queue="raw", raw=True, serializer=BytesSerializer())
    def raw(content: bytes) -> bytes:
        return content[::-1]

    @app.task(retries=0)
    def album() -> list[Any]:
        job = current_job()
        with pytest.raises(spindle.ApiError) as refused:
            job.result_of(999_999)
        assert refused.value.code == "out_of_range"
        first = job.result_of(job.after[0])
        try:
            results = job.results_before()
        except spindle.JobFailedError as error:
            return [first, error.info.id, error.message]
        return [first, results[0], list(results[1])]

    @app.task(retries=0)
    async def aalbum() -> list[Any]:
        job = current_job()
        first = await job.aresult_of(job.after[0].id)
        try:
            results = await job.aresults_before()
        except spindle.JobFailedError as error:
            return [first, error.info.id, error.message]
        return [first, results[0], list(results[1])]

    task: spindle.Task[[], Any] = aalbum if is_coroutine else album  # type: ignore[assignment]
    three, pixels, none = resize.delay(3), raw.delay(b"\x00\xff"), resize.delay(0)
    with app.open_batch("photos") as batch:
        pass
    job = task.configure(after=[pixels, three, batch]).delay()
    other = task.configure(after=[three, none], on_dead="run").delay()
    worker.start(app)
    assert job.result(30) == [{"size": 3}, {"size": 3}, [255, 0]]
    assert other.result(30) == [{"size": 3}, none.id, "no picture"]


def test_a_result_before_that_was_deleted_is_not_found(app: Spindle, worker: Background) -> None:
    @app.task
    def behind() -> str:
        job = current_job()
        try:
            job.results_before()
        except spindle.NotFoundError as error:
            return f"{job.after[0].status}: {error.code}"
        return "found"

    before = app.submit(app.message("before"))
    job = behind.configure(after=before, on_dead="run").delay()
    before.delete()
    worker.start(app)
    assert job.result(30) == "gone: job_not_found"


def test_jobs_are_parked_and_released_and_queues_paused(app: Spindle) -> None:
    job = app.submit(app.message("a/b"))
    job.park()
    assert job.info().status == "parked"
    job.release()
    app.pause("a/b")
    assert app.request("GET", "/api/v1/queues/a%2Fb")["paused"]
    app.resume("a/b")

    async def use() -> None:
        async with app:
            await job.apark()
            assert (await job.ainfo()).status == "parked"
            await job.arelease()
            await app.apause("a/b")
            assert (await app.arequest("GET", "/api/v1/queues/a%2Fb"))["paused"]
            await app.aresume("a/b")

    asyncio.run(use())
    assert not app.request("GET", "/api/v1/queues/a%2Fb")["paused"]
    assert job.info().status == "ready"
