"""The task of the suite python-worker, for RQ. Run as a program, it submits jobs of it.

    rq_tasks.py FIRST COUNT together|singly

A worker of RQ runs each job in a process that it forks for it, which imports this anew: what only
submits is imported there."""

import os
import sys

notes = os.open(os.environ["BENCH_NOTES"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)


def note(number):
    os.write(notes, b"%08d\n" % number)


def main(first, count, how):
    from redis import Redis
    from rq import Queue

    queue = Queue(connection=Redis.from_url(os.environ["BENCH_REDIS"]))
    numbers = range(first, first + count)
    if how == "together":
        queue.enqueue_many([Queue.prepare_data("rq_tasks.note", (number,)) for number in numbers])
    else:
        for number in numbers:
            queue.enqueue("rq_tasks.note", number)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
