"""Jobs with states and events in one table of SQLite: the peer of the suite jobq-create-8. It does
what Jobq's door does with a create, short of HTTP, and commits each as SQLite does unless told
otherwise.

    sqlite.py COUNT PAYLOAD_BYTES FILE

prints the seconds that so many creates have taken."""

import json
import random
import sqlite3
import string
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


def main(count, payload_bytes, path):
    db = open_table(path)
    letters = string.ascii_letters + string.digits + "-_"
    payloads = ("".join(random.choices(letters, k=payload_bytes)) for _ in range(count))
    bodies = [json.dumps({"d": payload}) for payload in payloads]
    began = time.perf_counter()
    for body in bodies:
        create(db, body)
        db.commit()
    elapsed = time.perf_counter() - began
    done = db.execute("SELECT count(*) FROM job").fetchone()[0]
    if done != count:
        sys.exit(f"the table has {done} of {count} jobs")
    print(elapsed)


main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
