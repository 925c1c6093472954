import * as net from "node:net";
import * as tls from "node:tls";

import { timerMilliseconds } from "./duration.js";
import { ConnectionError } from "./errors.js";
import { type Response, ResponseReader } from "./response.js";

// Not `node:http`: a worker sends two small requests for each short job, and one of them took that more
// of the processor's time than the job, the server and the disk together.

/** Where connections lead. */
export interface Origin {
  /** For people. */
  name: string;
  host: string;
  port: number;
  /** What TLS needs; without it, the connections have none. */
  tls: tls.ConnectionOptions | undefined;
}

/** A request as it is sent. */
export interface Outgoing {
  /** With the empty line at its end. */
  head: string;
  body: string;
  /** The body is sent when the server asks for it: one that refuses it has answered before, and reads none. */
  isAsked: boolean;
}

/** When an exchange is given up. */
export interface Limits {
  limitMs: number;
  signal: AbortSignal | undefined;
  /**
   * How the signal ends a request that is under way. `hang up` closes the connection. `half-close` only
   * ends what this side sends, so that an answer that was already on its way is still read.
   */
  onAbort: "hang up" | "half-close";
}

/** Idle connections are given up before the server does it, which is after a minute by default. */
const IDLE_MS = 45_000;
/** So long after the last byte the system asks whether the other side is still there. */
const PROBE_MS = 15_000;
/** How long an answer may still come after a connection was half-closed. */
const LINGER_MS = 2_000;
/** So long the server may take to ask for a body. */
const ASK_MS = 2_000;
/** What a client's own certificate checks fail with; a second try would fail as well. */
const UNTRUSTED = /^(ERR_TLS_|ERR_SSL_|CERT_|SELF_SIGNED|DEPTH_ZERO|UNABLE_TO_(VERIFY|GET))|EPROTO/;

/** A request that waits for its answer. */
interface Exchange {
  outgoing: Outgoing;
  answered: (response: Response) => void;
  failed: (error: Error, wasConnected: boolean) => void;
  /** What carries it. Undefined while all connections that there may be carry others. */
  connection: Connection | undefined;
}

/** Connections to one server that are kept for the next requests, each of which carries one at a time. */
export class Pool {
  readonly #origin: Origin;
  readonly #connectionsMax: number;
  readonly #connections = new Set<Connection>();
  readonly #idle: Connection[] = [];
  readonly #waiting = new Set<Exchange>();
  #session: Buffer | undefined;

  constructor(origin: Origin, connectionsMax: number) {
    this.#origin = origin;
    this.#connectionsMax = connectionsMax;
  }

  /** Sends a request. Rejects with a `ConnectionError`, or with the signal's reason. */
  send(outgoing: Outgoing, { limitMs, signal, onAbort }: Limits): Promise<Response> {
    return new Promise((resolve, reject) => {
      if (signal?.aborted) return reject(signal.reason);
      const exchange: Exchange = {
        outgoing,
        answered: (response) => {
          done();
          resolve(response);
        },
        failed: (error, wasConnected) => {
          done();
          reject(signal?.aborted ? signal.reason : connectionError(this.#origin.name, error, wasConnected));
        },
        connection: undefined,
      };
      const abort = () => {
        if (onAbort === "half-close" && exchange.connection?.isConnected) exchange.connection.halfClose();
        else this.#giveUp(exchange, signal?.reason as Error);
      };
      const limit = setTimeout(() => {
        this.#giveUp(exchange, new Error(`no answer within ${limitMs} ms`));
      }, timerMilliseconds(limitMs));
      const done = () => {
        clearTimeout(limit);
        signal?.removeEventListener("abort", abort);
      };
      signal?.addEventListener("abort", abort, { once: true });
      this.#begin(exchange);
    });
  }

  /** Closes all connections; what is under way fails. */
  close(): void {
    for (const connection of this.#connections) connection.close(new Error("the client was closed"));
  }

  #begin(exchange: Exchange): void {
    const connection = this.#fresh();
    if (connection === undefined) this.#waiting.add(exchange);
    else connection.carry(exchange);
  }

  /** One that was used last, or a new one, if there may be another. */
  #fresh(): Connection | undefined {
    for (let idle = this.#idle.pop(); idle !== undefined; idle = this.#idle.pop()) {
      if (idle.idleMs < IDLE_MS) return idle;
      idle.close(new Error("it was idle"));
    }
    if (this.#connections.size >= this.#connectionsMax) return undefined;
    const connection = new Connection(this.#connect(), {
      free: (connection) => this.#idle.push(connection),
      gone: (connection) => {
        this.#connections.delete(connection);
        const at = this.#idle.indexOf(connection);
        if (at >= 0) this.#idle.splice(at, 1);
      },
      after: () => this.#next(),
    });
    this.#connections.add(connection);
    return connection;
  }

  /** Begins what has waited longest, if a connection can carry it. */
  #next(): void {
    for (const exchange of this.#waiting) {
      this.#waiting.delete(exchange);
      return this.#begin(exchange);
    }
  }

