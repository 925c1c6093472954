// Builds the package: ES modules, CommonJS modules and the types of both; with --tests also the
// tests. An old build goes first, so that no file of it is packed.
import { execFileSync } from "node:child_process";
import { rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const compiler = createRequire(import.meta.url).resolve("typescript/package.json");
const tsc = join(dirname(compiler), "bin", "tsc");

function compile(project) {
  execFileSync(process.execPath, [tsc, "--project", join(here, project)], { stdio: "inherit" });
}

rmSync(join(here, "build"), { recursive: true, force: true });
compile("tsconfig.json");
compile("tsconfig.cjs.json");
// The package is of type "module": without this, Node would take CommonJS files for ES modules.
writeFileSync(join(here, "build", "cjs", "package.json"), '{ "type": "commonjs" }\n');
if (process.argv.includes("--tests")) compile("tsconfig.test.json");
