"""The task of the suite python-worker, for Spindle: it notes its number. Run as a program, it submits
jobs of it.

    spindle_tasks.py FIRST COUNT together|singly

`together` sends as many as the server takes in one request."""

import os
import sys

from spindle import Spindle

app = Spindle()
notes = os.open(os.environ["BENCH_NOTES"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)


@app.task(queue="bench")
def note(number):
    os.write(notes, b"%08d\n" % number)


if __name__ == "__main__":
    first, count, how = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    numbers = range(first, first + count)
    if how == "together":
        app.submit_many([note.message(number) for number in numbers])
    else:
        for number in numbers:
            note.delay(number)
