/** The client against the real server. */
import assert from "node:assert/strict";
import { inspect } from "node:util";
import { test } from "node:test";

import { Client, PostriderError, ProblemError, verify, type StreamEvent } from "@postrider/client";

import { adminKey, freshTenant, Receiver, until, url } from "./support.js";

async function refused(call: Promise<unknown>): Promise<ProblemError> {
  try {
    await call;
  } catch (error) {
    assert.ok(error instanceof ProblemError, String(error));
    return error;
  }
  throw new Error("the call was not refused");
}

test("an event arrives, signed with the secret that was shown", async () => {
  const client = await freshTenant();
  const receiver = await Receiver.start();
  try {
    const subscription = await client.subscriptions.create({ url: receiver.url, types: ["task.*"] });
    const sent = await client.events.send({ type: "task.updated", data: { status: "CUR", "ключ": "☃" }, object: "t1" });
    assert.equal(sent.deliveries, 1);
    const [request] = await receiver.take(1);
    const verified = await verify(request!.body, request!.headers, subscription.secret);
    await until(async () => (await client.deliveries.get(verified.id)).state === "delivered");
    const delivery = await client.deliveries.get(verified.id);
    assert.equal(delivery.event_id, sent.id);
    assert.equal(delivery.attempt_log[0]?.outcome, "delivered");
    assert.equal((await client.events.get(sent.id)).deliveries.length, 1);
    assert.deepEqual((await client.events.get(sent.id)).data, { status: "CUR", "ключ": "☃" });
  } finally {
    receiver.stop();
  }
});

test("during a rotation both secrets verify, and a third one does not", async () => {
  const client = await freshTenant();
  const receiver = await Receiver.start();
  try {
    const old = await client.subscriptions.create({ url: receiver.url, types: ["*"] });
    const rotated = await client.subscriptions.rotateSecret(old.id, { overlapSeconds: 60 });
    assert.notEqual(rotated.secret, old.secret);
    assert.equal(rotated.retiring_secrets, 1);
    const outcome = await client.subscriptions.test(old.id);
    assert.equal(outcome.outcome, "delivered");
    const [request] = await receiver.take(1);
    assert.equal(String(request!.headers["webhook-signature"]).split(" ").length, 2);
    await verify(request!.body, request!.headers, old.secret);
    await verify(request!.body, request!.headers, rotated.secret);
    const forged = verify(request!.body, request!.headers, `whsec_${Buffer.alloc(32, 1).toString("base64")}`);
    await assert.rejects(forged, { code: "no_matching_signature" });
  } finally {
    receiver.stop();
  }
});

test("an ed25519 subscription is verified with its public key", async () => {
  const client = await freshTenant();
  const receiver = await Receiver.start();
  try {
    const secret = `whsk_${Buffer.alloc(32, 7).toString("base64")}`;
    const subscription = await client.subscriptions.create({ url: receiver.url, types: ["*"], secret });
    await client.subscriptions.test(subscription.id);
    const [request] = await receiver.take(1);
    await verify(request!.body, request!.headers, subscription.public_key!);
  } finally {
    receiver.stop();
  }
});

test("subscriptions are created, read, changed, listed and deleted", async () => {
  const client = await freshTenant();
  const created = await client.subscriptions.create({
    url: "http://127.0.0.1:9/x", types: ["a.b"], auth_token: "token-of-the-receiver", headers: { "x-a": "header-value-1" },
    filter: { all: [{ field: "data.n", op: "gt", value: 3 }] },
  });
  const changed = await client.subscriptions.update(created.id, { auth_token: null, types: ["a.*"], enabled: false });
  assert.deepEqual([changed.auth_token, changed.types, changed.enabled], [null, ["a.*"], false]);
  assert.deepEqual((await client.subscriptions.get(created.id)).filter, { all: [{ field: "data.n", op: "gt", value: 3 }] });
  assert.deepEqual((await client.subscriptions.list().toArray()).map(({ id }) => id), [created.id]);
  const twin = await refused(client.subscriptions.create({
    url: "http://127.0.0.1:9/x", types: ["a.*"], filter: { all: [{ field: "data.n", op: "gt", value: 3 }] },
  }));
  assert.deepEqual([twin.status, twin.code, twin.existingId], [409, "twin_subscription", created.id]);
  await client.subscriptions.delete(created.id);
  assert.equal((await refused(client.subscriptions.get(created.id))).code, "not_found");
});

