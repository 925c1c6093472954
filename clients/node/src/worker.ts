import { EventEmitter } from "node:events";
import { hostname } from "node:os";

import { Attempt, type Ending, type JobContext, type Shared } from "./attempt.js";
import { defaultClient, type Spindle } from "./client.js";
import { milliseconds, retryDelayMs, sleep, type Duration } from "./duration.js";
import { SpindleError, WorkerStoppedError } from "./errors.js";
import { type NextJobs, Reporter } from "./reporter.js";
import type { AnyTask } from "./task.js";
import { isPassing } from "./transport.js";
import type { Leased } from "./wire.js";

/** How a worker works. */
export interface WorkerOptions {
  /** Where jobs come from. Default: the client that the environment describes. */
  client?: Spindle;
  /** Most jobs at a time. Default 1. */
  concurrency?: number;
  /** What lists of workers call it. Default: the host's name and the process id. */
  name?: string;
  /** How often leases are extended, and a task hears of a cancel. Default: a third of the lease. */
  heartbeat?: Duration;
  /** A lease lasts at most this: how soon the jobs of a worker that was killed run again. Default: as the job says. */
  lease?: Duration;
  /** How long a stop waits for jobs before it aborts their signals. Default 25 s. */
  stopTimeout?: Duration;
  /** What stops the worker while it runs; a second one aborts its jobs. Default SIGTERM and SIGINT. */
  signals?: readonly NodeJS.Signals[];
}

/** What a worker reports to its listeners. */
export interface WorkerEvents {
  /** A job is done. */
  completed: [job: JobContext, result: unknown];
  /** An attempt failed; the job may be tried again. */
  failed: [job: JobContext, error: unknown];
  /** The lease ended before the job: it was cancelled, deleted, or given to another worker. */
  lost: [job: JobContext, error: SpindleError];
  /** The job was given back, because the worker stops. */
  released: [job: JobContext];
  /** The server cannot be reached, or is busy: the worker goes on trying. Without a listener it is printed. */
  error: [error: Error];
}

/** The longest wait for a job of one request. */
const WAIT_S = 30;
/** So many jobs the server gives at once. */
const COUNT_MAX = 100;
/** The longest wait between two tries to reach the server. */
const RETRY_CAP_MS = 5_000;
/** How long tasks whose signal was aborted by a stop may take to end. */
const ABORT_GRACE_MS = 5_000;
/** How long their reports may take then. */
const REPORT_GRACE_MS = 2_000;

/** Leases the jobs of tasks, and does them. */
export class Worker {
  readonly name: string;
  readonly #tasks = new Map<string, AnyTask>();
  readonly #client: Spindle;
  readonly #concurrency: number;
  readonly #shared: Shared;
  readonly #stopTimeoutMs: number;
  readonly #signals: readonly NodeJS.Signals[];
  /** What every request for jobs says, as JSON without its braces. */
  readonly #leaseFields: string;
  readonly #emitter = new EventEmitter();
  /** Aborted when no further jobs are to be leased. */
  readonly #stopping = new AbortController();
  readonly #running = new Set<Attempt>();
  readonly #reporting = new Set<Attempt>();
  /** Whether jobs are asked for. One request is enough: it asks for as many as there is room for. */
  #isAsking = false;
  /** Whether a request that waits for jobs is about to be sent. */
  #isFilling = false;
  /** Requests for a job that failed, one after the other. */
  #failures = 0;
  #fatal: unknown;
  #isStarted = false;
  readonly #ended: Promise<void>;
  #end!: () => void;

