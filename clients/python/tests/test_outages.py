"""Servers that go away and workers that are killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from conftest import Background, Cutter, until

import spindle
from spindle import Spindle, current_job
from spindle.testing import SpindleServer

TASKS = """
import os
import sys
import time
from spindle import Spindle, current_job

app = Spindle()

@app.task(ttr=1, attempts=5, backoff=0)
def hold(folder: str) -> int:
    attempt = current_job().attempt
    open(f"{folder}/begun-{attempt}-{os.getpid()}", "w").close()
    while not os.path.exists(f"{folder}/go"):
        time.sleep(0.01)
    return attempt

@app.task(retries=0)
def fail() -> None:
    raise ValueError("no")
"""


def begun(folder: Path) -> list[int]:
    """The processes that have begun a job."""
    return [int(path.name.rsplit("-", 1)[1]) for path in sorted(folder.glob("begun-*"))]


class Command:
    """`python -m spindle worker` as a process."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        (folder / "tasks.py").write_text(TASKS)
        command = [sys.executable, "-m", "spindle", "worker", "tasks:app", *arguments]
        self.log = folder / "worker.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(command, cwd=folder, stderr=log, stdout=log)

    def wait(self) -> int:
        return self.process.wait(60)

    def output(self) -> str:
        return self.log.read_text()


@pytest.fixture
def hold(app: Spindle) -> spindle.Task[Any, int]:
    @app.task(ttr=1, attempts=5, backoff=0)
    def hold(folder: str) -> int:
        raise AssertionError

    return hold


def test_a_server_that_crashes_while_a_job_runs_gets_its_result(
    spindle_server: SpindleServer, app: Spindle, worker: Background
) -> None:
    running, go_on = threading.Event(), threading.Event()

    @app.task(attempts=1)
    def slow() -> str:
        running.set()
        assert go_on.wait(30)
        return "done"

    worker.start(app)
    job = slow.delay()
    assert running.wait(30)
    spindle_server.kill()
    go_on.set()
    spindle_server.start()
    assert job.result(30) == "done"
    assert job.info().attempts == 1


def test_a_result_is_waited_for_over_a_crash_of_the_server(
    spindle_server: SpindleServer, app: Spindle, worker: Background
) -> None:
    app.task(queue="late")(lambda: "late")
    job = app.submit(app.message("late"))
    results: list[Any] = []
    waiting = threading.Thread(target=lambda: results.append(job.result(60)))
    waiting.start()
    spindle_server.restart()
    worker.start(app)
    waiting.join(60)
    assert results == ["late"]


def test_an_idle_worker_goes_on_after_a_crash_of_the_server(
    spindle_server: SpindleServer,
    app: Spindle,
    worker: Background,
    caplog: pytest.LogCaptureFixture,
) -> None:
    double = app.task(queue="double")(lambda number: number * 2)
    worker.start(app)
    assert double.delay(1).result(30) == 2
    spindle_server.kill()
    until(lambda: "trying again until it answers" in caplog.text, "the warning")
    spindle_server.start()
    assert double.delay(4).result(30) == 8
    until(lambda: "the server answers again" in caplog.text, "the word of its return")


def test_a_worker_waits_for_a_server_that_is_not_there_yet(
    spindle_server: SpindleServer, app: Spindle, worker: Background
) -> None:
    job = app.submit(app.message("early"))
    app.task(queue="early")(lambda: "early")
    spindle_server.kill()
    worker.start(app)
    spindle_server.start()
    assert job.result(30) == "early"


def test_a_worker_stops_while_the_server_is_away(
    spindle_server: SpindleServer,
    app: Spindle,
    worker: Background,
    caplog: pytest.LogCaptureFixture,
) -> None:
    app.task(queue="q")(lambda: None)
    spindle_server.kill()
    worker.start(app)
    until(lambda: "trying again until it answers" in caplog.text, "the warning")
    worker.stop()
    assert worker.join() is not None


@pytest.mark.parametrize("verb", [b"/complete", b"/fail", b"/extend", b"/lease "])
def test_lost_answers_to_a_worker_run_no_job_twice_that_has_ended(
    app: Spindle, cutter: Cutter, worker: Background, verb: bytes
) -> None:
    app.configure(url=cutter.url)
    calls: list[int] = []

    @app.task(ttr=0.5, retries=0, backoff=0)
    def work() -> str:
        calls.append(current_job().attempt)
        if verb == b"/extend":
            until(lambda: cutter.lost == 1, "a lost heartbeat")
        if verb == b"/fail":
            raise ValueError("no")
        return "done"

    cutter.path, cutter.lose = verb, 1
    worker.start(app, concurrency=1)
    job = work.delay()
    until(lambda: job.info().is_finished)
    worker.stop()
    counts = worker.join()
    assert cutter.lost == 1
    assert counts is not None
    # A lease whose answer is lost runs out, and is another attempt.
    assert calls == [2 if verb == b"/lease " else 1]
    is_failure = verb == b"/fail"
    assert (counts.completed, counts.failed, counts.lost) == (not is_failure, is_failure, 0)


