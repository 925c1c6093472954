// What the API sends, under the API's own names: docs/api.md describes every field. Fields that a
// job does not have are left out.

/** What a job is doing. */
export type JobStatus = "scheduled" | "ready" | "leased" | "parked" | "blocked" | "done" | "dead";

/** What becomes of a job when one that it waits for dies. */
export type OnDead = "cancel" | "run" | "wait";

/** What bytes are. */
export type ContentType = "json" | "bytes" | "msgpack";

/** Waits between failures. */
export interface BackoffInfo {
  base_ms: number;
  factor: number;
  cap_ms: number;
  jitter: number;
}

/** How the last attempt ended that had an outcome. */
export interface ResultInfo {
  success: boolean;
  type: ContentType;
  bytes: number;
  value?: unknown;
  base64?: string;
  as_json?: unknown;
  message?: string;
  error?: string;
  code?: string;
}

/** A past attempt. */
export interface AttemptInfo {
  attempt: number;
  started_at: string;
  ended_at: string;
  outcome: string;
  door: string;
  worker?: string;
  message?: string;
  error?: string;
  code?: string;
}

/** A job or a batch that a job waits for or waited for. */
export interface BeforeInfo {
  id: number;
  is_batch?: boolean;
  /** `gone` if it is not kept any more. */
  status: JobStatus | BatchStatus | "gone";
}

/** How far a job is, as its worker says. */
export interface ProgressInfo {
  numerator: string;
  denominator: string;
  remaining_s?: number;
}

/** A deletion that can be undone. */
export interface DeletionInfo {
  request: number;
  until: string;
}

/** A job as the server describes it. */
export interface JobInfo {
  id: number;
  uuid: string;
  handle: string;
  queue?: string;
  queue_base64?: string;
  status: JobStatus;
  origin: string;
  priority: number;
  revision: number;
  created_at: string;
  run_at?: string;
  started_at?: string;
  finished_at?: string;
  expires_at?: string;
  kept_until?: string;
  ttr_ms?: number;
  ttl_ms?: number;
  attempts: number;
  attempts_max: number;
  fails: number;
  fails_max: number;
  backoff: BackoffInfo;
  limits_from: Record<"attempts_max" | "fails_max" | "backoff", "job" | "queue" | "default">;
  keep_ms?: number;
  deletion?: DeletionInfo;
  tags?: string[];
  batch?: number;
  after?: BeforeInfo[];
  on_dead?: OnDead;
  fair_key?: string;
  unique_key?: string;
  traceparent?: string;
  lease?: { attempt: number; door: string; worker?: string; started_at: string; deadline_at?: string };
  progress?: ProgressInfo;
  fingerprint?: string;
  payload_type: ContentType;
  payload_bytes: number;
  payload?: unknown;
  payload_base64?: string;
  payload_damaged?: boolean;
  result?: ResultInfo;
  history?: AttemptInfo[];
}

/** A job that another one waited for, as the worker of that one sees it. */
export type JobBefore = Pick<JobInfo, "id" | "status" | "queue" | "queue_base64" | "result">;

/** Where a batch stands: `ended` if all of its jobs have ended, and not all are done. */
export type BatchStatus = "open" | "sealed" | "done" | "ended";

/** A batch as the server describes it. */
export interface BatchInfo {
  id: number;
  status: BatchStatus;
  queue?: string;
  queue_base64?: string;
  name?: string;
  key?: string;
  parent?: number;
  /** How its jobs stand. A batch in it counts as one job. */
  jobs: Record<"total" | "unfinished" | "done" | "dead" | "gone", number>;
  cancelled: boolean;
  opened_at: string;
  sealed_at?: string;
  ended_at?: string;
  kept_until?: string;
}

/** What happens when a time comes while a schedule's last job is unfinished. */
export type OverlapPolicy = "allow" | "skip" | "queue_one" | "replace";

/** What happens to times that a schedule missed. */
export type MissedPolicy = "skip" | "once" | "all";

/** A schedule as the server describes it. */
export interface ScheduleInfo {
  name: string;
  revision: number;
  expression: string;
  zone: string;
  /** What it submits, under the names of a submit. */
  job: { queue?: string; queue_base64?: string; payload?: unknown; [field: string]: unknown };
  overlap: OverlapPolicy;
  missed: MissedPolicy;
  missed_max?: number;
  jitter_ms: number;
  start_at?: string;
  end_at?: string;
  paused: boolean;
  /** The times that it fires for next, without jitter. None while it is paused. */
  next_times: string[];
  fires_at?: string;
  last?: {
    due_at: string;
    at: string;
    outcome: "submitted" | "missed" | "overlapped" | "pending" | "refused";
    reason?: string;
  };
  last_job?: number;
  is_running: boolean;
  pending_due_at?: string;
  submitted: number;
}

/** A queue as the server describes it. */
export interface QueueInfo {
  name?: string;
  name_base64?: string;
  paused: boolean;
  jobs: Record<JobStatus, number>;
  payload_bytes: number;
  waiting_leases: number;
  [field: string]: unknown;
}

/** What the server says of a submitted job. */
export interface Submitted {
  id: number;
  uuid: string;
  handle: string;
  existing: boolean;
}

/** A job for a worker, with the token that ends its lease. */
export interface Leased {
  id: number;
  uuid: string;
  handle: string;
  queue?: string;
  queue_base64?: string;
  attempt: number;
  lease_token: string;
  lease_ms?: number;
  deadline_at?: string;
  payload_type: ContentType;
  payload?: unknown;
  payload_base64?: string;
  after?: BeforeInfo[];
  traceparent?: string;
}

interface About {
  /** Its place in the stream, for `after`. Only a `gap` has none. */
  id?: string;
  /** When it happened. */
  at: string;
}

interface AboutJob extends About {
  job: number;
}

interface JobState extends AboutJob {
  status: JobStatus;
  origin: string;
  priority: number;
  queue?: string;
  queue_base64?: string;
}

interface Report {
  code?: string;
  message?: string;
  error?: string;
}

/** One thing that happened on the server. */
export type SpindleEvent =
  | (JobState & { type: "submitted" | "retried" | "persisted" })
  | (JobState & Report & { type: "done" | "dead" })
  | (AboutJob & {
      type: "leased";
      attempt: number;
      door: string;
      worker: string;
      deadline_at: string | null;
    })
  | (AboutJob & { type: "extended"; deadline_at: string | null })
  | (AboutJob & Report & {
      type: "requeued";
      cause: string;
      attempts: number;
      fails: number;
      run_at: string | null;
    })
  | (AboutJob & { type: "ready" | "undeleted" | "state_set" | "relabelled" })
  | (AboutJob & { type: "unblocked"; ended: number[]; status: JobStatus })
  | (AboutJob & { type: "deleted"; deletion: DeletionInfo })
  | (AboutJob & {
      type: "edited";
      priority: number;
      status: JobStatus;
      run_at: string | null;
      queue?: string;
      queue_base64?: string;
    })
  | (AboutJob & { type: "result_read"; kept_until: string })
  | (About & { type: "gone"; jobs: number[]; cause: string })
  | (About & { type: "queue_set"; paused: boolean; queue?: string; queue_base64?: string })
  | (About & { type: "constraint_set"; constraint: number; name: string })
  | (About & { type: "constraint_removed"; constraint: number })
  | (About & { type: "started"; epoch: number })
  | { type: "gap"; id?: undefined; reason: "trimmed" | "unknown_id"; first_position?: number };
