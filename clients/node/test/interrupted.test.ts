// The server is killed in the middle of each call: before it has seen the request, and after it has
// answered, with the answer lost. The call must come out right, and nothing may happen twice.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import {
  ConnectionError,
  defineTask,
  type Duration,
  type Job,
  type JobContext,
  message,
  type Spindle,
  Worker,
} from "spindle-client";

import { type Moment, Proxy } from "./support/proxy.js";
import { Server } from "./support/server.js";
import { Deferred } from "./support/wait.js";

/** Extends or ends a lease: its token, which the tests do not know, stands before the word that says which. */
const REPORT = "POST /api/v1/leases/";

let server: Server;
let proxy: Proxy;
/** Through the proxy. */
let client: Spindle;
/** Around it. */
let direct: Spindle;

before(async () => {
  server = await Server.start();
  proxy = await Proxy.start(() => server.port);
  client = server.client({ url: proxy.url, retryFor: "30s" });
  direct = server.client();
});
after(async () => {
  proxy.close();
  await server.remove();
});

async function killAndRestart(): Promise<void> {
  await server.kill();
  await server.restart();
}

/** Starts a call that is broken off, and waits until both are over. */
async function brokenOff<T>(request: string, moment: Moment, call: () => Promise<T>): Promise<T> {
  const broken = proxy.breakOff(request, moment, killAndRestart);
  // Both, also when the call fails: the next test would kill a server that is still starting.
  const [called] = await Promise.allSettled([call(), broken]);
  await broken;
  if (called.status === "rejected") throw called.reason;
  return called.value;
}

async function count(queue: string): Promise<number> {
  const { jobs } = await direct.queue(queue);
  return Object.values(jobs).reduce((sum, jobsOfStatus) => sum + jobsOfStatus, 0);
}

