import type { BatchInfo, JobBefore, JobInfo } from "./wire.js";

/** An error as the server describes it (RFC 9457). Some codes bring fields of their own. */
export interface Problem {
  type?: string;
  title?: string;
  status?: number;
  /** For programs; it never changes. The API page lists all of them. */
  code?: string;
  /** For people. */
  detail?: string;
  request_id?: string;
  [field: string]: unknown;
}

/** What all errors of this package are. */
export class SpindleError extends Error {
  /** For programs: the code of the server's problem, or one of this package. */
  readonly code: string;

  constructor(code: string, message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = new.target.name;
    this.code = code;
  }
}

/** The server could not be reached, went away, or did not answer in time. `cause` says how. */
export class ConnectionError extends SpindleError {
  /** Whether the server may have received the request, and done what it asks for. */
  readonly maybeReceived: boolean;

  constructor(message: string, maybeReceived: boolean, cause?: unknown) {
    super("connection", message, { cause });
    this.maybeReceived = maybeReceived;
  }
}

/** The server refused a request. The subclasses are the refusals that programs tell apart. */
export class ApiError extends SpindleError {
  readonly status: number;
  readonly problem: Problem;
  /** How long the server asks to wait before another try. */
  readonly retryAfterMs: number | undefined;
  /** The request was sent before, and may have been received then: this may be the answer to a repetition. */
  repeated = false;

  constructor(status: number, problem: Problem, retryAfterMs?: number) {
    const code = problem.code ?? `http_${status}`;
    super(code, problem.detail ?? problem.title ?? `the server answered with status ${status}`);
    this.status = status;
    this.problem = problem;
    this.retryAfterMs = retryAfterMs;
  }
}

/** 401: the request needs a token that the server knows. */
export class UnauthorizedError extends ApiError {}
/** 403: the token is not for this. */
export class ForbiddenError extends ApiError {}
/** 404 or 410: there is no such job, queue or path (any more). */
export class NotFoundError extends ApiError {}
/** 409 or 412: the state of the job or queue does not allow it. */
export class ConflictError extends ApiError {}
/** 413: the request is larger than the server takes. */
export class TooLargeError extends ApiError {}
/** 429 `queue_full` or `server_full`, 507: there is no room for more jobs now. */
export class FullError extends ApiError {}
/** 429, 502, 503, 504: the server cannot take the request now. It was repeated before this. */
export class UnavailableError extends ApiError {}

/** Another unfinished job has the unique key. */
export class KeyTakenError extends ConflictError {
  /** The job that has the key. */
  readonly job: number | undefined;

  constructor(status: number, problem: Problem, retryAfterMs?: number) {
    super(status, problem, retryAfterMs);
    const { job } = problem as { job?: unknown };
    this.job = typeof job === "number" ? job : undefined;
  }
}

/** A lease that has ended. The signal of its job is aborted with this. */
export class LeaseEndedError extends SpindleError {
  /**
   * `cancelled`, `finished`, `timeout`, `leased_again` or `released`, as the server says; `gone` if
   * the job was deleted.
   */
  readonly reason: string;

  constructor(reason: string, message: string, cause?: unknown) {
    super("lease_ended", message, { cause });
    this.reason = reason;
  }
}

/** A task took longer than its `timeout`. The signal of its job is aborted with this. */
export class TaskTimeoutError extends SpindleError {
  constructor(timeoutMs: number) {
    super("task_timeout", `the task took more than its ${timeoutMs} ms`);
  }
}

/** The worker stops, and its `stopTimeout` is over. The signals of its jobs are aborted with this. */
export class WorkerStoppedError extends SpindleError {
  constructor() {
    super("worker_stopped", "the worker stops, and gives its unfinished jobs back");
  }
}

/** What a serializer could not do. */
export type SerializationCode =
  | "unreadable_payload"
  | "unreadable_result"
  | "unwritable_payload"
  | "unwritable_result";

/** A payload or a result that the serializer cannot write or read. */
export class SerializationError extends SpindleError {
  constructor(code: SerializationCode, message: string, cause?: unknown) {
    super(code, message, { cause });
  }
}

/** A task throws this if its job must not be tried again: the job is dead at once. */
export class UnrecoverableError extends Error {
  override name = "UnrecoverableError";
  /** Kept with the job, up to 64 characters. */
  code?: string;
}

/** A job that somebody waited for is dead. `message` and `code` are those of its last attempt. */
export class JobFailedError extends SpindleError {
  /** What is known of it: all, or of a job that another one waited for, how it ended. */
  readonly job: JobBefore & Partial<JobInfo>;

  constructor(job: JobBefore) {
    const { code, message, error } = job.result ?? {};
    const why = message || error?.split("\n", 1)[0] || code || "it failed";
    super(code || "failed", `job ${job.id} is dead: ${why}`);
    this.job = job;
  }
}

/** A job that somebody waited for was neither done nor dead in time, or a batch had not ended. */
export class WaitTimeoutError extends SpindleError {
  /** The job as it was then. */
  readonly job: (JobBefore & Partial<JobInfo>) | undefined;
  /** Or the batch. */
  readonly batch: BatchInfo | undefined;

  constructor({ job, batch }: { job: JobBefore; batch?: undefined } | { batch: BatchInfo; job?: undefined }) {
    const what = job ? `job ${job.id}` : `batch ${batch.id}`;
    super("wait_timeout", `${what} is still ${(job ?? batch).status}`);
    this.job = job;
    this.batch = batch;
  }
}

type ApiErrorClass = new (status: number, problem: Problem, retryAfterMs?: number) => ApiError;

const BY_CODE: Record<string, ApiErrorClass> = {
  key_taken: KeyTakenError,
  queue_full: FullError,
  server_full: FullError,
};
const BY_STATUS: Record<number, ApiErrorClass> = {
  401: UnauthorizedError,
  403: ForbiddenError,
  404: NotFoundError,
  409: ConflictError,
  410: NotFoundError,
  412: ConflictError,
  413: TooLargeError,
  429: UnavailableError,
  502: UnavailableError,
  503: UnavailableError,
  504: UnavailableError,
  507: FullError,
};

/** The error for a refusal. */
export function apiError(status: number, problem: Problem, retryAfterMs?: number): ApiError {
  const Class = BY_CODE[problem.code ?? ""] ?? BY_STATUS[status] ?? ApiError;
  return new Class(status, problem, retryAfterMs);
}
