import type { IncomingMessage } from "node:http";

import { retryDelayMs, sleep } from "./duration.js";
import { ConnectionError } from "./errors.js";
import { isPassing, type Transport } from "./transport.js";
import type { SpindleEvent } from "./wire.js";

/** Where a stream of events begins and ends. */
export interface EventOptions {
  /** Begins after the event with this id, or with the `oldest` one kept. Default: with the next one. */
  after?: string;
  /** Whether to wait for more at the end. Default true. */
  follow?: boolean;
  /** Ends the stream; the loop is left with its reason. */
  signal?: AbortSignal;
}

/** The server sends a comment every 15 s when nothing happens. */
const IDLE_MS = 60_000;
const RETRY_CAP_MS = 5_000;

/** One block of a stream of server-sent events. */
interface Block {
  id?: string;
  data?: string;
}

/** The stream of events, resumed behind the last one when the server goes away. */
export async function* events(
  transport: Transport,
  options: EventOptions,
): AsyncGenerator<SpindleEvent, void, undefined> {
  const { follow = true, signal } = options;
  const failAfter = performance.now() + transport.retryForMs;
  let after = options.after;
  let wasReached = false;
  for (let tries = 1; ; tries++) {
    try {
      for await (const { id, data } of await blocks(transport, after, follow, signal)) {
        [wasReached, tries] = [true, 0];
        after = id ?? after;
        if (data !== undefined) yield eventOf(id, data);
      }
      if (!follow) return;
    } catch (error) {
      if (signal?.aborted) throw signal.reason;
      // Once it was there, a server comes back. One that never was may be the wrong one.
      if (!isPassing(error) || (!wasReached && performance.now() > failAfter)) throw error;
    }
    await sleep(retryDelayMs(tries, RETRY_CAP_MS), signal);
  }
}

async function blocks(
  transport: Transport,
  after: string | undefined,
  follow: boolean,
  signal: AbortSignal | undefined,
): Promise<AsyncGenerator<Block, void, undefined>> {
  const query = new URLSearchParams();
  if (after !== undefined) query.set("after", after);
  if (!follow) query.set("follow", "false");
  const call = {
    method: "GET" as const,
    path: `events?${query}`,
    headers: { accept: "text/event-stream" },
    waitMs: 0,
    repeatable: true,
    signal,
  };
  return parsed(await transport.stream(call, IDLE_MS));
}

/** Reads blocks as they come. The connection ends with the loop. */
async function* parsed(response: IncomingMessage): AsyncGenerator<Block, void, undefined> {
  response.setEncoding("utf8");
  let rest = "";
  let block: Block = {};
  try {
    for await (const chunk of response as AsyncIterable<string>) {
      const lines = (rest + chunk).split("\n");
      rest = lines.pop() ?? "";
      for (const line of lines) {
        if (line === "") {
          if (block.id !== undefined || block.data !== undefined) yield block;
          block = {};
        } else if (line.startsWith("id: ")) {
          block.id = line.slice(4);
        } else if (line.startsWith("data: ")) {
          block.data = line.slice(6);
        }
      }
    }
  } catch (error) {
    throw new ConnectionError(`the stream of events broke off: ${String(error)}`, true, error);
  } finally {
    response.destroy();
  }
}

function eventOf(id: string | undefined, data: string): SpindleEvent {
  const event = JSON.parse(data) as SpindleEvent;
  return id === undefined ? event : ({ ...event, id } as SpindleEvent);
}
