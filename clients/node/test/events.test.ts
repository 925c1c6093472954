import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { ConnectionError, type Spindle, type SpindleEvent, Spindle as Client } from "spindle-client";

import { Server } from "./support/server.js";

let server: Server;
let client: Spindle;

before(async () => {
  server = await Server.start();
  client = server.client();
});
after(() => server.remove());

async function types(events: AsyncIterable<SpindleEvent>): Promise<string[]> {
  const seen: string[] = [];
  for await (const { type } of events) seen.push(type);
  return seen;
}

test("the events up to now end by themselves, and are resumed by their ids", async () => {
  const job = await client.submit("history");
  await job.cancel();
  const ids: string[] = [];
  const about: string[] = [];
  for await (const event of client.events({ after: "oldest", follow: false })) {
    if (event.type !== "gap") ids.push(event.id as string);
    if ("job" in event && event.job === job.id) about.push(event.type);
  }
  assert.deepEqual(about, ["submitted", "dead"]);
  const last = ids.at(-2) as string;
  assert.equal((await types(client.events({ after: last, follow: false }))).length, 1);
});

test("a stream goes on where it was when the server is killed", async (t) => {
  const submitted: number[] = [];
  const seen: number[] = [];
  const controller = new AbortController();
  t.after(() => controller.abort());
  const patient = server.client({ retryFor: "1m" });
  const followed = (async () => {
    for await (const event of patient.events({ signal: controller.signal })) {
      if (event.type !== "submitted") continue;
      seen.push(event.job);
      if (event.queue === "last") return;
      if (seen.length > 1) continue;
      await server.kill();
      await server.restart();
    }
  })();
  // The stream begins when its first event is asked for: jobs come until it has seen one.
  while (seen.length === 0) submitted.push((await patient.submit("first")).id as number);
  submitted.push((await patient.submit("last")).id as number);
  await followed;
  assert.deepEqual(seen, submitted.slice(submitted.indexOf(seen[0] as number)));
});

test("an id that is not of this log is a gap", async () => {
  for await (const event of client.events({ after: "999999999.0", follow: false })) {
    assert.equal(event.type, "gap");
    assert.equal(event.type === "gap" && event.reason, "unknown_id");
  }
});

test("a loop that is left closes the stream; a signal that is aborted already ends it", async () => {
  for await (const event of client.events({ after: "oldest" })) {
    assert.ok(event.type);
    break;
  }
  await assert.rejects(types(client.events({ signal: AbortSignal.abort(new Error("no")) })), /no/);
});

test("a server that never was there is an error", async () => {
  const nowhere = new Client({ url: "http://127.0.0.1:1", retryFor: 100 });
  await assert.rejects(types(nowhere.events()), ConnectionError);
});
