import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";

import {
  defineTask,
  type JobContext,
  JobFailedError,
  LeaseEndedError,
  Spindle,
  TaskTimeoutError,
  UnrecoverableError,
  Worker,
  WorkerStoppedError,
  type WorkerOptions,
} from "spindle-client";

import { Proxy } from "./support/proxy.js";
import { Server, spindle } from "./support/server.js";
import { aborted, Deferred, eventually } from "./support/wait.js";

let server: Server;
let client: Spindle;

before(async () => {
  server = await Server.start();
  client = server.client();
});
after(() => server.remove());

/** A worker that runs until the test is over. */
async function withWorker(
  tasks: ConstructorParameters<typeof Worker>[0],
  options: WorkerOptions,
  run: (worker: Worker) => Promise<void>,
): Promise<void> {
  const worker = new Worker(tasks, { client, ...options });
  const ended = worker.run();
  try {
    await run(worker);
  } finally {
    await worker.stop();
    await ended;
  }
}

test("a task gets the payload and what there is to know of the job", async () => {
  const seen = new Deferred<JobContext>();
  const task = defineTask("greet", (name: string, job) => {
    seen.resolve(job);
    return `hello ${name}`;
  });
  const job = await client.submit(task, "world");
  await withWorker([task], { name: "greeter" }, async () => {
    assert.equal(await job.result(), "hello world");
    const context = await seen.promise;
    assert.deepEqual([context.id, context.queue, context.attempt], [job.id, "greet", 1]);
    assert.equal(context.client, client);
    assert.equal((await job.info()).history?.[0]?.worker, "greeter");
  });
});

test("one worker does the jobs of several tasks", async () => {
  const one = defineTask("one", () => 1);
  const two = defineTask("two", async () => Promise.resolve(2));
  await withWorker([one, two], {}, async () => {
    const jobs = [await client.submit(one), await client.submit(two)];
    assert.deepEqual(await Promise.all(jobs.map((job) => job.result())), [1, 2]);
  });
});

test("as many jobs run at once as the concurrency says, and no more", async () => {
  let running = 0;
  let most = 0;
  const all = new Deferred();
  const task = defineTask("parallel", async () => {
    most = Math.max(most, ++running);
    if (running === 8) all.resolve();
    await all.promise;
    running -= 1;
  });
  const jobs = await client.submitMany(task, Array<undefined>(40).fill(undefined));
  await withWorker([task], { concurrency: 8 }, async () => {
    await Promise.all(jobs.map((job) => job.result()));
  });
  assert.equal(most, 8);
});

test("tasks that end together are reported in one request, which brings the next jobs", async () => {
  const proxy = await Proxy.start(() => server.port);
  const jobs = await client.submitMany("together", Array<undefined>(30).fill(undefined));
  const worker = { client: server.client({ url: proxy.url }), concurrency: 10 };
  await withWorker([defineTask("together", () => undefined)], worker, async () => {
    await Promise.all(jobs.map((job) => job.result()));
  });
  proxy.close();
  const sent = (path: string) => proxy.requests.filter((line) => line.startsWith(`POST /api/v1/${path}`)).length;
  // The first ones for jobs are asked for alone; and when there are no more, a request waits.
  assert.ok(sent("lease ") <= 2, proxy.requests.join("\n"));
  assert.ok(sent("leases/") <= 3, proxy.requests.join("\n"));
});

