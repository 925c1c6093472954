import { milliseconds, type Duration } from "./duration.js";
import { ConflictError, JobFailedError, NotFoundError, WaitTimeoutError } from "./errors.js";
import { contentOf, guarded, type Serializer } from "./serializer.js";
import type { Transport } from "./transport.js";
import type { JobInfo } from "./wire.js";

/** How long to wait for something. */
export interface WaitOptions {
  /** Default: as long as it takes. */
  timeout?: Duration;
  /** Ends the wait; the promise is rejected with its reason. */
  signal?: AbortSignal;
}

/** The longest wait of one request. */
const WAIT_S_MAX = 300;

/** A job that was submitted. */
export class Job<Result = unknown> {
  readonly #transport: Transport;
  readonly #serializer: Serializer;

  /** @internal */
  constructor(
    transport: Transport,
    serializer: Serializer,
    /** Its number, or the UUID or Gearman handle it was asked for by. */
    readonly id: number | string,
    /** It was there before: another job had the unique key, or the idempotency key was used before. */
    readonly existing: boolean,
  ) {
    this.#transport = transport;
    this.#serializer = serializer;
  }

  /** The job as it is now. */
  async info(): Promise<JobInfo> {
    return this.#call("GET", "");
  }

  /** Waits until the job is done or dead. Throws a `WaitTimeoutError` if the time is over before. */
  async ended(options: WaitOptions = {}): Promise<JobInfo> {
    const timeoutMs = options.timeout === undefined ? Infinity : milliseconds(options.timeout, "timeout");
    const until = performance.now() + timeoutMs;
    for (;;) {
      const leftS = Math.max(0, Math.ceil((until - performance.now()) / 1000));
      const waitS = Math.min(WAIT_S_MAX, leftS);
      const job = await this.#wait(waitS, options.signal);
      if (job.status === "done" || job.status === "dead") return job;
      if (waitS === leftS) throw new WaitTimeoutError(job);
    }
  }

  /** Waits for the job's result. Throws a `JobFailedError` if the job dies. */
  async result(options: WaitOptions = {}): Promise<Result> {
    const job = await this.ended(options);
    if (job.status === "dead") throw new JobFailedError(job);
    const { type = "json", value, base64 } = job.result ?? {};
    return guarded("unreadable_result", `the result of job ${this.id}`, () => {
      return this.#serializer.decode(contentOf(type, value, base64)) as Result;
    });
  }

  /** Ends the job as dead. Its worker's signal is aborted at the worker's next heartbeat. */
  async cancel(): Promise<JobInfo> {
    try {
      return await this.#call("POST", "/cancel");
    } catch (error) {
      // The first of several requests was received, and its answer was lost.
      if (error instanceof ConflictError && error.repeated) return this.info();
      throw error;
    }
  }

  /** Lets a done or dead job run again, with all its tries. */
  async retry(): Promise<JobInfo> {
    // It is not repeated: the job may have run in between.
    return this.#call("POST", "/retry", false);
  }

  /** Keeps a waiting job from being leased. */
  async park(): Promise<JobInfo> {
    return this.#call("POST", "/park");
  }

  /** Lets a parked job run when its time has come. */
  async release(): Promise<JobInfo> {
    return this.#call("POST", "/release");
  }

  /** Deletes the job, whatever its status. False if there is no such job. */
  async delete(): Promise<boolean> {
    try {
      await this.#call("DELETE", "");
      return true;
    } catch (error) {
      if (error instanceof NotFoundError && error.code === "job_not_found") return error.repeated;
      throw error;
    }
  }

  async #wait(waitS: number, signal: AbortSignal | undefined): Promise<JobInfo> {
    const waitMs = waitS * 1000;
    const path = `${this.#path}/wait?wait_s=${waitS}`;
    const answer = await this.#transport.call({ method: "GET", path, waitMs, repeatable: true, signal });
    return answer.body as JobInfo;
  }

  async #call(method: "GET" | "POST" | "DELETE", action: string, repeatable = true): Promise<JobInfo> {
    const answer = await this.#transport.call({ method, path: this.#path + action, repeatable });
    return answer.body as JobInfo;
  }

  get #path(): string {
    return `jobs/${encodeURIComponent(String(this.id))}`;
  }
}
