"""A worker and a client over python3-gearman. See main.rs for what they do and print."""

import sys
import time
from importlib.metadata import version

import python3_gearman as gearman

role, host, port, prefix = sys.argv[1:5]
servers = [f"{host}:{port}"]
print("version: python3-gearman", version("python3-gearman"), flush=True)


def text(data):
    return data.decode() if isinstance(data, bytes) else data


class Worker(gearman.GearmanWorker):
    def on_job_exception(self, job, exception):
        self.send_job_exception(job, "boom")
        return True


def steps(worker, job):
    worker.send_job_status(job, 1, 2)
    worker.send_job_data(job, "part")
    return "end"


def boom(worker, job):
    raise ValueError("boom")


if role == "worker":
    worker = Worker(servers)
    worker.register_task(f"{prefix}-reverse", lambda worker, job: text(job.data)[::-1])
    worker.register_task(f"{prefix}-steps", steps)
    worker.register_task(f"{prefix}-boom", boom)
    print("ready", flush=True)
    worker.work()

own = sys.argv[5]
client = gearman.GearmanClient(servers)
done = client.submit_job(f"{prefix}-reverse", "hello")
print("foreground:", text(done.result))

request = client.submit_job(f"{prefix}-reverse", "hello", background=True)
known = True
for _ in range(1000):
    known = client.get_job_status(request).status["known"]
    if not known:
        break
    time.sleep(0.01)
print("background:", "not done" if known else "done")

request = client.submit_job(f"{prefix}-steps", "hello")
status, data = request.status, [text(piece) for piece in request.data_updates]
print("steps:", f"{status['numerator']}/{status['denominator']}", *data, text(request.result))

request = client.submit_job(f"{prefix}-boom", "hello")
# It never asks for exceptions, so it hears of a failure.
print("exception:", request.exception or request.state.lower())

for payload, priority in [("low", gearman.PRIORITY_LOW), ("normal", gearman.PRIORITY_NONE),
                          ("high", gearman.PRIORITY_HIGH)]:
    client.submit_job(own, payload, priority=priority, background=True)
print("priorities: sent")
handles = {
    client.submit_job(own, payload, unique="u", background=True).job.handle
    for payload in ("first", "second")
}
print("unique:", "one" if len(handles) == 1 else "two")
