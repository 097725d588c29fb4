/** Every call of the API, with everything that it takes, against answers of this server, of an older and of a newer one. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { inspect } from "node:util";

import { Client } from "@postrider/client";

const base = process.env["POSTRIDER_SAMPLES"];
const time = new Date(0);
const filter = { field: "data.a", op: "exists" } as const;
const described = { name: "n", description: "d", metadata: { a: "b" } };
const policy = { retry: { max: 3, unit_seconds: 1 }, recovery: { dead: "replay" }, attempt: { deadline_seconds: 5 } } as const;
const delivery = {
  object: "o", format: "workfront", workfront: { version: "v1" }, auth_token: "t", headers: { a: "b" }, rate_limit: 1,
  filter, policy, enabled: true, client_certificate: "c", client_key: "k", ca_certificates: "a", uid: "u",
} as const;

function client(form: string): Client {
  assert.ok(base !== undefined, "POSTRIDER_SAMPLES is not set: run clients/check.py");
  return new Client({ url: `${base}/${form}`, key: "k", retries: 0 });
}

/** Calls each method once, and gives all answers. */
async function callEverything(api: Client, form: string): Promise<unknown[]> {
  const rates = { requests_per_second: 1, events_per_second: 1, quotas: { keys: 1 } };
  const when = { since: time, until: time };
  const replay = { destination: "d", subscription: "s", type: "t", state: "waiting", ended_since: time, per_second: 1, ...when } as const;
  const answers: unknown[] = [
    await api.tenants.create({ id: "t", ...described, ...rates }), await api.tenants.get("t"),
    await api.tenants.list().toArray(), await api.tenants.update("t", { ...described, ...rates }),
    await api.keys.create({ scopes: ["read"], tenant: "t", name: "n", expires_at: time }), await api.keys.get("k"),
    await api.keys.list({ tenant: "t", scope: "admin" }).toArray(),
    await api.events.send({ type: "a.b", data: 1, old: 2, object: "o", id: "i", time }),
    await api.events.sendBatch([{ type: "a.b", data: 1 }]), await api.events.get("e"),
    await api.events.list({ type: "t", object: "o", ...when }).toArray(), await api.events.matches("e").toArray(),
    await api.subscriptions.create({ url: "u", types: ["*"], secret: "s", ...delivery, ...described }),
    await api.subscriptions.get("s"),
    await api.subscriptions.list({ destination: "d", uid: "u", q: "q", metadata: "a:b" }).toArray(),
    await api.subscriptions.update("s", { url: "u", types: ["*"], ...delivery, ...described }),
    await api.subscriptions.rotateSecret("s", { overlapSeconds: 1 }), await api.subscriptions.test("s"),
    await api.deliveries.list({
      state: "dead", destination: "d", subscription: "s", event: "e", type: "t", object: "o", ...when,
    }).toArray(),
    await api.deliveries.due(), await api.deliveries.dead({ limit: 1 }),
    await api.deliveries.get("d"), await api.deliveries.attempts("d").toArray(), await api.deliveries.request("d", 1),
    await api.deliveries.explain("d"), await api.deliveries.retry("d"), await api.deliveries.replay("d"),
    await api.deliveries.cancel("d"),
    await api.destinations.list({ state: "frozen", q: "q" }).toArray(), await api.destinations.summary(),
    await api.destinations.figures(["d", "e"]), await api.destinations.stats("d", { hours: 1 }),
    await api.destinations.get("d"), await api.destinations.timeline("d").toArray(),
    await api.destinations.enable("d", { reason: "r", waiting: "drain", dead_since: time }),
    await api.destinations.freeze("d", "r"),
    await api.replays.create(replay), await api.replays.count(replay), await api.replays.get("r"),
    await api.replays.list().toArray(), await api.replays.pause("r"), await api.replays.resume("r"),
    await api.replays.cancel("r"),
    await api.eventTypes.create({ name: "a.b", description: "d", schema: {}, example: 1, deprecated: true, scope: "server" }),
    await api.eventTypes.get("a.b", { scope: "server" }), await api.eventTypes.list({ scope: "tenant" }).toArray(),
    await api.eventTypes.update("a.b", { description: null, schema: {}, example: 1, deprecated: false }, { scope: "server" }),
    await api.eventTypes.catalogue(), await api.eventTypes.updateCatalogue({ unknown_types: "flag", misfits: null }),
    await api.erasures.create({ event: "e" }), await api.erasures.create({ object: "o" }), await api.erasures.get("e"),
    await api.erasures.list().toArray(), form === "new" ? null : await api.erasures.wait("e"),
    await api.portalLinks.create({ access: "read", expires_in: 60, theme: { accent: "#123456" } }),
    await api.portalLinks.list().toArray(), await api.alerts.list(), await api.alerts.test("t"),
    await api.operations.server(), await api.operations.settings(), await api.operations.backup(),
    await api.operations.startBackup("/b"), await api.ledger({ scope: "all" }),
    await api.stats({ stepMinutes: 1, scope: "all", ...when }), await api.limits(), await api.rates(), await api.policy(),
    await api.simulate({
      deliveries: 1, outage_seconds: 1, answer_ms: 1, enable_after_seconds: 1, healthy_before_seconds: 1, per_seconds: 1,
      policy: { retry: { max: 1 } }, presets: ["server"], samples: 10, subscription: "s",
    }),
    await api.audit({ tenant: "t", key: "k", action: "a", target: "x", ...when }).toArray(),
    await api.testFilter(filter, { type: "a.b", data: 1 }),
    await api.tryFilter({ filter, event_ids: ["e"] }), await api.tryFilter({ filter, recent: 1, type: "t" }),
  ];
  await api.tenants.delete("t");
  await api.keys.delete("k");
  await api.subscriptions.delete("s");
  await api.eventTypes.delete("a.b", { scope: "server" });
  await api.portalLinks.revoke("p");
  for await (const event of api.stream({ outcome: "failed", destination: "d", body: "no" })) answers.push(event);
  return answers;
}

for (const form of ["full", "old", "new"]) {
  test(`every call works with the answers of a server that is ${form}`, async () => {
    const answers = await callEverything(client(form), form);
    assert.ok(answers.length > 60);
    assert.ok(answers.every((answer) => answer !== undefined));
  });
}

test("an older server's answer lacks what came later, and a newer server's words are passed on", async () => {
  const old = await client("old").subscriptions.get("s");
  assert.deepEqual([old.id, old.effective_policy, old.uid], ["text", undefined, undefined]);
  assert.deepEqual(await client("old").rates(), []);
  assert.equal((await client("new").deliveries.get("d")).state as string, "from_the_future");
});

test("the link of a portal is not shown by accident", async () => {
  const link = await client("full").portalLinks.create({ access: "manage" });
  assert.equal(link.url, "text");
  assert.ok(!inspect(link).includes("url") && !JSON.stringify(link).includes("url"));
});
