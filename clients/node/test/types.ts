// Compiled, never run: what the types must allow, and with `@ts-expect-error` what they must not.
import {
  type BeforeInfo,
  defineTask,
  type Duration,
  type Job,
  type JobInfo,
  type JobStatus,
  message,
  type QueueInfo,
  Spindle,
  type SpindleEvent,
  type Task,
  Worker,
} from "spindle-client";

type Equal<A, B> = (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false;
function same<A, B>(..._: Equal<A, B> extends true ? [] : ["these types differ", A, B]): void {}

const client = new Spindle();

export async function payloadsAndResults(): Promise<void> {
  const mail = defineTask("mail", async (mail: { to: string }, job) => {
    same<typeof job.signal, AbortSignal>();
    return { sentTo: mail.to };
  });
  same<typeof mail, Task<{ to: string }, { sentTo: string }>>();
  const job = await mail.submit({ to: "a@example.org" });
  same<typeof job, Job<{ sentTo: string }>>();
  const { sentTo } = await job.result();
  same<typeof sentTo, string>();
  const [first] = await client.submitMany(mail, [{ to: "a" }]);
  same<typeof first, Job<{ sentTo: string }> | undefined>();

  // @ts-expect-error the payload is missing
  await mail.submit();
  // @ts-expect-error a field is missing
  await mail.submit({});
  // @ts-expect-error a field is of another type
  await client.submit(mail, { to: 1 });
  // @ts-expect-error one of many is wrong
  await client.submitMany(mail, [{ to: "a" }, { from: "b" }]);
  // @ts-expect-error there is no such option
  await mail.submit({ to: "a" }, { retry: 3 });
  // @ts-expect-error the result has no such field
  (await job.result()).sentFrom;
}

export async function withoutPayload(): Promise<void> {
  const tick = defineTask("tick", () => undefined);
  await tick.submit();
  await client.submit(tick);
  await tick.submit(undefined, { delay: "10s" });
  // @ts-expect-error it takes no payload
  await tick.submit("now");
}

export function inferredFromParse(): void {
  const parse = (value: unknown): { n: number } => ({ n: Number(value) });
  const task = defineTask("parsed", (value) => value.n, { parse, unique: ({ n }) => String(n) });
  same<typeof task, Task<{ n: number }, number>>();
}

export function durations(): void {
  const fine: Duration[] = [5000, "90s", "1.5h", "250ms"];
  // @ts-expect-error no unit
  const noUnit: Duration = "90";
  // @ts-expect-error no such unit
  const wrongUnit: Duration = "90sec";
  void [fine, noUnit, wrongUnit];
}

export function workers(): void {
  const task = defineTask("q", (n: number) => n);
  const worker = new Worker([task], { concurrency: 4, lease: "30s" });
  worker.on("failed", (job, error) => {
    same<typeof job.id, number>();
    same<typeof error, unknown>();
  });
  // @ts-expect-error there is no such event
  worker.on("finished", () => undefined);
  // @ts-expect-error a name is no task
  new Worker(["q"]);
}

export async function events(): Promise<void> {
  for await (const event of client.events({ after: "oldest" })) {
    same<typeof event, SpindleEvent>();
    if (event.type === "leased") same<typeof event.worker, string>();
    if (event.type === "gone") same<typeof event.jobs, number[]>();
    if (event.type === "unblocked") same<typeof event.ended, number[]>();
    if (event.type === "deleted") same<typeof event.deletion.until, string>();
    if (event.type === "undeleted") same<typeof event.job, number>();
    // @ts-expect-error only some events are about one job
    event.job;
  }
}

export async function flows(info: JobInfo, queue: QueueInfo): Promise<void> {
  const resize = defineTask("resize", (name: string) => name.length);
  const album = defineTask("album", async (_: undefined, job) => {
    same<typeof job.after, readonly BeforeInfo[]>();
    const sizes = await job.resultsBefore(resize);
    same<typeof sizes, number[]>();
    return sizes.length;
  });
  const [one, last] = await client.submitAll([
    message(resize, "a.jpg", { ref: "one" }),
    message(album, undefined, { after: "one", onDead: "run" }),
  ]);
  same<typeof one, Job<number>>();
  same<typeof last, Job<number>>();
  const batch = await client.openBatch({ queue: "photos" });
  const added = await batch.add(resize, "b.jpg");
  same<typeof added, Job<number>>();
  // @ts-expect-error the payload is of another type
  await batch.add(resize, 7);
  // @ts-expect-error there is no such word
  await album.submit(undefined, { after: batch, onDead: "die" });
  // @ts-expect-error a task does not wait: its jobs do
  defineTask("q", () => undefined, { after: batch });

  const blocked: JobStatus = "blocked";
  client.jobs({ status: [blocked, "ready"], batch });
  same<typeof queue.jobs.blocked, number>();
  same<typeof info.after, BeforeInfo[] | undefined>();
  same<typeof info.on_dead, "cancel" | "run" | "wait" | undefined>();
  same<typeof info.batch, number | undefined>();
  same<typeof info.fair_key, string | undefined>();
  if (info.progress) same<typeof info.progress.numerator, string>();
}

export async function schedules(): Promise<void> {
  const report = defineTask("reports", (_: { kind: string }) => undefined);
  await client.schedule("report").put("@daily", message(report, { kind: "daily" }), { overlap: "queue_one" });
  // @ts-expect-error there is no such word
  await client.schedule("report").put("@daily", message(report, { kind: "daily" }), { overlap: "wait" });
}
