// Answers as bytes, however they are cut.
import assert from "node:assert/strict";
import { test } from "node:test";

import { ProtocolError, type Response, ResponseReader } from "#internal/response.js";

const PLAIN = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-Odd:\r\n\r\nhello";
const EMPTY = "HTTP/1.1 204 No Content\r\n\r\n";
const CHUNKED =
  "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nhel\r\n2\r\nlo\r\n0\r\nTrailer: x\r\n\r\n";
const BARE_CHUNKS = "HTTP/1.1 200\r\ntransfer-encoding: Chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
const INTERIM = `HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n${PLAIN}`;

/** The answer that comes with these pieces: only with the last one. */
function read(pieces: string[]): Response {
  const reader = new ResponseReader();
  const answers = pieces.map((piece) => reader.feed(Buffer.from(piece, "latin1")));
  const last = answers.pop();
  assert.ok(answers.every((answer) => answer === undefined));
  assert.ok(last, "the answer is not whole");
  return last;
}

for (const text of [PLAIN, EMPTY, CHUNKED, BARE_CHUNKS, INTERIM]) {
  test(`${JSON.stringify(text.slice(0, 40))}: the same wherever it is cut`, () => {
    const expected = text === EMPTY ? [204, "", true] : [200, "hello", true];
    const seen = ({ status, body, keepsAlive }: Response) => [status, body.toString(), keepsAlive];
    for (let cut = 1; cut < text.length; cut++) {
      assert.deepEqual(seen(read([text.slice(0, cut), text.slice(cut)])), expected, `cut at ${cut}`);
    }
    assert.deepEqual(seen(read([...text])), expected);
  });
}

test("one reader reads one answer after the other", () => {
  const reader = new ResponseReader();
  for (const text of [PLAIN, CHUNKED, PLAIN, EMPTY]) {
    assert.equal(reader.feed(Buffer.from(text))?.keepsAlive, true);
  }
});

test("a connection that says more than it was asked carries nothing further", () => {
  assert.equal(read([PLAIN + PLAIN]).keepsAlive, false);
  assert.equal(read([`${EMPTY} `]).keepsAlive, false);
});

test("an answer without a length ends with the connection", () => {
  const reader = new ResponseReader();
  for (const text of ["HTTP/1.1 200 OK\r\n\r\nhel", "lo"]) assert.equal(reader.feed(Buffer.from(text)), undefined);
  const response = reader.end();
  assert.deepEqual([response?.body.toString(), response?.keepsAlive], ["hello", false]);
});

for (const text of [PLAIN.slice(0, -1), CHUNKED.slice(0, -3), "HTTP/1.1 200 OK\r\n", ""]) {
  test(`${JSON.stringify(text.slice(-12))} at the end is no whole answer`, () => {
    const reader = new ResponseReader();
    assert.equal(reader.feed(Buffer.from(text)), undefined);
    assert.equal(reader.end(), undefined);
  });
}

for (const garbage of [
  "SSH-2.0-OpenSSH_9.2\r\n\r\n",
  "HTTP/1.1 2x0 OK\r\n\r\n",
  "HTTP/1.1 2000 OK\r\n\r\n",
  "HTTP/2 200\r\n\r\n",
  "HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n",
  "HTTP/1.1 200 OK\r\nContent-Length: 5, 5\r\n\r\n",
  "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
  "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
  "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\r\n",
  "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhello\r\n0\r\n\r\n",
  `HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n${"1".repeat(13)}\r\n`,
  "x".repeat(64 * 1024 + 1),
]) {
  test(`${JSON.stringify(garbage.slice(0, 80))} is refused`, () => {
    assert.throws(() => new ResponseReader().feed(Buffer.from(garbage)), ProtocolError);
  });
}

test("a head of 64 KiB is waited for", () => {
  assert.equal(new ResponseReader().feed(Buffer.from("x".repeat(64 * 1024))), undefined);
});

test("fields of a head are found by their names", () => {
  const text = "HTTP/1.1 429 Slow Down\r\nX-Retry-After: 9\r\nRETRY-AFTER:7\r\nContent-Length: 0\r\n\r\n";
  const response = read([text]);
  const found = ["retry-after", "content-length", "after", ""].map((name) => response.header(name));
  assert.deepEqual([response.reason, ...found], ["Slow Down", "7", "0", undefined, undefined]);
});

for (const [head, keepsAlive] of [
  ["HTTP/1.1 204 x\r\nConnection: keep-alive", true],
  ["HTTP/1.1 204 x\r\nConnection: Close", false],
  ["HTTP/1.1 204 x\r\nConnection: foo, close", false],
  ["HTTP/1.0 204 x", false],
] as const) {
  test(`${JSON.stringify(head)} ${keepsAlive ? "keeps" : "ends"} the connection`, () => {
    assert.equal(read([`${head}\r\n\r\n`]).keepsAlive, keepsAlive);
  });
}