test("a problem names its code, its field and what to do", async () => {
  const client = await freshTenant();
  const problem = await refused(client.events.sendBatch([{ type: "a.b", data: 1 }, { type: "a b", data: 1 }]));
  assert.deepEqual([problem.status, problem.code, problem.field, problem.attempts], [422, "invalid_field", "[1].type", 1]);
  assert.match(problem.message, /^422 invalid_field \(\[1\]\.type\): not an event type/);
  const filter = { field: "data.a", op: "eqq" } as never;
  assert.equal((await refused(client.testFilter(filter, { type: "a.b", data: 1 }))).field, "filter.op");
  const event = { type: "a.b", data: { due: "2026-11-16T12:00:00.000-0800" } };
  const due = { field: "data.due", op: "gt", value: "2026-11-16T19:59:59Z", as: "time" } as const;
  assert.equal((await client.testFilter(due, event)).matches, true);
});

test("batches are split, accepted in order, and lists yield each entry once", async () => {
  const client = await freshTenant();
  function* events() {
    for (let n = 0; n < 2345; n += 1) yield { type: "batch.sent", data: { n }, id: `e-${n}` };
  }
  const ids: string[] = [];
  for await (const result of client.events.sendAll(events())) ids.push(result.id);
  assert.equal(ids.length, 2345);
  assert.equal(ids[2000], "e-2000");
  const listed = new Set<string>();
  let count = 0;
  for await (const event of client.events.list({ type: "batch.sent" }, { limit: 500 })) {
    listed.add(event.id);
    count += 1;
  }
  assert.deepEqual([count, listed.size], [2345, 2345]);
  assert.equal((await client.events.list({}, { limit: 2 }).toArray(3)).length, 3);
  assert.equal((await client.events.list({}, { limit: 7 }).page()).data.length, 7);
  const again = await client.events.send({ type: "batch.sent", data: { n: 5 }, id: "e-5" });
  assert.equal(again.duplicate, true);
});

test("a batch beyond 16 MiB is split by its bytes", async () => {
  const client = await freshTenant();
  const text = "x".repeat(900_000);
  const events = Array.from({ length: 20 }, (_, n) => ({ type: "large.sent", data: { n, text } }));
  let count = 0;
  for await (const result of client.events.sendAll(events)) count += result.id === "" ? 0 : 1;
  assert.equal(count, 20);
});

test("a delivery that fails is explained, retried, cancelled, replayed and listed with its attempts", async () => {
  const client = await freshTenant();
  const receiver = await Receiver.start();
  receiver.status = 500;
  try {
    const subscription = await client.subscriptions.create({ url: receiver.url, types: ["*"] });
    const event = await client.events.send({ type: "a.b", data: null, time: new Date() });
    await receiver.take(1);
    const query = { event: event.id, state: "waiting", since: new Date(Date.now() - 60_000) } as const;
    await until(async () => (await client.deliveries.list(query).toArray()).length === 1);
    const [delivery] = await client.deliveries.list(query).toArray();
    const explained = await client.deliveries.explain(delivery!.id);
    assert.match(explained.summary, /waiting for retry 1/);
    await client.deliveries.retry(delivery!.id);
    await until(async () => (await client.deliveries.get(delivery!.id)).attempts === 2);
    assert.equal((await client.deliveries.cancel(delivery!.id)).state, "cancelled");
    assert.equal((await refused(client.deliveries.cancel(delivery!.id))).code, "wrong_state");
    receiver.status = 204;
    await client.deliveries.replay(delivery!.id);
    await until(async () => (await client.deliveries.get(delivery!.id)).state === "delivered");
    const attempts = await client.deliveries.attempts(delivery!.id, { limit: 1 }).toArray();
    assert.deepEqual(attempts.map(({ status }) => status), [500, 500, 204]);

    const replay = { subscription: subscription.id, state: "delivered" } as const;
    assert.equal(await client.replays.count(replay), 1);
    const job = await client.replays.create({ ...replay, per_second: 100 });
    await until(async () => (await client.replays.get(job.id)).state === "finished");
    assert.deepEqual((await client.replays.list().toArray()).map(({ id }) => id), [job.id]);
    assert.equal((await refused(client.replays.pause(job.id))).status, 409);
    assert.equal((await refused(client.replays.resume(job.id))).status, 409);
    assert.equal((await refused(client.replays.cancel(job.id))).status, 409);
    await until(async () => (await client.ledger()).delivered === 1);
    const ledger = await client.ledger();
    const { accepted, ...rest } = ledger;
    assert.equal(accepted, Object.values(rest).reduce((sum, n) => sum + n, 0));
    const stats = await client.stats({ stepMinutes: 60, since: new Date(Date.now() - 3_600_000) });
    assert.equal(stats.data.reduce((sum, span) => sum + span.accepted, 0), 1);
  } finally {
    receiver.stop();
  }
});

