import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { chmodSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test, type TestContext } from "node:test";

import {
  ConnectionError,
  defineTask,
  ForbiddenError,
  Spindle,
  SpindleError,
  UnauthorizedError,
  Worker,
} from "spindle-client";

import { Server, spindle } from "./support/server.js";
import { eventually } from "./support/wait.js";

interface Token {
  text: string;
  entry: string;
}

/** A new token, and its entry for the server's file. */
function newToken(name: string, ...roles: string[]): Token {
  const [text = "", ...entry] = spindle("token", "new", name, "--role", roles.join(","), "--queue", "*").split("\n");
  return { text, entry: entry.join("\n") };
}

function writeSecret(path: string, text: string): void {
  writeFileSync(path, text);
  chmodSync(path, 0o600);
}

async function serverWith(t: TestContext, tokens: Token[]): Promise<Server> {
  const server = await Server.start(["--tokens", "tokens.toml", "--require-auth"], (folder) => {
    writeSecret(join(folder, "tokens.toml"), tokens.map(({ entry }) => entry).join("\n"));
  });
  t.after(() => server.remove());
  return server;
}

test("a token lets in, a wrong one or none does not, and each may do its own", async (t) => {
  const all = newToken("all", "submit", "work", "inspect");
  const reader = newToken("reader", "read");
  const server = await serverWith(t, [all, reader]);
  const job = await server.client({ token: all.text }).submit("q", 1);
  await assert.rejects(server.client({ token: "wrong" }).submit("q", 1), UnauthorizedError);
  await assert.rejects(server.client().submit("q", 1), UnauthorizedError);
  const read = server.client({ token: reader.text });
  assert.equal((await read.job(job.id).info()).payload, undefined);
  await assert.rejects(read.submit("q", 1), ForbiddenError);
  for await (const event of read.events({ after: "oldest", follow: false })) assert.ok(event.type);
  await assert.rejects(async () => {
    for await (const event of server.client({ token: "wrong" }).events()) assert.fail(event.type);
  }, UnauthorizedError);
});

test("a worker with a wrong token ends with that error", async (t) => {
  const server = await serverWith(t, [newToken("other", "work")]);
  const worker = new Worker([defineTask("q", () => undefined)], { client: server.client({ token: "wrong" }) });
  await assert.rejects(worker.run(), UnauthorizedError);
});

test("the environment names the server and the token, and a token file is read again", async (t) => {
  const [first, second] = [newToken("first", "submit"), newToken("second", "submit")];
  const server = await serverWith(t, [first, second]);
  const file = join(server.folder, "client.token");
  writeSecret(file, `${first.text}\n`);
  const environment = { SPINDLE_URL: server.url, SPINDLE_TOKEN_FILE: file };
  Object.assign(process.env, environment);
  t.after(() => Object.keys(environment).forEach((name) => delete process.env[name]));
  const client = new Spindle();
  await client.submit("q", 1);
  // The first token is taken out of the server's file, and replaced in the client's.
  writeSecret(file, second.text);
  writeSecret(join(server.folder, "tokens.toml"), second.entry);
  const stale = server.client({ token: first.text });
  await eventually("the first token is refused", () => stale.submit("q", 1).then(() => false, () => true));
  await client.submit("q", 2);
  chmodSync(file, 0o604);
  assert.throws(() => new Spindle(), (error) => error instanceof SpindleError && /others may read/.test(error.message));
});

test("TLS: the authority must be known, and a certificate says who asks", async (t) => {
  const server = await Server.start(
    ["--tls-cert", "server.pem", "--tls-key", "server.key", "--tls-client-ca", "authority.pem",
      "--tokens", "tokens.toml", "--require-auth"],
    (folder) => {
      certificate(folder, "server", "localhost");
      certificate(folder, "authority", "an authority", "TRUE");
      certificate(folder, "client", "mailer.example.org", "FALSE", "authority");
      const roles = 'roles = ["submit", "work", "inspect"]\nqueues = ["*"]\n';
      const entry = `[[token]]\nname = "mailer"\ncertificate = "mailer.example.org"\n${roles}`;
      writeSecret(join(folder, "tokens.toml"), entry);
    },
  );
  t.after(() => server.remove());
  const file = (name: string) => join(server.folder, name);
  const trusted = { caFile: file("server.pem") };
  await assert.rejects(server.client({ retryFor: "1m" }).submit("q", 1), (error) => {
    return error instanceof ConnectionError && /caFile/.test(error.message) && !error.maybeReceived;
  });
  await assert.rejects(server.client(trusted).submit("q", 1), UnauthorizedError);
  const client = server.client({ ...trusted, certFile: file("client.pem"), keyFile: file("client.key") });
  const task = defineTask("tls", (n: number) => n + 1);
  const worker = new Worker([task], { client });
  const run = worker.run();
  assert.equal(await (await client.submit(task, 1)).result(), 2);
  // A wait for a job is half-closed by the stop, over TLS too.
  await worker.stop();
  await run;
});

/** A certificate and its key: signed by an authority, or by itself. */
function certificate(folder: string, file: string, name: string, isAuthority = "FALSE", by?: string): void {
  const key = join(folder, `${file}.key`);
  const signed = by === undefined ? [] : ["-CA", join(folder, `${by}.pem`), "-CAkey", join(folder, `${by}.key`)];
  execFileSync("openssl", [
    ..."req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -noenc -days 2".split(" "),
    ...["-subj", `/CN=${name}`, "-addext", "subjectAltName=IP:127.0.0.1"],
    ...["-addext", `basicConstraints=critical,CA:${isAuthority}`],
    ...["-keyout", key, "-out", join(folder, `${file}.pem`), ...signed],
  ], { stdio: "ignore" });
  chmodSync(key, 0o600);
}
