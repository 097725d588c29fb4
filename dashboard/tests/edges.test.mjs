// Where a list, a stream or a page ends: answers that come in parts, streams that break, pages that are left.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { go, openBrowser, openPage, signIn, violations } from './browser.mjs';
import { startReceivers } from './receivers.mjs';
import { Postrider } from './server.mjs';

const wait = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
let receivers, server, browser, page, dead;

before(async () => {
  receivers = await startReceivers();
  // A fast clock, so that deliveries die soon.
  server = await Postrider.start({ timeScale: 20_000 });
  await server.post('subscriptions', { url: `${receivers.base}/broken`, types: ['order.failed'] });
  await server.post('subscriptions', { url: `${receivers.base}/healthy`, types: ['order.paid'] });
  for (let n = 0; n < 6; n += 1) await server.post('events', { type: 'order.paid', object: `order-${n}`, data: { n } });
  await server.post('events', { type: 'order.failed', data: {} });
  await server.until('ledger', (ledger) => ledger.dead === 1 && ledger.delivered === 6, 'a dead letter', 40);
  dead = (await server.get('deliveries?state=dead')).data[0];
  browser = await openBrowser();
  page = await openPage(browser, server);
  await signIn(page, server.key);
});

after(async () => {
  await browser?.close();
  await server?.remove();
  await receivers?.close();
});

/** Answers some requests of the page otherwise until it is undone. */
async function instead(pattern, handle) {
  await page.route(pattern, handle);
  return () => page.unroute(pattern, handle);
}

test('the newest attempts of a delivery are shown where they come on later pages', async () => {
  const { attempt_log: log } = await server.get(`deliveries/${dead.id}`);
  assert.ok(log.length >= 6, 'it was attempted often');
  const asked = [];
  const undo = await instead(`**/v1/deliveries/${dead.id}**`, async (route) => {
    const url = new URL(route.request().url());
    if (url.pathname.endsWith(dead.id)) {
      const answer = await (await route.fetch()).json();
      return route.fulfill({ json: { ...answer, attempt_log: log.slice(0, 2), attempt_log_cursor: 'second' } });
    }
    if (!url.pathname.endsWith('/attempts')) return route.continue();
    const cursor = url.searchParams.get('cursor');
    asked.push(cursor);
    // The last page comes late.
    if (cursor === 'third') await wait(500);
    return route.fulfill({ json: cursor === 'second' ? { data: log.slice(2, 4), next_cursor: 'third' } : { data: log.slice(4), next_cursor: null } });
  });
  await go(page, `/deliveries/${dead.id}`);
  await page.getByText(`${log.length}, newest first`).waitFor();
  const numbers = await page.locator('details > summary > .n').allInnerTexts();
  assert.deepEqual(numbers, log.map((one) => String(one.number)).reverse());
  assert.deepEqual(asked.slice(0, 2), ['second', 'third']);
  await undo();
});

test('the overview of all tenants opens no stream', async () => {
  const asked = [];
  const note = (request) => request.url().includes('/v1/stream') && asked.push(request.url());
  page.on('request', note);
  await go(page, '/overview?tenant=*');
  await page.getByText('Event to arrival').waitFor();
  await wait(2500);
  assert.deepEqual(asked, []);
  const opens = page.waitForRequest((request) => request.url().includes('/v1/stream'));
  await go(page, '/overview?tenant=default');
  await opens;
  page.off('request', note);
});

test('a page that was left during an action reads nothing any more', async () => {
  let release;
  const held = new Promise((resolve) => (release = resolve));
  const undo = await instead(`**/v1/deliveries/${dead.id}/replay`, async (route) => {
    await held;
    await route.fulfill({ status: 409, json: { title: 'Conflict', code: 'conflict', detail: 'not now', status: 409 } });
  });
  await go(page, `/deliveries/${dead.id}`);
  await page.getByRole('button', { name: 'Replay' }).click();
  await go(page, '/settings');
  const asked = [];
  page.on('request', (request) => request.url().includes(`/v1/deliveries/${dead.id}`) && asked.push(request.url()));
  release();
  await page.getByText('Not now').first().waitFor();
  await wait(4500);
  assert.deepEqual(asked, []);
  await undo();
});

