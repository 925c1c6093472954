#!/usr/bin/env python3
"""Makes a kept folder of the formats of this release: a backup of a server with jobs of every door,
and what an export of it says.

Run it once when a format gets a new version, and never change what it made:

    crates/spindle/tests/formats/make.py target/debug/spindle crates/spindle/tests/formats/NAME

NAME is what the test `formats` asks for when it is missing.
"""

import json, os, socket, struct, subprocess, sys, tempfile, urllib.request

PROGRAM, TARGET = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
KEEP_MS = 4_000_000_000_000  # more than a century


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
        command = [PROGRAM, "serve", "--data", folder + "/data", *doors]
        server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        try:
            at = ports(server)
            fill(at)
            url = "http://" + at["http"]
            run("backup", url, TARGET + "/backup")
            run("export", TARGET + "/export.jsonl", "--all", "--url", url)
        finally:
            server.terminate()
            server.wait()
    os.remove(TARGET + "/backup/lock")


def run(*arguments):
    subprocess.run([PROGRAM, *arguments], check=True)


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
    call("POST", "/job", {"name": "resize", "argument": {"file": "cat.png"}, "max_retry": 2})
    call("POST", "/api/v0/job/create", b'{"msg": "Hello, world!"}')
    workq(at["workq"])
    gearman(at["gearman"])


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
