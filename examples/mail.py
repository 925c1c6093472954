"""usage: mail.py submit ADDRESS | mail.py work"""
import json
import os
import sys
from urllib.error import HTTPError
from urllib.request import Request, urlopen

API = os.environ.get("SPINDLE_URL", "http://127.0.0.1:7420") + "/api/v1"


def post(path, body):
    headers = {"Content-Type": "application/json"}
    request = Request(f"{API}/{path}", json.dumps(body).encode(), headers)
    with urlopen(request, timeout=60) as response:
        return json.load(response) if response.status != 204 else None


def send(mail):
    if "@" not in mail["to"]:
        raise ValueError(f"no address: {mail['to']}")
    return {"sent_to": mail["to"]}


def work():
    # Ends after a second without a job; a service would ask again, with wait_s up to 300.
    while job := post("lease", {"queues": ["mail"], "wait_s": 1}):
        try:
            outcome, report = "complete", {"result": send(job["payload"])}
        except Exception as error:
            outcome, report = "fail", {"message": str(error)[:4096]}  # retried after a backoff
        try:
            post(f"leases/{job['lease_token']}/{outcome}", report)
        except HTTPError as error:
            if error.code not in (409, 410):  # the lease has ended: the job is no longer ours
                raise


match sys.argv[1:]:
    case ["submit", address]:
        print(post("jobs", {"queue": "mail", "payload": {"to": address}})["id"])
    case ["work"]:
        work()
    case _:
        sys.exit(__doc__)
