import * as http from "node:http";
import * as https from "node:https";

import { retryDelayMs, sleep, timerMilliseconds } from "./duration.js";
import { ApiError, apiError, ConnectionError, type Problem, UnavailableError } from "./errors.js";
import { connectionError, isUntrusted, type Outgoing, Pool } from "./pool.js";
import type { Settings } from "./settings.js";

/** One request of the API. */
export interface Call {
  method: "GET" | "POST" | "PUT" | "PATCH" | "DELETE";
  /** Behind `/api/v1/`, with the query. */
  path: string;
  /** JSON text. */
  body?: string;
  /** Names in lower case. */
  headers?: Record<string, string>;
  /** How long the server may wait before it answers. The request gets a connection of its own kind. */
  waitMs?: number;
  /** Whether the request may be sent again when the server may have received it. */
  repeatable: boolean;
  /** How long it is repeated, if not as long as the client's `retryFor`; 0 sends it once. */
  retryForMs?: number;
  signal?: AbortSignal | undefined;
  /** How the signal ends a request that is under way: see `Limits`. Default `hang up`. */
  onAbort?: "hang up" | "half-close";
}

export interface Answer {
  status: number;
  /** What the JSON says; undefined if there is none. */
  body: unknown;
  /** The request may have been received more than once. */
  repeated: boolean;
}

