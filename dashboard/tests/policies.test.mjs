// A subscription's description and policy, edited on the page; the effects are read through the API.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { axe, go, openBrowser, openPage, signIn, violations } from './browser.mjs';
import { startReceivers } from './receivers.mjs';
import { Postrider } from './server.mjs';

let receivers, server, browser, page, id;

before(async () => {
  receivers = await startReceivers();
  server = await Postrider.start();
  browser = await openBrowser();
  page = await openPage(browser, server);
  await signIn(page, server.key);
});

after(async () => {
  await browser?.close();
  await server?.remove();
  await receivers?.close();
});

const button = (name) => page.getByRole('button', { name, exact: true });
const field = (name) => page.getByLabel(name, { exact: true });
const fold = (name) => page.locator('summary', { hasText: name }).click();
/** The row of the policy's table: what holds, and where it comes from. */
const row = async (name) => (await page.locator('tr', { hasText: name }).locator('td').allInnerTexts()).slice(1).map((text) => text.trim());

test('a subscription is created with a name, an own identifier, metadata and a policy', async () => {
  await go(page, '/subscriptions/new');
  await field('URL').fill(`${receivers.base}/healthy`);
  await page.getByLabel('Event types').fill('order.*');
  await fold('Name, description, metadata');
  await page.getByLabel('Name (optional)').fill('Warehouse');
  await page.getByLabel('Your own identifier').fill('warehouse-7');
  await page.getByLabel('Description (optional)').fill('Orders for Lyon');
  await button('Add a pair').click();
  await field('Metadata: key 1').fill('team');
  await field('Metadata: value 1').fill('logistics');
  await fold('Policy');
  await field('Retry unit').fill('5');
  await field('Retry unit: unit').selectOption('min');
  await page.getByLabel(/^Number of retries/).fill('3');
  await page.getByText('3 retries, the last one 35 min after the first attempt.').waitFor();
  await field('Deadline of an attempt').fill('10');
  await page.getByLabel('At most so many requests per second').fill('12.5');
  await page.getByLabel('What died of an outage is').selectOption('replay');
  assert.deepEqual(await axe(page), []);
  await button('Create the subscription').click();
  await page.locator('.once code').waitFor();
  id = (await page.evaluate(() => location.hash)).split('/').at(-1);
  const made = await server.get(`subscriptions/${id}`);
  assert.deepEqual([made.name, made.uid, made.description, made.metadata], ['Warehouse', 'warehouse-7', 'Orders for Lyon', { team: 'logistics' }]);
  assert.equal(made.rate_limit, 12.5);
  assert.deepEqual(made.policy, {
    retry: { unit_seconds: 300, max: 3 },
    attempt: { deadline_seconds: 10 },
    recovery: { mode: null, dead: 'replay', dead_max_age_seconds: null },
  });
});

test('the page says what holds and where it comes from', async () => {
  await page.getByRole('heading', { name: 'Warehouse' }).waitFor();
  await page.getByText('team: logistics').waitFor();
  assert.deepEqual(await row('Retries'), ['3 retries, the last one 35 min after the first attempt', 'this subscription']);
  assert.deepEqual((await row('Deadline of an attempt'))[1], 'this subscription');
  assert.deepEqual(await row('What died of an outage is'), ['replayed when the destination is enabled again', 'this subscription']);
  assert.deepEqual(await row('After an outage, what waits is sent'), ['at its slots', 'the server']);
  assert.deepEqual(await row('Requests to the URL'), ['at most 12.5 a second', 'this subscription']);
});

test('a value of another subscription with the same URL is named, with a link to it', async () => {
  const other = await server.post('subscriptions', { url: `${receivers.base}/healthy`, types: ['task.*'], rate_limit: 2, policy: { recovery: { mode: 'slots' } } });
  await server.call('PATCH', `subscriptions/${id}`, { rate_limit: 9, policy: { recovery: { mode: 'drain' } } });
  await go(page, '/subscriptions');
  await go(page, `/subscriptions/${id}`);
  const link = page.locator('tr', { hasText: 'After an outage, what waits is sent' }).getByRole('link');
  assert.equal(await link.getAttribute('href'), `#/subscriptions/${other.id}`);
  assert.match((await row('Requests to the URL'))[0], /at most 2 a second[^]*asks for: at most 9 a second/);
});

test('what the server refuses is said at its field, and nothing is changed', async () => {
  const limit = (await server.get('policy')).subscription_limits;
  await go(page, `/subscriptions/${id}`);
  await button('Edit').click();
  await page.getByLabel(/^Number of retries/).fill(String(limit.retry_max + 1));
  await button('Save').click();
  const fault = page.locator('[data-fault="policy.retry.max"]');
  await fault.waitFor();
  assert.match(await fault.innerText(), /policy_limits\.retry_max/);
  assert.equal(await page.getByLabel(/^Number of retries/).getAttribute('aria-invalid'), 'true');
  assert.equal((await server.get(`subscriptions/${id}`)).policy.retry.max, 3);
  assert.deepEqual(await axe(page), []);
  await page.getByLabel(/^Number of retries/).fill('3');
  await page.getByLabel('Your own identifier').fill('not allowed!');
  await button('Save').click();
  await page.locator('[data-fault="uid"]').waitFor();
});

test('a policy goes back to the server, and a name is taken away', async () => {
  await page.getByLabel('Your own identifier').fill('warehouse-8');
  await page.getByLabel('Name (optional)').fill('');
  await field('Retry unit').fill('');
  await page.getByLabel(/^Number of retries/).fill('');
  await page.getByLabel('What died of an outage is').selectOption('');
  await page.getByRole('button', { name: 'Remove team' }).click();
  await button('Save').click();
  await page.getByText('What holds', { exact: true }).waitFor();
  const found = await server.get(`subscriptions/${id}`);
  assert.deepEqual([found.name, found.uid, found.description, found.metadata], [null, 'warehouse-8', 'Orders for Lyon', {}]);
  assert.deepEqual([found.policy.retry, found.policy.recovery.dead, found.policy.recovery.mode], [{ unit_seconds: null, max: null }, null, 'drain']);
  assert.equal(found.policy.attempt.deadline_seconds, 10);
});

test('all of this broke no policy', async () => assert.deepEqual(await violations(page), []));
