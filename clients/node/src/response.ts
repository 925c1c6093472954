/** An answer's head longer than this is not from a server of jobs. */
const HEAD_BYTES_MAX = 64 * 1024;
const LINE_END = "\r\n";
const HEAD_END = "\r\n\r\n";
const NOTHING = Buffer.alloc(0);

/** What came is no answer of HTTP/1.1. */
export class ProtocolError extends Error {}

/** An answer to a request. */
export class Response {
  readonly status: number;
  readonly reason: string;
  /** Whether another request may be sent on the connection. */
  keepsAlive: boolean;
  body: Buffer = NOTHING;
  /** The lines of its head after the first, each with the line's end before it. */
  readonly #fields: string;
  readonly #lowerCase: string;

  constructor(head: string) {
    const line = /^HTTP\/1\.([01]) (\d{3})(?: ([^\r]*))?(?=\r\n|$)/.exec(head);
    if (!line) throw new ProtocolError(`this is no HTTP answer: ${JSON.stringify(head.slice(0, 80))}`);
    const [first, minor, status, reason = ""] = line;
    this.status = Number(status);
    this.reason = reason;
    this.#fields = head.slice(first.length);
    this.#lowerCase = this.#fields.toLowerCase();
    this.keepsAlive = minor === "1" && !/\bclose\b/.test(this.header("connection")?.toLowerCase() ?? "");
  }

  /** A field of the head; `name` is in lower case. Most of what a head says is never asked for. */
  header(name: string): string | undefined {
    const at = this.#lowerCase.indexOf(`${LINE_END}${name}:`);
    if (at < 0) return undefined;
    const begin = at + LINE_END.length + name.length + 1;
    const end = this.#fields.indexOf(LINE_END, begin);
    return this.#fields.slice(begin, end < 0 ? undefined : end).trim();
  }
}

/** Makes answers of the bytes of one connection, however they are cut. It does no I/O. */
export class ResponseReader {
  /** The server has asked for the rest of the request. */
  isContinued = false;
  /** The begin of a head, or of the line before a chunk, whose end has not come. */
  #unread: Buffer = NOTHING;
  #response: Response | undefined;
  #parts: Buffer[] = [];
  /** So many bytes of the body, or of the chunk, have not come. Infinite if the body ends with the connection. */
  #left = 0;
  #isChunked = false;
  /** A chunk ends with a line's end, which is before the size of the next one. */
  #isBehindChunk = false;

  /** Takes what came. Returns the answer once it is whole. Throws a `ProtocolError`. */
  feed(bytes: Buffer): Response | undefined {
    let rest: Buffer | undefined = this.#unread.length > 0 ? Buffer.concat([this.#unread, bytes]) : bytes;
    this.#unread = NOTHING;
    while (rest !== undefined) {
      if (this.#response === undefined) {
        rest = this.#readHead(rest);
      } else if (this.#left > 0) {
        if (rest.length === 0) return undefined;
        rest = this.#readBody(rest);
      } else if (this.#isChunked) {
        rest = this.#readSize(rest);
      } else {
        return this.#whole(rest.length > 0);
      }
    }
    return undefined;
  }

  /** The connection has ended: an answer without a length ends with it. */
  end(): Response | undefined {
    return this.#left === Infinity ? this.#whole(true) : undefined;
  }

  #whole(isLast: boolean): Response | undefined {
    const response = this.#response;
    if (response === undefined) return undefined;
    response.body = this.#parts.length === 1 ? (this.#parts[0] as Buffer) : Buffer.concat(this.#parts);
    if (isLast) response.keepsAlive = false;
    [this.#response, this.#parts, this.#left] = [undefined, [], 0];
    [this.#isChunked, this.#isBehindChunk, this.isContinued] = [false, false, false];
    return response;
  }

  #readHead(bytes: Buffer): Buffer | undefined {
    const end = bytes.indexOf(HEAD_END);
    if (end < 0) return this.#wait(bytes);
    const response = new Response(bytes.toString("latin1", 0, end));
    if (response.status < 200) this.isContinued ||= response.status === 100;
    else this.#expectBody(response);
    return bytes.subarray(end + HEAD_END.length);
  }

  #expectBody(response: Response): void {
    this.#response = response;
    const length = response.header("content-length");
    const coding = response.header("transfer-encoding")?.toLowerCase();
    if (response.status === 204 || response.status === 304) return;
    if (coding !== undefined) {
      if (coding !== "chunked") throw new ProtocolError("the answer is in a coding that was not asked for");
      this.#isChunked = true;
    } else if (length !== undefined) {
      if (!/^\d{1,15}$/.test(length)) throw new ProtocolError(`the answer's length is no number: ${length.slice(0, 20)}`);
      this.#left = Number(length);
    } else {
      this.#left = Infinity;
    }
  }

  #readBody(bytes: Buffer): Buffer {
    const part = bytes.subarray(0, Math.min(this.#left, bytes.length));
    this.#parts.push(part);
    this.#left -= part.length;
    return bytes.subarray(part.length);
  }

  /** The line with the size of the next chunk; behind the last one, fields that nobody asked for. */
  #readSize(bytes: Buffer): Buffer | undefined {
    const begin = this.#isBehindChunk ? LINE_END.length : 0;
    const end = bytes.indexOf(LINE_END, begin);
    if (end < 0) return this.#wait(bytes);
    if (begin > 0 && bytes.toString("latin1", 0, begin) !== LINE_END) {
      throw new ProtocolError("a chunk of the answer is longer than it says");
    }
    const size = /^([0-9a-f]{1,12})[ \t]*(?:;|$)/i.exec(bytes.toString("latin1", begin, end))?.[1];
    if (size === undefined) throw new ProtocolError("the size of a chunk is no number");
    this.#left = parseInt(size, 16);
    if (this.#left > 0) {
      this.#isBehindChunk = true;
      return bytes.subarray(end + LINE_END.length);
    }
    const last = bytes.indexOf(HEAD_END, end);
    if (last < 0) return this.#wait(bytes);
    this.#isChunked = false;
    return bytes.subarray(last + HEAD_END.length);
  }

  #wait(bytes: Buffer): undefined {
    if (bytes.length > HEAD_BYTES_MAX) throw new ProtocolError("a head or a line of the answer is too long");
    this.#unread = bytes;
  }
}
