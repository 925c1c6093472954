// Builds the package: ES modules, CommonJS modules and the types of both; with --tests also the
// tests. An old build goes first, so that no file of it is packed.
import { execFileSync } from "node:child_process";
import { existsSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const tsc = join(here, "node_modules", "typescript", "bin", "tsc");

function run(program, ...args) {
  execFileSync(program, args, { cwd: here, stdio: "inherit" });
}

function compile(project) {
  run(process.execPath, tsc, "--project", project);
}

// `npm install ./clients/node` runs this without having installed what a build needs.
if (!existsSync(tsc)) run("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund");

rmSync(join(here, "build"), { recursive: true, force: true });
compile("tsconfig.json");
compile("tsconfig.cjs.json");
// The package is of type "module": without this, Node would take CommonJS files for ES modules.
writeFileSync(join(here, "build", "cjs", "package.json"), '{ "type": "commonjs" }\n');
if (process.argv.includes("--tests")) compile("tsconfig.test.json");
