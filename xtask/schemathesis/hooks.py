"""What keeps requests from waiting on purpose: nobody else is there to end the wait."""

import schemathesis

# The longest wait that the document allows, in seconds; longer ones are wrong and must be refused.
WAIT_S_MAX = 300


def without_wait(fields, name):
    """The same fields, with no wait instead of a right one."""
    if isinstance(fields, dict) and isinstance(fields.get(name), int):
        if not isinstance(fields[name], bool) and 0 < fields[name] <= WAIT_S_MAX:
            return {**fields, name: 0}
    return fields


@schemathesis.hook
def map_query(context, query):
    operation = context.operation
    if operation is None:
        return query
    if operation.path == "/api/v1/events" and isinstance(query, dict) and query.get("follow", True) is True:
        # Else the answer has no end.
        return {**query, "follow": False}
    return without_wait(query, "wait_s")


@schemathesis.hook
def map_body(context, body):
    return without_wait(body, "wait_s")
