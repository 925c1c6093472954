import * as http from "node:http";
import * as https from "node:https";
import type { Socket } from "node:net";

import { retryDelayMs, sleep, timerMilliseconds } from "./duration.js";
import { ApiError, apiError, ConnectionError, type Problem, UnavailableError } from "./errors.js";
import type { Settings } from "./settings.js";

/** One request of the API. */
export interface Call {
  method: "GET" | "POST" | "PUT" | "PATCH" | "DELETE";
  /** Behind `/api/v1/`, with the query. */
  path: string;
  /** JSON text. */
  body?: string;
  headers?: Record<string, string>;
  /** How long the server may wait before it answers. The request gets a connection of its own kind. */
  waitMs?: number;
  /** Whether the request may be sent again when the server may have received it. */
  repeatable: boolean;
  /** How long it is repeated, if not as long as the client's `retryFor`; 0 sends it once. */
  retryForMs?: number;
  signal?: AbortSignal | undefined;
  /**
   * How the signal ends a request that is under way. `hang up` closes the connection. `half-close` only
   * ends what this side sends, so that an answer that was already on its way is still read.
   */
  onAbort?: "hang up" | "half-close";
}

export interface Answer {
  status: number;
  headers: http.IncomingHttpHeaders;
  /** What the JSON says; undefined if there is none. */
  body: unknown;
  /** The request may have been received more than once. */
  repeated: boolean;
}

/** Idle connections are closed before the server does it, which is after a minute by default. */
const IDLE_MS = 45_000;
/** The longest wait between two tries. */
const RETRY_CAP_MS = 2_000;
/** How long an answer may still come after a connection was half-closed. */
const LINGER_MS = 2_000;
/** The server is asked before it is sent a larger body, and this long it may take to say so. */
const ASK_BYTES = 1024 * 1024;
const ASK_MS = 2_000;
/** What a client's own certificate checks fail with; a second try would fail as well. */
const UNTRUSTED = /^(ERR_TLS_|ERR_SSL_|CERT_|SELF_SIGNED|DEPTH_ZERO|UNABLE_TO_(VERIFY|GET))|EPROTO/;

/** Sends requests over connections that are kept, and repeats them where that is safe. */
export class Transport {
  readonly #settings: Settings;
  readonly #prefix: string;
  readonly #request: typeof http.request;
  readonly #calls: http.Agent;
  /** Waits are many and long: they must not keep calls from a connection. */
  readonly #waits: http.Agent;

  constructor(settings: Settings) {
    this.#settings = settings;
    this.#prefix = `${settings.base.pathname.replace(/\/$/, "")}/api/v1/`;
    const isHttps = settings.base.protocol === "https:";
    this.#request = isHttps ? https.request : http.request;
    const agent = (maxSockets: number) => {
      const scheduling = "lifo" as const;
      const options = { keepAlive: true, noDelay: true, timeout: IDLE_MS, scheduling, maxSockets };
      return isHttps ? new https.Agent({ ...options, ...settings.tls }) : new http.Agent(options);
    };
    this.#calls = agent(settings.maxSockets);
    this.#waits = agent(Infinity);
  }

  /** How long requests are repeated that do not say it. */
  get retryForMs(): number {
    return this.#settings.retryForMs;
  }

  /** Closes the connections that are open. */
  close(): void {
    this.#calls.destroy();
    this.#waits.destroy();
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
    const response = await this.#withToken(call, "head");
    if (response.statusCode !== 200) throw refusal(response, await textOf(response));
    response.setTimeout(idleMs, () => {
      response.destroy(new Error(`nothing came for ${idleMs} ms`));
    });
    return response;
  }

  async #answered(call: Call): Promise<Omit<Answer, "repeated">> {
    const response = await this.#withToken(call, "whole");
    const text = await textOf(response);
    const status = response.statusCode ?? 0;
    if (status < 200 || status > 299) throw refusal(response, text);
    return { status, headers: response.headers, body: text === "" ? undefined : parsed(text) };
  }

  /** A token that the server refuses may have been replaced in its file. */
  async #withToken(call: Call, limited: Limited): Promise<http.IncomingMessage> {
    const { token } = this.#settings;
    const used = token.current;
    const response = await this.#send(call, used, limited);
    if (response.statusCode !== 401 || !token.hasAnother(used)) return response;
    response.resume();
    return this.#send(call, token.current, limited);
  }

  #send(call: Call, token: string | undefined, limited: Limited): Promise<http.IncomingMessage> {
    const { base, requestTimeoutMs } = this.#settings;
    const headers: Record<string, string | number> = { accept: "application/json", ...call.headers };
    if (call.body !== undefined) {
      headers["content-type"] = "application/json";
      const bytes = Buffer.byteLength(call.body);
      headers["content-length"] = bytes;
      if (bytes > ASK_BYTES) headers["expect"] = "100-continue";
    }
    if (token !== undefined) headers["authorization"] = `Bearer ${token}`;
    return exchange(
      this.#request({
        agent: call.waitMs === undefined ? this.#calls : this.#waits,
        method: call.method,
        hostname: base.hostname.replace(/^\[(.*)\]$/, "$1"),
        port: base.port,
        path: this.#prefix + call.path,
        headers,
      }),
      { call, where: base.origin, limited, limitMs: requestTimeoutMs + (call.waitMs ?? 0) },
    );
  }
}

