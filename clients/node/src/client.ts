import { randomUUID } from "node:crypto";

import { Batch, type BatchOptions } from "./batch.js";
import { milliseconds } from "./duration.js";
import { apiError, ConnectionError, type Problem, SpindleError } from "./errors.js";
import { type EventOptions, events } from "./events.js";
import { Job } from "./job.js";
import { Message } from "./message.js";
import { Schedule } from "./schedule.js";
import { json } from "./serializer.js";
import { type ClientOptions, settingsOf } from "./settings.js";
import type { SubmitOptions } from "./submit.js";
import type { AnyTask, SubmitArguments, Task } from "./task.js";
import { type Call, Transport } from "./transport.js";
import type { BatchInfo, JobInfo, QueueInfo, ScheduleInfo, SpindleEvent, Submitted } from "./wire.js";

/** What becomes of messages that are submitted: their jobs, in their order. */
export type JobsOf<Messages> = {
  -readonly [Place in keyof Messages]: Messages[Place] extends Message<infer Result> ? Job<Result> : never;
};

/** Which jobs to list. All that is given must match. */
export interface ListOptions {
  queue?: string;
  status?: JobInfo["status"] | readonly JobInfo["status"][];
  tag?: string;
  batch?: Batch | number;
  /** The newest first. Default: the oldest. */
  newestFirst?: boolean;
  signal?: AbortSignal;
}

/** The server takes so many jobs in one request, and 16 MiB. */
const BATCH_JOBS_MAX = 1000;
const BATCH_BYTES = 4 * 1024 * 1024;
const LIST_PAGE = 1000;
/** Batches and schedules in one page. */
const SHORT_PAGE = 512;

/** A client of one server. It keeps its connections: make one for a program. */
export class Spindle {
  readonly #transport: Transport;

  /** Throws a `SpindleError` with the code `config` if a file or an address cannot be used. */
  constructor(options: ClientOptions = {}) {
    this.#transport = new Transport(settingsOf(options));
  }

