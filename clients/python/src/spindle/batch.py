"""Batches: jobs that belong together."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Optional, TypeVar

from . import _operations as operations

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from typing_extensions import Self

    from .client import Spindle
    from .job import Job
    from .task import Message

R = TypeVar("R")


@dataclass(frozen=True)
class BatchInfo:
    """A batch as the server described it, and how its jobs stood. A batch in it counts as one."""

    id: int
    #: ``open``, ``sealed`` while jobs of it are unfinished, and then ``done``, or ``ended`` if not
    #: all of them are done.
    status: str
    #: All jobs that were added.
    total: int
    #: Those that are neither done nor dead, ...
    unfinished: int
    #: ... done, whether they are kept or not, ...
    done: int
    #: ... dead, and kept, ...
    dead: int
    #: ... and gone without having been done.
    gone: int
    #: For people.
    name: str = ""
    #: All that the API says, under the API's names.
    fields: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> BatchInfo:
        """From an answer of the API."""
        jobs = fields["jobs"]
        return cls(
            id=fields["id"],
            status=fields["status"],
            total=jobs["total"],
            unfinished=jobs["unfinished"],
            done=jobs["done"],
            dead=jobs["dead"],
            gone=jobs["gone"],
            name=fields.get("name", ""),
            fields=fields,
        )

    @property
    def has_ended(self) -> bool:
        """Whether it is sealed and all of its jobs have ended."""
        return self.status in ("done", "ended")


class Batch:
    """A batch by its number. Methods with an ``a`` before their name are for asyncio.

    As a context manager it is sealed at the block's end. When the block is left by an exception it
    stays open, so that nothing runs that waits for it.
    """

    def __init__(self, app: Spindle, batch_id: int, *, existing: bool = False) -> None:
        self.app = app
        #: Its number.
        self.id = batch_id
        #: Whether it was there before it was opened: its key was used before.
        self.existing = existing

    def __repr__(self) -> str:
        return f"<Batch {self.id}>"

    def add(self, message: Message[R]) -> Job[R]:
        """Submits a job of this batch."""
        return self.app.submit(self._with(message))

    async def aadd(self, message: Message[R]) -> Job[R]:
        """As :meth:`add`, with asyncio."""
        return await self.app.asubmit(self._with(message))

    def add_many(self, messages: Iterable[Message[R]]) -> list[Job[R]]:
        """Submits jobs of this batch, as :meth:`~spindle.Spindle.submit_many`."""
        return self.app.submit_many(self._with(message) for message in messages)

    async def aadd_many(self, messages: Iterable[Message[R]]) -> list[Job[R]]:
        """As :meth:`add_many`, with asyncio."""
        return await self.app.asubmit_many(self._with(message) for message in messages)

    def seal(self) -> None:
        """Lets no more jobs in: it ends when all that are in it have ended.

        A batch is sealed once: raises a ConflictError (``batch_sealed``) if it was sealed before.
        """
        self.app._run(operations.seal_batch(self.app.settings, self.id))

    async def aseal(self) -> None:
        """As :meth:`seal`, with asyncio."""
        await self.app._arun(operations.seal_batch(self.app.settings, self.id))

    def cancel(self) -> None:
        """Seals it and ends its unfinished jobs as dead, those of batches in it too."""
        self.app._run(operations.cancel_batch(self.app.settings, self.id))

    async def acancel(self) -> None:
        """As :meth:`cancel`, with asyncio."""
        await self.app._arun(operations.cancel_batch(self.app.settings, self.id))

    def info(self) -> BatchInfo:
        """The batch as it is now. Raises a NotFoundError when it is not kept any more."""
        return self.app._run(operations.batch_info(self.app.settings, self.id))

    async def ainfo(self) -> BatchInfo:
        """As :meth:`info`, with asyncio."""
        return await self.app._arun(operations.batch_info(self.app.settings, self.id))

    def ended(self, timeout: Optional[float] = None) -> BatchInfo:
        """Waits until it has ended: the batch as it is then.

        ``timeout`` is in seconds; None waits as long as it takes, 0 only looks. Raises a
        ResultTimeoutError when it has not ended in time, a NotFoundError when it is not kept any
        more.
        """
        return self.app._run(operations.batch_ended(self.app.settings, self.id, timeout))

    async def aended(self, timeout: Optional[float] = None) -> BatchInfo:
        """As :meth:`ended`, with asyncio."""
        return await self.app._arun(operations.batch_ended(self.app.settings, self.id, timeout))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: Optional[type[BaseException]], *_: object) -> None:
        if kind is None:
            self.seal()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: Optional[type[BaseException]], *_: object) -> None:
        if kind is None:
            await self.aseal()

    def _with(self, message: Message[R]) -> Message[R]:
        return replace(message, fields={**message.fields, "batch": self.id})
