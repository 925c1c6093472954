type Unit = "ms" | "s" | "m" | "h" | "d";

/** A length of time: a number of milliseconds, or a text such as `"90s"`, `"1.5h"` or `"7d"`. */
export type Duration = number | `${number}${Unit}`;

const UNIT_MS: Record<Unit, number> = { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 };
const FORM = /^(\d+(?:\.\d+)?)(ms|s|m|h|d)$/;
/** Node fires a timer that is longer than this at once. */
const TIMER_MS_MAX = 2 ** 31 - 1;

/** The milliseconds of a duration, rounded. Throws a `TypeError` that names `what` it is for. */
export function milliseconds(duration: Duration, what: string): number {
  if (typeof duration === "number" && duration >= 0) return Math.round(duration);
  const parts = typeof duration === "string" ? FORM.exec(duration) : null;
  if (parts) return Math.round(Number(parts[1]) * UNIT_MS[parts[2] as Unit]);
  throw new TypeError(
    `${what}: ${String(duration)} is no duration: give milliseconds, or a text such as "90s" or "2h"`,
  );
}

/** Milliseconds that a timer of Node can wait. */
export function timerMilliseconds(ms: number): number {
  return Math.min(Math.max(ms, 0), TIMER_MS_MAX);
}

/** Waits, or rejects with the signal's reason once it is aborted. */
export function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) return reject(signal.reason);
    const abort = () => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", abort);
      resolve();
    }, timerMilliseconds(ms));
    signal?.addEventListener("abort", abort, { once: true });
  });
}

/** The wait before try number `n` (from 1) is repeated: it doubles, and a random half is taken off. */
export function retryDelayMs(n: number, capMs: number): number {
  const full = Math.min(capMs, 50 * 2 ** Math.min(n, 20));
  return full * (0.5 + Math.random() / 2);
}