test('after a lag the stream is opened again at once, and what was missed is counted', async () => {
  const opened = [];
  const undo = await instead('**/v1/stream**', async (route) => {
    opened.push(Date.now());
    if (opened.length > 1) return route.continue();
    return route.fulfill({ contentType: 'text/event-stream', body: 'event: lagged\ndata: {"missed":7}\n\n' });
  });
  await go(page, '/live');
  await page.getByText('at least 7 missed').waitFor();
  await page.getByText('following').waitFor();
  assert.equal(opened.length, 2);
  assert.ok(opened[1] - opened[0] < 900, `it waited for ${opened[1] - opened[0]} ms`);
  await server.post('events', { type: 'order.paid', data: {} });
  await page.locator('.row').filter({ hasText: 'order.paid' }).first().waitFor();
  await page.getByRole('button', { name: 'Clear', exact: true }).click();
  await page.getByText('0 seen', { exact: false }).waitFor();
  assert.equal(await page.getByText(/missed/).count(), 0, 'Clear also begins this count anew');
  await undo();
});

test('a stream that lags all the time is opened once a second, and the count is not taken to another tenant', async () => {
  await server.post('tenants', { id: 'quiet', name: 'Quiet' });
  await go(page, '/settings');
  const opened = [];
  const undo = await instead('**/v1/stream**', (route) => {
    opened.push(Date.now());
    return route.fulfill({ contentType: 'text/event-stream', body: 'event: lagged\ndata: {"missed":3}\n\n' });
  });
  await go(page, '/live');
  await wait(4500);
  assert.ok(opened.length >= 3 && opened.length <= 6, `${opened.length} times in 4.5 s`);
  await page.getByText(/\d missed/).waitFor();
  await undo();
  await go(page, '/live?tenant=quiet');
  await page.getByText('following').waitFor();
  assert.equal(await page.getByText(/missed/).count(), 0);
  await go(page, '/live?tenant=default');
  await go(page, '/settings');
});

test('a refused stream is asked for less and less often', async () => {
  const opened = [];
  const undo = await instead('**/v1/stream**', (route) => {
    opened.push(Date.now());
    return route.fulfill({ status: 403, json: { title: 'Forbidden', code: 'forbidden', detail: 'no', status: 403 } });
  });
  await go(page, '/settings');
  await go(page, '/live');
  await wait(6000);
  assert.ok(opened.length >= 2 && opened.length <= 4, `${opened.length} times in 6 s`);
  await undo();
  await go(page, '/settings');
});

test('the chosen row stays chosen when newer ones come', async () => {
  await go(page, '/deliveries?type=order.paid');
  await page.locator('.row').nth(4).waitFor();
  await page.keyboard.press('j');
  await page.keyboard.press('j');
  const href = await page.locator('.row.chosen a').getAttribute('href');
  const rows = Number(await page.getByRole('table').getAttribute('aria-rowcount'));
  await server.post('events', { type: 'order.paid', object: 'newer', data: {} });
  await page.waitForFunction((was) => Number(document.querySelector('[role=table]').getAttribute('aria-rowcount')) > was, rows);
  assert.equal(await page.locator('.row.chosen a').getAttribute('href'), href);
  await page.keyboard.press('Enter');
  await page.waitForFunction((hash) => location.hash === hash, href);
});

test('empty pages with more behind them are read on', async () => {
  const asked = [];
  let release;
  const seen = new Promise((resolve) => { release = resolve; });
  const undo = await instead('**/v1/deliveries?**', async (route) => {
    const url = new URL(route.request().url());
    const cursor = url.searchParams.get('cursor');
    asked.push(cursor);
    if (cursor === 'last') {
      url.searchParams.delete('cursor');
      return route.fulfill({ response: await route.fetch({ url: url.href }) });
    }
    if (cursor === 'more') await seen;
    return route.fulfill({ json: { data: [], next_cursor: cursor === 'more' ? 'last' : 'more' } });
  });
  await go(page, '/deliveries?type=order.failed');
  await page.getByText('looking further back…').waitFor();
  assert.equal(await page.getByText('No delivery matches').count(), 0);
  release();
  await page.locator('.row').filter({ hasText: 'order.failed' }).waitFor();
  assert.deepEqual(asked.slice(0, 3), [null, 'more', 'last']);
  await undo();
});