test("a failure is kept with its message, code and stack, and tried again after the backoff", async () => {
  const task = defineTask("flaky", (_: undefined, job) => {
    if (job.attempt < 3) throw Object.assign(new RangeError(`try ${job.attempt}`), { code: "E_FLAKY" });
    return job.attempt;
  });
  const failed: string[] = [];
  await withWorker([task], {}, async (worker) => {
    worker.on("failed", (_, error) => failed.push((error as Error).message));
    const job = await client.submit(task, undefined, { retries: 2, backoff: { base: 50, factor: 2 } });
    assert.equal(await job.result(), 3);
    const { history = [] } = await job.info();
    assert.deepEqual(history.map(({ outcome }) => outcome), ["failed", "failed", "completed"]);
    const [first, second, third] = history;
    assert.deepEqual([first?.message, first?.code], ["try 1", "E_FLAKY"]);
    assert.match(first?.error ?? "", /^RangeError: try 1\n\s+at /);
    const waitMs = (from?: string, to?: string) => Date.parse(to ?? "") - Date.parse(from ?? "");
    assert.ok(waitMs(first?.ended_at, second?.started_at) >= 50);
    assert.ok(waitMs(second?.ended_at, third?.started_at) >= 100);
  });
  assert.deepEqual(failed, ["try 1", "try 2"]);
});

test("a job that failed too often is dead, with what was thrown", async () => {
  const odd = "\ud83c broken ".repeat(600);
  const task = defineTask("hopeless", (what: string) => {
    throw what === "text" ? odd : new Error(what);
  });
  await withWorker([task], {}, async () => {
    const job = await client.submit(task, "no such planet", { retries: 1, backoff: 0 });
    await assert.rejects(job.result(), (error) => {
      assert.ok(error instanceof JobFailedError);
      assert.match(error.message, /is dead: no such planet/);
      return error.job.fails === 2;
    });
    // Half a character, and more of them than the server takes.
    await assert.rejects((await client.submit(task, "text", { retries: 0 })).result(), (error) => {
      return error instanceof JobFailedError && error.job.result?.message?.length === 4096;
    });
  });
});

/** The pieces of a job's output, which come in pages. */
async function outputOf(id: number | string): Promise<string[]> {
  const texts: string[] = [];
  for (let from = 0; ; ) {
    const page = (await client.request("GET", `jobs/${id}/output?from=${from}`)) as {
      pieces: { text: string }[];
      next: number;
    };
    if (page.next === from) return texts;
    texts.push(...page.pieces.map(({ text }) => text));
    from = page.next;
  }
}

/** That the progress and the output of the task below are seen. */
async function assertSeen(id: number | string): Promise<void> {
  const { progress } = (await client.request("GET", `jobs/${id}`)) as {
    progress: { numerator: string; denominator: string };
  };
  assert.deepEqual([progress.numerator, progress.denominator], ["3", "8"]);
  const pieces = await outputOf(id);
  assert.deepEqual(pieces.map((piece) => Buffer.byteLength(piece)), [7, 65_535, 14_469]);
  assert.equal(pieces[0], "250 ok\n");
  assert.match(pieces[2] ?? "", /^ä+\ufffd$/);
}

test("progress and output are seen while a task runs", async () => {
  const told = new Deferred();
  const goOn = new Deferred();
  const task = defineTask("long", async (_: undefined, job) => {
    await job.reportProgress(3, 8);
    await job.writeOutput("250 ok\n");
    await job.writeOutput("x" + "ä".repeat(40_000) + "\ud83c");
    told.resolve();
    await goOn.promise;
    // Nobody waits for this one, which comes too late.
    setImmediate(() => void job.reportProgress(100));
  });
  await withWorker([task], {}, async () => {
    const job = await client.submit(task);
    try {
      await told.promise;
      await assertSeen(job.id);
    } finally {
      goOn.resolve();
    }
    await job.result();
  });
});

test("a report of a job that was cancelled aborts the signal of its task", async () => {
  const ended = new Deferred<[unknown, unknown]>();
  const task = defineTask("cancelled", async (_: undefined, job) => {
    await client.job(job.id).cancel();
    const error: unknown = await job.writeOutput("too late").catch((error: unknown) => error);
    ended.resolve([error, job.signal.reason]);
  });
  await withWorker([task], {}, async (worker) => {
    const lost = once(worker, "lost");
    await client.submit(task);
    const [error, reason] = await ended.promise;
    assert.ok(error instanceof LeaseEndedError && error.reason === "cancelled");
    assert.equal(error, reason);
    assert.equal(((await lost)[1] as LeaseEndedError).reason, "cancelled");
  });
});

