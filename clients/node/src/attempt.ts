import type { Spindle } from "./client.js";
import { milliseconds, timerMilliseconds } from "./duration.js";
import {
  ApiError,
  ConflictError,
  LeaseEndedError,
  NotFoundError,
  SerializationError,
  SpindleError,
  TaskTimeoutError,
  UnrecoverableError,
  WorkerStoppedError,
} from "./errors.js";
import { resultOf } from "./job.js";
import { contentFields, contentOf, guarded, json } from "./serializer.js";
import type { AnyTask, Task } from "./task.js";
import type { LeaseReport, Reporter } from "./reporter.js";
import type { Call, Transport } from "./transport.js";
import type { BeforeInfo, JobBefore, Leased } from "./wire.js";

/** What a task knows of the job that it does. */
export interface JobContext {
  readonly id: number;
  readonly uuid: string;
  readonly queue: string;
  /** Which attempt this is, from 1. */
  readonly attempt: number;
  /**
   * Aborted when there is no use in going on. Its reason is a `LeaseEndedError` (the job was cancelled or
   * deleted, or the server gave it to another worker), a `TaskTimeoutError` or a `WorkerStoppedError`.
   */
  readonly signal: AbortSignal;
  /** The worker's client, to submit further jobs. */
  readonly client: Spindle;
  /** The trace that the job was submitted in (W3C Trace Context). */
  readonly traceparent: string | undefined;
  /** The jobs and batches that it waited for, by their numbers, as they stood when the attempt began. */
  readonly after: readonly BeforeInfo[];
  /**
   * The result of a job that this one waited for, whatever its queue is. It is read as the results of `task`
   * are, or else of the worker's task with that queue, or else as JSON. Throws a `JobFailedError` if that
   * job is dead, a `NotFoundError` if it is not kept any more.
   */
  resultOf<Result = unknown>(job: number, task?: Task<any, Result>): Promise<Result>;
  /**
   * The results of all jobs that this one waited for, by their numbers: in the order in which they were
   * submitted. Batches have none. Throws what `resultOf` throws for one of them.
   */
  resultsBefore<Result = unknown>(task?: Task<any, Result>): Promise<Result[]>;
  /**
   * Says how far the task is: `numerator` of `denominator`, whole numbers; 100 if left out. People see it
   * until the attempt ends. It is sent once, and the server keeps it in memory only.
   */
  reportProgress(numerator: number, denominator?: number): Promise<void>;
  /**
   * Appends a text to the job's output, which people follow with `spindle logs`. Lines end with a line feed,
   * which is not added. The server keeps the newest 256 KiB of a job, in memory only. It is repeated while
   * the server is away or busy, unless it may have been received.
   */
  writeOutput(text: string): Promise<void>;
}

/** How an attempt ended. */
export type Ending =
  | { kind: "completed"; result: unknown }
  | { kind: "failed"; error: unknown }
  /** The lease is over: nothing was reported, or the report came too late. */
  | { kind: "lost"; error: SpindleError }
  /** Given back, because the worker stops. */
  | { kind: "released" };

/** What the server is to be told, and how the attempt ends once it knows. */
interface Report extends LeaseReport {
  ending: Ending;
}

/** What the attempts of a worker share. */
export interface Shared {
  client: Spindle;
  reporter: Reporter;
  tasks: ReadonlyMap<string, AnyTask>;
  /** How often leases are extended, if the worker says so. */
  heartbeatMs: number | undefined;
}

const RELEASE: Report = { action: "release", body: "{}", ending: { kind: "released" } };

/** Texts of a failed attempt that the server takes, in characters. */
const MESSAGE_CHARS_MAX = 4096;
const CODE_CHARS_MAX = 64;
/** So much output the server takes at once. */
const OUTPUT_BYTES_MAX = 65_536;
/** What the server refuses a result with that it would refuse again. */
const UNWRITABLE_STATUSES = [400, 413, 422];
/** How long a report is repeated at least, even if the lease seems to be over. */
const REPORT_MS_MIN = 10_000;

/** One lease of one job: the task runs, the lease is extended, the end is reported. */
export class Attempt {
  readonly context: JobContext;
  readonly #leased: Leased;
  readonly #task: AnyTask;
  readonly #transport: Transport;
  readonly #heartbeatMs: number;
  readonly #aborted = new AbortController();
  /** Ends the heartbeat that is under way. Most jobs are done before the first one. */
  #beating: AbortController | undefined;
  /** The task has ended, or does not count any more: the lease is not extended further. */
  #isLetGo = false;
  readonly #reporter: Reporter;
  readonly #tasks: ReadonlyMap<string, AnyTask>;
  #timers: NodeJS.Timeout[] = [];
  /** By the clock of `performance.now()`; the server may know better. */
  #deadline: number;
  #isOver = false;