  /** Submits a job. It is on disk when the promise is fulfilled. */
  async submit<Payload, Result>(
    task: Task<Payload, Result>,
    ...args: SubmitArguments<Payload>
  ): Promise<Job<Result>>;
  /** Submits a job to a queue by its name, with JSON. */
  async submit(queue: string, payload?: unknown, options?: SubmitOptions): Promise<Job>;
  async submit(
    target: AnyTask | string,
    payload?: unknown,
    options: SubmitOptions = {},
  ): Promise<Job> {
    const one = new Message(target, payload, options);
    const answer = await this.#transport.call({
      method: "POST",
      path: "jobs",
      body: one.text,
      headers: { "idempotency-key": one.idempotencyKey ?? randomUUID() },
      repeatable: true,
    });
    return this.#submitted(answer.body as Submitted, one);
  }

  /**
   * Submits many jobs in few requests. Each is accepted or refused for itself: if one is not
   * accepted, a `SubmitManyError` says what became of each. Payloads share the options.
   */
  async submitMany<Payload, Result>(
    task: Task<Payload, Result>,
    payloads: readonly Payload[],
    options?: SubmitOptions,
  ): Promise<Job<Result>[]>;
  async submitMany(queue: string, payloads: readonly unknown[], options?: SubmitOptions): Promise<Job[]>;
  async submitMany(
    target: AnyTask | string,
    payloads: readonly unknown[],
    options: SubmitOptions = {},
  ): Promise<Job[]> {
    const { idempotencyKey, ...shared } = options;
    const jobs = payloads.map((payload) => new Message(target, payload, shared));
    return this.#submitAll(jobs, idempotencyKey);
  }

  /**
   * Submits many messages in few requests, each with options of its own; in one request if jobs are named
   * (`ref`). Each is accepted or refused for itself: if one is not accepted, a `SubmitManyError` says what
   * became of each.
   */
  async submitAll<Messages extends readonly Message<any>[] | []>(messages: Messages): Promise<JobsOf<Messages>> {
    return (await this.#submitAll(messages, undefined)) as JobsOf<Messages>;
  }

  async #submitAll(messages: readonly Message[], sharedKey: string | undefined): Promise<Job[]> {
    const areTogether = messages.some(({ isNamed }) => isNamed);
    const outcomes: (Job | SpindleError)[] = [];
    let requests = 0;
    for (const batch of areTogether ? [messages] : batchesOf(messages)) {
      // The key of one request must not be that of the next.
      const key = `${sharedKey ?? randomUUID()}:${requests++}`;
      outcomes.push(...(await this.#submitBatch(batch, key, sharedKey !== undefined)));
    }
    if (outcomes.some((outcome) => !(outcome instanceof Job))) throw new SubmitManyError(outcomes);
    return outcomes as Job[];
  }

  async #submitBatch(
    jobs: readonly Message[],
    key: string,
    isKnown: boolean,
  ): Promise<(Job | SpindleError)[]> {
    try {
      const answer = await this.#transport.call({
        method: "POST",
        path: "jobs/batch",
        body: `{"jobs":[${jobs.map(keyedText).join(",")}]}`,
        headers: { "idempotency-key": key },
        repeatable: true,
      });
      const { answers } = answer.body as { answers: (Submitted | { problem: Problem })[] };
      return answers.map((answer, index) => {
        if ("problem" in answer) return apiError(answer.problem.status ?? 0, answer.problem);
        return this.#submitted(answer, jobs[index] as Message, isKnown);
      });
    } catch (error) {
      if (!(error instanceof SpindleError)) throw error;
      return jobs.map(() => error);
    }
  }

  #submitted(answer: Submitted, { serializer, mayExist }: Message, isKnown = false): Job {
    // A random key is known to the server only if this very submit was sent twice.
    return new Job(this.#transport, serializer, answer.id, answer.existing && (mayExist || isKnown));
  }

  /** A job by its number, its UUID, or its Gearman handle. Nothing is sent. */
  job<Result = unknown>(id: number | string, task?: Task<any, Result>): Job<Result> {
    return new Job<Result>(this.#transport, task?.serializer ?? json, id, true);
  }

  /** Lists jobs without their payloads and results, page by page. */
  async *jobs(options: ListOptions = {}): AsyncGenerator<JobInfo, void, undefined> {
    const { queue, status, tag, batch, newestFirst, signal } = options;
    const query = new URLSearchParams({ limit: String(LIST_PAGE) });
    if (queue !== undefined) query.set("queue", queue);
    if (status !== undefined) query.set("status", [status].flat().join(","));
    if (tag !== undefined) query.set("tag", tag);
    if (batch !== undefined) query.set("batch", String(typeof batch === "object" ? batch.id : batch));
    if (newestFirst) query.set("order", "desc");
    yield* this.#list<JobInfo>("jobs", query, signal);
  }

  /** Opens a batch: jobs that belong together. */
  async openBatch(options: BatchOptions): Promise<Batch> {
    const { parent, keep, ...fields } = options;
    const answer = await this.#transport.call({
      method: "POST",
      path: "batches",
      body: JSON.stringify({
        key: randomUUID(),
        ...fields,
        parent: typeof parent === "object" ? parent.id : parent,
        keep_ms: keep === undefined ? undefined : milliseconds(keep, "keep"),
      }),
      repeatable: true,
    });
    // A random key is known to the server only if this very opening was sent twice.
    const existing = answer.status === 200 && options.key !== undefined;
    return new Batch(this, (answer.body as BatchInfo).id, existing);
  }

  /** A batch by its number. Nothing is sent. */
  batch(id: number): Batch {
    return new Batch(this, id, true);
  }

  /** Lists batches, the newest first, page by page. */
  batches(options: { signal?: AbortSignal } = {}): AsyncGenerator<BatchInfo, void, undefined> {
    return this.#list("batches", new URLSearchParams({ limit: String(SHORT_PAGE) }), options.signal);
  }

  /** A schedule by its name, to put, look at, pause, run or remove. Nothing is sent. */
  schedule(name: string): Schedule {
    return new Schedule(this, name);
  }

  /** Lists schedules by name, page by page. */
  schedules(options: { signal?: AbortSignal } = {}): AsyncGenerator<ScheduleInfo, void, undefined> {
    return this.#list("schedules", new URLSearchParams({ limit: String(SHORT_PAGE) }), options.signal);
  }

  async *#list<Item>(
    name: string,
    query: URLSearchParams,
    signal: AbortSignal | undefined,
  ): AsyncGenerator<Item, void, undefined> {
    for (;;) {
      const path = `${name}?${query}`;
      const answer = await this.#transport.call({ method: "GET", path, repeatable: true, signal });
      const page = answer.body as Record<string, Item[]> & { next_cursor?: string };
      yield* page[name] ?? [];
      if (page.next_cursor === undefined) return;
      query.set("cursor", page.next_cursor);
    }
  }

  /** A queue as it is now. Throws a `NotFoundError` if there is none. */
  async queue(name: string): Promise<QueueInfo> {
    return (await this.request("GET", queuePath(name))) as QueueInfo;
  }

  /** Stops leasing a queue's jobs; those that workers have go on. */
  async pause(queue: string): Promise<void> {
    await this.#hold(queue, "pause");
  }

  /** Leases a queue's jobs again. */
  async resume(queue: string): Promise<void> {
    await this.#hold(queue, "resume");
  }

  /** Twice is as once. */
  async #hold(queue: string, verb: "pause" | "resume"): Promise<void> {
    await this.#transport.call({ method: "POST", path: `${queuePath(queue)}/${verb}`, repeatable: true });
  }

  /**
   * Follows what happens on the server, over restarts of the server, until the loop is left or the
   * signal is aborted. Needs the role `read` for all queues.
   */
  events(options: EventOptions = {}): AsyncGenerator<SpindleEvent, void, undefined> {
    return events(this.#transport, options);
  }

  /**
   * Any other request of the API: the path behind `/api/v1/`, with its query, and a JSON body. GET, PUT
   * and DELETE are repeated when the server goes away, POST and PATCH only if they were not received.
   */
  async request(
    method: Call["method"],
    path: string,
    body?: unknown,
    options: { headers?: Record<string, string>; signal?: AbortSignal } = {},
  ): Promise<unknown> {
    const { headers = {}, signal } = options;
    const lowerCase = Object.entries(headers).map(([name, value]) => [name.toLowerCase(), value]);
    const answer = await this.#transport.call({
      method,
      path,
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      headers: Object.fromEntries(lowerCase) as Record<string, string>,
      signal,
      repeatable: method !== "POST" && method !== "PATCH",
    });
    return answer.body;
  }

  /** Closes the client's connections. Idle ones do not keep a program from ending. */
  close(): void {
    this.#transport.close();
  }

  /** @internal */
  get transport(): Transport {
    return this.#transport;
  }
}