test("a job whose result finds no room on the disk is not made dead", async () => {
  const reports: unknown[] = [];
  let isGiven = false;
  const standIn = createServer((request, response) => {
    const answer = (status: number, body: object) => {
      response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(body));
    };
    let body = "";
    request.setEncoding("utf8").on("data", (text) => (body += text));
    request.on("end", () => {
      if (request.url !== "/api/v1/lease") {
        reports.push(JSON.parse(body).leases);
        answer(507, { code: "disk_full", title: "The disk is full" });
      } else if (isGiven) {
        answer(503, { code: "busy" });
      } else {
        isGiven = true;
        answer(200, { jobs: [{ id: 1, queue: "q", attempt: 1, lease_token: "T", payload_type: "json", payload: 7 }] });
      }
    });
  });
  await once(standIn.listen(0, "127.0.0.1"), "listening");
  const { port } = standIn.address() as AddressInfo;
  const other = new Spindle({ url: `http://127.0.0.1:${port}` });
  await withWorker([defineTask("q", (n: number) => n)], { client: other }, async (worker) => {
    const lost = new Deferred();
    worker.on("error", () => undefined).on("lost", () => lost.resolve());
    await lost.promise;
  });
  other.close();
  standIn.close();
  // No failure is reported: the job comes back when its lease ends.
  assert.deepEqual(reports, [[{ lease_token: "T", complete: { result: 7 } }]]);
});

test("an unrecoverable error is not tried again", async () => {
  const task = defineTask("never", () => {
    throw new UnrecoverableError("the address is no address");
  });
  await withWorker([task], {}, async () => {
    await assert.rejects((await client.submit(task)).result(), (error) => {
      return error instanceof JobFailedError && error.code === "UnrecoverableError" && error.job.attempts === 1;
    });
  });
});

test("what cannot be decoded makes its job dead, and the worker goes on", async () => {
  let calls = 0;
  const parse = (value: unknown): { n: number } => {
    if (typeof (value as { n?: unknown })?.n === "number") return value as { n: number };
    throw new TypeError("n is missing");
  };
  const task = defineTask("strict", ({ n }: { n: number }) => {
    calls += 1;
    return n;
  }, { parse });
  await withWorker([task], {}, async () => {
    const bytes = (text: Buffer, type: string) => ({
      queue: "strict",
      payload_base64: text.toString("base64"),
      payload_type: type,
    });
    const dead = [
      [bytes(Buffer.from("{"), "bytes"), /JSON/],
      [bytes(Buffer.from([0xff, 0xfe]), "bytes"), /the payload of job/],
      [bytes(Buffer.from([0x81]), "msgpack"), /MessagePack/],
      [{ queue: "strict", payload: { m: 1 } }, /n is missing/],
      [{ queue: "strict" }, /n is missing/],
    ] as const;
    for (const [body, words] of dead) {
      const { id } = (await client.request("POST", "jobs", body)) as { id: number };
      await assert.rejects(client.job(id).result(), (error) => {
        assert.ok(error instanceof JobFailedError);
        assert.match(error.message, words);
        return error.code === "unreadable_payload" && error.job.attempts === 1;
      });
    }
    assert.equal(calls, 0);
    // Bytes that are JSON text, as clients of other protocols send them, are a payload.
    const fine = await client.request("POST", "jobs", bytes(Buffer.from('{"n":7}'), "bytes"));
    assert.equal(await client.job((fine as { id: number }).id).result(), 7);
  });
});

test("a result that cannot be written makes its job dead", async () => {
  const task = defineTask("big", () => 1n);
  await withWorker([task], {}, async () => {
    await assert.rejects((await client.submit(task)).result(), (error) => {
      return error instanceof JobFailedError && error.code === "unwritable_result" && error.job.attempts === 1;
    });
  });
});

