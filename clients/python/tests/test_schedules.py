"""Schedules, with a real server."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

import spindle
from spindle import Spindle

UTC = timezone.utc


def test_a_schedule_is_put_with_all_that_is_said_of_it(app: Spindle) -> None:
    @app.task(queue="reports", retries=2, priority=5, fair_key="acme")
    def report(kind: str) -> None: ...

    put = app.schedule("each/option").put(
        "0 9 * * MON-FRI",
        report.message("daily"),
        zone="Europe/Berlin",
        overlap="queue_one",
        missed="all",
        missed_max=7,
        jitter=5,
        start_at=datetime(2100, 1, 1, tzinfo=timezone(timedelta(hours=1))),
        end_at=datetime(2100, 2, 1, tzinfo=UTC),
    )
    assert (put.name, put.zone, put.paused) == ("each/option", "Europe/Berlin", False)
    assert put.next_times[0] == datetime(2100, 1, 1, 8, tzinfo=UTC)
    expected = {
        "overlap": "queue_one",
        "missed": "all",
        "missed_max": 7,
        "jitter_ms": 5000,
        "start_at": "2099-12-31T23:00:00.000Z",
        "end_at": "2100-02-01T00:00:00.000Z",
    }
    assert {name: put.fields[name] for name in expected} == expected
    job = put.fields["job"]
    assert (job["queue"], job["payload"], job["fails_max"]) == ("reports", {"kind": "daily"}, 3)


def test_a_preview_has_the_next_times_and_puts_nothing(app: Spindle) -> None:
    preview = app.schedule("preview").preview("@yearly", app.message("reports"))
    assert [(at.month, at.day, at.tzinfo) for at in preview.next_times] == [(1, 1, UTC)] * 10
    assert app.schedules() == []


def test_a_schedule_is_paused_resumed_run_listed_and_removed(app: Spindle) -> None:
    schedule = app.schedule("life")
    schedule.put("every 1d", app.message("life", 1), paused=True)
    assert schedule.info().next_times == ()
    schedule.resume()
    assert not schedule.info().paused
    schedule.pause()
    job = schedule.run()
    fields = job.info().fields
    assert (fields["queue"], fields["payload"], fields["tags"]) == ("life", 1, ["schedule:life"])
    (listed,) = app.schedules()
    assert (listed.name, listed.paused, listed.last_job) == ("life", True, job.id)
    schedule.remove()
    schedule.remove()
    with pytest.raises(spindle.NotFoundError):
        schedule.info()
    assert job.info().status == "ready"


def test_schedules_are_also_for_asyncio(app: Spindle) -> None:
    async def use() -> None:
        async with app:
            schedule, message = app.schedule("life"), app.message("life", 1)
            assert len((await schedule.apreview("@daily", message)).next_times) == 10
            assert (await schedule.aput("@daily", message)).expression == "@daily"
            await schedule.apause()
            assert (await schedule.ainfo()).paused
            await schedule.aresume()
            assert (await (await schedule.arun()).ainfo()).status == "ready"
            assert [one.name for one in await app.aschedules()] == ["life"]
            await schedule.aremove()

    asyncio.run(use())


@pytest.mark.parametrize(
    ("expression", "options", "job", "code"),
    [
        ("0 0 30 2 *", {}, {}, "out_of_range"),
        ("@daily", {"zone": "Europe/Atlantis"}, {}, "out_of_range"),
        ("@daily", {}, {"delay": 5}, "bad_field"),
        ("@daily", {"overlap": "wait"}, {}, "bad_field"),
    ],
)
def test_a_schedule_that_never_fires_or_that_nobody_can_read_is_refused(
    app: Spindle, expression: str, options: Any, job: Any, code: str
) -> None:
    with pytest.raises(spindle.ApiError) as refused:
        app.schedule("bad").put(expression, app.message("q", **job), **options)
    assert refused.value.code == code
    assert app.schedules() == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"zones": "UTC"}, "no option zones"),
        ({"jitter": -1}, "jitter: -1 is no duration"),
        ({"start_at": datetime(2030, 1, 1)}, "start_at has no time zone"),
    ],
)
def test_wrong_options_of_a_schedule_are_refused_at_once(options: Any, message: str) -> None:
    app = Spindle("http://127.0.0.1:1")
    with pytest.raises((TypeError, ValueError), match=message):
        app.schedule("bad").put("@daily", app.message("q"), **options)
