import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { ApiError, defineTask, message, NotFoundError, type ScheduleInfo, type Spindle } from "spindle-client";

import { Server } from "./support/server.js";

let server: Server;
let client: Spindle;

before(async () => {
  server = await Server.start();
  client = server.client();
});
after(() => server.remove());

const report = defineTask("reports", (_: { kind: string }) => undefined, { retries: 2 });
const daily = () => message(report, { kind: "daily" }, { priority: 5, fairKey: "acme" });

test("a schedule is put with all that is said of it", async () => {
  const put = await client.schedule("each/option").put("0 9 * * MON-FRI", daily(), {
    zone: "Europe/Berlin",
    overlap: "queue_one",
    missed: "all",
    missedMax: 7,
    jitter: "5s",
    startAt: new Date("2100-01-01T00:00:00Z"),
    endAt: new Date("2100-02-01T00:00:00Z"),
  });
  assert.equal(put.name, "each/option");
  assert.deepEqual([put.zone, put.overlap, put.missed, put.missed_max], ["Europe/Berlin", "queue_one", "all", 7]);
  assert.deepEqual([put.jitter_ms, put.end_at, put.paused], [5000, "2100-02-01T00:00:00.000Z", false]);
  assert.equal(put.next_times[0], "2100-01-01T08:00:00.000Z");
  const { queue, payload, priority, fails_max } = put.job as Record<string, unknown>;
  assert.deepEqual([queue, payload, priority, fails_max], ["reports", { kind: "daily" }, 5, 3]);
});

test("a preview has the next times, and puts nothing", async () => {
  const preview = await client.schedule("preview").preview("@yearly", daily());
  assert.deepEqual([preview.next_times.length, preview.revision], [10, 0]);
  await assert.rejects(client.schedule("preview").info(), NotFoundError);
});

test("a schedule is paused, resumed, run, listed and removed", async () => {
  const schedule = client.schedule("life");
  await schedule.put("every 1d", message("life", 1));
  assert.deepEqual((await schedule.pause()).next_times, []);
  assert.equal((await schedule.info()).paused, true);
  assert.equal((await schedule.resume()).paused, false);
  const job = await schedule.run();
  const info = await job.info();
  assert.deepEqual([info.queue, info.payload, info.tags], ["life", 1, ["schedule:life"]]);
  const listed: ScheduleInfo[] = [];
  for await (const one of client.schedules()) listed.push(one);
  const { last_job } = listed.find(({ name }) => name === "life") as ScheduleInfo;
  assert.equal(last_job, job.id);
  assert.equal(await schedule.remove(), true);
  assert.equal(await schedule.remove(), false);
  assert.equal((await job.info()).status, "ready");
});

test("a schedule that never fires or that no server can read is refused", async () => {
  const refused = (code: string) => (error: unknown) => error instanceof ApiError && error.code === code;
  const bad = client.schedule("bad");
  await assert.rejects(bad.put("0 0 30 2 *", daily()), refused("out_of_range"));
  await assert.rejects(bad.put("@daily", daily(), { zone: "Europe/Atlantis" }), refused("out_of_range"));
  await assert.rejects(bad.put("@daily", message(report, { kind: "x" }, { delay: 5 })), refused("bad_field"));
  await assert.rejects(bad.info(), NotFoundError);
});