test("heartbeats keep a job that takes longer than its lease", async () => {
  const goOn = new Deferred();
  const task = defineTask("long", async (_: undefined, job) => {
    await goOn.promise;
    return [job.attempt, job.signal.aborted];
  });
  const job = await client.submit(task, undefined, { ttr: "3s" });
  await withWorker([task], {}, async () => {
    const first = await eventually("it is leased", async () => (await job.info()).lease?.deadline_at);
    // Its lease is extended again after the first one would have ended.
    await eventually("it lives on", async () => {
      const { lease } = await job.info();
      const leftMs = Date.parse(lease?.deadline_at ?? first) - Date.parse(first);
      return leftMs > 3_000;
    });
    goOn.resolve();
    assert.deepEqual(await job.result(), [1, false]);
  });
});

test("a cancel and a delete abort the signal at the next heartbeat", async () => {
  const task = defineTask("endless", (_: undefined, job) => aborted(job.signal));
  await withWorker([task], { heartbeat: 50, concurrency: 2 }, async (worker) => {
    for (const [end, reason] of [["cancel", "cancelled"], ["delete", "gone"]] as const) {
      const job = await client.submit(task);
      const lost = once(worker, "lost");
      await eventually("it runs", async () => (await job.info()).status === "leased");
      await job[end]();
      const [context, error] = (await lost) as [JobContext, LeaseEndedError];
      assert.deepEqual([context.id, error.reason], [job.id, reason]);
      assert.equal(context.signal.reason, error);
    }
  });
});

test("a task that takes longer than its timeout is aborted, and fails", async () => {
  const task = defineTask("slow", (_: undefined, job) => aborted(job.signal), { timeout: 50, retries: 0 });
  await withWorker([task], {}, async (worker) => {
    const failed = once(worker, "failed");
    await assert.rejects((await client.submit(task)).result(), (error) => {
      return error instanceof JobFailedError && error.code === "task_timeout";
    });
    assert.ok((await failed)[1] instanceof TaskTimeoutError);
  });
});

test("a lease that cannot be extended in time aborts the signal", async () => {
  const own = await Server.start();
  const ownClient = own.client({ retryFor: 100 });
  const seen = new Deferred<unknown>();
  const running = new Deferred();
  const task = defineTask("cut-off", async (_: undefined, job) => {
    running.resolve();
    await aborted(job.signal).catch((reason) => seen.resolve(reason));
  });
  await ownClient.submit(task, undefined, { ttr: "1s" });
  const worker = new Worker([task], { client: ownClient, stopTimeout: 0 }).on("error", () => undefined);
  const run = worker.run();
  await running.promise;
  await own.kill();
  const reason = await seen.promise;
  assert.ok(reason instanceof LeaseEndedError && reason.reason === "timeout");
  await worker.stop();
  await run;
  await own.remove();
});

test("a stop lets running jobs end, and leases no more", async () => {
  const goOn = new Deferred();
  const task = defineTask("last", async () => {
    await goOn.promise;
    return "done";
  });
  const worker = new Worker([task], { client });
  const run = worker.run();
  const first = await client.submit(task);
  await eventually("it runs", async () => (await first.info()).status === "leased");
  const second = await client.submit(task);
  const stopped = worker.stop();
  goOn.resolve();
  await Promise.all([stopped, run]);
  assert.equal(await first.result(), "done");
  const info = await second.info();
  assert.deepEqual([info.status, info.attempts], ["ready", 0]);
  await assert.rejects(worker.run(), /runs once/);
});

test("the last events come before a stop and a run end", async () => {
  const job = await client.submit("last-event");
  const task = defineTask("last-event", () => void worker.stop());
  const worker = new Worker([task], { client });
  const completed: number[] = [];
  worker.on("completed", ({ id }) => completed.push(id));
  await worker.run();
  assert.deepEqual(completed, [job.id]);
});

test("what a listener throws is an uncaught exception, and the worker goes on", async () => {
  const uncaught = new Deferred<Error>();
  // Comes before the test runner's own.
  process.setUncaughtExceptionCaptureCallback((error) => uncaught.resolve(error));
  const task = defineTask("throwing-listener", (n: number) => n);
  try {
    await withWorker([task], {}, async (worker) => {
      worker.once("completed", () => {
        throw new Error("in a listener");
      });
      assert.equal(await (await client.submit(task, 1)).result(), 1);
      assert.equal((await uncaught.promise).message, "in a listener");
      assert.equal(await (await client.submit(task, 2)).result(), 2);
    });
  } finally {
    process.setUncaughtExceptionCaptureCallback(null);
  }
});

