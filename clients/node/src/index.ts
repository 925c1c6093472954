/**
 * Tasks and workers for Spindle, a durable job server.
 *
 * `defineTask` makes a task, `Task.submit` its jobs, and a `Worker` does them. A `Spindle` is a client of one
 * server; without one, the server is that of `SPINDLE_URL`, or the one on this machine.
 */
export type { JobContext } from "./attempt.js";
export { defaultClient, type ListOptions, Spindle, SubmitManyError } from "./client.js";
export type { Duration } from "./duration.js";
export {
  ApiError,
  ConflictError,
  ConnectionError,
  ForbiddenError,
  FullError,
  JobFailedError,
  KeyTakenError,
  LeaseEndedError,
  NotFoundError,
  type Problem,
  SerializationError,
  SpindleError,
  TaskTimeoutError,
  TooLargeError,
  UnauthorizedError,
  UnavailableError,
  UnrecoverableError,
  WaitTimeoutError,
  WorkerStoppedError,
} from "./errors.js";
export type { EventOptions } from "./events.js";
export { Job, type WaitOptions } from "./job.js";
export { bytes, type Content, json, type Serializer } from "./serializer.js";
export type { ClientOptions } from "./settings.js";
export type { Backoff, SubmitOptions } from "./submit.js";
export { type AnyTask, defineTask, type Handler, type SubmitArguments, type Task, type TaskOptions } from "./task.js";
export type {
  AttemptInfo,
  BackoffInfo,
  ContentType,
  JobInfo,
  JobStatus,
  QueueInfo,
  ResultInfo,
  SpindleEvent,
} from "./wire.js";
export { Worker, type WorkerEvents, type WorkerOptions } from "./worker.js";
