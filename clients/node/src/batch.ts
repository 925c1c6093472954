import type { Spindle } from "./client.js";
import type { Duration } from "./duration.js";
import { ConflictError, WaitTimeoutError } from "./errors.js";
import { endOf, type WaitOptions } from "./ending.js";
import type { Job } from "./job.js";
import type { SubmitOptions } from "./submit.js";
import type { AnyTask, SubmitArguments, Task } from "./task.js";
import type { Transport } from "./transport.js";
import type { BatchInfo } from "./wire.js";

/** A batch to open. */
export interface BatchOptions {
  /** Who may do something with this queue may do so with the batch. Its jobs may be of any queue. */
  queue: string;
  /** For people. */
  name?: string;
  /**
   * However often a batch is opened with this key, it is one batch, as long as that is kept. Every opening
   * has a random one if it is not given, so that it can be repeated when the server goes away.
   */
  key?: string;
  /** The open batch that it belongs to, where it counts as one job. */
  parent?: Batch | number;
  /** How long it is kept once it has ended. Default a day. */
  keep?: Duration;
}

function hasEnded(batch: BatchInfo): boolean {
  return batch.status === "done" || batch.status === "ended";
}

/** Jobs that belong together. Whatever waits for a job can wait for a batch: the option `after`. */
export class Batch {
  readonly #client: Spindle;
  readonly #transport: Transport;

  /** @internal */
  constructor(
    client: Spindle,
    readonly id: number,
    /** It was there before: its key was used before. */
    readonly existing: boolean,
  ) {
    this.#client = client;
    this.#transport = client.transport;
  }

  /** Submits a job of this batch. */
  async add<Payload, Result>(
    task: Task<Payload, Result>,
    ...args: SubmitArguments<Payload>
  ): Promise<Job<Result>>;
  /** Submits a job of this batch to a queue by its name, with JSON. */
  async add(queue: string, payload?: unknown, options?: SubmitOptions): Promise<Job>;
  async add(target: AnyTask | string, payload?: unknown, options: SubmitOptions = {}): Promise<Job> {
    return this.#client.submit(target as AnyTask, payload, { ...options, batch: this.id }) as Promise<Job>;
  }

  /** Submits many jobs of this batch, as `client.submitMany` does. */
  async addMany<Payload, Result>(
    task: Task<Payload, Result>,
    payloads: readonly Payload[],
    options?: SubmitOptions,
  ): Promise<Job<Result>[]>;
  async addMany(queue: string, payloads: readonly unknown[], options?: SubmitOptions): Promise<Job[]>;
  async addMany(
    target: AnyTask | string,
    payloads: readonly unknown[],
    options: SubmitOptions = {},
  ): Promise<Job[]> {
    const all = { ...options, batch: this.id };
    return this.#client.submitMany(target as AnyTask, payloads, all) as Promise<Job[]>;
  }

  /** The batch as it is now, and how its jobs stand. */
  async info(): Promise<BatchInfo> {
    return this.#call("GET", "");
  }

  /**
   * Lets no more jobs in: it ends when all that are in it have ended. A batch is sealed once: throws a
   * `ConflictError` with the code `batch_sealed` if it was sealed before.
   */
  async seal(): Promise<BatchInfo> {
    try {
      return await this.#call("POST", "/seal");
    } catch (error) {
      // The first of several requests was received, and its answer was lost.
      const wasReceived = error instanceof ConflictError && error.code === "batch_sealed" && error.repeated;
      if (wasReceived) return this.info();
      throw error;
    }
  }

  /** Seals it and ends its unfinished jobs as dead, those of batches in it too. */
  async cancel(): Promise<void> {
    // The server stops after two seconds, and the same request goes on.
    while ((await this.#call<{ is_partial: boolean }>("POST", "/cancel")).is_partial);
  }

  /**
   * Waits until it is sealed and all of its jobs have ended. Throws a `WaitTimeoutError` if the time is over
   * before.
   */
  async ended(options: WaitOptions = {}): Promise<BatchInfo> {
    const path = `batches/${this.id}/wait`;
    const batch = await endOf<BatchInfo>(this.#transport, path, hasEnded, options);
    if (!hasEnded(batch)) throw new WaitTimeoutError({ batch });
    return batch;
  }

  async #call<Body = BatchInfo>(method: "GET" | "POST", action: string): Promise<Body> {
    const path = `batches/${this.id}${action}`;
    return (await this.#transport.call({ method, path, repeatable: true })).body as Body;
  }
}
