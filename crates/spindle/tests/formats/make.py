#!/usr/bin/env python3
"""Makes a kept folder of the formats of this release: a backup of a server with jobs of every door,
what an export of it says, and what else the server answers. With `bounds` in its name it has no
backup, but the data folder itself as a server leaves it that is stopped: several segments, the file
of their bounds, and the history.

Run it once when a format gets a new version or the log a new kind of event, and never change what
it made:

    crates/spindle/tests/formats/make.py target/debug/spindle crates/spindle/tests/formats/NAME

NAME is what the test `formats` asks for when it is missing.
"""

import json, os, shutil, socket, struct, subprocess, sys, tempfile, time, urllib.request

PROGRAM, TARGET = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
KEEPS_DATA = "bounds" in os.path.basename(TARGET)
KEEP_MS = 4_000_000_000_000  # more than a century
# What an export does not have.
ASKED = [
    "/api/v1/schedules", "/api/v1/jobs/11/flow", "/api/v1/jobs/14", "/api/v1/jobs/15",
    "/api/v1/jobs/17", "/api/v1/queues/mail/settings", "/api/v1/queues/shared/settings",
    "/api/v1/batches",
]


def ports(server):
    """Where its doors listen, by their names."""
    line = server.stderr.readline()
    while "workq on" not in line:
        line = server.stderr.readline()
    words = line.replace(",", " ").split()
    return {words[n - 1]: words[n + 1] for n in range(1, len(words) - 1) if words[n] == "on"}


def main():
    os.makedirs(TARGET)
    with tempfile.TemporaryDirectory() as folder:
        doors = [f"--{door}=127.0.0.1:0" for door in ("workq", "gearman", "http", "jobd-master")]
        # Nobody hears of the dead job, but the log remembers where the hook is.
        hook = ["--webhook", "http://127.0.0.1:9/ dead"]
        # As small as segments may be.
        command = [PROGRAM, "serve", "--data", folder + "/data", "--segment-size", "64KiB", *doors, *hook]
        secret = {**os.environ, "SPINDLE_WEBHOOK_SECRET": "nobody must read this"}
        server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=secret)
        try:
            at = ports(server)
            fill(at)
            url = "http://" + at["http"]
            if KEEPS_DATA:
                fill_segments(url)
            else:
                run("backup", url, TARGET + "/backup")
            run("export", TARGET + "/export.jsonl", "--all", "--url", url)
            with open(TARGET + "/answers.json", "w") as file:
                json.dump({path: fetch(url + path) for path in ASKED}, file, indent=1)
        finally:
            server.terminate()
            server.wait()
        if KEEPS_DATA:
            shutil.copytree(folder + "/data", TARGET + "/data", ignore=shutil.ignore_patterns("*.spare", "lock"))
    if not KEEPS_DATA:
        os.remove(TARGET + "/backup/lock")


def fill_segments(url):
    """Jobs that come and go, until there is more than one segment and the history has a point."""
    for number in range(40):
        job = {"queue": "passing", "payload": str(number % 10) * 2000}
        made = ask(url, "POST", "/api/v1/jobs", job)
        ask(url, "DELETE", f"/api/v1/jobs/{made['id']}")
    while not any(point["submitted"] for point in fetch(url + "/api/v1/history")["points"]):
        time.sleep(1)


def ask(url, method, path, body=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url + path, data, {"Content-Type": "application/json"}, method=method)
    with urllib.request.urlopen(request) as answer:
        text = answer.read()
        return json.loads(text) if text else None


def run(*arguments):
    subprocess.run([PROGRAM, *arguments], check=True)


def fetch(url):
    with urllib.request.urlopen(url) as answer:
        return json.loads(answer.read())


