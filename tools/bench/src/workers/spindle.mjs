// The task of the suite node-worker, for Spindle: it notes its number.
//
//     spindle.mjs worker [CONCURRENCY]
//     spindle.mjs submit FIRST COUNT together|singly

import { openSync, writeSync } from "node:fs";
import { defineTask, Worker } from "spindle-client";

const notes = openSync(process.env.BENCH_NOTES, "a");
const note = defineTask("bench", async (number) => {
  writeSync(notes, `${String(number).padStart(8, "0")}\n`);
});

const [verb, ...words] = process.argv.slice(2);
if (verb === "worker") {
  const options = words.length > 0 ? { concurrency: Number(words[0]) } : {};
  await new Worker([note], options).run();
} else {
  const [first, count] = words.map(Number);
  const numbers = Array.from({ length: count }, (_, index) => first + index);
  if (words[2] === "together") await note.submitMany(numbers);
  else for (const number of numbers) await note.submit(number);
}
