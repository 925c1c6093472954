"""Several jobs with one request, and their ends together: both workers, with a real server."""

from __future__ import annotations

import threading
from collections import deque
from typing import Any

import pytest
from conftest import Background, Cutter, until

import spindle
from spindle import Spindle, current_job
from spindle._reports import Report, next_reports

JOBS = 10


class Crowd:
    """Ten jobs that are worked at once, and end when they are told to."""

    def __init__(self, app: Spindle, cutter: Cutter, worker: Background, **options: Any) -> None:
        self.begun = threading.Semaphore(0)
        self.ended: list[int] = []
        self.go_on = threading.Event()
        self.cutter = cutter

        @app.task(queue="crowd", **options)
        def work(number: int) -> str:
            self.begun.release()
            # The first one ends alone: its report is under way when the others end.
            if number > 0:
                assert self.go_on.wait(30)
            self.ended.append(number)
            return "x" * (70_000 if number == JOBS - 1 else 1)

        self.jobs = app.submit_many(work.message(number) for number in range(JOBS))
        app.configure(url=cutter.url)
        cutter.hold = b"/complete "
        worker.start(app, concurrency=JOBS)
        for _ in range(JOBS):
            assert self.begun.acquire(timeout=30)
        until(lambda: self.reports(), "the first report")

    def reports(self) -> list[str]:
        """The paths of the reports so far."""
        return [path for path in self.cutter.asked if "/leases/" in path]

    def end(self) -> None:
        """All of them end, and then the first report comes through."""
        self.go_on.set()
        until(lambda: len(self.ended) == JOBS, "the end of all jobs")
        self.cutter.let_go.set()


def test_one_request_leases_as_many_jobs_as_there_is_room_for(
    app: Spindle, cutter: Cutter, worker: Background
) -> None:
    crowd = Crowd(app, cutter, worker)
    # The first job's end makes room for the next request, which waits.
    assert cutter.asked.count("/api/v1/lease") <= 2
    crowd.end()
    assert [len(job.result(30)) for job in crowd.jobs] == [*[1] * (JOBS - 1), 70_000]


def test_what_ends_while_a_report_is_under_way_is_reported_together(
    app: Spindle, cutter: Cutter, worker: Background
) -> None:
    crowd = Crowd(app, cutter, worker)
    assert len(crowd.reports()) == 1
    crowd.end()
    until(lambda: all(job.info().is_finished for job in crowd.jobs), "all reports")
    worker.stop()
    counts = worker.join()
    assert counts is not None
    assert (counts.completed, counts.lost) == (JOBS, 0)
    alone = [path for path in crowd.reports() if path.endswith("/complete")]
    # The first, the large one, and perhaps one that ended a moment later.
    assert 2 <= len(alone) <= 3
    assert "/api/v1/leases/batch" in crowd.reports()
    assert len(crowd.reports()) <= 5


def test_reports_whose_answer_was_lost_are_repeated_together(
    app: Spindle, cutter: Cutter, worker: Background
) -> None:
    crowd = Crowd(app, cutter, worker, attempts=1)
    cutter.path, cutter.lose = b"/leases/batch", 1
    crowd.end()
    until(lambda: all(job.info().is_finished for job in crowd.jobs), "all reports")
    worker.stop()
    counts = worker.join()
    assert cutter.lost == 1
    assert counts is not None
    assert (counts.completed, counts.failed, counts.lost) == (JOBS, 0, 0)


def test_a_report_that_is_refused_refuses_no_other(
    app: Spindle, cutter: Cutter, worker: Background
) -> None:
    crowd = Crowd(app, cutter, worker)
    crowd.jobs[3].delete()
    crowd.jobs[4].cancel()
    crowd.end()
    left = [job for place, job in enumerate(crowd.jobs) if place != 3]
    until(lambda: all(job.info().is_finished for job in left), "all reports")
    worker.stop()
    counts = worker.join()
    assert counts is not None
    assert (counts.completed, counts.lost) == (JOBS - 2, 2)
    assert [job.info().status for job in left].count("done") == JOBS - 2


def test_no_more_jobs_are_leased_than_can_run(app: Spindle, worker: Background) -> None:
    begun, go_on = threading.Semaphore(0), threading.Event()

    @app.task
    def work() -> None:
        begun.release()
        assert go_on.wait(30)

    jobs = app.submit_many(work.message() for _ in range(5))
    worker.start(app, concurrency=2)
    for _ in range(2):
        assert begun.acquire(timeout=30)
    assert [job.info().status for job in jobs].count("leased") == 2
    go_on.set()
    until(lambda: all(job.info().is_finished for job in jobs), "all jobs")


def test_a_worker_may_have_more_room_than_one_request_asks_for(
    app: Spindle, worker: Background
) -> None:
    together = threading.Barrier(130)

    @app.task
    def meet() -> None:
        together.wait(30)

    jobs = app.submit_many(meet.message() for _ in range(130))
    assert worker.drain(app, concurrency=130).completed == 130
    assert all(job.info().attempts == 1 for job in jobs)


def test_a_drain_waits_for_jobs_that_its_own_jobs_make(app: Spindle, worker: Background) -> None:
    @app.task(retries=1, backoff=0)
    def work(depth: int) -> None:
        if current_job().attempt == 1:
            if depth > 0:
                work.delay(depth - 1)
            raise ValueError("the first time")

    work.delay(3)
    counts = worker.drain(app, concurrency=4)
    assert (counts.completed, counts.failed) == (4, 4)


def test_the_last_end_is_counted_before_a_stop_and_a_run_end(
    app: Spindle, cutter: Cutter, worker: Background
) -> None:
    @app.task
    def last() -> None:
        worker.stop()

    job = last.delay()
    app.configure(url=cutter.url)
    cutter.hold = b"/complete "
    worker.start(app, concurrency=1)
    until(lambda: any("/complete" in path for path in cutter.asked), "the report")
    cutter.let_go.set()
    counts = worker.join()
    assert (counts, worker.error) == (spindle.Counts(completed=1), None)
    assert job.info().status == "done"


def test_finished_jobs_are_not_given_back_when_the_server_does_not_answer(
    app: Spindle, cutter: Cutter, worker: Background
) -> None:
    ended = threading.Event()

    @app.task(ttr=60)
    def work() -> None:
        ended.set()

    job = work.delay()
    app.configure(url=cutter.url)
    cutter.hold = b"/complete "
    worker.start(app, concurrency=1, stop_timeout=0.1)
    assert ended.wait(30)
    until(lambda: any("/complete" in path for path in cutter.asked), "the report")
    worker.stop()
    until(lambda: worker.error is not None, "the worker's end")
    assert isinstance(worker.error, spindle.WorkerError)
    assert f"the reports about some jobs: {job.id} of" in str(worker.error)
    assert job.info().status == "leased"
    cutter.let_go.set()
    worker.join()


@pytest.mark.parametrize("bodies", [[1] * 250, [100_000] * 3, [1, 100_000, 1]])
def test_large_reports_go_alone_and_small_ones_in_hundreds(bodies: list[int]) -> None:
    job: Any = None
    waiting = deque(Report(job, "complete", b"x" * size) for size in bodies)
    taken = []
    while waiting:
        taken.append([len(report.body) for report in next_reports(waiting)])
    assert [size for sizes in taken for size in sizes] == bodies
    assert all(len(sizes) == 1 or sum(sizes) <= 100 * 64 * 1024 for sizes in taken)
    assert max(map(len, taken)) <= 100
    assert len(taken) == 3
