// Pure modules, bundled by esbuild, which comes with Vite.
import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import { createHmac } from 'node:crypto';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
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

test('retries are due when the contract says', async () => {
  const { offsets } = await load('presets');
  const expected = [84800, 254400, 593600, 1272000, 2628800, 5342400, 10769600, 21624000, 43332800, 86750400, 173585600];
  assert.deepEqual(offsets(84_800, 11), expected);
});

test('a schedule is drawn from its slots, without the attempts before a replay', async () => {
  const { scheduleOf } = await load('schedule');
  const iso = (ms) => new Date(1_700_000_000_000 + ms).toISOString();
  const attempt = (number, turn, ms) => ({ number, turn, started_at: iso(ms), outcome: 'failed' });
  const slots = ['failed', 'spent', 'failed', 'next', 'ahead'].map((state, number) => ({ number, state, due_at: iso(number * 1000), attempt: state === 'failed' ? number + 2 : null }));
  const found = scheduleOf({ schedule: { started_at: iso(0), exact: true, slots }, attempt_log: [attempt(1, 'first', -900), attempt(2, 'first', 0), attempt(3, 'probe', 500), attempt(4, 'retry', 2000)] });
  assert.deepEqual(found.slots.map(({ n, state, attempt }) => [n, state, attempt?.number ?? null]), [[1, 'spent', null], [2, 'failed', 4], [3, 'next', null], [4, 'ahead', null]]);
  assert.deepEqual(found.attempts.map((one) => one.number), [2, 3, 4]);
});

test('the bar of attempts says in words what it shows', async () => {
  const { barWords, outcomeWords } = await load('outcomes');
  const ok = { class: 'delivered', status: 200 };
  const cases = [
    [[], 'No attempts in the last eight days'],
    [[ok], 'The last 1 attempt: all delivered; the last one: status 200'],
    [[ok, { class: 'refused', status: null }], 'The last 2 attempts: 1 failed; the last one: connection refused'],
    [[{ class: 'status_5xx', status: 503 }], 'The last 1 attempt: all failed; the last one: status 503'],
  ];
  for (const [recent, words] of cases) assert.equal(barWords(recent), words);
  assert.equal(outcomeWords('something_new'), 'something new');
});

