import { endOf, type WaitOptions } from "./ending.js";
import { ConflictError, JobFailedError, NotFoundError, WaitTimeoutError } from "./errors.js";
import { contentOf, guarded, type Serializer } from "./serializer.js";
import type { Transport } from "./transport.js";
import type { JobBefore, JobInfo } from "./wire.js";

function hasEnded(job: JobInfo): boolean {
  return job.status === "done" || job.status === "dead";
}

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
    const job = await endOf<JobInfo>(this.#transport, `${this.#path}/wait`, hasEnded, options);
    if (!hasEnded(job)) throw new WaitTimeoutError({ job });
    return job;
  }

  /** Waits for the job's result. Throws a `JobFailedError` if the job dies. */
  async result(options: WaitOptions = {}): Promise<Result> {
    const job = await this.ended(options);
    return resultOf<Result>(job, this.#serializer);
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

  async #call(method: "GET" | "POST" | "DELETE", action: string, repeatable = true): Promise<JobInfo> {
    const answer = await this.#transport.call({ method, path: this.#path + action, repeatable });
    return answer.body as JobInfo;
  }

  get #path(): string {
    return `jobs/${encodeURIComponent(String(this.id))}`;
  }
}

/** The result of a job that is done. */
export function resultOf<Result>(job: JobBefore, serializer: Serializer): Result {
  if (job.status === "dead") throw new JobFailedError(job);
  if (job.status !== "done") throw new WaitTimeoutError({ job });
  const { type = "json", value, base64 } = job.result ?? {};
  return guarded("unreadable_result", `the result of job ${job.id}`, () => {
    return serializer.decode(contentOf(type, value, base64)) as Result;
  });
}
