// Pure modules, bundled by esbuild, which comes with Vite.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { createHmac } from 'node:crypto';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { build } from 'esbuild';

const folder = mkdtempSync(join(tmpdir(), 'postrider-unit-'));
after(() => rmSync(folder, { recursive: true, force: true }));

async function load(name) {
  const outfile = join(folder, `${name}.mjs`);
  const entry = fileURLToPath(new URL(`../src/lib/${name}.ts`, import.meta.url));
  await build({ entryPoints: [entry], outfile, bundle: true, format: 'esm', platform: 'neutral', logLevel: 'silent' });
  return import(pathToFileURL(outfile).href);
}

test('the slots are those of the contract', async () => {
  const { offset } = await load('schedule');
  const expected = [84800, 254400, 593600, 1272000, 2628800, 5342400, 10769600, 21624000, 43332800, 86750400, 173585600];
  assert.deepEqual(expected.map((_, n) => offset(n + 1)), expected);
});

test('a delivery shows spent, failed, next and coming slots', async () => {
  const { scheduleOf, offset } = await load('schedule');
  const start = 1_700_000_000_000;
  const iso = (ms) => new Date(start + ms).toISOString();
  const attempt = (number, turn, retry, ms) => ({ number, turn, retry, started_at: iso(ms), outcome: 'failed' });
  const delivery = { state: 'waiting', attempts: 3, created_at: iso(-5), finished_at: null, next_attempt_at: iso(offset(4)), attempt_log: [attempt(1, 'first', null, 0), attempt(2, 'retry', 1, offset(1) + 3), attempt(3, 'probe', null, offset(2))] };
  const { slots, source } = scheduleOf(delivery, start + offset(3) + 1000);
  assert.equal(source, 'default');
  assert.deepEqual(slots.slice(0, 5).map((slot) => slot.state), ['failed', 'spent', 'spent', 'next', 'ahead']);
});

test('server-sent events are cut at any place', async () => {
  const { sseParser } = await load('sse');
  const text = ': alive\n\nevent: attempt\ndata: {"a":1}\n\nevent: dead\ndata: x\ndata: y\n\n';
  for (let cut = 0; cut <= text.length; cut += 1) {
    const found = [];
    const parse = sseParser((name, data) => found.push([name, data]));
    parse(text.slice(0, cut));
    parse(text.slice(cut));
    assert.deepEqual(found, [['attempt', '{"a":1}'], ['dead', 'x\ny']]);
  }
});

test('the difference names each leaf that changed', async () => {
  const { difference } = await load('json');
  const found = difference({ a: 1, b: { c: [1, 2], d: null }, e: 'x' }, { a: 1, b: { c: [1, 3, 4], d: 0 }, f: true });
  assert.deepEqual(found.map((one) => `${one.kind} ${one.path}`), ['changed b.c[1]', 'added b.c[2]', 'changed b.d', 'removed e', 'added f']);
});

test('types match as the server matches them', async () => {
  const { typeMatches } = await load('filters');
  for (const [pattern, type, expected] of [['*', 'a.b', true], ['task.*', 'task.updated.late', true], ['task.*', 'task', false], ['task.*', 'tasks.x', false], ['task.updated', 'task.updated', true]]) {
    assert.equal(typeMatches([pattern], type), expected, `${pattern} ${type}`);
  }
});

test('a ring keeps the newest, newest first', async () => {
  const { Ring } = await load('ring');
  const ring = new Ring(3);
  for (let n = 1; n <= 5; n += 1) ring.push(n);
  assert.deepEqual(ring.newest(() => true), [5, 4, 3]);
});

test('the Python and JavaScript snippets accept a good signature and refuse a changed body', async () => {
  const { SNIPPETS } = await load('snippets');
  const secret = Buffer.from('0123456789abcdef0123456789abcdef').toString('base64');
  const timestamp = Math.floor(Date.now() / 1000);
  const sign = (body) => createHmac('sha256', Buffer.from(secret, 'base64')).update(`dlv_1.${timestamp}.${body}`).digest('base64');
  const headers = { 'webhook-id': 'dlv_1', 'webhook-timestamp': String(timestamp), 'webhook-signature': `v1,AAAA v1,${sign('{"a":1}')}` };
  process.env.WEBHOOK_SECRET = `whsec_${secret}`;
  writeFileSync(join(folder, 'verify.mjs'), SNIPPETS.JavaScript);
  const { verify } = await import(pathToFileURL(join(folder, 'verify.mjs')).href);
  assert.equal(verify(headers, '{"a":1}'), true);
  assert.equal(verify(headers, '{"a":2}'), false);
  const script = `${SNIPPETS.Python}\nimport json, sys\nheaders = json.loads(sys.argv[1])\nprint(verify(headers, b'{"a":1}'), verify(headers, b'{"a":2}'))`;
  writeFileSync(join(folder, 'verify.py'), script);
  assert.equal(execFileSync('python3', [join(folder, 'verify.py'), JSON.stringify(headers)]).toString().trim(), 'True False');
});

// The page's simulation beside the exact one of the binary.
for (const [outage, hours, rate] of [['6h', 6, 10], ['2d', 48, 1], ['62h', 62, 5], ['5m', 1 / 12, 2]]) {
  test(`the simulator agrees with postrider simulate about ${outage} at ${rate} a second`, async () => {
    const { simulate, simulateFixed, DEFAULTS, OTHERS, SVIX_OFF_AFTER_MS } = await load('simulate');
    const exact = JSON.parse(execFileSync(process.env.POSTRIDER_BINARY, ['simulate', '--outage', outage, '--rate', `${rate}/s`, '--json'], { env: { PATH: process.env.PATH }, maxBuffer: 1e8 }));
    const scenario = { perSecond: rate, outageMs: hours * 3_600_000, healthyMs: 86_400_000, enableAfterMs: null };
    const ours = { default: simulate(scenario, DEFAULTS), svix: simulateFixed(scenario, OTHERS.svix, SVIX_OFF_AFTER_MS), stripe: simulateFixed(scenario, OTHERS.stripe, null) };
    for (const plan of exact.plans) {
      const found = ours[plan.name];
      const near = (name, a, b) => assert.ok(Math.abs(a - b) <= 0.03 * Math.max(a, b) + 60 * rate, `${plan.name} ${name}: ${a}, exactly ${b}`);
      near('late', found.late, plan.late);
      near('dead', found.dead, plan.dead);
      near('failed attempts', found.failedAttempts, plan.failed_attempts);
    }
  });
}
