"""How jobs are submitted: options as people write them, fields as the API has them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, Callable, Literal, Optional, TypedDict, Union

if TYPE_CHECKING:
    from .batch import Batch
    from .job import Job
    from .running import Before

    #: A job or a batch, by its handle, its number, or the ``ref`` of a job of the same request.
    After = Union[int, str, Job[Any], Batch, Before]

#: Seconds, or a timedelta.
Duration = Union[int, float, timedelta]

_ATTEMPTS_DEFAULT = 25
_ATTEMPTS_PER_FAILURE = 5


@dataclass(frozen=True)
class Backoff:
    """Waits between failures: ``base`` x ``factor`` ^ (n-1), at most ``cap``.

    Each wait is shortened by a random share of up to ``jitter`` (0 to 1), so that jobs that failed
    together do not return together.
    """

    base: Duration
    factor: float = 1.0
    cap: Duration = 3600
    jitter: float = 0.0


class JobOptions(TypedDict, total=False):
    """How a job is submitted. What is left out is as its queue says, or else the server."""

    #: Higher goes first.
    priority: int
    #: Not before so long from now, by this machine's clock. (``countdown`` of Celery.)
    delay: Duration
    #: Not before this time, which must have a zone. (``eta`` of Celery.)
    run_at: datetime
    #: Failures after which the job is tried again; ``math.inf`` is no limit. Default 4.
    retries: float
    #: Most attempts, lost workers counted; ``math.inf`` is no limit. Default 25, or five for each
    #: failure that ``retries`` allows.
    attempts: float
    #: The wait after a failure, always the same or growing. Default 5 s, 15 s, 45 s, ... to 1 h.
    backoff: Union[Duration, Backoff]
    #: Time to run: how long a worker has the job unless it says that it is alive. Default 60 s.
    ttr: Duration
    #: Time to live: the job is deleted then, whatever its status.
    ttl: Duration
    #: How long the job and its result are kept once it is done. Default 1 hour.
    keep: Duration
    #: The job waits until it is released.
    parked: bool
    #: Words to search by.
    tags: Sequence[str]
    #: Jobs and batches that the job waits for, one or several, up to 100: handles or numbers, or
    #: the ``ref`` of a job of the same :meth:`~spindle.Spindle.submit_many`.
    after: Union[After, Sequence[After]]
    #: What happens when one of those dies: the job is cancelled (the default), runs all the same,
    #: or goes on waiting while the dead one can be retried.
    on_dead: Literal["cancel", "run", "wait"]
    #: The open batch that the job belongs to.
    batch: Union[int, Batch]
    #: A name by which other jobs of the same :meth:`~spindle.Spindle.submit_many` may wait for this
    #: one: 1 to 64 letters, digits, ``-``, ``_`` and ``.``.
    ref: str
    #: Whose share of a fair queue the job takes.
    fair_key: str
    #: At most one unfinished job of the queue has this key. ``True`` makes it of the payload, a
    #: function makes it of the arguments.
    unique: Union[bool, str, Callable[..., str]]
    #: What if another job has the key: ``existing`` gives that job, ``reject`` raises a
    #: :class:`~spindle.errors.KeyTakenError`, ``replace`` puts this one in its place.
    unique_mode: str
    #: However often a submit with this key is sent, it adds one job. Random unless it is given.
    idempotency_key: str


OPTIONS = frozenset(JobOptions.__annotations__)
_UNIQUE_MODES = ("existing", "reject", "replace")
_ON_DEAD = ("cancel", "run", "wait")


def milliseconds(duration: Duration, what: str) -> int:
    """A duration as the API takes it."""
    seconds = duration.total_seconds() if isinstance(duration, timedelta) else duration
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
        raise TypeError(f"{what}: {duration!r} is no duration: seconds, or a timedelta")
    if not (seconds >= 0 and math.isfinite(seconds)):
        raise ValueError(f"{what}: {duration!r} is no duration that can be waited for")
    return math.ceil(seconds * 1000)


def check(options: JobOptions) -> None:
    """Raises for what no job can be submitted with: at import, not at the first submit."""
    unknown = set(options) - OPTIONS
    if unknown:
        raise TypeError(f"there is no option {', '.join(sorted(unknown))}")
    mode = options.get("unique_mode")
    if mode is not None and mode not in _UNIQUE_MODES:
        raise ValueError(f"unique_mode: {mode!r} is none of {', '.join(_UNIQUE_MODES)}")
    on_dead = options.get("on_dead")
    if on_dead is not None and on_dead not in _ON_DEAD:
        raise ValueError(f"on_dead: {on_dead!r} is none of {', '.join(_ON_DEAD)}")
    fields_of(options, None)


def fields_of(options: JobOptions, unique_key: Optional[str]) -> dict[str, Any]:
    """The fields of the API for these options."""
    fields: dict[str, Any] = {}
    for name in ("priority", "parked", "on_dead", "ref", "fair_key"):
        if name in options:
            fields[name] = options[name]
    if "tags" in options:
        fields["tags"] = list(options["tags"])
    for name in ("ttr", "ttl", "keep"):
        if name in options:
            fields[f"{name}_ms"] = milliseconds(options[name], name)  # type: ignore[literal-required]
    if "backoff" in options:
        fields["backoff"] = _backoff_fields(options["backoff"])
    run_at = _run_at(options)
    if run_at is not None:
        fields["run_at"] = run_at
    _add_tries(options, fields)
    _add_links(options, fields)
    if unique_key is not None:
        fields["unique"] = {"key": unique_key, "mode": options.get("unique_mode", "existing")}
    return fields


def _run_at(options: JobOptions) -> Optional[str]:
    at = options.get("run_at")
    if "delay" in options:
        if at is not None:
            raise TypeError("delay and run_at: only one of them can say when the job runs")
        after = timedelta(milliseconds=milliseconds(options["delay"], "delay"))
        at = datetime.now(timezone.utc) + after
    if at is None:
        return None
    return time_text(at, "run_at")


def time_text(at: datetime, what: str) -> str:
    """A time as the API takes it."""
    if at.tzinfo is None:
        raise ValueError(f"{what} has no time zone: datetime.now(timezone.utc) has one")
    return at.astimezone(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _add_links(options: JobOptions, fields: dict[str, Any]) -> None:
    if "after" in options:
        fields["after"] = _after_fields(options["after"])
    if "batch" in options:
        fields["batch"] = _number(options["batch"], "batch")


def _after_fields(after: Any) -> list[Union[int, str]]:
    several = isinstance(after, Iterable) and not isinstance(after, str)
    return [_after_field(one) for one in (after if several else [after])]


def _after_field(one: Any) -> Union[int, str]:
    return one if isinstance(one, str) else _number(one, "after")


def _number(one: Any, what: str) -> int:
    """The number of a job or a batch, of which it may be the handle."""
    number = getattr(one, "id", one)
    if isinstance(number, bool) or not isinstance(number, int):
        raise TypeError(f"{what}: {one!r} is no job or batch, and no number of one")
    return number


def _add_tries(options: JobOptions, fields: dict[str, Any]) -> None:
    retries, attempts = options.get("retries"), options.get("attempts")
    if retries is not None:
        fails = _count(retries, "retries") + 1
        fields["fails_max"] = 0 if math.isinf(fails) else int(fails)
        # Else the default number of attempts would end the job before its retries are over.
        if attempts is None and fails * _ATTEMPTS_PER_FAILURE > _ATTEMPTS_DEFAULT:
            attempts = fails * _ATTEMPTS_PER_FAILURE
    if attempts is not None:
        attempts = _count(attempts, "attempts")
        fields["attempts_max"] = 0 if math.isinf(attempts) else int(attempts)


def _count(value: float, what: str) -> float:
    if isinstance(value, bool) or not (value == math.inf or (value >= 0 and value == int(value))):
        raise ValueError(f"{what}: {value!r} is no count")
    return value


def _backoff_fields(backoff: Union[Duration, Backoff]) -> dict[str, Any]:
    if not isinstance(backoff, Backoff):
        return {"base_ms": milliseconds(backoff, "backoff")}
    return {
        "base_ms": milliseconds(backoff.base, "backoff.base"),
        "factor": backoff.factor,
        "cap_ms": milliseconds(backoff.cap, "backoff.cap"),
        "jitter": backoff.jitter,
    }