/** Which part of an answer has to come within the time for it. */
type Limited = "head" | "whole";

/** Sends one request, and waits for the head of its answer. */
function exchange(
  request: http.ClientRequest,
  how: { call: Call; where: string; limited: Limited; limitMs: number },
): Promise<http.IncomingMessage> {
  const { call, where, limited, limitMs } = how;
  return new Promise((resolve, reject) => {
    const { signal } = call;
    let connected = false;
    const limit = setTimeout(() => {
      request.destroy(new Error(`no answer within ${limitMs} ms`));
    }, timerMilliseconds(limitMs));
    const abort = () => endEarly(request, connected && call.onAbort === "half-close");
    const done = () => {
      clearTimeout(limit);
      signal?.removeEventListener("abort", abort);
    };
    request.once("socket", (socket: Socket) => {
      connected = !socket.connecting;
      if (connected) return;
      const event = "encrypted" in socket ? "secureConnect" : "connect";
      socket.once(event, () => (connected = true));
    });
    request.on("error", (error: NodeJS.ErrnoException) => {
      done();
      reject(signal?.aborted ? signal.reason : connectionError(where, error, connected));
    });
    request.once("response", (response) => {
      // The rest of it may still take too long, or be aborted.
      response.once("close", done);
      if (limited === "head") clearTimeout(limit);
      resolve(response);
    });
    if (signal?.aborted) abort();
    else signal?.addEventListener("abort", abort, { once: true });
    sendBody(request, call.body);
  });
}

/**
 * Sends the body, a large one only once the server asks for it: one that refuses it closes the
 * connection, and its answer could be lost behind what is still being sent.
 */
function sendBody(request: http.ClientRequest, body: string | undefined): void {
  if (!request.hasHeader("expect")) return void request.end(body);
  request.flushHeaders();
  const send = () => {
    clearTimeout(unasked);
    request.off("continue", send);
    request.end(body);
  };
  const unasked = setTimeout(send, ASK_MS);
  request.once("continue", send);
  request.once("close", () => clearTimeout(unasked));
  request.once("response", (response) => {
    clearTimeout(unasked);
    request.socket?.on("error", () => undefined);
    if (!request.writableEnded) response.once("end", () => request.destroy());
  });
}

function endEarly(request: http.ClientRequest, canStillAnswer: boolean): void {
  if (!canStillAnswer || !request.socket) return void request.destroy();
  request.socket.end();
  const linger = setTimeout(() => request.destroy(), LINGER_MS);
  request.once("close", () => clearTimeout(linger));
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

function refusal(response: http.IncomingMessage, text: string): ApiError {
  const status = response.statusCode ?? 0;
  const retryAfterS = Number(response.headers["retry-after"]);
  const retryAfterMs = Number.isFinite(retryAfterS) ? retryAfterS * 1000 : undefined;
  return apiError(status, problemOf(response, text), retryAfterMs);
}

/** A proxy, or a server without a place for a client, refuses in its own words. */
function problemOf(response: http.IncomingMessage, text: string): Problem {
  if (/json/.test(response.headers["content-type"] ?? "")) {
    try {
      return JSON.parse(text) as Problem;
    } catch {
      // Then its text is all there is.
    }
  }
  const status = `${response.statusCode} ${response.statusMessage ?? ""}`.trim();
  return { detail: [status, text.trim().slice(0, 200)].filter(Boolean).join(": ") };
}

function connectionError(where: string, error: NodeJS.ErrnoException, connected: boolean) {
  const untrusted = UNTRUSTED.test(error.code ?? "");
  // The name of a server may have several addresses; Node says nothing but the codes then.
  const reason = error.message.trim() || error.code || error.name;
  const hint = untrusted ? " (caFile or SPINDLE_CA_FILE names the authorities to trust)" : "";
  return new ConnectionError(`${where}: ${reason}${hint}`, connected && !untrusted, error);
}

function maybeReceived(error: unknown): boolean {
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
  const { code = "" } = (error.cause ?? {}) as NodeJS.ErrnoException;
  return !UNTRUSTED.test(code);
}
