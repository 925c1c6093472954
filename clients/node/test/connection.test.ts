// What a client makes of servers, and of what stands before them, that do not answer as ours does.
import assert from "node:assert/strict";
import { type AddressInfo, createServer, type Socket } from "node:net";
import { test, type TestContext } from "node:test";

import { ApiError, ConnectionError, Spindle } from "spindle-client";

const QUEUE = '{"name":"q","paused":false,"jobs":{}}';
const ANSWER = `HTTP/1.1 200 OK\r\nContent-Length: ${QUEUE.length}\r\n\r\n${QUEUE}`;

/** What a server does with a request that has come, and with its number, from 1. */
type Act = (socket: Socket, request: string, number: number) => void;

interface Fake {
  client: Spindle;
  /** The requests that came, and how many connections they came over. */
  requests: string[];
  connections: () => number;
}

/** A server that does nothing but `act`. */
async function fake(t: TestContext, act: Act, options: { maxSockets?: number } = {}): Promise<Fake> {
  const sockets = new Set<Socket>();
  const requests: string[] = [];
  let connections = 0;
  const listener = createServer({ allowHalfOpen: true }, (socket) => {
    connections += 1;
    sockets.add(socket);
    socket.on("error", () => undefined);
    socket.on("end", () => socket.end());
    socket.on("data", (bytes) => {
      requests.push(bytes.toString());
      act(socket, bytes.toString(), requests.length);
    });
  });
  await new Promise<void>((open) => listener.listen(0, "127.0.0.1", open));
  const url = `http://127.0.0.1:${(listener.address() as AddressInfo).port}`;
  const client = new Spindle({ url, retryFor: 0, ...options });
  t.after(() => {
    client.close();
    listener.close();
    for (const socket of sockets) socket.destroy();
  });
  return { client, requests, connections: () => connections };
}

const answer: Act = (socket) => void socket.write(ANSWER);

test("one connection carries one request after the other", async (t) => {
  const { client, connections } = await fake(t, answer);
  for (let n = 0; n < 5; n++) assert.equal((await client.queue("q")).name, "q");
  assert.equal(connections(), 1);
});

test("no more connections than there may be: the others wait, in their order", async (t) => {
  const { client, requests, connections } = await fake(t, (socket) => {
    setImmediate(() => socket.write(ANSWER));
  }, { maxSockets: 2 });
  await Promise.all([0, 1, 2, 3, 4, 5].map((n) => client.queue(`q${n}`)));
  assert.deepEqual(requests.map((request) => request.slice(12, 21)), [0, 1, 2, 3, 4, 5].map((n) => `queues/q${n}`));
  assert.equal(connections(), 2);
});

test("a connection that the server closes after its answer is not used again", async (t) => {
  const { client, connections } = await fake(t, (socket) => {
    socket.end(ANSWER.replace("OK\r\n", "OK\r\nConnection: close\r\n"));
  });
  await client.queue("q");
  await client.queue("q");
  assert.equal(connections(), 2);
});

test("a connection that the server closes while it is idle is not used again", async (t) => {
  const { client, connections } = await fake(t, (socket) => {
    socket.write(ANSWER);
    setTimeout(() => socket.end(), 10);
  });
  await client.queue("q");
  await new Promise((over) => setTimeout(over, 100));
  await client.queue("q");
  assert.equal(connections(), 2);
});

test("an answer may come in chunks, without a length, or behind another one", async (t) => {
  const { client } = await fake(t, (socket, _, number) => {
    const size = QUEUE.length.toString(16);
    if (number === 1) socket.write(`HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n${size}\r\n${QUEUE}\r\n0\r\n\r\n`);
    if (number === 2) socket.write(`HTTP/1.1 103 Early Hints\r\nLink: <x>\r\n\r\n${ANSWER}`);
    if (number === 3) socket.end(`HTTP/1.0 200 OK\r\n\r\n${QUEUE}`);
  });
  for (let n = 0; n < 3; n++) assert.equal((await client.queue("q")).name, "q");
});

for (const [what, act] of [
  ["closes the connection", (socket) => socket.end()],
  ["breaks off in the answer", (socket) => socket.end(ANSWER.slice(0, -3))],
  ["resets the connection", (socket) => socket.resetAndDestroy()],
  ["speaks another protocol", (socket) => socket.write("SSH-2.0-OpenSSH_9.2\r\n\r\n")],
  ["answers with no JSON", (socket) => socket.write("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")],
] as [string, Act][]) {
  test(`a server that ${what}: the request may have been received`, async (t) => {
    const { client } = await fake(t, act);
    await assert.rejects(client.queue("q"), (error) => error instanceof ConnectionError && error.maybeReceived);
  });
}

test("a request that is not answered in time fails, and the next one has a connection of its own", async (t) => {
  const { client, connections } = await fake(t, (socket, _, number) => {
    if (number > 1) socket.write(ANSWER);
  });
  const patient = client.request("GET", "queues/q", undefined, { signal: AbortSignal.timeout(50) });
  await assert.rejects(patient, { name: "TimeoutError" });
  assert.equal((await client.queue("q")).name, "q");
  assert.equal(connections(), 2);
});

test("a large body is sent when the server asks for it, and not if it refuses it", async (t) => {
  const text = "x".repeat(2 * 1024 * 1024);
  let left = 0;
  const accepting = await fake(t, (socket, request, number) => {
    if (number === 1) {
      left = Number(/\r\ncontent-length: (\d+)\r\n/.exec(request)?.[1]);
      return void socket.write("HTTP/1.1 100 Continue\r\n\r\n");
    }
    left -= request.length;
    if (left === 0) socket.write('HTTP/1.1 201 Created\r\nContent-Length: 8\r\n\r\n{"id":7}');
  });
  assert.equal((await accepting.client.submit("q", text)).id, 7);
  assert.match(accepting.requests[0] as string, /\r\nexpect: 100-continue\r\n/);
  const refusing = await fake(t, (socket) => {
    socket.end("HTTP/1.1 413 Payload Too Large\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
  });
  await assert.rejects(refusing.client.submit("q", text), (error) => error instanceof ApiError && error.status === 413);
  assert.equal(refusing.requests.length, 1);
});

test("a request may have fields of its own, once each", async (t) => {
  const { client, requests } = await fake(t, answer);
  const headers = { Accept: "text/csv", "X-Trace": "a b" };
  await client.request("PUT", "queues/q", { a: 1 }, { headers });
  const [head, body] = (requests[0] as string).split("\r\n\r\n");
  const fields = head?.split("\r\n").slice(2).sort();
  assert.deepEqual(fields, ["accept: text/csv", "content-length: 7", "content-type: application/json", "x-trace: a b"]);
  assert.equal(body, '{"a":1}');
});

test("what is in a field stays in its line", async (t) => {
  const { client, requests } = await fake(t, answer);
  for (const key of ["a\r\nx-other: b", "a\nb", "\0", "ü"]) {
    const headers = { "idempotency-key": key };
    await assert.rejects(client.request("POST", "jobs", {}, { headers }), TypeError);
  }
  await assert.rejects(client.request("GET", "queues/a b"), TypeError);
  await assert.rejects(client.request("GET", "queues", undefined, { headers: { "a b": "c" } }), TypeError);
  assert.equal(requests.length, 0);
});
