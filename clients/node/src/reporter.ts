import { apiError, type Problem } from "./errors.js";
import { isPassing, maybeReceived, type Answer, type Transport } from "./transport.js";
import type { Leased } from "./wire.js";

/** What a worker says of a lease that it ends. */
export interface LeaseReport {
  action: "complete" | "fail" | "release";
  /** A JSON object: the fields of the request of that name. */
  body: string;
}

interface Waiting extends LeaseReport {
  token: string;
  /** How long it is worth repeating. */
  retryForMs: number;
  resolve: () => void;
  reject: (error: unknown) => void;
}

/** A worker's wish for jobs, which goes with its reports. */
export interface NextJobs {
  /** A JSON object: what is asked of `lease`. */
  lease: string;
  resolve: (jobs: Leased[]) => void;
  reject: (error: unknown) => void;
}

/** What the server says of reports. */
interface ReportsAnswer {
  answers: { problem?: Problem }[];
  lease?: { jobs: Leased[] } | { problem: Problem };
}

/** So many the server takes in one request. */
const REPORTS_MAX = 100;
/** A larger one goes alone: a request of many stays far below the 16 MiB that the server takes. */
const SHARED_CHARS_MAX = 64 * 1024;

/**
 * Reports the ends of leases. While a request is under way, what comes meanwhile is collected for the
 * next one: the busier a worker is, the more reports share a wait for the server's disk. The next jobs
 * are asked for in the same request, and share it as well.
 */
export class Reporter {
  readonly #transport: Transport;
  readonly #askNext: () => NextJobs | undefined;
  readonly #aborted = new AbortController();
  #waiting: Waiting[] = [];
  #isSending = false;

  /** `askNext` is called for each request that is about to be sent. */
  constructor(transport: Transport, askNext: () => NextJobs | undefined) {
    this.#transport = transport;
    this.#askNext = askNext;
  }

  /** Whether a request is under way, or about to be sent, that may bring jobs. */
  get isSending(): boolean {
    return this.#isSending;
  }

  /**
   * Reports the end of a lease. An error of the server about it is thrown as if it had been asked alone.
   */
  report(token: string, report: LeaseReport, retryForMs: number): Promise<void> {
    return new Promise((resolve, reject) => {
      const one = { ...report, token, retryForMs, resolve, reject };
      if (report.body.length > SHARED_CHARS_MAX) return void this.#sendAlone(one);
      this.#waiting.push(one);
      if (!this.#isSending) void this.#sendWaiting();
    });
  }

  /** Ends what is under way, and refuses what is reported later. */
  abort(reason: unknown): void {
    this.#aborted.abort(reason);
  }

  async #sendAlone({ action, body, token, retryForMs, resolve, reject }: Waiting): Promise<void> {
    try {
      await this.#post(`leases/${token}/${action}`, body, retryForMs);
      resolve();
    } catch (error) {
      reject(error);
    }
  }

  async #sendWaiting(): Promise<void> {
    this.#isSending = true;
    // Reports that are made in the same turn of the event loop go together.
    await new Promise((resolve) => setImmediate(resolve));
    while (this.#waiting.length > 0) {
      const reports = this.#waiting.splice(0, REPORTS_MAX);
      try {
        await this.#sendTogether(reports);
      } catch (error) {
        for (const { reject } of reports) reject(error);
      }
    }
    this.#isSending = false;
  }

  async #sendTogether(reports: Waiting[]): Promise<void> {
    const texts = reports.map(({ token, action, body }) => {
      return `{"lease_token":"${token}","${action}":${body}}`;
    });
    const { body, repeated } = await this.#deliver(`"leases":[${texts.join(",")}]`, reports);
    const { answers } = body as ReportsAnswer;
    reports.forEach(({ resolve, reject }, index) => {
      const { problem } = answers[index] ?? {};
      if (problem === undefined) return resolve();
      const error = apiError(problem.status ?? 0, problem);
      error.repeated = repeated;
      reject(error);
    });
  }

  async #deliver(leases: string, reports: Waiting[]): Promise<Answer> {
    const retryForMs = Math.max(...reports.map((report) => report.retryForMs));
    const next = this.#askNext();
    if (next === undefined) return this.#post("leases/batch", `{${leases}}`, retryForMs);
    let answer: Answer;
    try {
      answer = await this.#post("leases/batch", `{${leases},"lease":${next.lease}}`, 0);
    } catch (error) {
      if (!isPassing(error)) {
        // The reports are refused. What the server says of jobs, it says when they are asked for alone.
        next.resolve([]);
        throw error;
      }
      next.reject(error);
      // Jobs are asked for once: an answer that was lost may have had some. Reports may be repeated.
      answer = await this.#post("leases/batch", `{${leases}}`, retryForMs);
      return { ...answer, repeated: answer.repeated || maybeReceived(error) };
    }
    const { lease } = answer.body as ReportsAnswer;
    if (lease === undefined) next.resolve([]);
    else if ("jobs" in lease) next.resolve(lease.jobs);
    else next.reject(apiError(lease.problem.status ?? 0, lease.problem));
    return answer;
  }

  #post(path: string, body: string, retryForMs: number) {
    const { signal } = this.#aborted;
    return this.#transport.call({ method: "POST", path, body, repeatable: true, retryForMs, signal });
  }
}
