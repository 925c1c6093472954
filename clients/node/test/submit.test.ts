import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import {
  ApiError,
  bytes,
  ConnectionError,
  defineTask,
  FullError,
  Job,
  JobFailedError,
  KeyTakenError,
  NotFoundError,
  SerializationError,
  Spindle,
  SpindleError,
  SubmitManyError,
  TooLargeError,
  WaitTimeoutError,
  Worker,
} from "spindle-client";

import { Server } from "./support/server.js";

/** What the server takes as the body of a request. */
const BODY_BYTES_MAX = 16 * 1024 * 1024;

let server: Server;
let client: Spindle;

before(async () => {
  server = await Server.start();
  client = server.client();
});
after(() => server.remove());

test("what is not said is left to the server", async () => {
  const job = await client.submit("plain", { to: "a@example.org" });
  const info = await job.info();
  assert.equal(info.status, "ready");
  assert.deepEqual(info.payload, { to: "a@example.org" });
  assert.deepEqual(info.limits_from, { attempts_max: "default", fails_max: "default", backoff: "default" });
});

test("each option arrives", async () => {
  const job = await client.submit("options", 1, {
    priority: 7,
    delay: "1h",
    retries: 9,
    backoff: { base: "2s", factor: 1.5, cap: "10m", jitter: 0.25 },
    ttr: "90s",
    ttl: "2d",
    keep: "1.5h",
    tags: ["news", "big"],
    unique: "key",
  });
  const info = await job.info();
  assert.equal(info.status, "scheduled");
  const delayMs = Date.parse(info.run_at ?? "") - Date.parse(info.created_at);
  assert.ok(Math.abs(delayMs - 3_600_000) < 60_000, `${delayMs} ms is about an hour`);
  assert.deepEqual(
    [info.priority, info.fails_max, info.attempts_max, info.ttr_ms, info.ttl_ms, info.keep_ms],
    [7, 10, 50, 90_000, 172_800_000, 5_400_000],
  );
  assert.deepEqual(info.backoff, { base_ms: 2000, factor: 1.5, cap_ms: 600_000, jitter: 0.25 });
  assert.deepEqual([info.tags, info.unique_key], [["news", "big"], "key"]);
});

test("retries without end have no limits, and none is one failure", async () => {
  const endless = await (await client.submit("tries", 1, { retries: Infinity })).info();
  assert.deepEqual([endless.fails_max, endless.attempts_max], [0, 0]);
  const once = await (await client.submit("tries", 1, { retries: 0, attemptsMax: 3 })).info();
  assert.deepEqual([once.fails_max, once.attempts_max], [1, 3]);
});

test("a submit's own options go before its task's", async () => {
  const task = defineTask("task", (n: number) => n, { client, delay: "1h", priority: 3, tags: ["task"] });
  const info = await (await task.submit(1, { runAt: new Date(0), priority: 4 })).info();
  assert.deepEqual([info.status, info.priority, info.tags], ["ready", 4, ["task"]]);
});

test("options that mean nothing are refused before anything is sent", async () => {
  const nowhere = new Spindle({ url: "http://127.0.0.1:1" });
  const refused = (options: object, words: RegExp) =>
    assert.rejects(nowhere.submit("q", 1, options), (error: Error) => {
      return error instanceof TypeError && words.test(error.message);
    });
  await refused({ delay: "soon" }, /delay: soon is no duration/);
  await refused({ ttr: -1 }, /ttr/);
  await refused({ retries: 1.5 }, /retries/);
  await refused({ delay: 1, runAt: new Date() }, /delay and runAt/);
});

test("a parked job waits until it is released", async () => {
  const job = await client.submit("parked", 1, { parked: true });
  assert.equal((await job.info()).status, "parked");
  assert.equal((await job.release()).status, "ready");
  assert.equal((await job.park()).status, "parked");
});

test("one unfinished job has a unique key", async () => {
  const task = defineTask("report", (_: { month: string }) => undefined, { client, unique: (p) => p.month });
  const first = await task.submit({ month: "2026-01" });
  await task.submit({ month: "2026-02" });
  await assert.rejects(task.submit({ month: "2026-01" }), (error) => {
    return error instanceof KeyTakenError && error.job === first.id && error.status === 409;
  });
  const same = await task.submit({ month: "2026-01" }, { unique: { key: "2026-01", mode: "existing" } });
  assert.deepEqual([same.id, same.existing], [first.id, true]);
  const other = await task.submit({ month: "2026-01" }, { unique: { key: "2026-01", mode: "replace" } });
  assert.notEqual(other.id, first.id);
  await assert.rejects(first.info(), NotFoundError);
});

test("an idempotency key makes one job of many submits", async () => {
  const options = { idempotencyKey: "order-4711" };
  const first = await client.submit("orders", 1, options);
  const second = await client.submit("orders", 1, options);
  assert.deepEqual([first.existing, second.existing], [false, true]);
  assert.equal(first.id, second.id);
  await assert.rejects(client.submit("orders", 2, options), (error) => {
    return error instanceof ApiError && error.code === "idempotency_key_reused";
  });
});

test("many jobs go in few requests, in their order", async () => {
  const payloads = Array.from({ length: 2500 }, (_, n) => ({ n }));
  const jobs = await client.submitMany("many", payloads);
  assert.equal(jobs.length, 2500);
  assert.deepEqual((await jobs[2400]?.info())?.payload, { n: 2400 });
  assert.deepEqual(await client.submitMany("many", []), []);
});

test("many jobs that are too large for one request go in several", async () => {
  const payload = "x".repeat(3 * 1024 * 1024);
  assert.equal((await client.submitMany("large", Array<string>(8).fill(payload))).length, 8);
});