def test_the_job_of_a_killed_worker_comes_back_after_its_lease(
    app: Spindle, hold: spindle.Task[Any, int], tmp_path: Path
) -> None:
    first = Command(tmp_path)
    job = hold.delay(str(tmp_path))
    until(lambda: begun(tmp_path), "the first attempt")
    first.process.kill()
    first.wait()
    second = Command(tmp_path)
    until(lambda: len(begun(tmp_path)) == 2, "the second attempt")
    (tmp_path / "go").touch()
    assert job.result(30) == 2
    second.process.terminate()
    assert second.wait() == 0


@pytest.mark.parametrize("pool", ["threads", "asyncio"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_finishes_what_runs(
    app: Spindle, hold: spindle.Task[Any, int], tmp_path: Path, pool: str, number: int
) -> None:
    command = Command(tmp_path, "--pool", pool)
    job = hold.delay(str(tmp_path))
    until(lambda: begun(tmp_path), "the job")
    command.process.send_signal(number)
    until(lambda: "waiting for 1 running" in command.output(), "the worker's word")
    (tmp_path / "go").touch()
    assert command.wait() == 0
    assert job.result(5) == 1
    assert "1 completed, 0 failed" in command.output()


@pytest.mark.parametrize("pool", ["threads", "asyncio"])
def test_a_second_signal_gives_the_job_back_and_ends_with_an_error(
    app: Spindle, hold: spindle.Task[Any, int], tmp_path: Path, pool: str
) -> None:
    command = Command(tmp_path, "--pool", pool)
    job = hold.delay(str(tmp_path))
    until(lambda: begun(tmp_path), "the job")
    command.process.terminate()
    until(lambda: "waiting for 1 running" in command.output(), "the worker's word")
    command.process.terminate()
    assert command.wait() == 1
    assert "were given back" in command.output()
    assert job.info().status == "ready"


def test_processes_share_the_work_and_a_crashed_one_is_replaced(
    app: Spindle, hold: spindle.Task[Any, int], tmp_path: Path
) -> None:
    command = Command(tmp_path, "--processes", "2", "-c", "1")
    jobs = [hold.delay(str(tmp_path)), hold.delay(str(tmp_path))]
    until(lambda: len(set(begun(tmp_path))) == 2, "two processes")
    os.kill(begun(tmp_path)[0], signal.SIGKILL)
    until(lambda: len(set(begun(tmp_path))) == 3, "a third process")
    (tmp_path / "go").touch()
    assert sorted(job.result(30) for job in jobs) == [1, 2]
    command.process.terminate()
    assert command.wait() == 0
    assert "starting another" in command.output()


def test_processes_end_with_the_one_that_started_them(
    app: Spindle, hold: spindle.Task[Any, int], tmp_path: Path
) -> None:
    command = Command(tmp_path, "--processes", "2")
    hold.delay(str(tmp_path))
    until(lambda: begun(tmp_path), "the job")
    command.process.kill()
    command.wait()
    until(lambda: "waiting for 1 running" in command.output(), "the worker's word")
    (tmp_path / "go").touch()
    until(lambda: "1 completed" in command.output(), "the worker's end")


def test_a_drain_ends_by_itself_and_says_whether_jobs_failed(app: Spindle, tmp_path: Path) -> None:
    assert Command(tmp_path, "--drain").wait() == 0
    app.submit(app.message("fail"))
    command = Command(tmp_path, "--drain", "--pool", "asyncio")
    assert command.wait() == 5
    assert "0 completed, 1 failed" in command.output()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["worker", "nowhere:app"], "there is no module 'nowhere'"),
        (["worker", "json:dumps"], "is no Spindle app in json"),
        (["worker", "tasks:app", "-Q", "other"], "no task has the queue other"),
        (["worker", "tasks:app", "-c", "0"], "at least 1"),
        ([], "required"),
    ],
)
def test_wrong_command_lines_are_usage_errors(
    tmp_path: Path, arguments: list[str], message: str
) -> None:
    (tmp_path / "tasks.py").write_text(TASKS)
    command = [sys.executable, "-m", "spindle", *arguments]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, message in done.stderr) == (2, True), done.stderr


def test_a_fixture_without_a_server_program_fails(tmp_path: Path) -> None:
    with pytest.raises(spindle.SpindleError, match="there is no server program"):
        SpindleServer(tmp_path, program=str(tmp_path / "nothing")).start()
    with pytest.raises(spindle.SpindleError, match="did not start"):
        SpindleServer(tmp_path, options=["--sync", "never"]).start()
