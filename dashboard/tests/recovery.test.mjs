// What waits and what died at a destination is sent from the page; the effects are read through the API.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { axe, go, openBrowser, openPage, signIn, violations } from './browser.mjs';
import { startReceivers } from './receivers.mjs';
import { Postrider } from './server.mjs';

let receivers, server, browser, page, id;
const DEAD = 5;

before(async () => {
  receivers = await startReceivers();
  // A fast clock, until some have died; then a true one, by which the first slot is more than a minute away.
  server = await Postrider.start({ timeScale: 20_000 });
  await server.post('subscriptions', { url: `${receivers.base}/broken`, types: ['*'] });
  await sendMany(DEAD);
  await server.until('ledger', (ledger) => ledger.dead === DEAD, 'dead letters', 40);
  await server.down();
  await server.up();
  id = (await server.get('destinations')).data[0].id;
  browser = await openBrowser();
  page = await openPage(browser, server);
  await signIn(page, server.key);
});

after(async () => {
  await browser?.close();
  await server?.remove();
  await receivers?.close();
});

const button = (name) => page.getByRole('dialog').getByRole('button', { name });

async function sendMany(count) {
  for (let n = 0; n < count; n += 1) await server.post('events', { type: 'order.paid', data: { n } });
}

/** Sends some that fail, and answers with each when it waits for its first slot. */
async function makeWait(count) {
  receivers.turn('/broken', '/broken');
  await sendMany(count);
  const { data } = await server.until('deliveries?state=waiting&limit=100', (list) => list.data.filter((one) => one.attempts === 1).length === count, 'what waits');
  return data;
}

/** Every one was delivered by its second attempt, before the slot that it had waited for. */
async function arrivedBeforeTheirSlots(waited) {
  for (const one of waited) {
    const found = await server.until(`deliveries/${one.id}`, (now) => now.state === 'delivered', 'its delivery');
    assert.equal(found.attempts, 2);
    assert.ok(Date.parse(found.finished_at) < Date.parse(one.next_attempt_at), `${found.finished_at} is before ${one.next_attempt_at}`);
  }
}

async function openActions(state) {
  await go(page, `/destinations/${id}`);
  await page.locator('.head').getByText(state, { exact: true }).waitFor();
  await page.getByRole('button', { name: 'Enable, freeze, test…' }).click();
}

test('what waits is counted and retried at once', async () => {
  await server.post(`destinations/${id}/enable`, {});
  const waited = await makeWait(3);
  const counted = await server.post('replays', { destination: id, state: 'waiting', dry_run: true });
  assert.equal(counted.total, 3);
  receivers.turn('/broken', '/healthy');
  await openActions('enabled');
  await button('Retry the 3 that wait').click();
  await page.getByText('Retrying 3 deliveries.').waitFor();
  await arrivedBeforeTheirSlots(waited);
  const { data } = await server.until('replays?limit=1', (list) => list.data[0]?.state === 'finished', 'the end of the job');
  assert.deepEqual([data[0].filter.state, data[0].filter.destination, data[0].total], ['waiting', id, 3]);
  assert.equal((await server.get('ledger')).dead, DEAD, 'what died stays dead');
});

test('a frozen destination is enabled with what waits and what died', async () => {
  const waited = await makeWait(4);
  await server.post(`destinations/${id}/freeze`, { reason: 'a test' });
  receivers.turn('/broken', '/healthy');
  await openActions('frozen');
  await page.getByRole('option', { name: `all that is kept (${DEAD})` }).waitFor({ state: 'attached' });
  await page.getByRole('option', { name: 'since it was frozen (0)' }).waitFor({ state: 'attached' });
  await page.getByRole('option', { name: 'as the policy says: at its slots' }).waitFor({ state: 'attached' });
  assert.equal(await button(/that wait/).count(), 0, 'the server refuses to retry at a frozen one');
  assert.deepEqual(await axe(page), []);
  await page.getByLabel('Reason').fill('repaired');
  await page.getByLabel('What waits is sent').selectOption('drain');
  await page.getByLabel('What died is replayed').selectOption('all');
  await button('Enable').click();
  await page.getByText('Enabled: its counters are reset, and what died is replayed.').waitFor();
  await arrivedBeforeTheirSlots(waited);
  const job = await server.until('replays?limit=1', (list) => list.data[0]?.state === 'finished', 'the end of the job', 60);
  assert.deepEqual([job.data[0].filter.state, job.data[0].filter.destination, job.data[0].total], ['dead', id, DEAD]);
  await server.until('ledger', (ledger) => ledger.dead === 0 && ledger.delivered === ledger.accepted, 'that everything has arrived');
  const { data } = await server.get(`destinations/${id}/timeline`);
  assert.ok(data.some((one) => one.to === 'enabled' && JSON.stringify(one).includes('repaired')));
});

test('enabled by its slots, what waits keeps its slot, and nothing is replayed', async () => {
  const waited = await makeWait(2);
  await server.post(`destinations/${id}/freeze`, { reason: 'a test' });
  receivers.turn('/broken', '/healthy');
  await openActions('frozen');
  await page.getByLabel('What waits is sent').selectOption('slots');
  await button('Enable').click();
  await page.getByText('Enabled: its counters are reset.').waitFor();
  await server.until(`destinations/${id}`, (found) => found.state === 'enabled');
  for (const one of waited) {
    const found = await server.get(`deliveries/${one.id}`);
    assert.deepEqual([found.state, found.attempts, found.next_attempt_at], ['waiting', 1, one.next_attempt_at]);
  }
  assert.equal((await server.get('replays')).data.length, 2, 'no job was begun');
});

test('what waits is counted and retried from the page of dead letters', async () => {
  const { data: waited } = await server.get('deliveries?state=waiting');
  assert.equal(waited.length, 2, 'those of the test before');
  await go(page, '/dead');
  await page.getByRole('button', { name: 'Replay many' }).click();
  await page.getByRole('dialog').getByLabel('State').selectOption('waiting');
  await button('Retry 2 deliveries').click();
  await page.getByText('Retrying 2 deliveries.').waitFor();
  await arrivedBeforeTheirSlots(waited);
});

test('all of this broke no policy', async () => assert.deepEqual(await violations(page), []));
