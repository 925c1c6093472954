// Jobs that wait for others, batches, fair keys, and results of the jobs before.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import {
  ApiError,
  type BatchInfo,
  bytes,
  ConflictError,
  defineTask,
  JobFailedError,
  message,
  NotFoundError,
  type Spindle,
  SubmitManyError,
  WaitTimeoutError,
  Worker,
} from "spindle-client";

import { Server } from "./support/server.js";

let server: Server;
let client: Spindle;

before(async () => {
  server = await Server.start();
  client = server.client();
});
after(() => server.remove());

test("a job waits for jobs and batches, by handles and numbers", async () => {
  const one = await client.submit("resize", 1);
  const two = await client.submit("resize", 2);
  const batch = await client.openBatch({ queue: "photos" });
  const album = await client.submit("album", null, {
    after: [one, two.id, batch],
    onDead: "run",
    fairKey: "acme",
  });
  const info = await album.info();
  assert.deepEqual([info.status, info.on_dead, info.fair_key], ["blocked", "run", "acme"]);
  assert.deepEqual(info.after, [
    { id: one.id, status: "ready" },
    { id: two.id, status: "ready" },
    { id: batch.id, is_batch: true, status: "open" },
  ]);
  await one.cancel();
  await two.delete();
  await batch.seal();
  assert.equal((await album.info()).status, "ready");
  await assert.rejects(client.submit("album", null, { after: 999_999 }), (error) => {
    return error instanceof NotFoundError && error.code === "after_not_found";
  });
  await assert.rejects(client.submit("album", null, { after: client.job("H:here:1") }), /by its number/);
});

test("messages of one request wait for each other by their refs", async () => {
  const resize = defineTask("resize", (name: string) => name.length);
  const [album, one] = await client.submitAll([
    message("album", "holidays", { after: ["one", "two"] }),
    message(resize, "photo-1.jpg", { ref: "one", idempotencyKey: "photo-1" }),
    message(resize, "photo-2.jpg", { ref: "two" }),
  ]);
  const info = await album.info();
  assert.deepEqual([info.status, info.after?.length, info.after?.[0]?.id], ["blocked", 2, one.id]);
  const [again] = await client.submitAll([message(resize, "photo-1.jpg", { ref: "one", idempotencyKey: "photo-1" })]);
  assert.deepEqual([again.id, again.existing], [one.id, true]);
  assert.deepEqual(await client.submitAll([]), []);
});

test("circles are refused, and named messages go in one request or in none", async () => {
  const refused = (code: string) => (error: unknown) =>
    error instanceof SubmitManyError &&
    error.outcomes.every((outcome) => outcome instanceof ApiError && outcome.code === code);
  const circle = [message("q", 1, { ref: "a", after: "b" }), message("q", 1, { ref: "b", after: "a" })];
  await assert.rejects(client.submitAll(circle), refused("bad_field"));
  const many = Array.from({ length: 1000 }, () => message("many", 1));
  await assert.rejects(client.submitAll([...many, message("many", 1, { ref: "last" })]), refused("out_of_range"));
  await assert.rejects(client.queue("many"), NotFoundError);
});

test("a batch is opened, filled, sealed, and ends", async () => {
  const options = { queue: "photos", name: "holidays", key: "2026", keep: "1h" } as const;
  const batch = await client.openBatch(options);
  const again = await client.openBatch(options);
  assert.deepEqual([batch.existing, again.id, again.existing], [false, batch.id, true]);
  const inner = await client.openBatch({ queue: "photos", parent: batch });
  assert.equal(inner.existing, false);
  const task = defineTask("resize-batch", (n: number) => n);
  const job = await batch.add(task, 1);
  await batch.addMany("resize-batch", [2, 3]);
  const ids: number[] = [];
  for await (const { id, batch: of } of client.jobs({ batch })) {
    assert.equal(of, batch.id);
    ids.push(id);
  }
  assert.deepEqual([ids.length, ids[0]], [3, job.id]);
  const info = await batch.info();
  assert.deepEqual([info.status, info.name, info.jobs.unfinished], ["open", "holidays", 4]);
  await assert.rejects(batch.ended({ timeout: 10 }), (error) => {
    return error instanceof WaitTimeoutError && error.batch?.status === "open";
  });
  await inner.seal();
  assert.equal((await batch.seal()).status, "sealed");
  for (const call of [() => batch.seal(), () => batch.add("resize-batch", 4)]) {
    await assert.rejects(call, (error) => error instanceof ConflictError && error.code === "batch_sealed");
  }
  const ended = batch.ended();
  const worker = new Worker([task], { client });
  const run = worker.run();
  assert.deepEqual([(await ended).status, (await ended).jobs.done], ["done", 4]);
  await worker.stop();
  await run;
  const listed: BatchInfo[] = [];
  for await (const one of client.batches()) listed.push(one);
  assert.deepEqual(listed.slice(0, 2).map(({ id }) => id), [inner.id, batch.id]);
});

test("a batch is cancelled with its jobs, and a wait for one ends with its signal", async () => {
  const batch = await client.openBatch({ queue: "photos" });
  const job = await batch.add("nobody");
  const controller = new AbortController();
  const wait = batch.ended({ signal: controller.signal });
  controller.abort(new Error("enough"));
  await assert.rejects(wait, /enough/);
  await batch.cancel();
  const info = await client.batch(batch.id).ended();
  assert.deepEqual([info.status, info.cancelled, info.jobs.dead], ["ended", true, 1]);
  assert.equal((await job.info()).status, "dead");
  await assert.rejects(client.batch(999_999).info(), NotFoundError);
});

test("a task reads the results of the jobs before, as their tasks wrote them", async () => {
  const resize = defineTask("sizes", (n: number) => {
    if (n === 0) throw new Error("no picture");
    return { size: n };
  }, { retries: 0 });
  const raw = defineTask("raw", () => Uint8Array.of(0, 255), { serializer: bytes });
  const seen: unknown[] = [];
  const album = defineTask("results", async (_: undefined, job) => {
    const results = await job.resultsBefore().catch((error: unknown) => error);
    seen.push(Array.isArray(results) ? results.map((one) => (one instanceof Uint8Array ? [...one] : one)) : results);
    const [first] = job.after;
    seen.push(await job.resultOf(first?.id ?? 0, resize));
    await assert.rejects(job.resultOf(999_999), (error) => error instanceof ApiError && error.code === "out_of_range");
    return job.after.map(({ status }) => status);
  }, { retries: 0 });
  const three = await client.submit(resize, 3);
  const pixels = await client.submit(raw);
  const none = await client.submit(resize, 0);
  const batch = await client.openBatch({ queue: "photos" });
  await batch.seal();
  const job = await client.submit(album, undefined, { after: [pixels, three, batch] });
  const other = await client.submit(album, undefined, { after: [three, none], onDead: "run" });
  const worker = new Worker([resize, raw, album], { client });
  const run = worker.run();
  assert.deepEqual(await job.result(), ["done", "done", "done"]);
  assert.deepEqual(seen.splice(0), [[{ size: 3 }, [0, 255]], { size: 3 }]);
  assert.deepEqual(await other.result(), ["done", "dead"]);
  const [failed] = seen;
  assert.ok(failed instanceof JobFailedError && failed.job.id === none.id, String(failed));
  assert.match(failed.message, /no picture/);
  await worker.stop();
  await run;
});
