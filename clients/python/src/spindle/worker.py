"""The worker: leases jobs and runs their tasks in threads."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import signal
import socket
import threading
import time
from typing import TYPE_CHECKING, Any, Callable, Optional

from ._core import Attempt, Core, Counts, as_error
from ._flow import Exchange, Exchanged, Rest
from ._threads import Line
from ._worker_base import DEFAULT_STOP_TIMEOUT_S, GRACE_S, SIGNALS, WorkerBase
from .running import _CURRENT

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import FrameType

    from ._core import WorkerFlow
    from ._reports import Report
    from .client import Spindle

DEFAULT_CONCURRENCY = 8


class Worker(WorkerBase):
    """Runs the tasks of an app, each job in one of ``concurrency`` threads.

    Tasks that are coroutine functions run in an event loop of their thread; for many of them at
    once there is the :class:`~spindle.AsyncWorker`.
    """

    def __init__(
        self,
        app: Spindle,
        *,
        queues: Optional[Iterable[str]] = None,
        concurrency: int = DEFAULT_CONCURRENCY,
        stop_timeout: Optional[float] = DEFAULT_STOP_TIMEOUT_S,
        name: Optional[str] = None,
    ) -> None:
        """``queues`` are those of the app's tasks unless given.

        ``stop_timeout`` is how many seconds running jobs have when the worker stops; None lets
        them take as long as they need.
        """
        super().__init__(app, queues, concurrency, stop_timeout, name)
        #: How often it was told to stop. A signal handler may add to it, so it is no Event.
        self._stops = 0
        self._stopping = threading.Event()
        self._waker: Optional[_Waker] = None
        self._lock = threading.Lock()

    def run(self, *, install_signal_handlers: bool = True) -> Counts:
        """Works until :meth:`stop`, SIGTERM or SIGINT, and finishes what runs then.

        A second signal, or the end of ``stop_timeout``, gives unfinished jobs back. Raises a
        :class:`~spindle.errors.WorkerError` if the server refuses this worker.
        """
        return self._work(is_drain=False, install_signal_handlers=install_signal_handlers)

    def drain(self, *, install_signal_handlers: bool = False) -> Counts:
        """Works until no job is ready, and returns: for tests, and for cron."""
        return self._work(is_drain=True, install_signal_handlers=install_signal_handlers)

    def stop(self) -> None:
        """From any thread or signal handler: take no more jobs; ``run`` returns when those that
        run are finished. The second call does not wait for them.
        """
        self._stops += 1
        waker = self._waker
        if waker is not None:
            waker.wake()

    def _work(self, *, is_drain: bool, install_signal_handlers: bool) -> Counts:
        core = self._core(is_drain=is_drain)
        with self._lock:
            if self._waker is not None:
                raise RuntimeError("the worker runs already")
            self._waker = waker = _Waker()
        core.on_end = waker.wake
        # What the threads take up; None is the end of one of them.
        attempts: queue.SimpleQueue[Optional[Attempt]] = queue.SimpleQueue()
        core.begin = attempts.put
        line = Line(core.settings)
        leasing, core.wake_leasing = self._flow_thread(core, core.leasing(), line)
        reporting, core.wake_reporting = self._flow_thread(
            core, core.reporting(), Line(core.settings)
        )
        heartbeats = threading.Thread(target=_keep_leases, args=(core,), daemon=True)
        slots = [
            threading.Thread(target=self._slot, args=(core, attempts), daemon=True)
            for _ in range(self.concurrency)
        ]
        try:
            with _signals(self.stop if install_signal_handlers else None):
                for thread in (heartbeats, leasing, reporting, *slots):
                    thread.start()
                self._log_start()
                self._wait(core, line, waker)
        finally:
            core.stop()
            line.hang_up()
            for _ in range(self.concurrency):
                attempts.put(None)
            core.heartbeats.wake()
            if not core.is_running():
                # They close their event loops.
                for slot in filter(threading.Thread.is_alive, slots):
                    slot.join()
            self._stopping.clear()
            self._waker = None
            self._stops = 0
        return self._ended(core)

    def _wait(self, core: Core, line: Line, waker: _Waker) -> None:
        """Until all jobs have been reported, or are left to themselves."""

        def has_ended() -> bool:
            return core.has_ended

        waker.wait(lambda: self._stops > 0 or core.is_stopping or has_ended())
        core.stop()
        self._stopping.set()
        self._log_stop(core)
        line.hang_up()
        told = max(self._stops, 1)
        waker.wait(lambda: self._stops > told or has_ended(), self.stop_timeout)
        if not has_ended():
            for job in core.heartbeats.jobs():
                job._cancel("stopping")
            waker.wait(has_ended, GRACE_S)
        if not has_ended():
            _give_back(core)

    def _flow_thread(
        self, core: Core, flow: WorkerFlow, line: Line
    ) -> tuple[threading.Thread, Callable[[], None]]:
        """A thread that takes the steps of a flow, and what wakes it when it rests."""
        woken = threading.Event()

        def take_steps() -> None:
            answer: Optional[Exchanged] = None
            try:
                while True:
                    step = flow.send(answer)
                    answer = None
                    if isinstance(step, Exchange):
                        answer = line.exchange(step)
                    elif isinstance(step, Rest):
                        woken.wait()
                        woken.clear()
                    else:
                        self._pause(step.seconds)
            except StopIteration:
                pass
            except BaseException as error:  # noqa: BLE001 - it ends the worker, which raises it
                core.fail(error)
            finally:
                flow.close()
                line.close()

        return threading.Thread(target=take_steps, daemon=True), woken.set

    def _slot(self, core: Core, attempts: queue.SimpleQueue[Optional[Attempt]]) -> None:
        """Runs one job after the other."""
        loop = _Loop(self.app)
        while True:
            attempt = attempts.get()
            if attempt is None:
                break
            try:
                report = self._run(core, attempt, loop)
            except BaseException as error:  # noqa: BLE001 - it ends the worker, which raises it
                core.attempt_crashed(attempt, error)
            else:
                core.attempt_ended(report)
        loop.close()

    def _pause(self, seconds: float) -> None:
        if self._stopping.is_set():
            time.sleep(seconds)
        else:
            self._stopping.wait(seconds)

    @staticmethod
    def _run(core: Core, attempt: Attempt, loop: _Loop) -> Report:
        """Runs the task of a job in this thread."""
        if attempt.unreadable is not None:
            return core.failure(attempt, attempt.unreadable)
        task, job = attempt.task, attempt.job
        token = _CURRENT.set(job)
        try:
            if asyncio.iscoroutinefunction(task.function):
                value = loop.run(attempt)
            else:
                value = task.function(*attempt.args, **(attempt.kwargs or {}))
        except BaseException as error:  # noqa: BLE001 - also SystemExit ends the job, not the worker
            return core.failure(attempt, as_error(error, job))
        finally:
            job._is_over()
            _CURRENT.reset(token)
        return core.outcome(attempt, value)


def _give_back(core: Core) -> None:
    """Gives back what tasks that do not listen have; their threads are left to themselves."""
    abandoned = core.abandon()
    if abandoned is not None:
        line = Line(core.settings)
        given_back = line.exchange(abandoned.exchange(core.settings))
        line.close()
        raise abandoned.error(given_back.failure)


def _keep_leases(core: Core) -> None:
    """Sends heartbeats, in a thread of its own."""
    wake = threading.Event()
    core.heartbeats.wake = wake.set
    line = Line(core.settings)
    while not core.is_stopping or core.heartbeats.jobs():
        rest = core.heartbeats.rest_s()
        if rest is None or rest > 0:
            wake.wait(rest)
            wake.clear()
            continue
        jobs, exchange = core.heartbeats.beat()
        if exchange is not None:
            exchanged = line.exchange(exchange)
            core.heartbeats.took(jobs, exchanged)
    line.close()


class _Waker:
    """Wakes the thread that waits for a worker's end.

    A socket and no Event, because a signal handler must be able to call it: an Event has a lock
    that the interrupted thread may hold.
    """

    def __init__(self) -> None:
        self._receiver, self._sender = socket.socketpair()
        self._sender.setblocking(False)

    def wake(self) -> None:
        with contextlib.suppress(OSError):  # the buffer is full: it wakes without this one
            self._sender.send(b".")

    def wait(self, is_over: Callable[[], bool], timeout_s: Optional[float] = None) -> None:
        """Until it is over, or so long."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while not is_over():
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                return
            self._receiver.settimeout(left)
            with contextlib.suppress(socket.timeout):
                self._receiver.recv(1024)

    def __del__(self) -> None:
        self._receiver.close()
        self._sender.close()


