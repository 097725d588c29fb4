import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import { verify, VerificationError, type HeaderSource } from "@postrider/client/verify";

interface Case {
  name: string;
  expected: string;
  secrets: string[];
  headers: Record<string, string>;
  body_base64: string;
  now: number;
  tolerance_seconds: number;
}
const table = JSON.parse(readFileSync(new URL("../../../verify-cases.json", import.meta.url), "utf8")) as {
  cases: Case[];
  bad_secrets: { name: string; secret: string }[];
};

function decide(one: Case, headers: HeaderSource = one.headers): Promise<string> {
  const body = Buffer.from(one.body_base64, "base64");
  const options = { now: new Date(one.now * 1000), toleranceSeconds: one.tolerance_seconds };
  return verify(body, headers, one.secrets, options).then(
    () => "ok",
    (error: unknown) => {
      assert.ok(error instanceof VerificationError, String(error));
      for (const secret of one.secrets) assert.ok(!JSON.stringify([error, error.stack]).includes(secret.slice(6)));
      return error.code;
    },
  );
}

for (const one of table.cases) {
  test(`verify: ${one.name}`, async () => assert.equal(await decide(one), one.expected));
}

for (const { name, secret } of table.bad_secrets) {
  test(`verify refuses a secret: ${name}`, async () => {
    const one = table.cases[0]!;
    const call = verify("x", one.headers, secret, { now: new Date(one.now * 1000) });
    await assert.rejects(call, (error: Error) => {
      assert.ok(error instanceof TypeError);
      assert.ok(secret === "" || !error.message.includes(secret));
      return true;
    });
  });
}

test("verify reads headers in every usual form", async () => {
  const one = table.cases[0]!;
  const upper = Object.entries(one.headers).map(([name, value]) => [name.toUpperCase(), value] as const);
  const lower = new Map(Object.entries(one.headers));
  for (const headers of [new Headers(one.headers), Object.fromEntries(upper), upper, upper[Symbol.iterator](), lower]) {
    assert.equal(await decide(one, headers as HeaderSource), "ok");
  }
  const twice = { ...one.headers, "webhook-id": [one.headers["webhook-id"]!, "other"] };
  assert.equal(await decide(one, twice), "malformed_header");
});

test("verify takes text, bytes, and a part of a larger buffer", async () => {
  const one = table.cases[0]!;
  const bytes = Buffer.from(one.body_base64, "base64");
  const larger = Buffer.concat([Buffer.from("before"), bytes, Buffer.from("after")]);
  const options = { now: new Date(one.now * 1000) };
  for (const body of [bytes.toString(), bytes, new Uint8Array(bytes).buffer, larger.subarray(6, 6 + bytes.length)]) {
    const verified = await verify(body, one.headers, one.secrets, options);
    assert.deepEqual(verified, { id: one.headers["webhook-id"], timestamp: new Date(1614265330000) });
  }
});

test("verify refuses where the tolerance or the time is not a number", async () => {
  const one = table.cases[0]!;
  const late = { ...one, now: one.now + 10_000, tolerance_seconds: NaN };
  assert.equal(await decide(late), "too_old");
  assert.equal(await decide({ ...one, now: NaN }), "too_old");
});

test("verify says so where the body was parsed before", async () => {
  const one = table.cases[0]!;
  const parsed = { test: 2432232314 } as unknown as string;
  await assert.rejects(verify(parsed, one.headers, one.secrets, { now: new Date(one.now * 1000) }), /raw body/);
});