for (const moment of ["before", "after"] as const) {
  test(`submit, killed ${moment}: one job`, async () => {
    const queue = `submit-${moment}`;
    const job = await brokenOff("POST /api/v1/jobs ", moment, () => client.submit(queue, { n: 1 }));
    assert.equal(job.existing, false);
    assert.deepEqual((await direct.job(job.id).info()).payload, { n: 1 });
    assert.equal(await count(queue), 1);
  });

  test(`submitMany, killed ${moment}: each job once`, async () => {
    const queue = `many-${moment}`;
    const payloads = Array.from({ length: 50 }, (_, n) => n);
    const jobs = await brokenOff("POST /api/v1/jobs/batch ", moment, () => client.submitMany(queue, payloads));
    assert.equal(new Set(jobs.map((job) => job.id)).size, 50);
    assert.equal(await count(queue), 50);
  });

  test(`submitAll of jobs that name each other, killed ${moment}: each job once`, async () => {
    const queue = `all-${moment}`;
    const messages = [message(queue, 1, { ref: "one" }), message(queue, 2, { after: "one" })] as const;
    const [one, two] = await brokenOff("POST /api/v1/jobs/batch ", moment, () => client.submitAll(messages));
    assert.deepEqual((await two.info()).after, [{ id: one.id, status: "ready" }]);
    assert.deepEqual([one.existing, await count(queue)], [false, 2]);
  });

  test(`a batch, killed ${moment} each of its calls`, async () => {
    const options = { queue: `batch-${moment}` };
    const batch = await brokenOff("POST /api/v1/batches ", moment, () => client.openBatch(options));
    assert.equal(batch.existing, false);
    const there = `/api/v1/batches/${batch.id}`;
    await brokenOff("POST /api/v1/jobs ", moment, () => batch.add("resize", 1));
    const sealed = await brokenOff(`POST ${there}/seal `, moment, () => batch.seal());
    assert.deepEqual([sealed.status, sealed.jobs.total], ["sealed", 1]);
    const info = await brokenOff(`GET ${there} `, moment, () => batch.info());
    assert.equal(info.jobs.unfinished, 1);
    await brokenOff(`POST ${there}/cancel `, moment, () => batch.cancel());
    const ended = await brokenOff(`GET ${there}/wait?`, moment, () => batch.ended());
    assert.deepEqual([ended.status, ended.jobs.dead], ["ended", 1]);
    const listed = await brokenOff("GET /api/v1/batches?", moment, () => all(client.batches()));
    assert.deepEqual(listed.filter(({ queue }) => queue === options.queue).map(({ id }) => id), [batch.id]);
  });

  test(`a schedule, killed ${moment} each of its calls: it runs once`, async () => {
    const name = `schedule-${moment}`;
    const schedule = client.schedule(name);
    const there = `/api/v1/schedules/${name}`;
    const report = () => message("reports", 1);
    await brokenOff(`PUT ${there}?dry_run`, moment, () => schedule.preview("@yearly", report()));
    const put = await brokenOff(`PUT ${there} `, moment, () => schedule.put("@yearly", report()));
    assert.equal(put.submitted, 0);
    assert.equal((await brokenOff(`GET ${there} `, moment, () => schedule.info())).name, name);
    assert.equal((await brokenOff(`POST ${there}/pause `, moment, () => schedule.pause())).paused, true);
    assert.equal((await brokenOff(`POST ${there}/resume `, moment, () => schedule.resume())).paused, false);
    const run = brokenOff(`POST ${there}/run `, moment, () => schedule.run());
    // The client cannot know that a request which it sent did not arrive.
    await assert.rejects(run, (error) => error instanceof ConnectionError && error.maybeReceived);
    const { submitted } = await direct.schedule(name).info();
    assert.equal(submitted, moment === "after" ? 1 : 0);
    const listed = await brokenOff("GET /api/v1/schedules?", moment, () => all(client.schedules()));
    assert.ok(listed.some((one) => one.name === name));
    assert.equal(await brokenOff(`DELETE ${there} `, moment, () => schedule.remove()), true);
    assert.equal(await direct.schedule(name).remove(), false);
  });

  test(`park, release, pause and resume, killed ${moment}`, async () => {
    const queue = `held-${moment}`;
    const job = await direct.submit(queue);
    const through = client.job(job.id);
    const parked = await brokenOff(`POST /api/v1/jobs/${job.id}/park`, moment, () => through.park());
    assert.equal(parked.status, "parked");
    const released = await brokenOff(`POST /api/v1/jobs/${job.id}/release`, moment, () => through.release());
    assert.equal(released.status, "ready");
    await brokenOff(`POST /api/v1/queues/${queue}/pause`, moment, () => client.pause(queue));
    assert.equal((await direct.queue(queue)).paused, true);
    await brokenOff(`POST /api/v1/queues/${queue}/resume`, moment, () => client.resume(queue));
    assert.equal((await direct.queue(queue)).paused, false);
  });

  test(`progress and output, killed ${moment}: they are reported as perhaps lost, and the job goes on`, async () => {
    for (const say of [
      (job: JobContext) => job.reportProgress(3, 8),
      (job: JobContext) => job.writeOutput("250 ok\n"),
    ]) {
      const maybeReceived = async (job: JobContext) => {
        try {
          await say(job);
          return undefined;
        } catch (error) {
          return error instanceof ConnectionError && error.maybeReceived;
        }
      };
      const seen = await meanwhile(`say-${moment}`, REPORT, moment, maybeReceived);
      assert.equal(seen, true);
    }
  });

  test(`the result of a job before, killed ${moment}`, async () => {
    const seven = defineTask(`before-${moment}`, () => 7);
    const before = await direct.submit(seven);
    const worker = new Worker([seven], { client: direct });
    const run = worker.run();
    await before.result();
    await worker.stop();
    await run;
    const read = (job: JobContext) => job.resultOf(before.id as number);
    const request = "GET /api/v1/leases/";
    assert.equal(await meanwhile(`behind-${moment}`, request, moment, read, before), 7);
  });

  test(`cancel, killed ${moment}`, async () => {
    const job = await direct.submit(`cancel-${moment}`);
    const info = await brokenOff(`POST /api/v1/jobs/${job.id}/cancel`, moment, () => client.job(job.id).cancel());
    assert.equal(info.result?.code, "cancelled");
  });

  test(`delete, killed ${moment}`, async () => {
    const job = await direct.submit(`delete-${moment}`);
    const deleted = await brokenOff(`DELETE /api/v1/jobs/${job.id}`, moment, () => client.job(job.id).delete());
    assert.equal(deleted, true);
    assert.equal(await direct.job(job.id).delete(), false);
  });

  test(`a wait for a result, killed ${moment}`, async () => {
    const queue = `result-${moment}`;
    const job = await direct.submit(queue, 20);
    const result = brokenOff(`GET /api/v1/jobs/${job.id}/wait`, moment, () => client.job(job.id).result());
    const worker = new Worker([defineTask(queue, (n: number) => n + 1)], { client: direct });
    const run = worker.on("error", () => undefined).run();
    assert.equal(await result, 21);
    await worker.stop();
    await run;
  });

  test(`a read and a list, killed ${moment}`, async () => {
    const queue = `read-${moment}`;
    const job = await direct.submit(queue);
    const info = await brokenOff(`GET /api/v1/jobs/${job.id}`, moment, () => client.job(job.id).info());
    assert.equal(info.status, "ready");
    const listed = await brokenOff("GET /api/v1/jobs?", moment, async () => {
      const ids: number[] = [];
      for await (const { id } of client.jobs({ queue })) ids.push(id);
      return ids;
    });
    assert.deepEqual(listed, [job.id]);
  });

  test(`a lease, killed ${moment}: the job is done by a later lease`, async () => {
    const attempts = await workedThrough(`lease-${moment}`, "POST /api/v1/lease ", moment, "5s");
    // A lease whose answer is lost ends with its time, and counts.
    assert.deepEqual(attempts, moment === "before" ? [1] : [2]);
  });

  test(`a complete, killed ${moment}: the job runs once`, async () => {
    assert.deepEqual(await workedThrough(`complete-${moment}`, REPORT, moment, "60s"), [1]);
  });

  test(`a fail, killed ${moment}: it counts once`, async () => {
    const queue = `fail-${moment}`;
    const task = defineTask(queue, (_: undefined, job) => {
      if (job.attempt === 1) throw new Error("not yet");
      return job.attempt;
    });
    const job = await direct.submit(task, undefined, { backoff: 0 });
    const worker = new Worker([task], { client, lease: "5s" }).on("error", () => undefined);
    const broken = proxy.breakOff(REPORT, moment, killAndRestart);
    const run = worker.run();
    await broken;
    // The answer that is lost leased the job once more: that lease ends with its time.
    assert.equal(await job.result(), moment === "before" ? 2 : 3);
    assert.equal((await job.info()).fails, 1);
    await worker.stop();
    await run;
  });

  test(`an extend, killed ${moment}: the job goes on`, async () => {
    const queue = `extend-${moment}`;
    const goOn = new Deferred();
    const task = defineTask(queue, async (_: undefined, job) => {
      await goOn.promise;
      return [job.attempt, job.signal.aborted];
    });
    const job = await direct.submit(task, undefined, { ttr: "60s" });
    const worker = new Worker([task], { client, heartbeat: 100 }).on("error", () => undefined);
    const broken = proxy.breakOff(REPORT, moment, killAndRestart);
    const run = worker.run();
    await broken;
    goOn.resolve();
    assert.deepEqual(await job.result(), [1, false]);
    await worker.stop();
    await run;
  });
}

