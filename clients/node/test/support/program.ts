// A program with a worker, as a user writes it. Its queue is its argument.
import { setTimeout as pause } from "node:timers/promises";

import { defineTask, Worker } from "spindle-client";

let isTerminated = false;
process.once("SIGTERM", () => (isTerminated = true));

const task = defineTask(process.argv[2] ?? "", async () => {
  while (!isTerminated) await pause(10);
  return "ended in order";
});
await new Worker([task], { lease: "2s", heartbeat: "200ms" }).run();
