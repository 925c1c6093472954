"""``python -m spindle worker MODULE:APP``: runs a worker until it is told to stop.

Exit codes: 0 it was stopped, or a drain found no job any more; 1 the server refuses the worker, or
tasks did not stop in time; 2 the command line is wrong; 5 a job of a drain failed.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import logging
import os
import sys
import threading
from typing import TYPE_CHECKING, Optional

from . import async_worker, worker
from ._processes import Processes
from ._version import __version__
from ._worker_base import DEFAULT_STOP_TIMEOUT_S
from .client import Spindle
from .errors import ConfigError, WorkerError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ._core import Counts

OK, ERROR, USAGE, JOB_FAILED = 0, 1, 2, 5
_LOG_FORMAT = "%(asctime)s %(levelname)s %(process)d %(name)s: %(message)s"
_LEVELS = ("debug", "info", "warning", "error", "critical")


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Runs the command; its exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    parser = _parser()
    args = parser.parse_args(arguments)
    logging.basicConfig(level=args.log_level.upper(), format=_LOG_FORMAT, stream=sys.stderr)
    sys.path.insert(0, args.app_dir)
    try:
        if args.processes > 1:
            return Processes(arguments, args.processes).run()
        return _work(args)
    except WorkerError as error:
        _say(error)
        logging.shutdown()
        # Not through the interpreter's end, which would wait for tasks that do not stop.
        sys.stderr.flush()
        os._exit(ERROR)
    except (ConfigError, _UsageError) as error:
        _say(error)
        return USAGE


class _UsageError(Exception):
    """The command line names something that there is not."""


def _say(error: Exception) -> None:
    print(f"error: {error}", file=sys.stderr)  # noqa: T201 - what a command line has to say


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m spindle", description="Spindle for Python")
    parser.add_argument("--version", action="version", version=f"spindle-client {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    work = commands.add_parser(
        "worker",
        help="run a worker for the tasks of an app",
        description="Runs a worker until SIGTERM or SIGINT, and finishes what runs then. The "
        "server is that of SPINDLE_URL, unless the app says otherwise.",
    )
    work.add_argument("app", metavar="MODULE:APP", help="where the app is, such as tasks:app")
    work.add_argument(
        "-c",
        "--concurrency",
        type=_count,
        metavar="N",
        help="jobs at once in each process "
        f"[default: {worker.DEFAULT_CONCURRENCY}; with --pool asyncio "
        f"{async_worker.DEFAULT_CONCURRENCY}]",
    )
    work.add_argument(
        "-p", "--processes", type=_count, default=1, metavar="N", help="processes [default: 1]"
    )
    work.add_argument(
        "--pool",
        choices=("threads", "asyncio"),
        default="threads",
        help="what runs the jobs of a process [default: threads]",
    )
    work.add_argument(
        "-Q",
        "--queues",
        type=_names,
        metavar="NAMES",
        help="queues, separated by commas [default: those of all tasks]",
    )
    work.add_argument("--drain", action="store_true", help="end when no job is ready")
    work.add_argument(
        "--stop-timeout",
        type=float,
        default=DEFAULT_STOP_TIMEOUT_S,
        metavar="S",
        help="seconds that running jobs have when the worker stops [default: 30]",
    )
    work.add_argument("-n", "--name", help="what people see in the server's list of workers")
    work.add_argument(
        "-l",
        "--log-level",
        type=str.lower,
        choices=_LEVELS,
        default="info",
        metavar="LEVEL",
        help="debug, info, warning, error or critical [default: info]",
    )
    work.add_argument(
        "--app-dir", default=".", metavar="DIR", help="where modules are looked for [default: .]"
    )
    work.add_argument("--parent-pipe", type=int, help=argparse.SUPPRESS)
    return parser


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("at least 1")
    return number


def _names(text: str) -> list[str]:
    return [name for name in text.split(",") if name]


def _work(args: argparse.Namespace) -> int:
    app = _app(args.app)
    is_asyncio = args.pool == "asyncio"
    default = async_worker.DEFAULT_CONCURRENCY if is_asyncio else worker.DEFAULT_CONCURRENCY
    settings = {
        "queues": args.queues,
        "concurrency": args.concurrency or default,
        "stop_timeout": args.stop_timeout,
        "name": args.name,
    }
    try:
        counts = _run_asyncio(app, args, settings) if is_asyncio else _run(app, args, settings)
    except ValueError as error:
        raise _UsageError(str(error)) from error
    return JOB_FAILED if args.drain and counts.failed else OK


def _run(app: Spindle, args: argparse.Namespace, settings: dict[str, object]) -> Counts:
    threads = app.worker(**settings)
    _stop_with_parent(threads, args.parent_pipe)
    if args.drain:
        return threads.drain(install_signal_handlers=True)
    return threads.run()


def _run_asyncio(app: Spindle, args: argparse.Namespace, settings: dict[str, object]) -> Counts:
    async def run() -> Counts:
        tasks = app.async_worker(**settings)
        _stop_with_parent(tasks, args.parent_pipe)
        if args.drain:
            return await tasks.drain(install_signal_handlers=True)
        return await tasks.run(install_signal_handlers=True)

    return asyncio.run(run())


def _stop_with_parent(
    running: worker.Worker | async_worker.AsyncWorker, pipe: Optional[int]
) -> None:
    """A process that was started by another one stops when that one is gone, however it went."""
    if pipe is None:
        return

    def watch() -> None:
        os.read(pipe, 1)
        running.stop()

    threading.Thread(target=watch, daemon=True).start()


def _app(place: str) -> Spindle:
    module_name, _, name = place.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise
        raise _UsageError(f"there is no module {module_name!r}") from None
    found = getattr(module, name or "app", None)
    if not isinstance(found, Spindle):
        raise _UsageError(f"{place}: {name or 'app'!r} is no Spindle app in {module_name}")
    return found