test('the accent of a portal can be read in light and in dark', async () => {
  const { readableOn } = await load('colour');
  for (const accent of ['#ffdd00', '#000000', '#ffffff', '#3049c4', '#ff0000']) {
    for (const isDark of [false, true]) assert.match(readableOn(accent, isDark).text, /^#[0-9a-f]{6}$/);
  }
  assert.equal(readableOn('#3049c4', false).text, '#3049c4', 'what can be read stays as it is');
  assert.notEqual(readableOn('#ffdd00', false).text, '#ffdd00');
  assert.equal(readableOn('url(x)', false), null);
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

test('another comparison keeps what fits it', async () => {
  const { withOp } = await load('filters');
  const was = { field: 'data.at', op: 'gt', value: '2026-01-01T00:00:00Z', as: 'time' };
  assert.deepEqual(withOp(was, 'lte'), { ...was, op: 'lte' });
  assert.deepEqual(withOp(was, 'eq'), { field: 'data.at', op: 'eq', value: was.value }, 'only ordered comparisons compare times');
  assert.deepEqual(withOp(was, 'exists'), { field: 'data.at', op: 'exists' });
  assert.deepEqual(withOp({ field: 'x', op: 'changed' }, 'eq'), { field: 'x', op: 'eq', value: '' });
});

test('a text that is no filter is a fault, and never a filter', async () => {
  const { filterOf } = await load('filters');
  const good = { any: [{ all: [{ field: 'data.x', op: 'eq', value: 1 }] }] };
  assert.deepEqual(filterOf(JSON.stringify(good)), { filter: good });
  assert.deepEqual(filterOf('  '), { filter: null });
  const cases = { '{"all": [': /not JSON/, 3: /^filter must be an object/, '"x"': /must be an object/, '[]': /must be an object/, '{"all": 5}': /^filter.all must be a list/, '{"all": [{"any": [null]}]}': /^filter.all\[0\].any\[0\] must be an object/, '{"op": "eq"}': /^filter.field must/ };
  for (const [text, words] of Object.entries(cases)) assert.match(filterOf(text).fault ?? '', words, text);
});

test('all pages of attempts are read, the full ones once, and what is not read yet is known', async () => {
  const { AttemptPages } = await load('attempts');
  const asked = [];
  let last = 12;
  const read = async (cursor) => {
    asked.push(cursor);
    const n = Number(cursor);
    return { data: [{ number: n }], next_cursor: n < last ? String(n + 1) : null };
  };
  const pages = new AttemptPages();
  assert.deepEqual(await pages.after(null, read), { rows: [], isWhole: true });
  const first = await pages.after('1', read);
  assert.deepEqual([first.rows.length, first.isWhole, asked.length], [10, false, 10]);
  const second = await pages.after('1', read);
  assert.deepEqual([second.rows.map((row) => row.number), second.isWhole], [[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12], true]);
  asked.length = 0;
  last = 13;
  assert.equal((await pages.after('1', read)).rows.length, 13);
  assert.deepEqual(asked, ['12', '13'], 'full pages are not read again');
});

test('a ring keeps the newest, newest first', async () => {
  const { Ring } = await load('ring');
  const ring = new Ring(3);
  for (let n = 1; n <= 5; n += 1) ring.push(n);
  assert.deepEqual(ring.newest(() => true), [5, 4, 3]);
});

const snippet = (name) => new URL(`../src/snippets/${name}`, import.meta.url);

/** The headers of a webhook with the body {"a":1}, with a wrong signature and a good one. Puts the secret into WEBHOOK_SECRET. */
function signedHeaders() {
  const secret = Buffer.from('0123456789abcdef0123456789abcdef').toString('base64');
  const timestamp = Math.floor(Date.now() / 1000);
  const signature = createHmac('sha256', Buffer.from(secret, 'base64')).update(`dlv_1.${timestamp}.{"a":1}`).digest('base64');
  process.env.WEBHOOK_SECRET = `whsec_${secret}`;
  return { 'webhook-id': 'dlv_1', 'webhook-timestamp': String(timestamp), 'webhook-signature': `v1,AAAA v1,${signature}` };
}

test('the Python and JavaScript snippets accept a good signature and refuse a changed body', async () => {
  const headers = signedHeaders();
  const { verify } = await import(snippet('verify.mjs').href);
  assert.equal(verify(headers, '{"a":1}'), true);
  assert.equal(verify(headers, '{"a":2}'), false);
  const script = `${readFileSync(snippet('verify.py'))}\nimport json, sys\nheaders = json.loads(sys.argv[1])\nprint(verify(headers, b'{"a":1}'), verify(headers, b'{"a":2}'))`;
  writeFileSync(join(folder, 'verify.py'), script);
  assert.equal(execFileSync('python3', [join(folder, 'verify.py'), JSON.stringify(headers)]).toString().trim(), 'True False');
});

// The Rust snippet is compiled and run by crates/dashboard/tests/snippets.rs.
const hasGo = spawnSync('go', ['version']).status === 0;
test('the Go snippet accepts a good signature and refuses a changed body and an empty secret', { skip: !hasGo && 'there is no go' }, () => {
  const module = join(folder, 'go');
  mkdirSync(module);
  // The oldest version that a receiver may have: that of Debian 12.
  writeFileSync(join(module, 'go.mod'), 'module webhook\n\ngo 1.19\n');
  writeFileSync(join(module, 'verify.go'), readFileSync(snippet('verify.go')));
  writeFileSync(join(module, 'verify_test.go'), `package webhook

import (
	"encoding/json"
	"net/http"
	"os"
	"testing"
)

func TestVerify(t *testing.T) {
	named := map[string]string{}
	if err := json.Unmarshal([]byte(os.Getenv("HEADERS")), &named); err != nil {
		t.Fatal(err)
	}
	header := http.Header{}
	for name, value := range named {
		header.Set(name, value)
	}
	if !Verify(header, []byte(\`{"a":1}\`)) || Verify(header, []byte(\`{"a":2}\`)) {
		t.Fatal("the snippet decides wrongly")
	}
	t.Setenv("WEBHOOK_SECRET", "")
	if Verify(header, []byte(\`{"a":1}\`)) {
		t.Fatal("the empty secret signs nothing")
	}
}
`);
  const headers = signedHeaders();
  const settings = { GOFLAGS: '-mod=mod', GOPROXY: 'off', GOTOOLCHAIN: 'local', GOCACHE: join(folder, 'go-cache'), HEADERS: JSON.stringify(headers) };
  const said = spawnSync('go', ['test', './...'], { cwd: module, env: { ...process.env, ...settings }, encoding: 'utf8' });
  assert.equal(said.status, 0, `${said.stdout}${said.stderr}`);
  assert.equal(execFileSync('gofmt', ['-l', '.'], { cwd: module }).toString(), '');
});

test('a length of time is edited in the largest unit that fits', async () => {
  const { fitting, spanSeconds } = await load('durations');
  const cases = [[84.8, 84.8, 's'], [30, 30, 's'], [300, 5, 'min'], [5400, 90, 'min'], [7200, 2, 'h'], [604_800, 7, 'd'], [0, 0, 's']];
  for (const [seconds, number, unit] of cases) assert.deepEqual(fitting(seconds), { number, unit }, `${seconds} s`);
  assert.equal(spanSeconds(84.8, 11), 173_585.6);
});

test('a fault is shown at its field, and at the field that it is inside of', async () => {
  const { faultOf, isAt, Problem } = await load('problem');
  const fault = faultOf(new Problem(422, { detail: 'must be at most 20', field: 'policy.retry.max' }));
  assert.deepEqual([fault.brief, fault.text], ['Must be at most 20', 'Must be at most 20 (policy.retry.max)']);
  assert.ok(isAt(fault, 'policy.retry.max') && isAt(fault, 'policy'));
  assert.ok(!isAt(fault, 'policy.retry.maximum') && !isAt(fault, 'pol') && !isAt(null, 'policy'));
  assert.equal(faultOf(new Problem(422, { detail: 'no', field: 'schema', pointer: '/type' })).brief, 'No, at /type');
  assert.equal(faultOf(new Error('away')).field, null);
});
