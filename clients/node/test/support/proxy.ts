// A proxy that sees every request, and breaks a chosen one off, so that a server can be killed in the middle of it.
import { connect, createServer, type AddressInfo, type Server as Listener, type Socket } from "node:net";

/** When: before the server has seen the request, or after it has answered, and the answer is lost. */
export type Moment = "before" | "after";

interface Break {
  begins: string;
  moment: Moment;
  meanwhile: () => Promise<void>;
  done: () => void;
}

export class Proxy {
  /** The first lines of the requests that came. */
  readonly requests: string[] = [];
  readonly #listener: Listener;
  readonly #target: () => number;
  readonly #sockets = new Set<Socket>();
  #next: Break | undefined;

  private constructor(target: () => number) {
    this.#target = target;
    this.#listener = createServer((socket) => this.#serve(socket));
  }

  static async start(target: () => number): Promise<Proxy> {
    const proxy = new Proxy(target);
    await new Promise<void>((open) => proxy.#listener.listen(0, "127.0.0.1", open));
    return proxy;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#listener.address() as AddressInfo).port}`;
  }

  /** Breaks the next request off that begins like this. The promise is fulfilled when that has happened. */
  breakOff(begins: string, moment: Moment, meanwhile: () => Promise<void>): Promise<void> {
    return new Promise((done) => (this.#next = { begins, moment, meanwhile, done }));
  }

  close(): void {
    this.#listener.close();
    for (const socket of this.#sockets) socket.destroy();
  }

  #serve(client: Socket): void {
    const server = connect(this.#target(), "127.0.0.1");
    const both = [client, server];
    for (const socket of both) {
      this.#sockets.add(socket);
      socket.on("error", () => undefined);
      socket.on("close", () => {
        this.#sockets.delete(socket);
        for (const other of both) other.destroy();
      });
    }
    let broken: Break | undefined;
    let isAnswered = false;
    client.on("data", (bytes) => {
      // What follows of the request, such as its body, belongs to it.
      if (broken) return broken.moment === "after" ? void server.write(bytes) : undefined;
      const first = bytes.toString("latin1").split("\r\n", 1)[0] ?? "";
      if (first.endsWith(" HTTP/1.1")) this.requests.push(first);
      if (this.#next && bytes.toString().startsWith(this.#next.begins)) {
        broken = this.#next;
        this.#next = undefined;
        if (broken.moment === "before") return void finish(broken, client);
      }
      server.write(bytes);
    });
    server.on("data", (bytes) => {
      if (!broken) return void client.write(bytes);
      if (!isAnswered) void finish(broken, client);
      isAnswered = true;
    });
  }
}

async function finish({ meanwhile, done }: Break, client: Socket): Promise<void> {
  await meanwhile();
  client.destroy();
  done();
}
