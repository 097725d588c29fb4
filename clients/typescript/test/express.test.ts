/** The Express example, with requests of the real server and with forged ones. */
import assert from "node:assert/strict";
import { once } from "node:events";
import type net from "node:net";
import { test } from "node:test";

import express from "express";

import { postrider } from "../examples/express.js";
import { freshTenant } from "./support.js";

test("the Express middleware lets the real webhook through and no forged one", async () => {
  const client = await freshTenant();
  const secret = `whsec_${Buffer.alloc(32, 3).toString("base64")}`;
  const got: { headers: express.Request["headers"]; body: Buffer }[] = [];
  const app = express();
  app.use("/hook", postrider("whsec_" + Buffer.alloc(32, 4).toString("base64"), secret));
  app.post("/hook", (req, res) => {
    got.push({ headers: req.headers, body: req.body as Buffer });
    res.status(204).end();
  });
  const server = app.listen(0, "127.0.0.1");
  await once(server, "listening");
  const url = `http://127.0.0.1:${(server.address() as net.AddressInfo).port}/hook`;
  try {
    const { id } = await client.subscriptions.create({ url, types: ["*"], secret });
    assert.equal((await client.subscriptions.test(id)).status, 204);
    const [real] = got;
    const signed = (name: string) => String(real!.headers[name]);
    const headers: Record<string, string> = {
      "content-type": "application/json",
      "webhook-id": signed("webhook-id"),
      "webhook-timestamp": signed("webhook-timestamp"),
      "webhook-signature": signed("webhook-signature"),
    };
    const send = async (body: string, more = {}) =>
      (await fetch(url, { method: "POST", body, headers: { ...headers, ...more } })).status;
    const text = real!.body.toString();
    assert.equal(await send(text), 204);
    assert.equal(await send(text + " "), 401, "another body");
    assert.equal(await send(text, { "webhook-id": "other" }), 401, "another id");
    assert.equal(await send(text, { "webhook-timestamp": "1614265330" }), 401, "an old time");
    assert.equal(await send(text, { "webhook-signature": "v1,AAAA" }), 401, "a forged signature");
    assert.equal((await fetch(url, { method: "POST", body: text })).status, 401, "no headers");
    assert.equal(got.length, 2);
  } finally {
    server.closeAllConnections();
    server.close();
  }
});
