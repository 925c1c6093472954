"""Jobs with states and events in one table of SQLite: the peer of the gates jobq-create-8 and
jobq-state-8. It does what Jobq's door does with a request, short of HTTP, and commits each change
as SQLite does unless told otherwise.

    jobq_peer.py create|state COUNT PAYLOAD_BYTES FILE

prints the seconds that so many creates, or so many state changes, have taken."""

import json
import sqlite3
import sys
import time


def open_table(path):
    db = sqlite3.connect(path)
    db.execute(
        "CREATE TABLE job (id INTEGER PRIMARY KEY, payload TEXT, events TEXT, state TEXT,"
        " modified INTEGER)"
    )
    db.commit()
    return db


def create(db, body):
    payload, now = json.loads(body), int(time.time())
    events = [["job_created", {"timestamp": str(now)}]]
    row = (json.dumps(payload), json.dumps(events), json.dumps(["CREATED"]), now)
    cursor = db.execute(
        "INSERT INTO job (payload, events, state, modified) VALUES (?, ?, ?, ?)", row
    )
    return json.dumps({"id": cursor.lastrowid})


def set_state(db, number, body):
    new, now = json.loads(body), int(time.time())
    payload, events, old = db.execute(
        "SELECT payload, events, state FROM job WHERE id = ?", (number,)
    ).fetchone()
    events = json.loads(events)
    change = {"new": new, "old": json.loads(old), "timestamp": str(now)}
    events.append(["job_state_advanced", change])
    db.execute(
        "UPDATE job SET events = ?, state = ?, modified = ? WHERE id = ?",
        (json.dumps(events), json.dumps(new), now, number),
    )
    job = {"id": number, "payload": json.loads(payload), "state": new, "events": events}
    return json.dumps(job)


def main(what, count, payload_bytes, path):
    db = open_table(path)
    bodies = [json.dumps({"d": f"{n:016d}".ljust(payload_bytes, "x")}) for n in range(count)]
    if what == "state":
        for body in bodies:
            create(db, body)
        db.commit()
    began = time.perf_counter()
    for number, body in enumerate(bodies, 1):
        if what == "create":
            create(db, body)
        else:
            set_state(db, number, '["ASSIGNED"]')
        db.commit()
    elapsed = time.perf_counter() - began
    wanted = json.dumps(["CREATED"] if what == "create" else ["ASSIGNED"])
    done = db.execute("SELECT count(*) FROM job WHERE state = ?", (wanted,)).fetchone()[0]
    if done != count:
        sys.exit(f"{done} of {count} jobs are {wanted}")
    print(elapsed)


main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