/** Some of many jobs were not accepted. */
export class SubmitManyError extends SpindleError {
  /** What became of each payload, in their order: its job, or why it was refused. */
  readonly outcomes: readonly (Job | SpindleError)[];

  constructor(outcomes: readonly (Job | SpindleError)[]) {
    const errors = outcomes.filter((outcome): outcome is SpindleError => outcome instanceof SpindleError);
    const first = errors[0] as SpindleError;
    const many = `${errors.length} of ${outcomes.length} jobs were not accepted`;
    super("submit_many", `${many}, the first because ${first.message}`, { cause: first });
    this.outcomes = outcomes;
  }

  /** Whether some of them may have been received all the same. */
  get maybeReceived(): boolean {
    return this.outcomes.some((outcome) => outcome instanceof ConnectionError && outcome.maybeReceived);
  }
}

let shared: Spindle | undefined;

/** The client that the environment describes: `SPINDLE_URL`, `SPINDLE_TOKEN_FILE` and so on. */
export function defaultClient(): Spindle {
  return (shared ??= new Spindle());
}

/** As many at once as a request may bring. One that is larger alone goes alone, and is refused. */
function* batchesOf(jobs: readonly Message[]): Generator<Message[], void, undefined> {
  let batch: Message[] = [];
  let size = 0;
  for (const job of jobs) {
    const bytes = Buffer.byteLength(job.text);
    if (batch.length === BATCH_JOBS_MAX || (batch.length > 0 && size + bytes > BATCH_BYTES)) {
      yield batch;
      [batch, size] = [[], 0];
    }
    batch.push(job);
    size += bytes;
  }
  if (batch.length > 0) yield batch;
}

/** The text of one of many, which has its key in it. */
function keyedText({ text, idempotencyKey: key }: Message): string {
  return key === undefined ? text : `${text.slice(0, -1)},"idempotency_key":${JSON.stringify(key)}}`;
}

function queuePath(name: string): string {
  return `queues/${encodeURIComponent(name)}`;
}
