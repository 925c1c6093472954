"""What the documents cannot tell the program that tests the servers from them.

Nothing here keeps a request, an operation or a check out of the test.
"""

import re

import msgpack
import schemathesis
from hypothesis import strategies as st

# The longest wait that the documents allow, in seconds; longer ones are wrong and must be refused.
WAIT_S_MAX = 300
# Waits, by the names they have in bodies and queries.
WAITS = ("wait_s", "timeout")
# Without an end unless they are asked not to follow.
STREAMS = ("GET /api/v1/events", "GET /api/v1/jobs/{id}/events")
# These wait for some seconds if nothing is said.
WAITS_UNSAID = ("GET /worker/job", "GET /job/{id}/polling")

# Shorter times, and fewer finished jobs kept, let a job be gone when the next request asks for it.
LASTING = {"ttl_ms": 60_000, "keep_ms": 60_000, "keep_dead_ms": 60_000, "finished_max": 1_000}

# Of headers it makes no values that need a quote or a dot, unless their format is known.
ENTITY_TAGS = st.from_regex(r'(\*|(W/)?"[!#-~]*")', fullmatch=True)
FEED_IDS = st.from_regex(r"[0-9]{1,15}\.[0-9]{1,9}", fullmatch=True)
schemathesis.openapi.format("entity-tag", ENTITY_TAGS)
schemathesis.openapi.format("feed-id", FEED_IDS)


def is_wait(name, value):
    """Whether it is a right wait. Wrong ones stay: the server has to refuse them."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or name not in WAITS:
        return False
    return 0 < value <= WAIT_S_MAX and (name == "timeout" or value == int(value))


def without_wait(fields):
    """The same fields, with no wait instead of a right one: nobody is there to end it."""
    shorter = {name: 0 if is_wait(name, value) else value for name, value in fields.items()}
    # The request for jobs that comes with reports.
    if isinstance(shorter.get("lease"), dict):
        shorter["lease"] = without_wait(shorter["lease"])
    return shorter


def as_number(value):
    """What stands in a query may be a text already."""
    is_text = isinstance(value, str) and re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", value)
    return float(value) if is_text else value


def lasting(fields):
    """The same with nothing that makes jobs go by themselves within a minute."""
    longer = {}
    for name, least in LASTING.items():
        value = fields.get(name)
        if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < least:
            longer[name] = value + least
    return {**fields, **longer}


def leave_others_alone(case):
    """Between the steps of a scenario a job is to be where it was: that what was created is there
    is checked, and only a DELETE counts as a reason why it is not. What else makes jobs go is
    tested in the other phases."""
    if case.meta is None or not case.meta.generation.mode.is_positive:
        return
    label, body = case.operation.label, case.body
    if label == "POST /api/v1/queues/{name}/purge":
        case.path_parameters = {"name": "nobody's"}
    if not isinstance(body, dict):
        return
    changed = lasting(body)
    if label == "POST /api/v1/jobs/bulk" and body.get("action") == "delete":
        changed["dry_run"] = True
    unique = body.get("unique")
    if isinstance(unique, dict) and unique.get("mode") == "replace":
        changed["unique"] = {**unique, "mode": "existing"}
    if changed != body:
        case.body = changed


@schemathesis.hook
def before_call(context, case, kwargs):
    label = case.operation.label
    query = case.query if isinstance(case.query, dict) else {}
    if label in STREAMS and query.get("follow", True) in (True, "true"):
        # Else the answer has no end.
        case.query = {**query, "follow": "false"}
    elif label in WAITS_UNSAID and "timeout" not in query:
        case.query = {**query, "timeout": 0}
    elif any(is_wait(name, as_number(value)) for name, value in query.items()):
        case.query = {**query, **{name: 0 for name in query if name in WAITS}}
    if isinstance(case.body, dict) and label != "POST /job" and without_wait(case.body) != case.body:
        case.body = without_wait(case.body)
    if case.meta is not None and case.meta.phase.name.value == "stateful":
        leave_others_alone(case)


def packable(value):
    """The same with what MessagePack has no integer for as a client would send it."""
    if isinstance(value, bool):
        return value
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        return float(value)
    if isinstance(value, (list, tuple)):
        return [packable(item) for item in value]
    if isinstance(value, dict):
        return {key: packable(member) for key, member in value.items()}
    return value


@schemathesis.serializer("application/msgpack")
def pack(context, value):
    return msgpack.packb(packable(value), unicode_errors="surrogatepass")


@schemathesis.deserializer("application/msgpack")
def unpack(context, response):
    return msgpack.unpackb(response.content)