test("of many jobs each is accepted or refused for itself", async () => {
  await client.request("PUT", "queues/small/settings", { jobs_max: 2 });
  await assert.rejects(client.submitMany("small", [1, 2, 3]), (error) => {
    assert.ok(error instanceof SubmitManyError);
    assert.match(error.message, /1 of 3 jobs were not accepted/);
    assert.ok(error.outcomes[0] instanceof Job && error.outcomes[1] instanceof Job);
    return error.outcomes[2] instanceof FullError && error.outcomes[2].code === "queue_full";
  });
});

test("a body of the server's limit is taken, one byte more is refused", async () => {
  const queue = "limit";
  const overhead = Buffer.byteLength(JSON.stringify({ queue, payload: "" }));
  const largest = "x".repeat(BODY_BYTES_MAX - overhead);
  const job = await client.submit(queue, largest);
  assert.equal((await job.info()).payload, largest);
  await assert.rejects(client.submit(queue, `${largest}x`), TooLargeError);
  assert.equal((await client.submit(queue, "the client goes on")).existing, false);
});

test("a worker's result of the server's limit is taken, one byte more makes the job fail", async () => {
  const overhead = Buffer.byteLength(JSON.stringify({ result: "" }));
  const task = defineTask("results", (more: number) => "x".repeat(BODY_BYTES_MAX - overhead + more), { client });
  const worker = new Worker([task], { client });
  const run = worker.run();
  assert.equal((await (await task.submit(0)).result()).length, BODY_BYTES_MAX - overhead);
  await assert.rejects((await task.submit(1)).result(), (error) => {
    return error instanceof JobFailedError && error.code === "too_large" && error.job.fails === 1;
  });
  await worker.stop();
  await run;
});

test("what has no JSON is refused with the reason", async () => {
  for (const payload of [1n, () => 1, circle()]) {
    await assert.rejects(client.submit("q", payload), (error) => {
      return error instanceof SerializationError && error.code === "unwritable_payload";
    });
  }
});

function circle(): object {
  const one: { self?: object } = {};
  one.self = one;
  return one;
}

test("a job without payload has no bytes", async () => {
  const info = await (await client.submit("empty")).info();
  assert.deepEqual([info.payload, info.payload_bytes], [undefined, 0]);
});

test("a serializer writes and reads payloads and results", async () => {
  const reverse = defineTask("reverse", (raw: Uint8Array) => Uint8Array.from(raw).reverse(), {
    client,
    serializer: bytes,
  });
  const worker = new Worker([reverse], { client });
  const run = worker.run();
  const job = await reverse.submit(Uint8Array.of(0, 1, 255));
  assert.deepEqual([...(await job.result())], [255, 1, 0]);
  assert.deepEqual([...(await client.job(job.id, reverse).result())], [255, 1, 0]);
  assert.equal((await job.info()).payload_type, "bytes");
  assert.deepEqual([...(await (await reverse.submit(new Uint8Array())).result())], []);
  await worker.stop();
  await run;
});

test("a wait for a result ends with its time, or with its signal", async () => {
  const job = await client.submit("nobody");
  await assert.rejects(job.result({ timeout: 10 }), (error) => {
    return error instanceof WaitTimeoutError && error.job?.status === "ready";
  });
  const controller = new AbortController();
  const wait = job.result({ signal: controller.signal });
  controller.abort(new Error("enough"));
  await assert.rejects(wait, /enough/);
});

test("a job that nobody has is not found, and a cancelled one says so", async () => {
  await assert.rejects(client.job(999_999).info(), (error) => {
    return error instanceof NotFoundError && error.code === "job_not_found" && error.status === 404;
  });
  assert.equal(await client.job(999_999).delete(), false);
  const job = await client.submit("cancelled");
  await job.cancel();
  await assert.rejects(job.result(), (error) => error instanceof JobFailedError && error.code === "cancelled");
  await assert.rejects(job.cancel(), (error) => error instanceof SpindleError && error.code === "job_finished");
  assert.equal((await job.retry()).status, "ready");
});

test("jobs are listed page by page, and queues paused", async () => {
  const submitted = await client.submitMany("listed", Array<number>(1200).fill(0), { tags: ["listed"] });
  const ids: number[] = [];
  for await (const { id } of client.jobs({ queue: "listed", status: ["ready", "leased"] })) ids.push(id);
  assert.deepEqual(ids, submitted.map((job) => job.id));
  for await (const { id } of client.jobs({ tag: "listed", newestFirst: true })) {
    assert.equal(id, ids.at(-1));
    break;
  }
  await client.pause("listed");
  assert.equal((await client.queue("listed")).paused, true);
  await client.resume("listed");
  assert.equal((await client.queue("listed")).paused, false);
  await assert.rejects(client.queue("no/such queue?"), NotFoundError);
});

test("a server that is not there is an error that says where", async () => {
  const nowhere = new Spindle({ url: "http://127.0.0.1:1", retryFor: 200 });
  await assert.rejects(nowhere.submit("q", 1), (error) => {
    assert.ok(error instanceof ConnectionError);
    assert.match(error.message, /http:\/\/127\.0\.0\.1:1: .*ECONNREFUSED/);
    return !error.maybeReceived;
  });
});

test("settings that cannot be used are refused at once", () => {
  const refused = (options: object, words: RegExp) =>
    assert.throws(() => new Spindle(options), (error) => {
      return error instanceof SpindleError && error.code === "config" && words.test(error.message);
    });
  refused({ url: "localhost" }, /no URL/);
  refused({ url: "ftp://localhost" }, /begins with/);
  refused({ url: "http://user:secret@localhost" }, /no user/);
  refused({ caFile: "/no/such/file" }, /no such file/);
  refused({ certFile: "/no/such/file" }, /needs its key/);
  refused({ token: "two words" }, /one word/);
});
