// The task of the suite node-worker, for BullMQ.
//
//     bullmq.mjs worker [CONCURRENCY]
//     bullmq.mjs submit FIRST COUNT together|singly

import { openSync, writeSync } from "node:fs";
import { Queue, Worker } from "bullmq";

const notes = openSync(process.env.BENCH_NOTES, "a");
const { hostname: host, port } = new URL(process.env.BENCH_REDIS);
const connection = { host, port: Number(port), maxRetriesPerRequest: null };

async function note({ data: number }) {
  writeSync(notes, `${String(number).padStart(8, "0")}\n`);
}

const [verb, ...words] = process.argv.slice(2);
if (verb === "worker") {
  const options = words.length > 0 ? { concurrency: Number(words[0]) } : {};
  const worker = new Worker("bench", note, { connection, ...options });
  for (const signal of ["SIGTERM", "SIGINT"]) process.once(signal, () => worker.close());
} else {
  const [first, count] = words.map(Number);
  const numbers = Array.from({ length: count }, (_, index) => first + index);
  const queue = new Queue("bench", { connection });
  if (words[2] === "together") {
    await queue.addBulk(numbers.map((number) => ({ name: "note", data: number })));
  } else {
    for (const number of numbers) await queue.add("note", number);
  }
  await queue.close();
}
