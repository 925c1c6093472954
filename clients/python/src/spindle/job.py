"""Jobs that were submitted, and what is known of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Optional, TypeVar

from . import _operations as operations

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .client import Spindle
    from .serializers import Serializer

R = TypeVar("R")


@dataclass(frozen=True)
class JobInfo:
    """A job as the server described it."""

    id: int
    #: Its queue; where the name is no UTF-8, what could be read of it.
    queue: str
    #: ``scheduled``, ``ready``, ``leased``, ``parked``, ``blocked``, ``done`` or ``dead``.
    status: str
    #: How often it was leased, and how often it failed.
    attempts: int
    fails: int
    #: What the last attempt reported: a sentence, an error, a code; empty if nothing.
    message: str = ""
    error: str = ""
    code: str = ""
    #: All that the API says, under the API's names.
    fields: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> JobInfo:
        """From an answer of the API."""
        result = fields.get("result") or {}
        return cls(
            id=fields["id"],
            queue=fields.get("queue", ""),
            status=fields["status"],
            attempts=fields.get("attempts", 0),
            fails=fields.get("fails", 0),
            message=result.get("message", ""),
            error=str(result.get("error", "")),
            code=result.get("code", ""),
            fields=fields,
        )

    @property
    def is_finished(self) -> bool:
        """Whether it is done or dead."""
        return self.status in ("done", "dead")


class Job(Generic[R]):
    """A job by its number. Methods with an ``a`` before their name are for asyncio."""

    def __init__(
        self, app: Spindle, job_id: int, serializer: Serializer, *, existing: bool = False
    ) -> None:
        self.app = app
        #: Its number.
        self.id = job_id
        #: Whether the submit found this job instead of adding one: it had the unique key.
        self.existing = existing
        self._serializer = serializer

    def __repr__(self) -> str:
        return f"<Job {self.id}>"

    def info(self) -> JobInfo:
        """The job as it is now. Raises a NotFoundError when it is gone."""
        return self.app._run(operations.info(self.app.settings, self.id))

    async def ainfo(self) -> JobInfo:
        """As :meth:`info`, with asyncio."""
        return await self.app._arun(operations.info(self.app.settings, self.id))

    def result(self, timeout: Optional[float] = None) -> R:
        """Waits until the job is done and returns its result.

        ``timeout`` is in seconds; None waits as long as it takes, 0 only looks. With a timeout, a
        server that is away is waited for as long, else for the app's ``retry_for``. Raises a
        JobFailedError when the job is dead, a ResultTimeoutError when it is neither done nor dead
        in time, a NotFoundError when it is gone, a SerializationError when the result is
        unreadable.
        """
        flow = operations.result(self.app.settings, self.id, self._serializer, timeout)
        value: R = self.app._run(flow)
        return value

    async def aresult(self, timeout: Optional[float] = None) -> R:
        """As :meth:`result`, with asyncio."""
        flow = operations.result(self.app.settings, self.id, self._serializer, timeout)
        value: R = await self.app._arun(flow)
        return value

    def cancel(self) -> None:
        """Ends the job as dead with the code ``cancelled``. A worker that has it is told."""
        self.app._run(operations.cancel(self.app.settings, self.id))

    async def acancel(self) -> None:
        """As :meth:`cancel`, with asyncio."""
        await self.app._arun(operations.cancel(self.app.settings, self.id))

    def delete(self) -> None:
        """Deletes the job, whatever its status. One that is gone already is no error."""
        self.app._run(operations.delete(self.app.settings, self.id))

    async def adelete(self) -> None:
        """As :meth:`delete`, with asyncio."""
        await self.app._arun(operations.delete(self.app.settings, self.id))

    def retry(self) -> None:
        """Lets a done or dead job run again, with all its tries."""
        self.app._run(operations.retry(self.app.settings, self.id))

    async def aretry(self) -> None:
        """As :meth:`retry`, with asyncio."""
        await self.app._arun(operations.retry(self.app.settings, self.id))

    def park(self) -> None:
        """Keeps a waiting job from being leased."""
        self.app._run(operations.hold(self.app.settings, f"jobs/{self.id}", "park"))

    async def apark(self) -> None:
        """As :meth:`park`, with asyncio."""
        await self.app._arun(operations.hold(self.app.settings, f"jobs/{self.id}", "park"))

    def release(self) -> None:
        """Lets a parked job run when its time has come."""
        self.app._run(operations.hold(self.app.settings, f"jobs/{self.id}", "release"))

    async def arelease(self) -> None:
        """As :meth:`release`, with asyncio."""
        await self.app._arun(operations.hold(self.app.settings, f"jobs/{self.id}", "release"))
