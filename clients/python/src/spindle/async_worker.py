"""The worker for asyncio: many jobs at once in one event loop."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import signal
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Optional

from ._asyncio import AsyncLine
from ._core import Attempt, Core, Counts, as_error
from ._flow import Exchange, Exchanged, Rest
from ._worker_base import DEFAULT_STOP_TIMEOUT_S, GRACE_S, SIGNALS, WorkerBase
from .running import _CURRENT

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ._core import WorkerFlow
    from ._reports import Report
    from .client import Spindle

DEFAULT_CONCURRENCY = 100


class AsyncWorker(WorkerBase):
    """Runs the tasks of an app in the event loop, up to ``concurrency`` jobs at once.

    Tasks that are ordinary functions run in a pool of as many threads.
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
        """The arguments are those of the :class:`~spindle.Worker`."""
        super().__init__(app, queues, concurrency, stop_timeout, name)
        self._stops = 0
        self._loop: Optional[asyncio.AbstractEventLoop] = None
        self._told: Optional[asyncio.Event] = None

    async def run(self, *, install_signal_handlers: bool = False) -> Counts:
        """Works until :meth:`stop`, and finishes what runs then.

        With ``install_signal_handlers`` SIGTERM and SIGINT call that. A cancelled ``run`` cancels
        the tasks that run, and gives their jobs back.
        """
        return await self._work(is_drain=False, install_signal_handlers=install_signal_handlers)

    async def drain(self, *, install_signal_handlers: bool = False) -> Counts:
        """Works until no job is ready, and returns: for tests, and for cron."""
        return await self._work(is_drain=True, install_signal_handlers=install_signal_handlers)

    def stop(self) -> None:
        """From any thread: take no more jobs; ``run`` returns when those that run are finished.

        The second call does not wait for them.
        """
        self._stops += 1
        loop, told = self._loop, self._told
        if loop is not None and told is not None:
            # The loop may have been closed meanwhile: then the worker has ended.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(told.set)

    async def _work(self, *, is_drain: bool, install_signal_handlers: bool) -> Counts:
        if self._loop is not None:
            raise RuntimeError("the worker runs already")
        self._loop = asyncio.get_running_loop()
        # Made here: that of Python 3.9 belongs to the loop it was made in.
        self._told = asyncio.Event()
        core = self._core(is_drain=is_drain)
        line = AsyncLine(core.settings)
        threads = ThreadPoolExecutor(self.concurrency, "spindle")
        attempts: set[asyncio.Future[None]] = set()

        def begin(attempt: Attempt) -> None:
            running = asyncio.ensure_future(self._attempt(core, attempt, threads))
            attempts.add(running)
            running.add_done_callback(attempts.discard)

        core.begin = begin
        with _signals(self._loop, self if install_signal_handlers else None):
            wake_leasing, wake_reporting = asyncio.Event(), asyncio.Event()
            core.wake_leasing, core.wake_reporting = wake_leasing.set, wake_reporting.set
            leasing = self._take_steps(core, core.leasing(), line, wake_leasing)
            reporting = self._take_steps(
                core, core.reporting(), AsyncLine(core.settings), wake_reporting
            )
            helpers: list[asyncio.Future[None]] = [
                asyncio.ensure_future(one) for one in (_keep_leases(core), leasing, reporting)
            ]
            self._log_start()
            try:
                await self._wait(core, helpers[-1], line)
            finally:
                core.stop()
                for task in helpers:
                    task.cancel()
                await asyncio.wait(helpers)
                threads.shutdown(wait=False)
                # What its tasks asked of the server through the app.
                await self.app._aclose_loop()
                self._loop = None
                self._stops = 0
        return self._ended(core)

    async def _wait(self, core: Core, end: asyncio.Future[None], line: AsyncLine) -> None:
        """Until all jobs have been reported, or are left to themselves."""
        is_cancelled = False
        try:
            await self._until(end, 0, None)
        except asyncio.CancelledError:
            is_cancelled = True
        core.stop()
        self._log_stop(core)
        line.hang_up()
        if not is_cancelled:
            try:
                await self._until(end, max(self._stops, 1), self.stop_timeout)
            except asyncio.CancelledError:
                is_cancelled = True
        if not end.done():
            for job in core.heartbeats.jobs():
                job._cancel("stopping")
            await asyncio.wait([end], timeout=GRACE_S)
        if not end.done():
            await _give_back(core)
        if is_cancelled:
            raise asyncio.CancelledError

    async def _until(
        self, end: asyncio.Future[Any], stops: int, timeout_s: Optional[float]
    ) -> None:
        """Until the end, or there were more stops than this, or so long."""
        loop = asyncio.get_running_loop()
        deadline = None if timeout_s is None else loop.time() + timeout_s
        event = self._told or asyncio.Event()
        while not end.done() and self._stops <= stops:
            event.clear()
            told: asyncio.Future[Any] = asyncio.ensure_future(event.wait())
            left = None if deadline is None else deadline - loop.time()
            if left is not None and left <= 0:
                told.cancel()
                return
            try:
                await asyncio.wait([end, told], timeout=left, return_when=asyncio.FIRST_COMPLETED)
            finally:
                told.cancel()

    async def _take_steps(
        self, core: Core, flow: WorkerFlow, line: AsyncLine, woken: asyncio.Event
    ) -> None:
        """Takes the steps of a flow of the worker."""
        answer: Optional[Exchanged] = None
        try:
            while True:
                step = flow.send(answer)
                answer = None
                if isinstance(step, Exchange):
                    answer = await line.exchange(step)
                elif isinstance(step, Rest):
                    await woken.wait()
                    woken.clear()
                else:
                    await asyncio.sleep(step.seconds)
        except StopIteration:
            pass
        except Exception as error:  # noqa: BLE001 - it ends the worker, which raises it
            core.fail(error)
            self.stop()
        finally:
            flow.close()
            await line.aclose()

    async def _attempt(self, core: Core, attempt: Attempt, threads: ThreadPoolExecutor) -> None:
        try:
            report = await self._run(core, attempt, threads)
        except Exception as error:  # noqa: BLE001 - it ends the worker, which raises it
            core.attempt_crashed(attempt, error)
            self.stop()
        else:
            core.attempt_ended(report)

    @staticmethod
    async def _run(core: Core, attempt: Attempt, threads: ThreadPoolExecutor) -> Report:
        if attempt.unreadable is not None:
            return core.failure(attempt, attempt.unreadable)
        task, job = attempt.task, attempt.job
        loop = asyncio.get_running_loop()
        token = _CURRENT.set(job)
        try:
            if asyncio.iscoroutinefunction(task.function):
                running = asyncio.ensure_future(_outcome(attempt))
                job._when_cancelled(lambda: _cancel(loop, running))
                value, raised = await running
            else:
                context = contextvars.copy_context()
                value, raised = await loop.run_in_executor(
                    threads, lambda: context.run(_outcome_here, attempt)
                )
        except asyncio.CancelledError as error:
            if job.cancel_reason is None and core.is_stopping:
                job._cancel("stopping")
            return core.failure(attempt, as_error(error, job))
        finally:
            job._is_over()
            _CURRENT.reset(token)
        if raised is not None:
            return core.failure(attempt, as_error(raised, job))
        return core.outcome(attempt, value)