def fill(at):
    def call(method, path, body=None, kind="application/json"):
        data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        request = urllib.request.Request(f"http://{at['http']}{path}", data, method=method)
        request.add_header("Content-Type", kind)
        with urllib.request.urlopen(request) as answer:
            text = answer.read()
            return json.loads(text) if text[:1] == b"{" else None

    call("PUT", "/api/v1/constraints/slow", {"queue": "mail", "running_max": 3, "per": "/to"})
    call("PUT", "/api/v1/queues/mail/settings", {"fails_max": 9, "keep_dead_ms": KEEP_MS, "jobs_max": 1000})
    call("POST", "/api/v1/queues/held/pause", {})
    call("POST", "/api/v1/jobs", {
        "queue": "mail", "payload": {"to": "ann", "n": 1}, "priority": -3, "ttr_ms": 5000,
        "attempts_max": 7, "fails_max": 0, "tags": ["x", "y"], "unique": {"key": "order 7"},
        "backoff": {"base_ms": 3, "factor": 1.5, "cap_ms": 20, "jitter": 0.25}, "keep_ms": KEEP_MS,
    })
    call("POST", "/api/v1/jobs", {"queue": "later", "payload": 2, "run_at": "2199-01-31T08:00:00Z"})
    call("POST", "/api/v1/jobs", {"queue": "held", "payload_base64": "kQE=", "payload_type": "msgpack", "parked": True})
    call("POST", "/api/v1/jobs", {"queue_base64": "/wA=", "payload_base64": "AAH/"})
    call("POST", "/api/v1/jobs", {"queue": "work", "payload": "done", "keep_ms": KEEP_MS})
    lease = call("POST", "/api/v1/lease", {"queues": ["work"], "worker": "w1"})
    call("POST", f"/api/v1/leases/{lease['lease_token']}/complete", {"result": {"ok": True}})
    dead = call("POST", "/api/v1/jobs", {"queue": "mail", "payload": "dead"})
    call("POST", f"/api/v1/jobs/{dead['id']}/cancel", {})
    wait = {"base_ms": KEEP_MS, "cap_ms": KEEP_MS}
    call("POST", "/api/v1/jobs", {"queue": "fails", "payload": "fails", "backoff": wait})
    lease = call("POST", "/api/v1/lease", {"queues": ["fails"]})
    call("POST", f"/api/v1/leases/{lease['lease_token']}/fail", {"message": "no", "code": "e1"})
    flow(call)
    call("PUT", "/api/v1/queues/shared/settings", {
        "fair": {"field": "/tenant", "weights": {"ann": 3}}, "aging_ms": 60_000,
    })
    for tenant in ("ann", "bob"):
        call("POST", "/api/v1/jobs", {"queue": "shared", "payload": {"tenant": tenant}})
    call("POST", "/api/v1/jobs", {"queue": "shared", "payload": 1, "fair_key": "cyd", "priority": 2})
    lease = call("POST", "/api/v1/lease", {"queues": ["shared"]})
    call("POST", f"/api/v1/leases/{lease['lease_token']}/release")
    schedules(call)
    undone = call("POST", "/api/v1/jobs", {"queue": "later", "payload": 3, "run_at": "2199-01-31T08:00:00Z"})
    call("DELETE", f"/api/v1/jobs/{undone['id']}?undo_ms=60000")
    call("POST", f"/api/v1/jobs/{undone['id']}/undo", {})
    call("POST", "/job", {"name": "resize", "argument": {"file": "cat.png"}, "max_retry": 2})
    call("POST", "/api/v0/job/create", b'{"msg": "Hello, world!"}')
    workq(at["workq"])
    gearman(at["gearman"])
    batches(call)


def flow(call):
    """A job that goes on, one that waits, and one that is cancelled."""
    def submit(body):
        return call("POST", "/api/v1/jobs", {"queue": "flow", "payload": 0, "keep_ms": KEEP_MS, **body})["id"]

    call("PUT", "/api/v1/queues/flow/settings", {"keep_dead_ms": KEEP_MS})
    first = submit({})
    submit({"after": [first]})
    submit({"after": [submit({"parked": True}), first], "on_dead": "wait"})
    lease = call("POST", "/api/v1/lease", {"queues": ["flow"]})
    call("POST", f"/api/v1/leases/{lease['lease_token']}/complete", {"result": 1})
    dies = submit({"parked": True})
    submit({"after": [dies]})
    submit({"after": [dies], "on_dead": "run"})
    call("POST", f"/api/v1/jobs/{dies}/cancel", {})


def batches(call):
    """One that waits for a job, with one in it that is done, and one that has gone."""
    def opened(body):
        return call("POST", "/api/v1/batches", {"queue": "flow", "keep_ms": KEEP_MS, **body})["id"]

    outer = opened({"name": "outer", "key": "once"})
    inner = opened({"name": "inner", "parent": outer})
    call("POST", "/api/v1/jobs", {"queue": "flow", "parked": True, "batch": outer})
    call("POST", "/api/v1/jobs", {"queue": "flow", "priority": 9, "keep_ms": KEEP_MS, "batch": inner})
    call("POST", "/api/v1/jobs", {"queue": "flow", "batch": inner})
    lease = call("POST", "/api/v1/lease", {"queues": ["flow"]})
    call("POST", f"/api/v1/leases/{lease['lease_token']}/complete", {"result": 2})
    for batch in (outer, inner, opened({"keep_ms": 0})):
        call("POST", f"/api/v1/batches/{batch}/seal", {})


def schedules(call):
    """One that has submitted a job, one that is paused, and one that is removed."""
    far = {"zone": "Europe/Berlin", "start_at": "2190-01-01T00:00:00Z"}
    job = {"queue": "cron", "payload": {"a": 1}, "priority": 3, "keep_ms": KEEP_MS}
    call("PUT", "/api/v1/schedules/yearly", {**far, "expression": "0 8 1 1 *", "job": job, "overlap": "queue_one"})
    call("PUT", "/api/v1/schedules/paused", {**far, "expression": "every 90s", "job": job, "paused": True, "missed": "all", "missed_max": 7, "jitter_ms": 100})
    call("PUT", "/api/v1/schedules/removed", {**far, "expression": "@daily", "job": job})
    call("POST", "/api/v1/schedules/yearly/run", {})
    call("DELETE", "/api/v1/schedules/removed")


def connect(address):
    host, port = address.rsplit(":", 1)
    return socket.create_connection((host, int(port)))


def workq(address):
    stream = connect(address)
    stream.sendall(b"add 6ba7b810-9dad-11d1-80b4-00c04fd430c4 ping 60000 4000000000000 5\r\nhello\r\n")
    assert stream.recv(100).startswith(b"+OK"), "workq"


def gearman(address):
    stream = connect(address)
    body = b"reverse\0unique-1\0hello"
    stream.sendall(b"\0REQ" + struct.pack(">II", 18, len(body)) + body)
    assert stream.recv(100).startswith(b"\0RES"), "gearman"


main()