test("destinations are listed, frozen, enabled, and tell their timeline", async () => {
  const client = await freshTenant();
  const { destination_id } = await client.subscriptions.create({ url: "http://127.0.0.1:9/y", types: ["*"] });
  assert.equal((await client.destinations.freeze(destination_id, "maintenance")).state, "frozen");
  assert.equal((await client.destinations.enable(destination_id)).state, "enabled");
  assert.equal((await client.destinations.get(destination_id)).url, "http://127.0.0.1:9/y");
  assert.equal((await client.destinations.list().toArray()).length, 1);
  const timeline = await client.destinations.timeline(destination_id).toArray();
  assert.deepEqual(timeline.map(({ to }) => to), ["enabled", "frozen"]);
  const stats = await client.destinations.stats(destination_id, { hours: 2 });
  assert.deepEqual([stats.hours.length, stats.total.success_rate, stats.figures.recent.length], [2, null, 0]);
  const figures = await client.destinations.figures([destination_id]);
  assert.deepEqual(figures.map(({ destination_id: id }) => id), [destination_id]);
});

test("a subscription with a uid is created once, with a policy of its own", async () => {
  const client = await freshTenant();
  const wanted = { url: "http://127.0.0.1:9/u", types: ["*"], uid: "crm", metadata: { plan: "gold" }, policy: { retry: { max: 3 } } };
  const first = await client.subscriptions.create(wanted);
  const again = await client.subscriptions.create(wanted);
  assert.deepEqual([again.id, again.secret, first.secret === ""], [first.id, "", false]);
  assert.deepEqual([first.policy.retry.max, first.effective_policy.retry.max], [3, 3]);
  await client.subscriptions.create({ url: "http://127.0.0.1:9/other", types: ["*"] });
  assert.equal((await client.subscriptions.list({ metadata: "plan:gold" }).toArray()).length, 1);
  assert.equal((await client.subscriptions.list({ limit: 1 }).toArray()).length, 2);
  const reset = await client.subscriptions.update("crm", { policy: null });
  assert.deepEqual(reset.effective_policy.retry, (await client.policy()).retry);
});

test("a tenant has its own quotas, and an admin reads the lists of all tenants", async () => {
  const admin = new Client({ url, key: adminKey });
  const { id } = await admin.tenants.create({ id: `ts-own-${Date.now()}` });
  const changed = await admin.tenants.update(id, { quotas: { subscriptions: 1 }, events_per_second: 1000 });
  assert.deepEqual([changed.quotas, changed.events_per_second], [{ subscriptions: 1 }, 1000]);
  const client = admin.forTenant(id);
  const { destination_id } = await client.subscriptions.create({ url: "http://127.0.0.1:9/q", types: ["*"] });
  assert.equal((await refused(client.subscriptions.create({ url: "http://127.0.0.1:9/r", types: ["*"] }))).status, 429);
  assert.ok((await client.rates()).some(({ limit, own }) => limit === 1000 && own));
  const all = await admin.forTenant("*").destinations.list({ q: "127.0.0.1:9/q", limit: 1000 }).toArray();
  assert.equal(all.find((one) => one.id === destination_id)?.tenant, id);
  assert.equal((await client.destinations.summary()).enabled, 1);
});