test("a retry is repeated if the server has not seen it, and reported if it may have", async () => {
  const job = await direct.submit("retry");
  await job.cancel();
  const request = `POST /api/v1/jobs/${job.id}/retry`;
  const lost = brokenOff(request, "after", () => client.job(job.id).retry());
  await assert.rejects(lost, (error) => error instanceof ConnectionError && error.maybeReceived);
  assert.equal((await job.info()).status, "ready");
});

/** Does one job while a request is broken off; the numbers of the attempts that ran. */
async function workedThrough(
  queue: string,
  request: string,
  moment: Moment,
  ttr: Duration,
): Promise<number[]> {
  const attempts: number[] = [];
  const task = defineTask(queue, (_: undefined, { attempt }) => void attempts.push(attempt));
  const job: Job<void> = await direct.submit(task, undefined, { ttr, backoff: 0 });
  const worker = new Worker([task], { client }).on("error", () => undefined);
  const endings: string[] = [];
  for (const event of ["completed", "failed", "lost"] as const) worker.on(event, () => endings.push(event));
  const broken = proxy.breakOff(request, moment, killAndRestart);
  const run = worker.run();
  await broken;
  await job.result();
  await worker.stop();
  await run;
  assert.deepEqual(endings, ["completed"]);
  return attempts;
}

/** What a task comes to that runs while one of its requests is broken off; it has one attempt. */
async function meanwhile(
  queue: string,
  request: string,
  moment: Moment,
  run: (job: JobContext) => Promise<unknown>,
  before?: Job,
): Promise<unknown> {
  const task = defineTask(queue, (_: undefined, job) => run(job));
  const job = await direct.submit(task, undefined, { attemptsMax: 1, after: before ?? [] });
  const worker = new Worker([task], { client }).on("error", () => undefined);
  const broken = proxy.breakOff(request, moment, killAndRestart);
  const working = worker.run();
  await broken;
  const result = await job.result();
  await worker.stop();
  await working;
  return result;
}

async function all<Item>(items: AsyncIterable<Item>): Promise<Item[]> {
  const list: Item[] = [];
  for await (const item of items) list.push(item);
  return list;
}