class _Loop:
    """The event loop of a thread, for tasks that are coroutine functions."""

    def __init__(self, app: Spindle) -> None:
        self._app = app
        self._loop: Optional[asyncio.AbstractEventLoop] = None

    def run(self, attempt: Attempt) -> Any:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
        loop = self._loop
        coroutine = attempt.task.function(*attempt.args, **(attempt.kwargs or {}))
        task = loop.create_task(coroutine)
        attempt.job._when_cancelled(lambda: _cancel_from_thread(loop, task))
        return loop.run_until_complete(task)

    def close(self) -> None:
        if self._loop is not None:
            # What its tasks asked of the server through the app.
            self._loop.run_until_complete(self._app._aclose_loop())
            self._loop.close()


def _cancel_from_thread(loop: asyncio.AbstractEventLoop, task: asyncio.Task[Any]) -> None:
    loop.call_soon_threadsafe(task.cancel)


@contextlib.contextmanager
def _signals(stop: Optional[Callable[[], None]]) -> Iterator[None]:
    """SIGTERM and SIGINT stop the worker, where Python lets a thread say so."""
    if stop is None or threading.current_thread() is not threading.main_thread():
        yield
        return
    told = stop

    def handle(_number: int, _frame: Optional[FrameType]) -> None:
        told()

    before = [(number, signal.signal(number, handle)) for number in SIGNALS]
    try:
        yield
    finally:
        for number, handler in before:
            signal.signal(number, handler)
