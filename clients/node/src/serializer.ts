import { type SerializationCode, SerializationError } from "./errors.js";
import type { ContentType } from "./wire.js";

/** A payload or a result on its way: a JSON value, or bytes and what they are. */
export type Content =
  | { type: "json"; value: unknown }
  | { type: "bytes" | "msgpack"; bytes: Uint8Array };

/** Turns payloads and results into content and back. Both ways may throw: the job then fails. */
export interface Serializer {
  encode(value: unknown): Content;
  decode(content: Content): unknown;
}

/**
 * The default. JSON in both directions. Bytes, as other protocols' clients submit them, are read as
 * JSON text; no bytes at all are `undefined`.
 */
export const json: Serializer = {
  encode(value) {
    if (typeof value === "function" || typeof value === "symbol") {
      throw new TypeError(`a ${typeof value} has no JSON`);
    }
    return { type: "json", value };
  },
  decode(content) {
    if (content.type === "json") return content.value;
    if (content.bytes.length === 0) return undefined;
    if (content.type === "msgpack") {
      throw new TypeError("it is MessagePack: give the task a serializer that reads it");
    }
    return JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(content.bytes));
  },
};

/** Bytes as they are: payloads and results are `Uint8Array`s. JSON arrives as its text in UTF-8. */
export const bytes: Serializer = {
  encode(value) {
    if (value === undefined) return { type: "bytes", bytes: new Uint8Array() };
    if (!(value instanceof Uint8Array)) throw new TypeError("it is no Uint8Array");
    return { type: "bytes", bytes: value };
  },
  decode(content) {
    if (content.type !== "json") return content.bytes;
    return new TextEncoder().encode(JSON.stringify(content.value));
  },
};

/** The three fields of a request that bring content, under the names that it has there. */
export function contentFields(content: Content, name: "payload" | "result"): object {
  if (content.type === "json") return { [name]: content.value };
  if (content.bytes.length === 0) return {};
  const { buffer, byteOffset, byteLength } = content.bytes;
  const base64 = Buffer.from(buffer, byteOffset, byteLength).toString("base64");
  return { [`${name}_base64`]: base64, [`${name}_type`]: content.type };
}

/** Content that came in an answer. A value that is not there is no bytes. */
export function contentOf(type: ContentType, value: unknown, base64: string | undefined): Content {
  if (type === "json" && value !== undefined) return { type, value };
  return { type: type === "json" ? "bytes" : type, bytes: Buffer.from(base64 ?? "", "base64") };
}

/** Runs one direction of a serializer, and says whose fault it is if that throws. */
export function guarded<T>(code: SerializationCode, what: string, run: () => T): T {
  try {
    return run();
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    throw new SerializationError(code, `${what}: ${reason}`, error);
  }
}
