"""Tasks and workers for Spindle, a durable job server.

::

    from spindle import Spindle

    app = Spindle()

    @app.task(retries=3)
    def add(a: int, b: int) -> int:
        return a + b

    add.delay(1, 2).result(timeout=10)    # while `python -m spindle worker MODULE:app` runs
"""

from __future__ import annotations

from ._core import Counts
from ._options import Backoff, Duration, JobOptions
from ._version import __version__
from .async_worker import AsyncWorker
from .batch import Batch, BatchInfo
from .client import Spindle
from .errors import (
    ApiError,
    ConfigError,
    ConflictError,
    ConnectionFailedError,
    Failure,
    ForbiddenError,
    FullError,
    JobCancelledError,
    JobFailedError,
    KeyTakenError,
    NotFoundError,
    ResultTimeoutError,
    SerializationError,
    SpindleError,
    SubmitManyError,
    TooLargeError,
    UnauthorizedError,
    UnavailableError,
    WorkerError,
)
from .job import Job, JobInfo
from .running import Before, RunningJob, current_job
from .schedule import Schedule, ScheduleInfo, ScheduleOptions
from .serializers import BytesSerializer, JsonSerializer, Serializer
from .task import AsyncTask, Message, Task
from .worker import Worker

__all__ = [
    "ApiError",
    "AsyncTask",
    "AsyncWorker",
    "Backoff",
    "Batch",
    "BatchInfo",
    "Before",
    "BytesSerializer",
    "ConfigError",
    "ConflictError",
    "ConnectionFailedError",
    "Counts",
    "Duration",
    "Failure",
    "ForbiddenError",
    "FullError",
    "Job",
    "JobCancelledError",
    "JobFailedError",
    "JobInfo",
    "JobOptions",
    "JsonSerializer",
    "KeyTakenError",
    "Message",
    "NotFoundError",
    "ResultTimeoutError",
    "RunningJob",
    "Schedule",
    "ScheduleInfo",
    "ScheduleOptions",
    "SerializationError",
    "Serializer",
    "Spindle",
    "SpindleError",
    "SubmitManyError",
    "Task",
    "TooLargeError",
    "UnauthorizedError",
    "UnavailableError",
    "Worker",
    "WorkerError",
    "__version__",
    "current_job",
]
