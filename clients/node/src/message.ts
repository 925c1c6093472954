import { json, type Serializer } from "./serializer.js";
import { submitText, type SubmitOptions } from "./submit.js";
import type { AnyTask, SubmitArguments, Task } from "./task.js";

/** A job that is ready to be sent: `client.submitAll` takes several, a schedule takes one. */
export class Message<Result = unknown> {
  readonly queue: string;
  /** Never there: it only carries the type. */
  declare readonly result?: Result;
  /** @internal */
  readonly text: string;
  /** @internal */
  readonly serializer: Serializer;
  /** @internal The job may have been there before, if it is submitted once. */
  readonly mayExist: boolean;
  /** @internal Others of the same request may name it. */
  readonly isNamed: boolean;
  /** @internal */
  readonly idempotencyKey: string | undefined;

  /** @internal */
  constructor(target: AnyTask | string, payload: unknown, options: SubmitOptions) {
    const task = typeof target === "string" ? undefined : target;
    const all = task ? withTask(task, payload, options) : options;
    this.queue = typeof target === "string" ? target : target.queue;
    this.serializer = task?.serializer ?? json;
    this.text = submitText(this.queue, payload, all, this.serializer);
    this.mayExist = all.unique !== undefined || all.idempotencyKey !== undefined;
    this.isNamed = all.ref !== undefined;
    this.idempotencyKey = all.idempotencyKey;
  }
}

/**
 * A job that is not submitted yet.
 *
 * ```ts
 * await client.submitAll([
 *   message(resize, "photo-1.jpg", { ref: "one" }),
 *   message(album, "holidays", { after: "one" }),
 * ]);
 * ```
 */
export function message<Payload, Result>(
  task: Task<Payload, Result>,
  ...args: SubmitArguments<Payload>
): Message<Result>;
export function message(queue: string, payload?: unknown, options?: SubmitOptions): Message;
export function message(target: AnyTask | string, payload?: unknown, options: SubmitOptions = {}): Message {
  return new Message(target, payload, options);
}

/** The options of a task, and over them those of the submit. */
function withTask({ options: task }: AnyTask, payload: unknown, options: SubmitOptions): SubmitOptions {
  const { unique, delay, runAt, ...rest } = task;
  const saysWhen = options.delay !== undefined || options.runAt !== undefined;
  return {
    ...rest,
    ...(delay === undefined || saysWhen ? {} : { delay }),
    ...(runAt === undefined || saysWhen ? {} : { runAt }),
    ...(unique === undefined ? {} : { unique: unique(payload) }),
    ...options,
  };
}
