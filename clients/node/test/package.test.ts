// What is packed is what a user installs.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";

import { spindle } from "./support/server.js";

const here = fileURLToPath(new URL("../..", import.meta.url));
const folder = mkdtempSync(join(tmpdir(), "spindle-pack-"));
let files: string[];

function npm(args: string[], cwd: string): string {
  return execFileSync("npm", [...args, "--offline", "--no-audit", "--no-fund"], {
    cwd,
    encoding: "utf8",
    stdio: ["ignore", "pipe", "inherit"],
  });
}

before(() => {
  // Without scripts: `prepare` would build again, below the tests that run.
  const packed = npm(["pack", "--json", "--ignore-scripts", "--pack-destination", folder], here);
  const [pack] = JSON.parse(packed) as [{ filename: string; files: { path: string }[] }];
  files = pack.files.map(({ path }) => path);
  writeFileSync(join(folder, "package.json"), '{ "name": "consumer", "private": true }');
  npm(["install", join(folder, pack.filename)], folder);
});
after(() => rmSync(folder, { recursive: true, force: true }));

function run(file: string, text: string): string {
  writeFileSync(join(folder, file), text);
  return execFileSync(process.execPath, [file], { cwd: folder, encoding: "utf8" }).trim();
}

test("the package has both builds, their types, the page and the licences, and nothing else", () => {
  const others = files.filter((path) => !/^build\/(esm|cjs)\/[a-z]+(\.d\.ts|\.js)$/.test(path));
  const expected = ["LICENSE-APACHE", "LICENSE-MIT", "README.md", "build/cjs/package.json", "package.json"];
  assert.deepEqual(others.sort(), expected);
  for (const path of ["build/esm/index.js", "build/esm/index.d.ts", "build/cjs/index.js", "build/cjs/index.d.ts"]) {
    assert.ok(files.includes(path), path);
  }
});

const USE = `
const task = defineTask("q", (n) => n);
console.log(task.queue, new Spindle() instanceof Spindle, new Worker([task]).name.endsWith(":" + process.pid));
`;

test("its version is that of the server", () => {
  const { version } = JSON.parse(readFileSync(join(here, "package.json"), "utf8")) as { version: string };
  assert.equal(spindle("--version").trim(), `spindle ${version}`);
});

test("no committed file names where packages come from", () => {
  assert.doesNotMatch(readFileSync(join(here, "package-lock.json"), "utf8"), /"resolved"|:\/\//);
});

test("an ES module imports it", () => {
  assert.equal(run("a.mjs", `import { defineTask, Spindle, Worker } from "spindle-client";${USE}`), "q true true");
});

test("a CommonJS module requires it", () => {
  const text = `const { defineTask, Spindle, Worker } = require("spindle-client");${USE}`;
  assert.equal(run("a.cjs", text), "q true true");
});

test("TypeScript finds the types in modules of both kinds", () => {
  const text = (n: string) =>
    `import { defineTask } from "spindle-client";\n` +
    `export const task = defineTask("q", (n: number) => n + 1);\n` +
    `export const job = task.submit(${n});\n`;
  for (const file of ["a.mts", "a.cts"]) {
    assert.equal(compiled(file, text("1")), "");
    assert.match(compiled(file, text('"1"')), /TS2345/);
  }
});

/** What the compiler says of a file. */
function compiled(file: string, text: string): string {
  mkdirSync(join(folder, "node_modules"), { recursive: true });
  const types = join(folder, "node_modules", "@types");
  rmSync(types, { force: true });
  symlinkSync(join(here, "node_modules", "@types"), types);
  writeFileSync(join(folder, file), text);
  const tsc = join(here, "node_modules", "typescript", "bin", "tsc");
  const flags = "--noEmit --strict --module nodenext --target es2022 --types node".split(" ");
  try {
    return execFileSync(process.execPath, [tsc, ...flags, file], { cwd: folder, encoding: "utf8" });
  } catch (error) {
    return (error as { stdout: string }).stdout;
  }
}
