// The first programs of the README, as a newcomer types them.
import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

import type { Spindle } from "spindle-client";

import { Server } from "./support/server.js";

const here = fileURLToPath(new URL("../..", import.meta.url));

test("the README's task, worker and submit work as they stand there", async (t) => {
  const server = await Server.start();
  const folder = mkdtempSync(join(tmpdir(), "spindle-readme-"));
  t.after(async () => {
    await server.remove();
    rmSync(folder, { recursive: true, force: true });
  });
  const page = readFileSync(join(here, "README.md"), "utf8");
  const programs = [...page.matchAll(/^```js\n\/\/ (\w+\.mjs)\n(.*?)^```$/gms)];
  const names = ["tasks.mjs", "worker.mjs", "submit.mjs", "photos.mjs"];
  assert.deepEqual(programs.map(([, name]) => name), names);
  for (const [, name = "", text = ""] of programs) writeFileSync(join(folder, name), text);
  mkdirSync(join(folder, "node_modules"));
  symlinkSync(here, join(folder, "node_modules", "spindle-client"));

  const options = { cwd: folder, env: { ...process.env, SPINDLE_URL: server.url } };
  const worker = spawn(process.execPath, ["worker.mjs"], { ...options, stdio: "inherit" });
  const { stdout } = await promisify(execFile)(process.execPath, ["submit.mjs"], options);
  assert.equal(stdout, "{ sentTo: 'a@example.org' }\n");
  worker.kill("SIGTERM");
  assert.deepEqual(await once(worker, "exit"), [0, null]);
  const flow = await promisify(execFile)(process.execPath, ["photos.mjs"], options);
  assert.equal(flow.stdout, "{ holidays: [ 5, 9 ] }\n");
});

test("the program of the main README works", async (t) => {
  const server = await Server.start();
  const folder = mkdtempSync(join(tmpdir(), "spindle-readme-"));
  t.after(async () => {
    await server.remove();
    rmSync(folder, { recursive: true, force: true });
  });
  const page = readFileSync(process.env["SPINDLE_README"] ?? join(here, "../../README.md"), "utf8");
  const [, program = ""] = /^```js\n(import \{ defineTask.*?)^```/ms.exec(page) ?? [];
  writeFileSync(join(folder, "mail.mjs"), program);
  mkdirSync(join(folder, "node_modules"));
  symlinkSync(here, join(folder, "node_modules", "spindle-client"));

  const env = { ...process.env, SPINDLE_URL: server.url };
  const worker = spawn(process.execPath, ["mail.mjs"], { cwd: folder, env, stdio: "inherit" });
  assert.equal(await server.client().job(await firstJob(server.client())).result(), "sent to a@example.org");
  worker.kill("SIGTERM");
  assert.deepEqual(await once(worker, "exit"), [0, null]);
});

/** The number of the first job that somebody submits. */
async function firstJob(client: Spindle): Promise<number> {
  for await (const event of client.events({ after: "oldest" })) {
    if (event.type === "submitted") return event.job;
  }
  throw new Error("the events ended");
}
