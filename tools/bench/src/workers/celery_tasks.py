"""The task of the suite python-worker, for Celery with Redis. Run as a program, it submits jobs of it.

    celery_tasks.py FIRST COUNT together|singly

There is no way to send several at once, so both are the same."""

import os
import sys

from celery import Celery

app = Celery("bench", broker=os.environ["BENCH_REDIS"])
notes = os.open(os.environ["BENCH_NOTES"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)


@app.task(name="bench.note")
def note(number):
    os.write(notes, b"%08d\n" % number)


if __name__ == "__main__":
    first, count = int(sys.argv[1]), int(sys.argv[2])
    for number in range(first, first + count):
        note.delay(number)
