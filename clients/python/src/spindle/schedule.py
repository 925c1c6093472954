"""Schedules: jobs that come by the clock."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, Literal, Optional, TypedDict

from . import _operations as operations
from ._options import milliseconds, time_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from typing_extensions import Unpack

    from ._options import Duration
    from .client import Spindle
    from .job import Job
    from .task import Message


class ScheduleOptions(TypedDict, total=False):
    """When and how a schedule fires."""

    #: The time zone that the expression speaks of, such as ``Europe/Berlin``. Default ``UTC``.
    zone: str
    #: What happens while its last job is unfinished. Default ``skip``.
    overlap: Literal["allow", "skip", "queue_one", "replace"]
    #: What happens to missed times. Default ``skip``.
    missed: Literal["skip", "once", "all"]
    #: With ``all``: how many missed times in a row are made up, 1 to 1,000. Default 100.
    missed_max: int
    #: It fires up to this much later than its times, up to an hour.
    jitter: Duration
    #: No time before this, ...
    start_at: datetime
    #: ... and none after this. Both must have a zone.
    end_at: datetime
    #: It does not fire until it is resumed.
    paused: bool


@dataclass(frozen=True)
class ScheduleInfo:
    """A schedule as the server described it."""

    name: str
    #: When it fires.
    expression: str
    zone: str
    paused: bool
    #: The times that it fires for next, without jitter, in UTC. None while it is paused.
    next_times: tuple[datetime, ...]
    #: The job that it submitted last.
    last_job: Optional[int] = None
    #: All that the API says, under the API's names.
    fields: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> ScheduleInfo:
        """From an answer of the API."""
        return cls(
            name=fields["name"],
            expression=fields["expression"],
            zone=fields["zone"],
            paused=fields["paused"],
            next_times=tuple(map(_time, fields["next_times"])),
            last_job=fields.get("last_job"),
            fields=fields,
        )


class Schedule:
    """A schedule by its name. Methods with an ``a`` before their name are for asyncio."""

    def __init__(self, app: Spindle, name: str) -> None:
        self.app = app
        #: Its name.
        self.name = name

    def __repr__(self) -> str:
        return f"<Schedule {self.name!r}>"

    def put(
        self, expression: str, message: Message[Any], **options: Unpack[ScheduleOptions]
    ) -> ScheduleInfo:
        """Makes the schedule, or changes it: it submits the message at each of its times.

        expression: ``0 9 * * MON-FRI``, ``@daily``, ``every 90s``; docs/schedules.md has all
        message: :meth:`~spindle.Task.message` of a task; its job can have no ``run_at``,
            ``parked``, ``unique``, ``after`` and ``batch``

        Raises an ApiError for a schedule that never fires, or that the server cannot read.
        """
        body = _body(expression, message, options)
        return self.app._run(operations.put_schedule(self.app.settings, self.name, body))

    async def aput(
        self, expression: str, message: Message[Any], **options: Unpack[ScheduleOptions]
    ) -> ScheduleInfo:
        """As :meth:`put`, with asyncio."""
        body = _body(expression, message, options)
        return await self.app._arun(operations.put_schedule(self.app.settings, self.name, body))

    def preview(
        self, expression: str, message: Message[Any], **options: Unpack[ScheduleOptions]
    ) -> ScheduleInfo:
        """What :meth:`put` would make, with its next times. Nothing changes."""
        body = _body(expression, message, options)
        flow = operations.put_schedule(self.app.settings, self.name, body, is_preview=True)
        return self.app._run(flow)

    async def apreview(
        self, expression: str, message: Message[Any], **options: Unpack[ScheduleOptions]
    ) -> ScheduleInfo:
        """As :meth:`preview`, with asyncio."""
        body = _body(expression, message, options)
        flow = operations.put_schedule(self.app.settings, self.name, body, is_preview=True)
        return await self.app._arun(flow)

    def info(self) -> ScheduleInfo:
        """The schedule as it is now. Raises a NotFoundError if there is none."""
        return self.app._run(operations.schedule_info(self.app.settings, self.name))

    async def ainfo(self) -> ScheduleInfo:
        """As :meth:`info`, with asyncio."""
        return await self.app._arun(operations.schedule_info(self.app.settings, self.name))

    def pause(self) -> None:
        """Passes over its times until it is resumed."""
        self.app._run(operations.pause_schedule(self.app.settings, self.name, "pause"))

    async def apause(self) -> None:
        """As :meth:`pause`, with asyncio."""
        await self.app._arun(operations.pause_schedule(self.app.settings, self.name, "pause"))

    def resume(self) -> None:
        """Lets it fire again, at its first time from now on."""
        self.app._run(operations.pause_schedule(self.app.settings, self.name, "resume"))

    async def aresume(self) -> None:
        """As :meth:`resume`, with asyncio."""
        await self.app._arun(operations.pause_schedule(self.app.settings, self.name, "resume"))

    def run(self) -> Job[Any]:
        """Submits its job now, beside its times, and also while it is paused.

        It is not repeated when its answer is lost: then it raises a ConnectionFailedError.
        """
        job_id = self.app._run(operations.run_schedule(self.app.settings, self.name))
        return self.app.job(job_id)

    async def arun(self) -> Job[Any]:
        """As :meth:`run`, with asyncio."""
        job_id = await self.app._arun(operations.run_schedule(self.app.settings, self.name))
        return self.app.job(job_id)

    def remove(self) -> None:
        """Removes it; its jobs stay. One that is gone already is no error."""
        self.app._run(operations.remove_schedule(self.app.settings, self.name))

    async def aremove(self) -> None:
        """As :meth:`remove`, with asyncio."""
        await self.app._arun(operations.remove_schedule(self.app.settings, self.name))


def _body(expression: str, message: Message[Any], options: ScheduleOptions) -> bytes:
    unknown = set(options) - _OPTIONS
    if unknown:
        raise TypeError(f"there is no option {', '.join(sorted(unknown))}")
    fields: dict[str, Any] = {"expression": expression, **options}
    if "jitter" in options:
        fields["jitter_ms"] = milliseconds(fields.pop("jitter"), "jitter")
    for name in ("start_at", "end_at"):
        if name in fields:
            fields[name] = time_text(fields[name], name)
    return operations.schedule_body(fields, message)


_OPTIONS = frozenset(ScheduleOptions.__annotations__)


def _time(text: str) -> datetime:
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=timezone.utc)
