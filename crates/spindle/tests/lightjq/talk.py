"""A pusher and workers of LightJQ, with nothing but msgpack and the standard library.

talk.py pusher|pulling|pushed|before|after HOST:PORT FOLDER

The folder holds what the processes tell each other: a file for each first attempt, and one for each
report that came too late.
"""

import http.client
import http.server
import os
import queue
import sys
import threading
import time

import msgpack

ROLE, SERVER, FOLDER = sys.argv[1:]
SLOTS = 8


class Caller:
    """One connection to the server, opened again when it was closed."""

    def __init__(self):
        self.connection = http.client.HTTPConnection(SERVER, timeout=120)

    def call(self, method, path, body=None, worker=None):
        headers = {"Accept": "application/msgpack"}
        if worker:
            headers["worker-id"] = worker
        if body is not None:
            headers["Content-Type"] = "application/msgpack"
            body = msgpack.packb(body)
        self.connection.request(method, path, body, headers)
        response = self.connection.getresponse()
        answer = response.read()
        return response.status, msgpack.unpackb(answer) if answer else None


def expect(got, wanted, *about):
    if got != wanted:
        fail(f"{about}: got {got!r} instead of {wanted!r}")


def fail(why):
    """Ends the process from whichever thread."""
    print(why, file=sys.stderr, flush=True)
    os._exit(1)


def mark(kind, number):
    """True for the first who says so."""
    try:
        os.close(os.open(os.path.join(FOLDER, f"{kind}-{number}"), os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def has_mark(kind, number):
    deadline = time.monotonic() + 60
    path = os.path.join(FOLDER, f"{kind}-{number}")
    while not os.path.exists(path):
        if time.monotonic() > deadline:
            fail(f"no {kind} for {number}")
        time.sleep(0.01)


# ---- workers ----


def work(caller, worker, order):
    """Does one job as its argument says, and reports it."""
    expect(order["id"], order["job_id"])
    number, plan = order["argument"]["number"], order["argument"]["plan"]
    first = mark("begun", number)
    done = {"job_id": order["id"], "finished_at": "2026-01-02T03:04:05Z"}
    if plan == "fail" or (plan == "fail once" and first):
        done |= {
            "type": "failure",
            "reason": "other",
            "should_retry": True,
            "message": f"no {number}",
            "error": {"number": number},
        }
    else:
        done |= {"type": "success", "result": [number, number * number, b"\xff\x00"]}
    if plan == "late once" and first:
        time.sleep(order["timeout"] + 0.2)
        expect(caller.call("POST", "/done", done, worker)[0], 404, "late", number)
        mark("late", number)
        return
    status = caller.call("POST", "/done", done, worker)[0]
    # On a machine that stands still now and then the second attempt may be late as well.
    if not (plan == "late once" and status == 404):
        expect(status, 204, plan, number)


def register(**more):
    body = {"name": f"python {ROLE}", "max_jobs": SLOTS} | more
    status, answer = Caller().call("POST", "/worker", body)
    expect(status, 201, answer)
    return answer["worker_id"]


def pull(worker):
    caller = Caller()
    while True:
        status, order = caller.call("GET", "/worker/job?timeout=20", worker=worker)
        if status == 204:
            continue
        expect(status, 200, order)
        work(caller, worker, order)


def run_all(targets):
    threads = [threading.Thread(target=target, args=rest) for target, *rest in targets]
    for thread in threads:
        thread.start()
    print("registered", flush=True)
    for thread in threads:
        thread.join()


def pulling():
    worker = register()
    run_all([(pull, worker)] * SLOTS)


ORDERS = queue.Queue()


class Site(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        expect(self.path, "/jobs/worker-job")
        order = msgpack.unpackb(self.rfile.read(int(self.headers["Content-Length"])))
        ORDERS.put((self.headers["worker-id"], order))
        self.send_response(202)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


def serve_orders():
    caller = Caller()
    while True:
        worker, order = ORDERS.get()
        if ORDERS.qsize() >= SLOTS:
            fail("more than max_jobs at once")
        work(caller, worker, order)


def pushed():
    site = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Site)
    run = threading.Thread(target=site.serve_forever)
    run.start()
    register(url=f"http://127.0.0.1:{site.server_address[1]}/jobs")
    run_all([(serve_orders,)] * SLOTS)


# ---- pushers ----


def plan_of(number):
    if number % 20 == 7:
        return "fail"
    if number % 20 == 13:
        return "late once"
    return "fail once" if number % 10 == 1 else "plain"


def submit(caller, number, plan, **more):
    job = {"name": f"square {number % 3}", "argument": {"number": number, "plan": plan}}
    status, answer = caller.call("POST", "/job", job | {"keep_result": True} | more)
    expect(status, 201, answer)
    return answer["job_id"]


def check(caller, number, job, plan):
    while True:
        status, told = caller.call("GET", f"/job/{job}/polling?timeout=60")
        if status != 408:
            break
    expect(status, 200, told)
    if plan == "fail":
        wanted = ("error", None, {"number": number}, f"no {number}", 1)
    else:
        wanted = ("done", [number, number * number, b"\xff\x00"], None, None, int(plan != "plain"))
    if plan == "late once" and told["retry_count"] > 1:
        told["retry_count"] = 1
    got = tuple(told[key] for key in ("status", "result", "error", "message", "retry_count"))
    expect(got, wanted, number, plan)
    expect(len(told["worker_id"]), 36, number)
    if plan == "late once":
        has_mark("late", number)


def pusher():
    caller = Caller()
    jobs = []
    for number in range(1000):
        plan = plan_of(number)
        more = {"timeout": 3.0} if plan == "late once" else {"timeout": 600}
        if plan == "fail":
            more["max_retry"] = 1
        job = submit(caller, number, plan, priority=number % 5 - 2, **more)
        jobs.append((number, job, plan))
    for number, job, plan in jobs:
        check(caller, number, job, plan)
    plans = [plan for _, _, plan in jobs]
    count = {plan: plans.count(plan) for plan in plans}
    print(
        f"{len(jobs)} jobs: {count['plain']} plain, {count['fail once']} failed once, "
        f"{count['late once']} late once, {count['fail']} failed"
    )


# ---- before and after the server is killed ----


def before():
    caller = Caller()
    worker = register()
    jobs = [submit(caller, number, "plain", timeout=600) for number in range(3)]
    status, order = caller.call("GET", "/worker/job?timeout=60", worker=worker)
    expect(status, 200, order)
    with open(os.path.join(FOLDER, "kept"), "wb") as file:
        file.write(msgpack.packb([worker, jobs, order]))
    print(f"{len(jobs)} jobs, 1 begun")


def after():
    with open(os.path.join(FOLDER, "kept"), "rb") as file:
        worker, jobs, order = msgpack.unpackb(file.read())
    caller = Caller()
    expect(caller.call("GET", "/worker/job", worker=worker)[0], 404, "unknown after a restart")
    # What it had from the earlier run is its own all the same.
    work(caller, worker, order)
    body = {"name": "python", "max_jobs": 1}
    status, answer = caller.call("POST", "/worker", body, worker)
    expect((status, answer), (201, {"worker_id": worker}))
    for _ in range(2):
        status, order = caller.call("GET", "/worker/job?timeout=60", worker=worker)
        expect(status, 200, order)
        work(caller, worker, order)
    for number, job in enumerate(jobs):
        check(caller, number, job, "plain")
    print(f"{len(jobs)} done")


globals()[ROLE]()
