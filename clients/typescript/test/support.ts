/** What the tests share: the real server that `clients/check.py` has started, a receiver, and a proxy that cuts. */
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import http from "node:http";
import net from "node:net";
import { setTimeout as sleep } from "node:timers/promises";

import { Client, type ClientOptions } from "@postrider/client";

function setting(name: string): string {
  const value = process.env[name];
  if (value === undefined) throw new Error(`${name} is not set: run clients/check.py, which starts a server`);
  return value;
}

export const url = setting("POSTRIDER_SERVER");
export const adminKey = setting("POSTRIDER_KEY");

/** An admin client in a tenant of its own, so that tests do not meet each other. */
export async function freshTenant(options: Partial<ClientOptions> = {}): Promise<Client> {
  const admin = new Client({ url, key: adminKey });
  const { id } = await admin.tenants.create({ id: `ts-${randomBytes(6).toString("hex")}` });
  return new Client({ url, key: adminKey, tenant: id, ...options });
}

export interface Received {
  headers: http.IncomingHttpHeaders;
  body: Buffer;
}

/** A receiver on a free port that keeps what it gets and answers as `status` says. */
export class Receiver {
  readonly received: Received[] = [];
  status = 200;
  readonly #server = http.createServer((request, response) => {
    const chunks: Buffer[] = [];
    request.on("data", (chunk: Buffer) => chunks.push(chunk));
    request.on("end", () => {
      this.received.push({ headers: request.headers, body: Buffer.concat(chunks) });
      response.writeHead(this.status).end();
    });
  });

  static async start(): Promise<Receiver> {
    const receiver = new Receiver();
    receiver.#server.listen(0, "127.0.0.1");
    await once(receiver.#server, "listening");
    return receiver;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as net.AddressInfo).port}/hook`;
  }

  /** The first `count` requests, when they have arrived. */
  async take(count: number): Promise<Received[]> {
    await until(() => this.received.length >= count);
    return this.received.slice(0, count);
  }

  stop(): void {
    this.#server.closeAllConnections();
    this.#server.close();
  }
}

/** Waits for a condition, at most ten seconds. */
export async function until(isTrue: () => boolean | Promise<boolean>): Promise<void> {
  for (let n = 0; n < 500; n += 1) {
    if (await isTrue()) return;
    await sleep(20);
  }
  throw new Error("the condition did not come true within ten seconds");
}

/** A TCP proxy to the server. It breaks the first `cuts` connections after `bytes` bytes of the answer. */
export class CuttingProxy {
  requests: string[] = [];
  #cuts: number;
  readonly #sockets = new Set<net.Socket>();
  readonly #server: net.Server;

  constructor(cuts: number, bytes: number) {
    this.#cuts = cuts;
    const target = new URL(url);
    this.#server = net.createServer((client) => {
      const upstream = net.connect(Number(target.port), target.hostname);
      for (const socket of [client, upstream]) {
        this.#sockets.add(socket);
        socket.on("error", () => {});
      }
      let request = "";
      client.on("data", (chunk) => { request += chunk.toString("latin1"); upstream.write(chunk); });
      client.on("close", () => upstream.destroy());
      upstream.on("data", (chunk) => {
        this.requests.push(request);
        request = "";
        if (this.#cuts > 0) {
          this.#cuts -= 1;
          client.write(chunk.subarray(0, bytes), () => client.destroy());
        } else {
          client.write(chunk);
        }
      });
      upstream.on("close", () => client.destroy());
    });
  }

  async start(): Promise<string> {
    this.#server.listen(0, "127.0.0.1");
    await once(this.#server, "listening");
    return `http://127.0.0.1:${(this.#server.address() as net.AddressInfo).port}`;
  }

  /** The idempotency keys of the requests that were answered, in order. */
  get keys(): string[] {
    return this.requests.map((text) => /idempotency-key: (\S+)/i.exec(text)?.[1] ?? "");
  }

  stop(): void {
    for (const socket of this.#sockets) socket.destroy();
    this.#server.close();
  }
}