async def _outcome(attempt: Attempt) -> tuple[Any, Optional[BaseException]]:
    """What a task returns or raises. A SystemExit would end the loop, so nothing is raised here."""
    try:
        return await attempt.task.function(*attempt.args, **(attempt.kwargs or {})), None
    except asyncio.CancelledError:
        raise
    except BaseException as error:  # noqa: BLE001 - whatever it is, it is how the job failed
        return None, error


def _outcome_here(attempt: Attempt) -> tuple[Any, Optional[BaseException]]:
    """The same for an ordinary function."""
    try:
        return attempt.task.function(*attempt.args, **(attempt.kwargs or {})), None
    except BaseException as error:  # noqa: BLE001 - whatever it is, it is how the job failed
        return None, error


def _cancel(loop: asyncio.AbstractEventLoop, running: asyncio.Future[Any]) -> None:
    loop.call_soon_threadsafe(running.cancel)


async def _keep_leases(core: Core) -> None:
    """Sends heartbeats, in a task of its own."""
    wake = asyncio.Event()
    core.heartbeats.wake = wake.set
    line = AsyncLine(core.settings)
    try:
        while True:
            rest = core.heartbeats.rest_s()
            if rest is None or rest > 0:
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(wake.wait(), rest)
                wake.clear()
                continue
            jobs, exchange = core.heartbeats.beat()
            if exchange is not None:
                exchanged = await line.exchange(exchange)
                core.heartbeats.took(jobs, exchanged)
    finally:
        await line.aclose()


async def _give_back(core: Core) -> None:
    """Gives back what tasks that do not listen have; their threads are left to themselves."""
    abandoned = core.abandon()
    if abandoned is not None:
        line = AsyncLine(core.settings)
        exchanged = await line.exchange(abandoned.exchange(core.settings))
        await line.aclose()
        raise abandoned.error(exchanged.failure)


@contextlib.contextmanager
def _signals(loop: asyncio.AbstractEventLoop, worker: Optional[AsyncWorker]) -> Iterator[None]:
    """SIGTERM and SIGINT stop the worker, where the loop can say so."""
    numbers: list[signal.Signals] = []
    for number in SIGNALS if worker is not None else ():
        with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
            loop.add_signal_handler(number, worker.stop)  # type: ignore[union-attr]
            numbers.append(number)
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
