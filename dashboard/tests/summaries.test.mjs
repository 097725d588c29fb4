// What the page shows of all deliveries is counted by the server, not by the page from the newest rows.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { axe, go, openBrowser, openPage, signIn, violations } from './browser.mjs';
import { startReceivers } from './receivers.mjs';
import { Postrider } from './server.mjs';

const DEAD = 7;
const WAITING = 5;
let receivers, server, browser, page;

before(async () => {
  receivers = await startReceivers();
  // A fast clock, so that deliveries die soon.
  server = await Postrider.start({ timeScale: 20_000 });
  await server.post('subscriptions', { url: `${receivers.base}/broken`, types: ['*'] });
  const send = async (type, count) => server.post('events/batch', Array.from({ length: count }, () => ({ type, data: 1 })));
  await send('order.lost', DEAD);
  await server.until('ledger', (ledger) => ledger.dead === DEAD, 'dead letters', 40);
  await server.down();
  await server.up();
  await server.post('subscriptions', { url: `${receivers.base}/broken?later`, types: ['order.late'] });
  await server.post('subscriptions', { url: `${receivers.base}/healthy`, types: ['order.late'] });
  await send('order.late', WAITING);
  await server.until('ledger', (ledger) => ledger.queued + ledger.in_flight === 0 && ledger.waiting >= WAITING, 'retries that wait');
  browser = await openBrowser();
  page = await openPage(browser, server);
  await signIn(page, server.key);
});

after(async () => {
  await browser?.close();
  await server?.remove();
  await receivers?.close();
});

const main = () => page.locator('main');
const card = (title) => main().locator('section.card', { hasText: title });
const tile = () => main().locator('.tiles .card', { hasText: 'Event to arrival' });

/** Answers a call with what the server says, changed. */
async function changed(path, change) {
  const url = new RegExp(`/v1/${path}(\\?|$)`);
  await page.route(url, async (route) => {
    const response = await route.fetch();
    await route.fulfill({ response, json: change(await response.json()) });
  });
  return () => page.unroute(url);
}

test('overview shows the due retries and the arrivals that the server counts, and reads no deliveries for them', async () => {
  const paths = [];
  const note = (request) => paths.push(new URL(request.url()).pathname);
  page.on('request', note);
  await go(page, '/dead');
  await go(page, '/overview');
  const due = await server.get('deliveries/due');
  assert.equal(due.hours.length, 48);
  const ledger = await server.get('ledger');
  const hours = due.hours.reduce((sum, hour) => sum + hour.count, 0);
  assert.equal(due.overdue.count + hours + due.later.count, ledger.waiting);
  await card('Retries due').locator('canvas').waitFor();
  assert.equal(await main().getByText('at least so high').count(), 0);
  // These arrived before the page was opened.
  const { arrivals } = await server.get('stats?step_minutes=60');
  assert.equal(arrivals.count, WAITING);
  assert.ok(arrivals.p50_ms <= arrivals.p99_ms);
  await tile().getByText(`of ${WAITING}`).waitFor();
  assert.match(await tile().getAttribute('title'), /in the last five minutes, at this node/);
  page.off('request', note);
  assert.ok(paths.includes('/v1/deliveries/due') && paths.includes('/v1/deliveries/dead'), String(paths));
  assert.ok(!paths.includes('/v1/deliveries'), 'no rows were read to be counted');
});

test('dead letters are the groups of the server', async () => {
  await go(page, '/dead');
  const { data, counted, complete } = await server.get('deliveries/dead');
  assert.deepEqual([data.length, data[0].count, counted, complete], [1, DEAD, DEAD, true]);
  const row = main().locator('tr', { hasText: '/broken' });
  await row.getByText(String(DEAD), { exact: true }).waitFor();
  assert.equal(await main().getByText('of the newest').count(), 0);
  await row.getByRole('link', { name: 'Look' }).click();
  await page.waitForFunction((n) => document.querySelectorAll('.row').length === n, DEAD);
});

test('where not all are counted, the page says so', async () => {
  const restore = [
    await changed('deliveries/due', (due) => ({
      ...due,
      complete: false,
      overdue: { count: 20_000, complete: false },
      later: { count: 3, complete: true },
    })),
    await changed('deliveries/dead', (dead) => ({ ...dead, complete: false, counted: 50_000, groups: 900 })),
    await changed('stats', (stats) => ({ ...stats, arrivals: null })),
  ];
  await go(page, '/dead');
  await card('What died').getByText(/of the newest 50.000/).waitFor();
  await card('What died').getByText('the largest 1 of 900 groups').waitFor();
  await go(page, '/overview');
  await card('Retries due').getByText(/at least 20.000 overdue/).waitFor();
  await card('Retries due').getByText('3 later').waitFor();
  await card('Retries due').getByText('at least so high').waitFor();
  // Without the server's figures, the page measures what arrives while it is open.
  await tile().getByText('none seen yet').waitFor();
  await server.post('events', { type: 'order.late', data: 2 });
  await tile().getByText('of 1').waitFor();
  assert.match(await tile().getAttribute('title'), /while this page was open/);
  assert.deepEqual(await axe(page), []);
  for (const undo of restore) await undo();
  assert.deepEqual(await violations(page), []);
});
