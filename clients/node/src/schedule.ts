import type { Spindle } from "./client.js";
import { milliseconds, type Duration } from "./duration.js";
import { NotFoundError } from "./errors.js";
import type { Job } from "./job.js";
import type { Message } from "./message.js";
import type { Transport } from "./transport.js";
import type { MissedPolicy, OverlapPolicy, ScheduleInfo } from "./wire.js";

/** When and how a schedule fires. */
export interface ScheduleOptions {
  /** The time zone that the expression speaks of, such as `Europe/Berlin`. Default `UTC`. */
  zone?: string;
  /** What happens while its last job is unfinished. Default `skip`. */
  overlap?: OverlapPolicy;
  /** What happens to missed times. Default `skip`. */
  missed?: MissedPolicy;
  /** With `all`: how many missed times in a row are made up, 1 to 1,000. Default 100. */
  missedMax?: number;
  /** It fires up to this much later than its times, up to an hour. */
  jitter?: Duration;
  /** No time before this. */
  startAt?: Date;
  /** No time after this. */
  endAt?: Date;
  /** It does not fire until it is resumed. */
  paused?: boolean;
}

/** A job that comes by the clock. */
export class Schedule {
  readonly #client: Spindle;
  readonly #transport: Transport;

  /** @internal */
  constructor(
    client: Spindle,
    readonly name: string,
  ) {
    this.#client = client;
    this.#transport = client.transport;
  }

  /**
   * Makes the schedule, or changes it: a job like the message comes at each time of the expression, such as
   * `0 9 * * MON-FRI`, `@daily` or `every 90s`. The message can have no `delay`, `runAt`, `parked`, `unique`,
   * `after` and `batch`.
   */
  async put(expression: string, message: Message<any>, options: ScheduleOptions = {}): Promise<ScheduleInfo> {
    return this.#put("", expression, message, options);
  }

  /** What `put` would make, with its next times. Nothing changes. */
  async preview(expression: string, message: Message<any>, options: ScheduleOptions = {}): Promise<ScheduleInfo> {
    return this.#put("?dry_run=true", expression, message, options);
  }

  /** The schedule as it is now. */
  async info(): Promise<ScheduleInfo> {
    return this.#call("GET", "");
  }

  /** Passes over its times until it is resumed. */
  async pause(): Promise<ScheduleInfo> {
    return this.#call("POST", "/pause");
  }

  /** Lets it fire again, at its first time from now on. */
  async resume(): Promise<ScheduleInfo> {
    return this.#call("POST", "/resume");
  }

  /** Submits its job now, beside its times, and also while it is paused. */
  async run(): Promise<Job> {
    // It is not repeated: that would be two jobs.
    const { job } = await this.#call<{ job: number }>("POST", "/run", { repeatable: false });
    return this.#client.job(job);
  }

  /** Removes it; its jobs stay. False if there is no such schedule. */
  async remove(): Promise<boolean> {
    try {
      await this.#call("DELETE", "");
      return true;
    } catch (error) {
      if (error instanceof NotFoundError && error.code === "schedule_not_found") return error.repeated;
      throw error;
    }
  }

  #put(query: string, expression: string, message: Message<any>, options: ScheduleOptions): Promise<ScheduleInfo> {
    const { jitter, missedMax, startAt, endAt, zone, overlap, missed, paused } = options;
    const fields = JSON.stringify({
      expression,
      zone,
      overlap,
      missed,
      missed_max: missedMax,
      jitter_ms: jitter === undefined ? undefined : milliseconds(jitter, "jitter"),
      start_at: startAt?.toISOString(),
      end_at: endAt?.toISOString(),
      paused,
    });
    return this.#call("PUT", query, { body: `${fields.slice(0, -1)},"job":${message.text}}` });
  }

  async #call<Body = ScheduleInfo>(
    method: "GET" | "POST" | "PUT" | "DELETE",
    action: string,
    how: { body?: string; repeatable?: boolean } = {},
  ): Promise<Body> {
    const path = `schedules/${encodeURIComponent(this.name)}${action}`;
    return (await this.#transport.call({ method, path, repeatable: true, ...how })).body as Body;
  }
}
