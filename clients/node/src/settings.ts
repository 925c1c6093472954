import { readFileSync, statSync } from "node:fs";

import { milliseconds, type Duration } from "./duration.js";
import { SpindleError } from "./errors.js";

/** Where the server is, who asks, and how patient a client is. */
export interface ClientOptions {
  /**
   * `http://` or `https://`, with the path a proxy puts before it. Else `SPINDLE_URL`, else
   * `http://127.0.0.1:7420`.
   */
  url?: string;
  /** The token that says who asks. Else `tokenFile`. */
  token?: string;
  /**
   * A file with the token, which others must not be able to read. It is read again when the server
   * refuses its token. Else `SPINDLE_TOKEN_FILE`, else the token in `SPINDLE_TOKEN`.
   */
  tokenFile?: string;
  /** PEM: the server's certificate must be signed by one of these. Else `SPINDLE_CA_FILE`, else public authorities. */
  caFile?: string;
  /** PEM: a certificate to show to the server, with `keyFile`. Else `SPINDLE_CERT`. */
  certFile?: string;
  /** PEM: the private key of `certFile`. Else `SPINDLE_KEY`. */
  keyFile?: string;
  /** How long a request may take, apart from what it waits for. Default 60 s. */
  requestTimeout?: Duration;
  /** How long a request is repeated while the server cannot be reached or is busy. Default 10 s. */
  retryFor?: Duration;
  /** Most connections at once, apart from those that wait (for a job, a result, events). Default 64. */
  maxSockets?: number;
}

/** Client options with defaults and the environment in. */
export interface Settings {
  base: URL;
  token: TokenSource;
  tls: { ca?: Buffer; cert?: Buffer; key?: Buffer };
  requestTimeoutMs: number;
  retryForMs: number;
  maxSockets: number;
}

const DEFAULT_URL = "http://127.0.0.1:7420";

/** Fills in defaults and the environment. Throws a `SpindleError` with the code `config`. */
export function settingsOf(options: ClientOptions): Settings {
  const cert = options.certFile ?? variable("SPINDLE_CERT");
  const key = options.keyFile ?? variable("SPINDLE_KEY");
  if ((cert === undefined) !== (key === undefined)) {
    throw configError("a certificate needs its key, and a key its certificate: certFile and keyFile");
  }
  const ca = options.caFile ?? variable("SPINDLE_CA_FILE");
  return {
    base: baseUrl(options.url ?? variable("SPINDLE_URL") ?? DEFAULT_URL),
    token: tokenSource(options),
    tls: {
      ...(ca === undefined ? {} : { ca: contents(ca) }),
      ...(cert === undefined ? {} : { cert: contents(cert) }),
      ...(key === undefined ? {} : { key: contents(key) }),
    },
    requestTimeoutMs: milliseconds(options.requestTimeout ?? "60s", "requestTimeout"),
    retryForMs: milliseconds(options.retryFor ?? "10s", "retryFor"),
    maxSockets: options.maxSockets ?? 64,
  };
}

/** The token that says who asks. One from a file may change while the program runs. */
export class TokenSource {
  readonly #file: string | undefined;
  #token: string | undefined;

  constructor(token: string | undefined, file?: string) {
    this.#file = file;
    this.#token = file === undefined ? token && checked(token, "the token") : readToken(file);
  }

  get current(): string | undefined {
    return this.#token;
  }

  /** Reads the file again. True if there is another token than the one that was `refused`. */
  hasAnother(refused: string | undefined): boolean {
    if (this.#file !== undefined) this.#token = readToken(this.#file);
    return this.#token !== refused;
  }
}

function tokenSource(options: ClientOptions): TokenSource {
  if (options.token !== undefined) return new TokenSource(options.token);
  const file = options.tokenFile ?? variable("SPINDLE_TOKEN_FILE");
  return new TokenSource(variable("SPINDLE_TOKEN"), file);
}

function readToken(file: string): string {
  const text = contents(file).toString();
  const isOpen = process.platform !== "win32" && (statSync(file).mode & 0o007) !== 0;
  if (isOpen) throw configError(`${file}: others may read or write it: chmod o= ${file}`);
  return checked(text.trim(), file);
}

function checked(token: string, where: string): string {
  if (/^[\x21-\x7e]+$/.test(token)) return token;
  throw configError(`${where}: a token is one word of printable ASCII`);
}

function baseUrl(text: string): URL {
  let url;
  try {
    url = new URL(text);
  } catch (error) {
    throw configError(`${text}: this is no URL`, error);
  }
  if (url.protocol !== "http:" && url.protocol !== "https:") {
    throw configError(`${url.href}: the URL of a server begins with http:// or https://`);
  }
  if (url.username || url.password || url.search || url.hash) {
    throw configError("the URL of a server has no user, password, query or fragment");
  }
  url.pathname = url.pathname.replace(/\/+$/, "");
  return url;
}

function contents(file: string): Buffer {
  try {
    return readFileSync(file);
  } catch (error) {
    throw configError(error instanceof Error ? error.message : String(error), error);
  }
}

function configError(message: string, cause?: unknown): SpindleError {
  return new SpindleError("config", message, { cause });
}

/** A variable of the environment; an empty one counts as not set. */
function variable(name: string): string | undefined {
  return process.env[name] || undefined;
}