test("a stop that takes too long aborts the signals, and gives the jobs back", async () => {
  const task = defineTask("stuck", async (deaf: boolean, job) => {
    if (deaf) await new Promise(() => undefined);
    await aborted(job.signal);
  });
  const worker = new Worker([task], { client, concurrency: 2, stopTimeout: 10 });
  const released: unknown[] = [];
  worker.on("released", (job) => released.push(job.signal.reason));
  const run = worker.run();
  const jobs = await client.submitMany(task, [true, false]);
  await eventually("both run", async () => (await client.queue("stuck")).jobs.leased === 2);
  await worker.stop();
  await run;
  for (const job of jobs) {
    const { status, history } = await job.info();
    assert.deepEqual([status, history?.[0]?.outcome], ["ready", "released"]);
  }
  assert.equal(released.length, 2);
  assert.ok(released.every((reason) => reason instanceof WorkerStoppedError));
});

test("a worker goes on when the server was away, and says so once", async () => {
  const own = await Server.start();
  const ownClient = own.client({ retryFor: "30s" });
  const task = defineTask("again", (n: number) => n);
  const errors: Error[] = [];
  const worker = new Worker([task], { client: ownClient, concurrency: 4 }).on("error", (e) => errors.push(e));
  const run = worker.run();
  assert.equal(await (await ownClient.submit(task, 1)).result(), 1);
  await own.kill();
  await eventually("the worker notices", () => errors.length > 0);
  await own.restart();
  assert.equal(await (await ownClient.submit(task, 2)).result(), 2);
  assert.equal(errors.length, 1);
  await worker.stop();
  await run;
  await own.remove();
});

test("the job of a worker that is killed comes back after its lease", async () => {
  const job = await client.submit("killed", { hang: true }, { backoff: 0 });
  const child = program("killed");
  await eventually("it runs", async () => (await job.info()).status === "leased");
  child.kill("SIGKILL");
  await once(child, "exit");
  await withWorker([defineTask("killed", (_: object, { attempt }) => attempt)], {}, async () => {
    assert.equal(await job.result(), 2);
  });
  assert.equal((await job.info()).history?.[0]?.outcome, "timeout");
});

test("SIGTERM lets a worker's job end, and then its process", async () => {
  const job = await client.submit("terminated", { until: "sigterm" });
  const child = program("terminated");
  await eventually("it runs", async () => (await job.info()).status === "leased");
  child.kill("SIGTERM");
  assert.deepEqual(await once(child, "exit"), [0, null]);
  assert.equal(await job.result(), "ended in order");
});

/** A program with a worker. */
function program(queue: string) {
  const path = fileURLToPath(new URL("./support/program.js", import.meta.url));
  const env = { ...process.env, SPINDLE_URL: server.url };
  return spawn(process.execPath, [path, queue], { env, stdio: ["ignore", "inherit", "inherit"] });
}

test("a job of the command line is done here, and one of here there", async () => {
  const task = defineTask("shared", (text: string) => text.toUpperCase());
  const id = spindle("add", "shared", '"hello"', "--url", server.url).trim();
  await withWorker([task], {}, async () => {
    assert.equal(await client.job(id, task).result(), "HELLO");
  });
  const job = await client.submit("there", { to: "a" });
  spindle("work", "there", "--drain", "--url", server.url, "--", "cat");
  assert.deepEqual(await job.result(), { to: "a" });
});

test("workers that cannot be are refused", () => {
  const task = defineTask("twice", () => undefined);
  assert.throws(() => new Worker([task, task], { client }), /two tasks have the queue twice/);
  assert.throws(() => new Worker([], { client }), /needs a task/);
  assert.throws(() => new Worker([task], { client, concurrency: 0 }), /concurrency/);
});
