/** Repeats: when, how often, and that they have their effect once. */
import assert from "node:assert/strict";
import { once } from "node:events";
import http from "node:http";
import type net from "node:net";
import { test } from "node:test";

import { Client, ConnectionError, ProblemError, TimeoutError } from "@postrider/client";

import { adminKey, CuttingProxy, freshTenant, url } from "./support.js";

for (const bytes of [0, 1, 100, 250]) {
  test(`a POST whose answer is cut after ${bytes} bytes is repeated and has its effect once`, async () => {
    const proxy = new CuttingProxy(2, bytes);
    try {
      const client = await freshTenant({ url: await proxy.start(), retries: 4 });
      const subscription = await client.subscriptions.create({ url: "http://127.0.0.1:9/cut", types: ["*"] });
      assert.equal(new Set(proxy.keys).size, 1, "one idempotency key for all attempts");
      assert.equal(proxy.keys.length, 3, "two answers were cut");
      const listed = await client.subscriptions.list().toArray();
      assert.deepEqual(listed.map(({ id }) => id), [subscription.id]);
      assert.match(subscription.secret, /^whsec_/);
    } finally {
      proxy.stop();
    }
  });
}

test("an event whose answer is cut is accepted once", async () => {
  const proxy = new CuttingProxy(1, 20);
  try {
    const client = await freshTenant({ url: await proxy.start() });
    await client.subscriptions.create({ url: "http://127.0.0.1:9/cut", types: ["*"] });
    const before = proxy.keys.length;
    await client.events.send({ type: "a.b", data: 1 });
    await client.events.sendBatch([{ type: "a.b", data: 1 }, { type: "a.b", data: 2 }]);
    assert.equal(before, 2);
    assert.equal((await client.events.list().toArray()).length, 3);
    assert.equal((await client.ledger()).accepted, 3);
    assert.equal(new Set(proxy.keys.filter((key) => key !== "")).size, 3, "each call has a key of its own");
  } finally {
    proxy.stop();
  }
});

type Answer = { status: number; headers?: Record<string, string>; body?: string } | "hang" | "reset";

/** A server that gives these answers, one after the other; the last one for ever. */
async function scripted(answers: Answer[], check: (client: Client, seen: { at: number; key: string }[]) => Promise<void>) {
  const seen: { at: number; key: string }[] = [];
  const server = http.createServer((request, response) => {
    const answer = answers[Math.min(seen.length, answers.length - 1)]!;
    seen.push({ at: Date.now(), key: String(request.headers["idempotency-key"]) });
    if (answer === "hang") return;
    if (answer === "reset") return void request.socket.destroy();
    response.writeHead(answer.status, answer.headers).end(answer.body ?? "{}");
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as net.AddressInfo;
  try {
    await check(new Client({ url: `http://127.0.0.1:${port}/`, key: "k", retries: 2, retryWaitMaxMs: 2000 }), seen);
  } finally {
    server.closeAllConnections();
    server.close();
  }
}

const ok: Answer = { status: 202, body: `{"id":"e","deliveries":0}` };
const event = { type: "a.b", data: 1 };
const problem = (status: number, headers = {}): Answer => ({
  status, headers: { "content-type": "application/problem+json", ...headers },
  body: JSON.stringify({ type: "/docs", title: "t", status, code: `code_${status}`, detail: "d", field: null }),
});

test("429, 503, 5xx and broken connections are repeated with the same key", async () => {
  for (const failure of [problem(429), problem(503), problem(500), { status: 502, body: "<html>" }, "reset"] as Answer[]) {
    await scripted([failure, failure, ok], async (client, seen) => {
      assert.equal((await client.events.send(event)).id, "e");
      assert.equal(seen.length, 3);
      assert.equal(new Set(seen.map(({ key }) => key)).size, 1);
    });
  }
});

test("what was refused for good is not repeated", async () => {
  for (const status of [400, 401, 403, 404, 409, 413, 422]) {
    await scripted([problem(status)], async (client, seen) => {
      await assert.rejects(client.events.send(event), { status, code: `code_${status}`, attempts: 1 });
      assert.equal(seen.length, 1);
    });
  }
});

test("repeats are bounded, and the error says how many there were", async () => {
  await scripted([problem(503)], async (client, seen) => {
    await assert.rejects(client.events.send(event), { status: 503, attempts: 3 });
    assert.equal(seen.length, 3);
    await assert.rejects(client.events.send(event, { retries: 0 }), { attempts: 1 });
  });
  await scripted(["reset"], async (client) => {
    await assert.rejects(client.events.send(event), (error) => error instanceof ConnectionError && error.attempts === 3);
  });
});

test("Retry-After is waited for, and not where it is too long", async () => {
  await scripted([problem(429, { "retry-after": "1" }), ok], async (client, seen) => {
    await client.events.send(event);
    assert.ok(seen[1]!.at - seen[0]!.at >= 1000);
  });
  const date = new Date(Date.now() + 2000).toUTCString();
  await scripted([problem(503, { "retry-after": date }), ok], async (client, seen) => {
    await client.events.send(event);
    assert.equal(seen.length, 2);
  });
  await scripted([problem(429, { "retry-after": "3600" }), ok], async (client, seen) => {
    await assert.rejects(client.events.send(event), { retryAfterSeconds: 3600, attempts: 1 });
    assert.equal(seen.length, 1);
  });
});

test("a time limit and a signal end a call", async () => {
  await scripted(["hang"], async (client, seen) => {
    const late = client.events.send(event, { timeoutMs: 100, retries: 1 });
    await assert.rejects(late, (error) => error instanceof TimeoutError && error.attempts === 2);
    const stop = new AbortController();
    const call = client.events.send(event, { signal: stop.signal });
    setTimeout(() => stop.abort(), 50);
    await assert.rejects(call, { name: "AbortError" });
    assert.equal(seen.length, 3);
  });
});

test("an answer that is not JSON is told without its text", async () => {
  await scripted([{ status: 200, body: "whsec_not-json-at-all" }], async (client) => {
    await assert.rejects(client.events.send(event), (error: Error) => {
      return error instanceof ConnectionError && !error.message.includes("whsec_");
    });
  });
});

test("a redirect is not followed, so that the key goes nowhere else", async () => {
  await scripted([{ status: 307, headers: { location: `${url}/v1/events` } }], async (client) => {
    await assert.rejects(client.events.send(event), { status: 307, attempts: 1 });
  });
});

test("a key of the caller's own is sent", async () => {
  await scripted([ok], async (client, seen) => {
    await client.events.send(event, { idempotencyKey: "mine-1" });
    assert.equal(seen[0]!.key, "mine-1");
  });
  const client = await freshTenant();
  const first = await client.events.send(event, { idempotencyKey: "mine-2" });
  assert.equal((await client.events.send(event, { idempotencyKey: "mine-2" })).id, first.id);
  const other = client.events.send({ type: "a.c", data: 1 }, { idempotencyKey: "mine-2" });
  await assert.rejects(other, (error) => error instanceof ProblemError && error.code === "idempotency_conflict");
});

test("a server that is not there is told by its address, not by the key", async () => {
  const gone = http.createServer().listen(0, "127.0.0.1");
  await once(gone, "listening");
  const { port } = gone.address() as net.AddressInfo;
  gone.close();
  const client = new Client({ url: `http://127.0.0.1:${port}`, key: adminKey, retries: 1 });
  await assert.rejects(client.ledger(), (error: Error) => {
    return error instanceof ConnectionError && error.message.includes("ECONNREFUSED") && !error.message.includes(adminKey);
  });
});
