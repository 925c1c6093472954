"""What a worker asks of the server, step by step, without one."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from spindle import Spindle
from spindle._core import Core
from spindle._flow import Exchange, Exchanged, Pause, Rest
from spindle._http import Response

if TYPE_CHECKING:
    from spindle._core import Attempt


def leased(*ids: int) -> Exchanged:
    jobs = [
        {
            "id": number,
            "queue": "together",
            "attempt": 1,
            "lease_token": f"token-{number}",
            "payload_type": "json",
            "payload": {},
        }
        for number in ids
    ]
    body = json.dumps({"jobs": jobs}).encode()
    return Exchanged([Response(200, "", body)])


def asked_for(step: Any) -> int:
    """How many jobs a request asks for."""
    assert isinstance(step, Exchange)
    count: int = json.loads(step.requests[0].body)["count"]
    return count


def test_the_places_of_tasks_that_end_together_are_filled_by_one_request() -> None:
    app = Spindle("http://127.0.0.1:1")

    @app.task(queue="together")
    def task() -> None:
        pass

    core = Core(app.settings, app.tasks.chosen(None), "worker", concurrency=3, is_drain=False)
    begun: list[Attempt] = []
    core.begin = begun.append
    leasing = core.leasing()
    # Nothing runs: nobody is waited for.
    assert asked_for(next(leasing)) == 3
    assert isinstance(leasing.send(leased(1, 2, 3)), Rest)
    first, second, third = begun

    core.attempt_ended(core.outcome(first, None))
    assert isinstance(leasing.send(None), Pause)
    core.attempt_ended(core.outcome(second, None))
    assert asked_for(leasing.send(None)) == 2

    # All have ended when it looks.
    assert isinstance(leasing.send(leased(4, 5)), Rest)
    for attempt in (third, *begun[3:]):
        core.attempt_ended(core.outcome(attempt, None))
    reporting = core.reporting()
    assert isinstance(next(reporting), Exchange)
    answers = json.dumps({"answers": [{"ended": True}] * 5}).encode()
    reporting.send(Exchanged([Response(200, "", answers)]))
    assert asked_for(leasing.send(None)) == 3
    leasing.close()
    reporting.close()