/** The longest wait between two tries. */
const RETRY_CAP_MS = 2_000;
/** The server is asked before it is sent a larger body: it closes the connection of one that it refuses. */
const ASK_BYTES = 1024 * 1024;
/** What may stand in a request's line, and in its fields: nothing a program says becomes a line of its own. */
const PATH = /^[\x21-\x7e]+$/;
const FIELD_NAME = /^[\w!#$%&'*+.^`|~-]+$/;
const FIELD_VALUE = /^[\x20-\x7e]*$/;

/** Sends requests over connections that are kept, and repeats them where that is safe. */
export class Transport {
  readonly #settings: Settings;
  readonly #prefix: string;
  readonly #calls: Pool;
  /** Waits are many and long: they must not keep calls from a connection. */
  readonly #waits: Pool;
  readonly #streams = new Set<http.ClientRequest>();

  constructor(settings: Settings) {
    this.#settings = settings;
    const { base } = settings;
    this.#prefix = `${base.pathname.replace(/\/$/, "")}/api/v1/`;
    const origin = {
      name: base.origin,
      host: hostOf(base),
      port: Number(base.port) || (isHttps(base) ? 443 : 80),
      tls: isHttps(base) ? settings.tls : undefined,
    };
    this.#calls = new Pool(origin, settings.maxSockets);
    this.#waits = new Pool(origin, Infinity);
  }

  /** How long requests are repeated that do not say it. */
  get retryForMs(): number {
    return this.#settings.retryForMs;
  }

  /** Closes the connections that are open. */
  close(): void {
    this.#calls.close();
    this.#waits.close();
    for (const request of this.#streams) request.destroy();
  }

  /** Sends a request until it is answered, refused for good, or the time for it is over. */
  async call(call: Call): Promise<Answer> {
    const until = performance.now() + (call.retryForMs ?? this.#settings.retryForMs);
    let repeated = false;
    for (let tries = 1; ; tries++) {
      try {
        return { ...(await this.#answered(call)), repeated };
      } catch (error) {
        if (call.signal?.aborted) throw call.signal.reason;
        if (error instanceof ApiError) error.repeated = repeated;
        if (!mayRepeat(error, call)) throw error;
        const asked = error instanceof ApiError ? (error.retryAfterMs ?? 0) : 0;
        const delay = Math.max(retryDelayMs(tries, RETRY_CAP_MS), asked);
        if (performance.now() + delay > until) throw error;
        repeated ||= maybeReceived(error);
        await sleep(delay, call.signal);
      }
    }
  }

  /**
   * An answer that comes bit by bit; the caller reads it, or destroys it. It is not repeated, and it
   * fails when nothing comes for `idleMs`.
   */
  async stream(call: Call, idleMs: number): Promise<http.IncomingMessage> {
    const response = await this.#withToken(
      (token) => this.#open(call, token),
      (response) => response.statusCode ?? 0,
      (refused) => refused.resume(),
    );
    const status = response.statusCode ?? 0;
    if (status !== 200) {
      const field = (name: string) => response.headers[name]?.toString();
      throw refusal(status, response.statusMessage ?? "", field, await textOf(response));
    }
    response.setTimeout(idleMs, () => {
      response.destroy(new Error(`nothing came for ${idleMs} ms`));
    });
    return response;
  }

  async #answered(call: Call): Promise<Omit<Answer, "repeated">> {
    const { signal, onAbort = "hang up", waitMs } = call;
    const limits = { limitMs: this.#settings.requestTimeoutMs + (waitMs ?? 0), signal, onAbort };
    const pool = waitMs === undefined ? this.#calls : this.#waits;
    const response = await this.#withToken(
      (token) => pool.send(this.#outgoing(call, token), limits),
      (response) => response.status,
    );
    const { status, reason } = response;
    const text = response.body.toString();
    if (status < 200 || status > 299) throw refusal(status, reason, (name) => response.header(name), text);
    return { status, body: text === "" ? undefined : parsed(text) };
  }

  /** A token that the server refuses may have been replaced in its file. */
  async #withToken<Response>(
    send: (token: string | undefined) => Promise<Response>,
    statusOf: (response: Response) => number,
    drop?: (refused: Response) => void,
  ): Promise<Response> {
    const { token } = this.#settings;
    const used = token.current;
    const response = await send(used);
    if (statusOf(response) !== 401 || !token.hasAnother(used)) return response;
    drop?.(response);
    return send(token.current);
  }

  #outgoing(call: Call, token: string | undefined): Outgoing {
    const { method, path, body = "" } = call;
    const fields: Record<string, string | number> = { host: this.#settings.base.host, accept: "application/json" };
    const length = Buffer.byteLength(body);
    if (length > 0) fields["content-type"] = "application/json";
    Object.assign(fields, call.headers);
    if (length > 0 || method !== "GET") fields["content-length"] = length;
    if (length > ASK_BYTES) fields["expect"] = "100-continue";
    if (token !== undefined) fields["authorization"] = `Bearer ${token}`;
    if (!PATH.test(path)) throw new TypeError(`${JSON.stringify(path)} is no path of the API`);
    let head = `${method} ${this.#prefix}${path} HTTP/1.1\r\n`;
    for (const name in fields) {
      const value = `${fields[name]}`;
      if (!FIELD_NAME.test(name) || !FIELD_VALUE.test(value)) {
        throw new TypeError(`the field ${JSON.stringify(name)} has characters that HTTP does not allow there`);
      }
      head += `${name}: ${value}\r\n`;
    }
    return { head: `${head}\r\n`, body, isAsked: length > ASK_BYTES };
  }

  /** Waits for the head of an answer that comes bit by bit. */
  #open(call: Call, token: string | undefined): Promise<http.IncomingMessage> {
    const { base, requestTimeoutMs, tls } = this.#settings;
    const { signal } = call;
    const headers = { ...call.headers, ...(token !== undefined && { authorization: `Bearer ${token}` }) };
    const target = { hostname: hostOf(base), port: base.port, path: this.#prefix + call.path };
    const how = { method: call.method, ...target, headers, agent: false as const };
    return new Promise((resolve, reject) => {
      const request = isHttps(base) ? https.request({ ...how, ...tls }) : http.request(how);
      this.#streams.add(request);
      const limit = setTimeout(() => {
        request.destroy(new Error(`no answer within ${requestTimeoutMs} ms`));
      }, timerMilliseconds(requestTimeoutMs));
      const abort = () => request.destroy();
      request.on("error", (error) => reject(signal?.aborted ? signal.reason : connectionError(base.origin, error, true)));
      request.once("response", (response) => {
        clearTimeout(limit);
        resolve(response);
      });
      request.once("close", () => {
        clearTimeout(limit);
        signal?.removeEventListener("abort", abort);
        this.#streams.delete(request);
      });
      if (signal?.aborted) abort();
      else signal?.addEventListener("abort", abort, { once: true });
      request.end();
    });
  }
}

function isHttps(base: URL): boolean {
  return base.protocol === "https:";
}

/** As sockets name it: an IPv6 address has no brackets. */
function hostOf(base: URL): string {
  return base.hostname.replace(/^\[(.*)\]$/, "$1");
}

/** The whole of an answer. One that breaks off is an error. */
function textOf(response: http.IncomingMessage): Promise<string> {
  return new Promise((resolve, reject) => {
    const chunks: Buffer[] = [];
    response.on("data", (chunk: Buffer) => chunks.push(chunk));
    response.once("end", () => resolve(Buffer.concat(chunks).toString()));
    response.once("error", (error) => {
      reject(new ConnectionError(`the answer broke off: ${error.message}`, true, error));
    });
  });
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new ConnectionError("the answer is no JSON: is this a Spindle server?", true, error);
  }
}

/** A field of an answer's head, by its name in lower case. */
type Field = (name: string) => string | undefined;

function refusal(status: number, reason: string, field: Field, text: string): ApiError {
  const retryAfterS = Number(field("retry-after"));
  const retryAfterMs = Number.isFinite(retryAfterS) ? retryAfterS * 1000 : undefined;
  return apiError(status, problemOf(status, reason, field, text), retryAfterMs);
}

/** A proxy, or a server without a place for a client, refuses in its own words. */
function problemOf(status: number, reason: string, field: Field, text: string): Problem {
  if (/json/.test(field("content-type") ?? "")) {
    try {
      return JSON.parse(text) as Problem;
    } catch {
      // Then its text is all there is.
    }
  }
  const line = `${status} ${reason}`.trim();
  return { detail: [line, text.trim().slice(0, 200)].filter(Boolean).join(": ") };
}

/** Whether the server may have done what it was asked for. */
export function maybeReceived(error: unknown): boolean {
  if (error instanceof ConnectionError) return error.maybeReceived;
  // The server's own refusals have changed nothing; those of a proxy have no code of ours.
  return error instanceof ApiError && error.problem.code === undefined;
}

function mayRepeat(error: unknown, call: Call): boolean {
  return isPassing(error) && (call.repeatable || !maybeReceived(error));
}

/** Whether the same request may succeed later, without anybody having changed anything. */
export function isPassing(error: unknown): boolean {
  if (error instanceof UnavailableError) return true;
  if (!(error instanceof ConnectionError) || error.cause instanceof SyntaxError) return false;
  return !isUntrusted(error.cause);
}