  constructor(leased: Leased, task: AnyTask, { client, reporter, tasks, heartbeatMs }: Shared) {
    this.#leased = leased;
    this.#task = task;
    this.#transport = client.transport;
    this.#reporter = reporter;
    this.#tasks = tasks;
    const leaseMs = leased.lease_ms ?? Infinity;
    this.#heartbeatMs = heartbeatMs ?? leaseMs / 3;
    this.#deadline = performance.now() + leaseMs;
    const aborted = this.#aborted;
    this.context = {
      id: leased.id,
      uuid: leased.uuid,
      queue: task.queue,
      attempt: leased.attempt,
      // Made when it is asked for: it costs more than all else here.
      get signal() {
        return aborted.signal;
      },
      client,
      traceparent: leased.traceparent,
      after: leased.after ?? [],
      resultOf: (job, task) => this.#resultOf(job, task),
      resultsBefore: (task) => this.#resultsBefore(task),
      reportProgress: (numerator, denominator = 100) => optional(this.#reportProgress(numerator, denominator)),
      writeOutput: (text) => optional(this.#writeOutput(text)),
    };
  }

  /** Runs the task, and says what to report. */
  async work(): Promise<Report> {
    try {
      const payload = this.#payload();
      this.#keepLease();
      const result: unknown = await this.#task.handler(payload, this.context);
      return this.#completion(result);
    } catch (error) {
      return this.#failure(error);
    } finally {
      this.#letGo();
    }
  }

  /** Tells the server how the attempt ended. What it refuses to keep makes the attempt fail. */
  async report(report: Report): Promise<Ending> {
    if (this.#isOver) {
      const { reason } = this.context.signal as { reason?: unknown };
      if (reason instanceof LeaseEndedError) return { kind: "lost", error: reason };
    }
    try {
      await this.#send(report);
      return report.ending;
    } catch (error) {
      const refused = error instanceof ApiError && UNWRITABLE_STATUSES.includes(error.status);
      if (report.action === "complete" && refused) {
        return this.report(failureOf(error, error.code, false));
      }
      return this.#lost(error);
    }
  }

  /** Aborts the task's signal. */
  abort(reason: SpindleError): void {
    this.#aborted.abort(reason);
  }

  /** Gives the job back while the task still runs. */
  async giveBack(): Promise<Ending> {
    this.#letGo();
    return this.report(RELEASE);
  }

  #payload(): unknown {
    const { payload_type: type, payload, payload_base64: base64 } = this.#leased;
    const { serializer, options } = this.#task;
    return guarded("unreadable_payload", `the payload of job ${this.context.id}`, () => {
      const value = serializer.decode(contentOf(type, payload, base64));
      return options.parse ? (options.parse(value) as unknown) : value;
    });
  }

  #completion(result: unknown): Report {
    const what = `the result of job ${this.context.id}`;
    const body = guarded("unwritable_result", what, () => {
      if (result === undefined) return "{}";
      return JSON.stringify(contentFields(this.#task.serializer.encode(result), "result"));
    });
    return { action: "complete", body, ending: { kind: "completed", result } };
  }

  #failure(error: unknown): Report {
    const { signal } = this.context;
    if (signal.aborted && signal.reason instanceof WorkerStoppedError) {
      return RELEASE;
    }
    const timedOut = signal.aborted && signal.reason instanceof TaskTimeoutError;
    const cause: unknown = timedOut ? signal.reason : error;
    const again = !(cause instanceof UnrecoverableError || cause instanceof SerializationError);
    return failureOf(cause, codeOf(cause), again);
  }

  async #send(report: Report): Promise<void> {
    const leftMs = Math.max(this.#deadline - performance.now(), REPORT_MS_MIN);
    try {
      await this.#reporter.report(this.#leased.lease_token, report, leftMs);
    } catch (error) {
      // The first of several reports was received, and its answer was lost.
      const end = leaseEnd(error);
      const wasReceived = error instanceof ApiError && error.repeated && end !== "cancelled" && end !== "gone";
      if (end === undefined || !wasReceived) throw error;
    }
  }

  #lost(error: unknown): Ending {
    const end = leaseEnd(error);
    if (end !== undefined) return { kind: "lost", error: leaseEnded(end, error) };
    const known = error instanceof SpindleError;
    return { kind: "lost", error: known ? error : leaseEnded("timeout", error) };
  }

