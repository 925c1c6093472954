// A real server in a temporary folder.
import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { mkdtempSync, rmSync, statSync } from "node:fs";
import { createServer, type AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { fileURLToPath } from "node:url";

import { type ClientOptions, Spindle } from "spindle-client";

/** build/tests/support, in clients/node, in the workspace. */
const DEFAULT_PROGRAM = "../../../../../target/debug/spindle";

function program(): string {
  const here = fileURLToPath(new URL(".", import.meta.url));
  const path = process.env["SPINDLE_BIN"] ?? resolve(here, DEFAULT_PROGRAM);
  if (statSync(path, { throwIfNoEntry: false })) return path;
  throw new Error(`${path}: build it with "cargo build -p spindle", or name the program in SPINDLE_BIN`);
}

export class Server {
  readonly folder = mkdtempSync(join(tmpdir(), "spindle-client-"));
  readonly #flags: string[];
  readonly #scheme: string;
  #process: ChildProcess | undefined;
  #clients: Spindle[] = [];
  port = 0;

  private constructor(flags: string[]) {
    this.#flags = flags;
    this.#scheme = flags.includes("--tls-cert") ? "https" : "http";
  }

  /** Starts a server with no data. `flags` may name files of the folder that `prepare` fills. */
  static async start(flags: string[] = [], prepare?: (folder: string) => void): Promise<Server> {
    const server = new Server(flags);
    prepare?.(server.folder);
    server.port = await freePort();
    await server.restart();
    return server;
  }

  get url(): string {
    return `${this.#scheme}://127.0.0.1:${this.port}`;
  }

  client(options: ClientOptions = {}): Spindle {
    const client = new Spindle({ url: this.url, ...options });
    this.#clients.push(client);
    return client;
  }

  /** Starts it on what its folder holds, at the address it had. */
  async restart(): Promise<void> {
    const doors = ["--workq", "off", "--gearman", "off", "--jobd-master", "off"];
    const data = ["--data", join(this.folder, "data"), "--http", `127.0.0.1:${this.port}`];
    const args = ["serve", ...data, ...doors, ...this.#flags];
    const child = spawn(program(), args, { cwd: this.folder, stdio: ["ignore", "ignore", "pipe"] });
    let said = "";
    await new Promise<void>((open, failed) => {
      child.stderr.on("data", (text: Buffer) => {
        said += text.toString();
        if (said.includes("a door is open")) open();
      });
      child.once("exit", (code) => failed(new Error(`the server ended with ${code}: ${said}`)));
    });
    this.#process = child;
  }

  /** Ends it as a power cut of the process does. */
  async kill(): Promise<void> {
    await this.#signal("SIGKILL");
  }

  /** Stops it in order. */
  async stop(): Promise<void> {
    await this.#signal("SIGTERM");
  }

  async #signal(signal: NodeJS.Signals): Promise<void> {
    const child = this.#process;
    if (!child) return;
    const ended = new Promise((resolve) => child.once("exit", resolve));
    child.kill(signal);
    await ended;
    this.#process = undefined;
  }

  async remove(): Promise<void> {
    for (const client of this.#clients) client.close();
    await this.kill();
    rmSync(this.folder, { recursive: true, force: true });
  }
}

/** A command of the server's program; what it prints. */
export function spindle(...args: string[]): string {
  return execFileSync(program(), args, { encoding: "utf8" });
}

async function freePort(): Promise<number> {
  const probe = createServer();
  await new Promise<void>((open) => probe.listen(0, "127.0.0.1", open));
  const { port } = probe.address() as AddressInfo;
  await new Promise((closed) => probe.close(closed));
  return port;
}
