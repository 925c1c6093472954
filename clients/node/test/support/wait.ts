// Waiting for what must happen.
import { setTimeout as pause } from "node:timers/promises";

const DEADLINE_MS = 30_000;

/** Asks until the answer is there; fails after half a minute. */
export async function eventually<T>(what: string, ask: () => T | undefined | false | Promise<T | undefined | false>): Promise<T> {
  const until = performance.now() + DEADLINE_MS;
  for (;;) {
    const answer = await ask();
    if (answer !== undefined && answer !== false) return answer;
    if (performance.now() > until) throw new Error(`it did not happen: ${what}`);
    await pause(10);
  }
}

/** A promise and what fulfils it. */
export class Deferred<T = void> {
  resolve!: (value: T) => void;
  readonly promise = new Promise<T>((resolve) => (this.resolve = resolve));
}

/** Rejects with the signal's reason when that is aborted. */
export function aborted(signal: AbortSignal): Promise<never> {
  return new Promise((_, reject) => {
    if (signal.aborted) reject(signal.reason);
    signal.addEventListener("abort", () => reject(signal.reason));
  });
}
