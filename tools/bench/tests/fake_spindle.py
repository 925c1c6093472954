#!/usr/bin/env python3
"""Takes the flags of `spindle serve` and is a Workq server in memory that does wrong on request: the
bench is only worth something if it notices. FAULT in the environment says what happens to the 50th
job."""

import os
import socketserver
import sys
import threading

FAULT = os.environ.get("FAULT", "")
more = threading.Condition()
waiting = []
submitted = 0


class Session(socketserver.StreamRequestHandler):
    disable_nagle_algorithm = True

    def handle(self):
        while words := self.rfile.readline().decode().split():
            answer = getattr(self, words[0])(*words[1:])
            if answer is None:
                return
            self.wfile.write(answer)

    def body(self, size):
        return self.rfile.read(int(size) + 2)[:-2]

    def add(self, name, queue, _ttr, _ttl, size):
        global submitted
        job = (name, queue, self.body(size))
        with more:
            submitted += 1
            fault = FAULT if submitted == 50 else ""
            if fault == "refuses":
                return b"-SERVER-ERROR Disk full\r\n"
            if fault == "hangs up":
                return None
            if fault == "damages":
                job = (name, queue, job[2][:-1] + bytes([job[2][-1] ^ 1]))
            if fault == "delivers twice":
                waiting.append(job)
            if fault != "loses":
                waiting.append(job)
            more.notify_all()
        return b"+OK\r\n"

    def auth(self, _token):
        return b"+OK\r\n"

    def lease(self, queue, wait):
        with more:
            if not more.wait_for(lambda: waiting, int(wait) / 1000):
                return b"-TIMEOUT\r\n"
            name, queue, payload = waiting.pop(0)
        return f"+OK 1\r\n{name} {queue} 60000 {len(payload)}\r\n".encode() + payload + b"\r\n"

    def complete(self, _name, size):
        self.body(size)
        return b"+OK\r\n"

    def inspect(self, _what, _queue):
        return b"+OK 1\r\nready-len %d\r\n" % len(waiting)


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 128


if sys.argv[1] == "token":
    print("a-token\nits entry")
    sys.exit()
host, port = sys.argv[sys.argv.index("--workq") + 1].split(":")
Server((host, int(port)), Session).serve_forever()
