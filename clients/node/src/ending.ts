import { milliseconds, type Duration } from "./duration.js";
import type { Transport } from "./transport.js";

/** How long to wait for something. */
export interface WaitOptions {
  /** Default: as long as it takes. */
  timeout?: Duration;
  /** Ends the wait; the promise is rejected with its reason. */
  signal?: AbortSignal;
}

/** The longest wait of one request. */
const WAIT_S_MAX = 300;

/** Waits for an end: what is at the path of the wait then, or when the time is over. */
export async function endOf<Body>(
  transport: Transport,
  path: string,
  hasEnded: (body: Body) => boolean,
  options: WaitOptions,
): Promise<Body> {
  const timeoutMs = options.timeout === undefined ? Infinity : milliseconds(options.timeout, "timeout");
  const until = performance.now() + timeoutMs;
  for (;;) {
    const leftS = Math.max(0, Math.ceil((until - performance.now()) / 1000));
    const waitS = Math.min(WAIT_S_MAX, leftS);
    const answer = await transport.call({
      method: "GET",
      path: `${path}?wait_s=${waitS}`,
      waitMs: waitS * 1000,
      repeatable: true,
      signal: options.signal,
    });
    const body = answer.body as Body;
    if (hasEnded(body) || waitS === leftS) return body;
  }
}
