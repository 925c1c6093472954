/**
 * Tasks and workers for Spindle, a durable job server.
 *
 * `defineTask` makes a task, `Task.submit` its jobs, and a `Worker` does them. A `Spindle` is a client of one
 * server; without one, the server is that of `SPINDLE_URL`, or the one on this machine.
 */
export type { JobContext } from "./attempt.js";
export { Batch, type BatchOptions } from "./batch.js";
export { defaultClient, type JobsOf, type ListOptions, Spindle, SubmitManyError } from "./client.js";
export type { Duration } from "./duration.js";
export type { WaitOptions } from "./ending.js";
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
export { Job } from "./job.js";
export { message, type Message } from "./message.js";
export { Schedule, type ScheduleOptions } from "./schedule.js";
export { bytes, type Content, json, type Serializer } from "./serializer.js";
export type { ClientOptions } from "./settings.js";
export type { After, Backoff, SubmitOptions } from "./submit.js";
export { type AnyTask, defineTask, type Handler, type SubmitArguments, type Task, type TaskOptions } from "./task.js";
export type {
  AttemptInfo,
  BackoffInfo,
  BatchInfo,
  BatchStatus,
  BeforeInfo,
  ContentType,
  DeletionInfo,
  JobBefore,
  JobInfo,
  JobStatus,
  MissedPolicy,
  OnDead,
  OverlapPolicy,
  ProgressInfo,
  QueueInfo,
  ResultInfo,
  ScheduleInfo,
  SpindleEvent,
} from "./wire.js";
export { Worker, type WorkerEvents, type WorkerOptions } from "./worker.js";