  constructor(tasks: readonly AnyTask[], options: WorkerOptions = {}) {
    for (const task of tasks) {
      if (this.#tasks.has(task.queue)) throw new TypeError(`two tasks have the queue ${task.queue}`);
      this.#tasks.set(task.queue, task);
    }
    if (this.#tasks.size === 0) throw new TypeError("a worker needs a task");
    const { concurrency = 1, heartbeat, lease } = options;
    if (!Number.isInteger(concurrency) || concurrency < 1) {
      throw new TypeError(`concurrency: ${concurrency} is not a number of jobs`);
    }
    this.name = options.name ?? `${hostname()}:${process.pid}`;
    this.#client = options.client ?? defaultClient();
    this.#concurrency = concurrency;
    this.#shared = {
      client: this.#client,
      reporter: new Reporter(this.#client.transport, () => this.#askNext()),
      tasks: this.#tasks,
      heartbeatMs: heartbeat === undefined ? undefined : milliseconds(heartbeat, "heartbeat"),
    };
    this.#stopTimeoutMs = milliseconds(options.stopTimeout ?? "25s", "stopTimeout");
    this.#signals = options.signals ?? ["SIGTERM", "SIGINT"];
    const fields = {
      queues: [...this.#tasks.keys()],
      timeout_ms: lease === undefined ? undefined : milliseconds(lease, "lease"),
      worker: this.name,
    };
    this.#leaseFields = JSON.stringify(fields).slice(1, -1);
    this.#ended = new Promise((resolve) => (this.#end = resolve));
  }

  /**
   * Works until it is stopped by a signal or by `stop`, and its jobs have ended. While the server is away
   * it goes on trying. Rejects if the server refuses the worker, for instance its token.
   */
  async run(): Promise<void> {
    if (this.#isStarted) throw new SpindleError("worker_used", "a worker runs once: make another one");
    this.#isStarted = true;
    const onSignal = () => {
      if (this.#stopping.signal.aborted) void this.#abandon();
      else void this.stop();
    };
    for (const signal of this.#signals) process.on(signal, onSignal);
    try {
      this.#fill();
      await this.#ended;
    } finally {
      for (const signal of this.#signals) process.off(signal, onSignal);
    }
    if (this.#fatal !== undefined) throw this.#fatal;
  }

  /**
   * Leases no further jobs, and waits for those that run. After `stopTimeout` their signals are aborted; a
   * job whose task then fails, or does not end within 5 seconds, is given back.
   */
  async stop(): Promise<void> {
    if (!this.#stopping.signal.aborted) {
      this.#isStarted = true;
      this.#stopping.abort(new WorkerStoppedError());
      this.#endIfIdle();
    }
    const timer = setTimeout(() => void this.#abandon(), this.#stopTimeoutMs);
    await this.#ended;
    clearTimeout(timer);
  }

  on<E extends keyof WorkerEvents>(event: E, listener: (...args: WorkerEvents[E]) => void): this {
    this.#emitter.on(event, listener as (...args: unknown[]) => void);
    return this;
  }

  once<E extends keyof WorkerEvents>(event: E, listener: (...args: WorkerEvents[E]) => void): this {
    this.#emitter.once(event, listener as (...args: unknown[]) => void);
    return this;
  }

  off<E extends keyof WorkerEvents>(event: E, listener: (...args: WorkerEvents[E]) => void): this {
    this.#emitter.off(event, listener as (...args: unknown[]) => void);
    return this;
  }

  /**
   * Asks for as many jobs as there is room for, once all that ends in this turn of the event loop has
   * ended: tasks that end together are followed by one request, not by one for the first of them.
   */
  #fill(): void {
    if (this.#isFilling || this.#isAsking) return;
    this.#isFilling = true;
    setImmediate(() => {
      this.#isFilling = false;
      // Reports bring the next jobs. And when the server takes no reports, it gives no jobs.
      if (this.#shared.reporter.isSending) return;
      const room = this.#room();
      if (room > 0) void this.#receive(this.#lease(room));
    });
  }

  /** How many jobs to ask for. */
  #room(): number {
    if (this.#isAsking || this.#stopping.signal.aborted) return 0;
    return Math.min(this.#concurrency - this.#running.size, COUNT_MAX);
  }

  /** The jobs that are asked for with reports. */
  #askNext(): NextJobs | undefined {
    const room = this.#room();
    if (room <= 0) return undefined;
    const lease = `{${this.#leaseFields},"count":${room}}`;
    let next: NextJobs | undefined;
    void this.#receive(new Promise((resolve, reject) => (next = { lease, resolve, reject })));
    return next;
  }

  /** Does the jobs that are asked for. */
  async #receive(asked: Promise<Leased[]>): Promise<void> {
    this.#isAsking = true;
    try {
      const jobs = await asked;
      this.#failures = 0;
      for (const leased of jobs) void this.#perform(leased);
    } catch (error) {
      await this.#askFailed(error);
    }
    this.#isAsking = false;
    this.#fill();
    this.#endIfIdle();
  }

  /** Waits for jobs. */
  async #lease(count: number): Promise<Leased[]> {
    const answer = await this.#client.transport.call({
      method: "POST",
      path: "lease",
      body: `{${this.#leaseFields},"wait_s":${WAIT_S},"count":${count}}`,
      waitMs: WAIT_S * 1000,
      repeatable: false,
      retryForMs: 0,
      signal: this.#stopping.signal,
      // Jobs that are given at this very moment would have to wait for the end of their leases.
      onAbort: "half-close",
    });
    return (answer.body as { jobs: Leased[] } | undefined)?.jobs ?? [];
  }

  async #askFailed(error: unknown): Promise<void> {
    const { signal } = this.#stopping;
    if (signal.aborted) return;
    if (!isPassing(error)) {
      this.#fatal = error;
      void this.stop();
      return;
    }
    this.#failures += 1;
    if (this.#failures === 1) this.#emitError(error as Error);
    await sleep(retryDelayMs(this.#failures, RETRY_CAP_MS), signal).catch(() => undefined);
  }

  async #perform(leased: Leased): Promise<void> {
    const task = this.#tasks.get(leased.queue ?? "") as AnyTask;
    const attempt = new Attempt(leased, task, this.#shared);
    this.#running.add(attempt);
    const report = await attempt.work();
    // A stop gave the job back meanwhile.
    if (!this.#running.delete(attempt)) return;
    await this.#report(attempt, attempt.report(report));
  }

  async #report(attempt: Attempt, ending: Promise<Ending>): Promise<void> {
    this.#reporting.add(attempt);
    this.#fill();
    this.#emitEnding(attempt, await ending);
    this.#reporting.delete(attempt);
    this.#fill();
    this.#endIfIdle();
  }

  /** Aborts what runs, and gives back what does not end then. */
  async #abandon(): Promise<void> {
    for (const attempt of this.#running) attempt.abort(new WorkerStoppedError());
    const timer = new AbortController();
    void this.#ended.then(() => timer.abort());
    await sleep(ABORT_GRACE_MS, timer.signal).catch(() => undefined);
    const left = [...this.#running];
    this.#running.clear();
    for (const attempt of left) void this.#report(attempt, attempt.giveBack());
    // A server that is away must not keep the program from ending.
    const giveUp = setTimeout(() => this.#shared.reporter.abort(new WorkerStoppedError()), REPORT_GRACE_MS);
    await this.#ended;
    clearTimeout(giveUp);
  }

  #endIfIdle(): void {
    const isBusy = this.#isAsking || this.#running.size > 0 || this.#reporting.size > 0;
    if (this.#stopping.signal.aborted && !isBusy) this.#end();
  }

  #emitEnding({ context }: Attempt, ending: Ending): void {
    switch (ending.kind) {
      case "completed":
        return this.#emit("completed", context, ending.result);
      case "failed":
        return this.#emit("failed", context, ending.error);
      case "lost":
        return this.#emit("lost", context, ending.error);
      case "released":
        return this.#emit("released", context);
    }
  }

  #emitError(error: Error): void {
    if (this.#emitter.listenerCount("error") > 0) this.#emit("error", error);
    else console.error(`spindle worker ${this.name}: ${error.message}; it goes on trying`);
  }

  /**
   * Listeners are called before a stop ends. What one throws is the program's fault: it is an uncaught
   * exception, and does not stop the worker in the middle of a job.
   */
  #emit<E extends keyof WorkerEvents>(event: E, ...args: WorkerEvents[E]): void {
    if (this.#emitter.listenerCount(event) === 0) return;
    try {
      this.#emitter.emit(event, ...args);
    } catch (error) {
      process.nextTick(() => {
        throw error;
      });
    }
  }
}