  #keepLease(): void {
    if (this.#task.options.timeout !== undefined) {
      const timeoutMs = milliseconds(this.#task.options.timeout, "timeout");
      this.#after(timeoutMs, () => {
        this.#letGo();
        this.abort(new TaskTimeoutError(timeoutMs));
      });
    }
    if (this.#leased.lease_ms !== undefined) this.#watchLease();
  }

  /** Until the next heartbeat, or the end of the lease. */
  #watchLease(): void {
    const overMs = this.#deadline - performance.now();
    const end = this.#after(overMs, () => {
      this.abort(leaseEnded("timeout", undefined));
    });
    const beat = this.#after(Math.min(this.#heartbeatMs, overMs), () => {
      void this.#beat().then((isLive) => {
        if (this.#isLetGo || !isLive) return;
        clearTimeout(end);
        this.#timers = this.#timers.filter((timer) => timer !== end && timer !== beat);
        this.#watchLease();
      });
    });
  }

  /** Extends the lease. False if there is no lease to extend any more. */
  async #beat(): Promise<boolean> {
    const leaseMs = this.#leased.lease_ms ?? 0;
    const { signal } = (this.#beating = new AbortController());
    const retryForMs = this.#deadline - performance.now();
    const sent = performance.now();
    try {
      await this.#post("extend", { ttr_ms: leaseMs }, { repeatable: true, retryForMs, signal });
      // From the last time that it was sent at the latest; a repeated one was sent later.
      this.#deadline = sent + leaseMs;
    } catch (error) {
      if (signal.aborted || error instanceof LeaseEndedError) return false;
      return performance.now() < this.#deadline;
    }
    return true;
  }

  async #resultOf<Result>(job: number, task?: Task<any, Result>): Promise<Result> {
    const before = (await this.#call("GET", `after/${job}`, { repeatable: true })) as JobBefore;
    const serializer = (task ?? this.#tasks.get(before.queue ?? ""))?.serializer ?? json;
    return resultOf(before, serializer);
  }

  async #resultsBefore<Result>(task?: Task<any, Result>): Promise<Result[]> {
    const jobs = this.context.after.filter((before) => !before.is_batch);
    return Promise.all(jobs.map(({ id }) => this.#resultOf(id, task)));
  }

  #reportProgress(numerator: number, denominator: number): Promise<void> {
    return this.#post("progress", { numerator, denominator }, { repeatable: true, retryForMs: 0 });
  }

  async #writeOutput(text: string): Promise<void> {
    for (const piece of pieces(text)) await this.#post("output", { text: piece }, { repeatable: false });
  }

  async #post(action: string, body: object, how: Omit<Call, "method" | "path" | "body">): Promise<void> {
    await this.#call("POST", action, { body: JSON.stringify(body), ...how });
  }

  /** Asks one of the lease's paths. An answer that says that the lease has ended aborts the task's signal. */
  async #call(method: "GET" | "POST", action: string, how: Omit<Call, "method" | "path">): Promise<unknown> {
    const path = `leases/${this.#leased.lease_token}/${action}`;
    try {
      return (await this.#transport.call({ method, path, ...how })).body;
    } catch (error) {
      const end = leaseEnd(error);
      if (end === undefined) throw error;
      const ended = leaseEnded(end, error);
      // After the task's end it is the report that has ended the lease.
      if (!this.#isLetGo) {
        this.#isOver = true;
        this.abort(ended);
      }
      throw ended;
    }
  }

  #after(ms: number, run: () => void): NodeJS.Timeout {
    const timer = setTimeout(run, timerMilliseconds(ms));
    this.#timers.push(timer);
    return timer;
  }

  /** Ends heartbeats and timers. */
  #letGo(): void {
    this.#isLetGo = true;
    this.#beating?.abort();
    for (const timer of this.#timers) clearTimeout(timer);
    this.#timers = [];
  }
}

/** A promise that a task need not wait for: that it fails is no unhandled rejection. */
function optional(promise: Promise<void>): Promise<void> {
  promise.catch(() => undefined);
  return promise;
}

/** A text, cut between characters. */
function* pieces(text: string): Generator<string> {
  const bytes = Buffer.from(text);
  for (let begin = 0, end = 0; begin < bytes.length; begin = end) {
    end = Math.min(begin + OUTPUT_BYTES_MAX, bytes.length);
    while (((bytes[end] ?? 0) & 0xc0) === 0x80) end--;
    yield bytes.toString("utf8", begin, end);
  }
}

/** Why a lease has ended, if that is what the server says. */
function leaseEnd(error: unknown): string | undefined {
  if (error instanceof NotFoundError && error.code === "lease_gone") return "gone";
  if (!(error instanceof ConflictError) || error.code !== "lease_not_live") return undefined;
  const { reason } = error.problem as { reason?: unknown };
  return typeof reason === "string" ? reason : "finished";
}

function leaseEnded(reason: string, cause: unknown): LeaseEndedError {
  const detail = cause instanceof Error ? cause.message : "it was not extended in time";
  return new LeaseEndedError(reason, `the lease has ended: ${detail}`, cause);
}

function failureOf(error: unknown, code: string | undefined, again: boolean): Report {
  const [message, trace] = error instanceof Error ? [error.message, error.stack] : [String(error), undefined];
  const body = JSON.stringify({
    message: cut(message, MESSAGE_CHARS_MAX),
    error: trace === undefined ? undefined : cut(trace, MESSAGE_CHARS_MAX),
    code: code === undefined ? undefined : cut(code, CODE_CHARS_MAX),
    retry: again ? undefined : false,
  });
  return { action: "fail", body, ending: { kind: "failed", error } };
}

/** The code that an error brings itself, or its class. */
function codeOf(error: unknown): string | undefined {
  if (!(error instanceof Error)) return undefined;
  const { code, name } = error as { code?: unknown; name: string };
  if (typeof code === "string" && code !== "") return code;
  return name === "Error" ? undefined : name;
}

/** The first characters of a text, without halves of characters, which the server would refuse. */
function cut(text: string, charsMax: number): string {
  const wellFormed = Buffer.from(text.slice(0, charsMax * 2)).toString();
  return wellFormed.length <= charsMax ? wellFormed : [...wellFormed].slice(0, charsMax).join("");
}