  #giveUp(exchange: Exchange, error: Error): void {
    if (exchange.connection) return exchange.connection.close(error);
    this.#waiting.delete(exchange);
    exchange.failed(error, false);
  }

  #connect(): net.Socket {
    const { host, port, tls: secure } = this.#origin;
    if (secure === undefined) return net.connect({ host, port, noDelay: true });
    const name = net.isIP(host) === 0 ? { servername: host } : {};
    const session = this.#session === undefined ? {} : { session: this.#session };
    const socket = tls.connect({ ...secure, ...name, ...session, host, port });
    return socket.setNoDelay(true).on("session", (session: Buffer) => (this.#session = session));
  }
}

/** Who hears of a connection. */
interface Listener {
  /** It can carry another exchange. */
  free: (connection: Connection) => unknown;
  /** It is closed. */
  gone: (connection: Connection) => void;
  /** One of both has happened. */
  after: () => void;
}

/** One connection. */
class Connection {
  isConnected = false;
  readonly #socket: net.Socket;
  readonly #listener: Listener;
  readonly #reader = new ResponseReader();
  #exchange: Exchange | undefined;
  /** What is to be sent once the server asks for it. */
  #unsent: string | undefined;
  #unasked: NodeJS.Timeout | undefined;
  #linger: NodeJS.Timeout | undefined;
  #isEnding = false;
  #idleSince = 0;

  constructor(socket: net.Socket, listener: Listener) {
    this.#socket = socket;
    this.#listener = listener;
    socket.setKeepAlive(true, PROBE_MS);
    socket.once(socket instanceof tls.TLSSocket ? "secureConnect" : "connect", () => (this.isConnected = true));
    socket.on("data", (bytes: Buffer) => this.#read(bytes));
    socket.on("end", () => this.#ended());
    socket.on("error", (error) => this.#fail(error));
    socket.once("close", () => {
      clearTimeout(this.#linger);
      this.#fail(hangUp());
      listener.gone(this);
      listener.after();
    });
  }

  /** How long it has carried nothing. */
  get idleMs(): number {
    return performance.now() - this.#idleSince;
  }

  carry(exchange: Exchange): void {
    this.#exchange = exchange;
    exchange.connection = this;
    this.#socket.ref();
    const { head, body, isAsked } = exchange.outgoing;
    if (!isAsked) return void this.#socket.write(head + body);
    this.#unsent = body;
    this.#socket.write(head);
    this.#unasked = setTimeout(() => this.#sendRest(), ASK_MS);
  }

  /** Ends what this side sends, and then the connection, with the answer or a little later. */
  halfClose(): void {
    this.#isEnding = true;
    this.#socket.end();
    this.#linger = setTimeout(() => this.close(hangUp()), LINGER_MS);
  }

  /** What is under way fails with the error. */
  close(error: Error): void {
    this.#fail(error);
    this.#socket.destroy();
  }

  #read(bytes: Buffer): void {
    // Nothing was asked for.
    if (this.#exchange === undefined) return void this.#socket.destroy();
    try {
      const response = this.#reader.feed(bytes);
      if (response !== undefined) this.#answered(response);
      else if (this.#reader.isContinued) this.#sendRest();
    } catch (error) {
      this.close(error as Error);
    }
  }

  #ended(): void {
    this.#isEnding = true;
    const response = this.#reader.end();
    if (response !== undefined) this.#answered(response);
    else this.close(hangUp());
  }

  #sendRest(): void {
    clearTimeout(this.#unasked);
    if (this.#unsent !== undefined) this.#socket.write(this.#unsent);
    this.#unsent = undefined;
  }

  #answered(response: Response): void {
    const exchange = this.#exchange;
    const isKept = response.keepsAlive && !this.#isEnding && this.#unsent === undefined;
    this.#forget();
    if (isKept) {
      this.#idleSince = performance.now();
      // A program may end while it is idle.
      this.#socket.unref();
      this.#listener.free(this);
      this.#listener.after();
    } else {
      this.#socket.destroy();
    }
    exchange?.answered(response);
  }

  #fail(error: Error): void {
    const exchange = this.#exchange;
    this.#forget();
    exchange?.failed(error, this.isConnected);
  }

  #forget(): void {
    clearTimeout(this.#unasked);
    this.#exchange = this.#unsent = undefined;
  }
}

function hangUp(): Error {
  return Object.assign(new Error("the server closed the connection"), { code: "ECONNRESET" });
}

/** What a failed exchange with `where` comes to. */
export function connectionError(where: string, error: NodeJS.ErrnoException, wasConnected: boolean): ConnectionError {
  const untrusted = isUntrusted(error);
  // The name of a server may have several addresses; Node says nothing but the codes then.
  const reason = error.message.trim() || error.code || error.name;
  const hint = untrusted ? " (caFile or SPINDLE_CA_FILE names the authorities to trust)" : "";
  return new ConnectionError(`${where}: ${reason}${hint}`, wasConnected && !untrusted, error);
}

/** Whether it is the certificate of the server, or our own, that was refused. */
export function isUntrusted(error: unknown): boolean {
  return UNTRUSTED.test((error as NodeJS.ErrnoException | undefined)?.code ?? "");
}