/** So many made-up destinations behind the real ones, as pages of a list would give them. */
async function manyDestinations(count) {
  const { data: [real] } = await server.get('destinations?limit=1');
  const all = Array.from({ length: count }, (_, n) => ({ ...real, id: `dst_made_${n}`, url: `https://example.com/made/${n}`, state: n === count - 1 ? 'frozen' : 'enabled', consecutive_failures: 0, failures: 0 }));
  const asked = [];
  const list = async (route) => {
    const { searchParams: query } = new URL(route.request().url());
    asked.push(Object.fromEntries(query));
    const [state, q, from] = [query.get('state'), query.get('q'), Number(query.get('cursor') ?? 0)];
    const found = all.filter((row) => (!state || (state === 'failing' ? row.state !== 'enabled' : row.state === state)) && (!q || row.url.includes(q)));
    const to = from + Number(query.get('limit'));
    return route.fulfill({ json: { data: found.slice(from, to), next_cursor: to < found.length ? String(to) : null } });
  };
  const summary = (route) => route.fulfill({ json: { enabled: count - 1, disabled: 0, frozen: 1, complete: false } });
  await page.route('**/v1/destinations?**', list);
  await page.route('**/v1/destinations/summary', summary);
  return { asked, undo: async () => (await page.unroute('**/v1/destinations?**', list), await page.unroute('**/v1/destinations/summary', summary)) };
}

test('of very many destinations the worst are first, old ones are found, and they are read rarely', async () => {
  const { asked, undo } = await manyDestinations(7000);
  await go(page, '/destinations');
  await page.getByText('5,001, sorted among the newest 5,000 and all that are disabled or frozen. Search to find others').waitFor();
  assert.match(await page.locator('.row').first().innerText(), /made\/6999[^]*frozen/, 'the oldest, which is frozen');
  const before = asked.length;
  await wait(6000);
  assert.equal(asked.length, before, 'the whole list is not read every few seconds');
  await page.getByRole('searchbox', { name: 'Search' }).fill('made/6543');
  await page.locator('.row').filter({ hasText: 'made/6543' }).waitFor();
  assert.ok(asked.some((one) => one.q === 'made/6543'));
  await page.getByRole('searchbox', { name: 'Search' }).fill('made/nowhere');
  await page.getByText('No destination matches').waitFor();
  await page.getByRole('searchbox', { name: 'Search' }).fill('');
  await go(page, '/overview');
  await page.getByText('6,999+ enabled').waitFor();
  await page.getByText('1+ frozen').waitFor();
  await page.locator('td').filter({ hasText: 'made/6999' }).waitFor();
  await undo();
});

test('the URLs of a few destinations are read one by one, and no list of all', async () => {
  const fresh = await openPage(browser, server);
  await signIn(fresh, server.key);
  const asked = [];
  fresh.on('request', (request) => /\/v1\/destinations/.test(request.url()) && asked.push(new URL(request.url()).pathname + new URL(request.url()).search));
  await go(fresh, '/deliveries');
  await fresh.locator('.row').filter({ hasText: '/broken' }).first().waitFor();
  await fresh.locator('.row').filter({ hasText: '/healthy' }).first().waitFor();
  const lists = asked.filter((one) => one.startsWith('/v1/destinations?') && !one.includes('state='));
  assert.deepEqual(lists, []);
  assert.equal(asked.filter((one) => one === `/v1/destinations/${dead.destination_id}`).length, 1);
  await fresh.context().close();
});

test('all of this broke no policy', async () => assert.deepEqual(await violations(page), []));
