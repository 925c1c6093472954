import { milliseconds, type Duration } from "./duration.js";
import type { Batch } from "./batch.js";
import type { Job } from "./job.js";
import { contentFields, guarded, type Serializer } from "./serializer.js";
import type { OnDead } from "./wire.js";

/** A job or a batch, or its number, or the `ref` of a job of the same request. */
export type After = Job<any> | Batch | number | string;

/** Waits between failures: `base` x `factor`^(n-1), at most `cap`, less a random share of up to `jitter`. */
export interface Backoff {
  base: Duration;
  /** 1 to 1000; default 1. */
  factor?: number;
  /** Default 1 hour. */
  cap?: Duration;
  /** 0 to 1; default 0. */
  jitter?: number;
}

/** How one job is submitted. What is left out is as its task says, else as its queue or the server does. */
export interface SubmitOptions {
  /** Higher goes first. */
  priority?: number;
  /** Not before this time, by this machine's clock. */
  delay?: Duration;
  /** Not before this time. */
  runAt?: Date;
  /** Failures after which the job is tried again. `Infinity` is no limit. Default 4. */
  retries?: number;
  /** Most attempts, lost workers counted. `Infinity` is no limit. Default 25, or five for each of `retries`. */
  attemptsMax?: number;
  /** The wait after a failure: always the same, or growing. Default 5 s, 15 s, 45 s, ... up to an hour. */
  backoff?: Duration | Backoff;
  /** How long a worker has the job before it must extend its lease; workers do so by themselves. Default 60 s. */
  ttr?: Duration;
  /** The job is deleted after this, whatever its status. */
  ttl?: Duration;
  /** How long the job is kept once it is done. Default 1 hour. */
  keep?: Duration;
  /** The job waits until it is released. */
  parked?: boolean;
  /** Words to search by. */
  tags?: readonly string[];
  /** Jobs and batches that the job waits for, one or several, up to 100. It is `blocked` until they are done. */
  after?: After | readonly After[];
  /**
   * What happens when one of those dies: the job is cancelled (`cancel`, the default), runs all the same
   * (`run`), or goes on waiting while the dead one can be retried (`wait`).
   */
  onDead?: OnDead;
  /** The open batch that the job belongs to. */
  batch?: Batch | number;
  /**
   * A name by which other jobs of the same `submitAll` may wait for this one: 1 to 64 letters, digits, `-`,
   * `_` and `.`.
   */
  ref?: string;
  /** Whose share of a fair queue the job takes. */
  fairKey?: string;
  /**
   * At most one unfinished job of a queue has the key. If another has it, the submit is refused with a
   * `KeyTakenError` (`reject`), gives that job (`existing`), or takes its place (`replace`).
   */
  unique?: string | { key: string; mode?: "reject" | "existing" | "replace" };
  /**
   * However often a submit with this key is sent, it adds one job. Every submit has a random one if it
   * is not given, so that it can be repeated when the server goes away.
   */
  idempotencyKey?: string;
}

/** The JSON text of a request that submits a job. */
export function submitText(
  queue: string,
  payload: unknown,
  options: SubmitOptions,
  serializer: Serializer,
): string {
  const fields = { queue, ...optionFields(options) };
  return guarded("unwritable_payload", `the payload for ${queue}`, () => {
    return JSON.stringify({ ...fields, ...contentFields(serializer.encode(payload), "payload") });
  });
}

function optionFields(options: SubmitOptions): object {
  const { delay, runAt, backoff, unique } = options;
  if (delay !== undefined && runAt !== undefined) {
    throw new TypeError("delay and runAt: only one of them can say when the job runs");
  }
  const at = delay === undefined ? runAt : new Date(Date.now() + milliseconds(delay, "delay"));
  const ms = (name: "ttr" | "ttl" | "keep") => {
    const duration = options[name];
    return duration === undefined ? undefined : milliseconds(duration, name);
  };
  return {
    priority: options.priority,
    run_at: at?.toISOString(),
    ...triesFields(options),
    backoff: backoff === undefined ? undefined : backoffFields(backoff),
    ttr_ms: ms("ttr"),
    ttl_ms: ms("ttl"),
    keep_ms: ms("keep"),
    parked: options.parked,
    tags: options.tags,
    after: options.after === undefined ? undefined : [options.after].flat().map(afterField),
    on_dead: options.onDead,
    batch: typeof options.batch === "object" ? options.batch.id : options.batch,
    ref: options.ref,
    fair_key: options.fairKey,
    unique: typeof unique === "string" ? { key: unique } : unique,
  };
}

function afterField(before: After): number | string {
  if (typeof before !== "object") return before;
  if (typeof before.id === "number") return before.id;
  throw new TypeError(`after: job ${before.id} is known by another name; a job is waited for by its number`);
}

/** What the server's defaults allow: 5 failures and 25 attempts. */
const ATTEMPTS_DEFAULT = 25;
const ATTEMPTS_PER_FAILURE = 5;

function triesFields({ retries, attemptsMax }: SubmitOptions): object {
  const fails = retries === undefined ? undefined : checkedCount(retries, "retries") + 1;
  let attempts = attemptsMax === undefined ? undefined : checkedCount(attemptsMax, "attemptsMax");
  // Without this, the default number of attempts would end the job before its retries are over.
  const needed = (fails ?? 0) * ATTEMPTS_PER_FAILURE;
  if (attempts === undefined && needed > ATTEMPTS_DEFAULT) attempts = needed;
  return { fails_max: unlimitedIsZero(fails), attempts_max: unlimitedIsZero(attempts) };
}

function checkedCount(count: number, what: string): number {
  if (count === Infinity || (Number.isInteger(count) && count >= 0)) return count;
  throw new TypeError(`${what}: ${count} is no count`);
}

function unlimitedIsZero(count: number | undefined): number | undefined {
  return count === Infinity ? 0 : count;
}

function backoffFields(backoff: Duration | Backoff): object {
  const { base, factor, cap, jitter }: Backoff = typeof backoff === "object" ? backoff : { base: backoff };
  return {
    base_ms: milliseconds(base, "backoff.base"),
    factor,
    cap_ms: cap === undefined ? undefined : milliseconds(cap, "backoff.cap"),
    jitter,
  };
}