test("tenants and keys are made and removed, and a key does what its scopes say", async () => {
  const admin = new Client({ url, key: adminKey });
  const id = `ts-keys-${Date.now()}`;
  assert.equal((await admin.tenants.create({ id, name: "Keys" })).name, "Keys");
  const forTenant = admin.forTenant(id);
  const created = await forTenant.keys.create({ scopes: ["ingest"], name: "app", expires_at: new Date(Date.now() + 60_000) });
  assert.equal((await forTenant.keys.get(created.id)).tenant, id);
  assert.equal((await forTenant.keys.list({}, { limit: 1 }).toArray()).length, 1);
  const app = new Client({ url, key: ` ${created.key}\n` });
  await app.events.send({ type: "a.b", data: 1 });
  assert.equal((await refused(app.subscriptions.list().toArray())).code, "missing_scope");
  await forTenant.keys.delete(created.id);
  assert.equal((await refused(app.events.send({ type: "a.b", data: 1 }))).status, 401);
  assert.ok((await admin.tenants.list({ limit: 1000 }).toArray()).some((tenant) => tenant.id === id));
  assert.ok((await admin.audit({ tenant: id }).toArray()).some(({ action }) => action === "key.create"));
  assert.equal((await forTenant.limits()).find(({ name }) => name === "keys")?.used, 0);
  await admin.tenants.delete(id);
  assert.equal((await refused(admin.tenants.get(id))).status, 404);
});

test("the stream tells of attempts, and ends when it is told to", async () => {
  const client = await freshTenant();
  const receiver = await Receiver.start();
  try {
    await client.subscriptions.create({ url: receiver.url, types: ["*"] });
    const stop = new AbortController();
    let opened = () => {};
    const isOpen = new Promise<void>((resolve) => { opened = resolve; });
    const seen: StreamEvent[] = [];
    const reading = (async () => {
      for await (const event of client.stream({ signal: stop.signal, onOpen: opened })) {
        seen.push(event);
        stop.abort();
      }
    })();
    await isOpen;
    const { id } = await client.events.send({ type: "a.b", data: { text: "\n\n: € 漢字" } });
    await reading;
    const [first] = seen;
    assert.ok(first?.event === "attempt");
    assert.deepEqual([first.delivery.event_id, first.attempt.outcome], [id, "delivered"]);
  } finally {
    receiver.stop();
  }
});

test("a stream ends with a reason when its key is revoked", async () => {
  const client = await freshTenant();
  const { id, key } = await client.keys.create({ scopes: ["read"] });
  const seen: StreamEvent[] = [];
  const reader = new Client({ url, key });
  for await (const event of reader.stream({ onOpen: () => void client.keys.delete(id) })) seen.push(event);
  assert.deepEqual(seen.map(({ event }) => event), ["closed"]);
  const problem = await refused(reader.stream().next());
  assert.equal(problem.status, 401);
});

test("no log shows the API key or a signing secret by accident", async () => {
  const client = await freshTenant();
  const subscription = await client.subscriptions.create({ url: "http://127.0.0.1:9/z", types: ["*"] });
  const key = await client.keys.create({ scopes: ["read"] });
  const problem = await refused(new Client({ url, key: "wrong-key-of-somebody" }).ledger());
  const shown = [client, subscription, key, problem, problem.stack].map(
    (value) => inspect(value, { depth: 10 }) + JSON.stringify(value),
  ).join();
  for (const secret of [adminKey, subscription.secret, key.key, "wrong-key-of-somebody"]) {
    assert.ok(secret.length > 10 && !shown.includes(secret));
  }
  const bad = "key with a space\nand more";
  assert.throws(() => new Client({ url, key: bad }), (error: Error) => {
    return error instanceof PostriderError && !inspect(error).includes("with a space");
  });
});

test("identifiers cannot lead to another path", async () => {
  const client = await freshTenant();
  for (const id of ["../ledger", "a/b", "x?limit=1", "%2e%2e"]) {
    assert.equal((await refused(client.events.get(id))).status, 404, id);
  }
  await assert.rejects(async () => client.events.get(""), PostriderError);
  await assert.rejects(async () => client.events.get(".."), PostriderError);
});
