import type { Duration } from "./duration.js";
import { json, type Serializer } from "./serializer.js";
import type { JobContext } from "./attempt.js";
import { defaultClient, type Spindle } from "./client.js";
import type { Job } from "./job.js";
import type { SubmitOptions } from "./submit.js";

/** Does one job. What it returns is the job's result; what it throws makes the attempt fail. */
export type Handler<Payload, Result> = (
  payload: Payload,
  job: JobContext,
) => Result | Promise<Result>;

/** What no two jobs of a task share. */
type OfOneJob = "unique" | "idempotencyKey" | "after" | "batch" | "ref";

/** How the jobs of a task are submitted and run. Submits may say otherwise for their own job. */
export interface TaskOptions<Payload, Result> extends Omit<SubmitOptions, OfOneJob> {
  /** At most one unfinished job has the key that this makes of its payload. */
  unique?: (payload: Payload) => NonNullable<SubmitOptions["unique"]>;
  /** Checks what was decoded, such as a schema's `parse`. What it throws makes the job dead. */
  parse?: (value: unknown) => Payload;
  /** How payloads and results are written. Default `json`. */
  serializer?: Serializer;
  /** How long an attempt may take. Then its signal is aborted, and its lease no longer extended. */
  timeout?: Duration;
  /** Where `submit` sends jobs, if not to the client that the environment describes. */
  client?: Spindle;
  /** Never given: it only carries the type. */
  readonly result?: Result;
}

/** A kind of job: a queue, the function that does its jobs, and how they are submitted. */
export class Task<Payload, Result> {
  constructor(
    readonly queue: string,
    readonly handler: Handler<Payload, Result>,
    readonly options: TaskOptions<Payload, Result> = {},
  ) {}

  get serializer(): Serializer {
    return this.options.serializer ?? json;
  }

  /** Submits a job. With `client` of the task, or the client that the environment describes. */
  submit(...args: SubmitArguments<Payload>): Promise<Job<Result>> {
    return this.#client.submit(this, ...args);
  }

  /** Submits many jobs in few requests. */
  submitMany(payloads: readonly Payload[], options?: SubmitOptions): Promise<Job<Result>[]> {
    return this.#client.submitMany(this, payloads, options);
  }

  get #client(): Spindle {
    return this.options.client ?? defaultClient();
  }
}

/** A payload and options; a task without a payload needs none of them. */
export type SubmitArguments<Payload> = undefined extends Payload
  ? [payload?: Payload, options?: SubmitOptions]
  : [payload: Payload, options?: SubmitOptions];

/** Any task. */
export type AnyTask = Task<any, any>;

/**
 * Defines a task: the queue of its jobs, the function that does them, and how they are submitted.
 *
 * ```ts
 * const sendMail = defineTask("mail", async (mail: { to: string }) => send(mail), { retries: 3 });
 * await sendMail.submit({ to: "a@example.org" });
 * await new Worker([sendMail]).run();
 * ```
 */
export function defineTask<Payload = undefined, Result = void>(
  queue: string,
  handler: Handler<Payload, Result>,
  options?: TaskOptions<Payload, Result>,
): Task<Payload, Result> {
  return new Task(queue, handler, options);
}
