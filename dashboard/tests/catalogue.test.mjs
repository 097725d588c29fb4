// Event types, what is flagged, filters by object, and erasures, from the page; the effects are read through the API.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { axe, go, openBrowser, openPage, signIn, violations } from './browser.mjs';
import { startReceivers } from './receivers.mjs';
import { Postrider } from './server.mjs';

let receivers, server, browser, page;

before(async () => {
  receivers = await startReceivers();
  server = await Postrider.start();
  await server.post('subscriptions', { url: `${receivers.base}/healthy`, types: ['*'] });
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
const inDialog = (name) => page.getByRole('dialog').getByRole('button', { name, exact: true });
const status = async (path) => (await fetch(`${server.base}/v1/${path}`, { headers: { authorization: `Bearer ${server.key}` } })).status;

test('a schema that cannot be used is refused at its field', async () => {
  await page.keyboard.press('Control+k');
  await page.getByRole('combobox', { name: 'Command' }).fill('event types');
  await page.keyboard.press('Enter');
  await page.waitForFunction(() => location.hash === '#/event-types');
  await page.getByText('No event types yet').waitFor();
  await page.getByRole('link', { name: 'New event type' }).click();
  await page.getByLabel('Name: words joined by dots').fill('task.updated');
  await page.getByLabel('JSON Schema of data').fill('{"type": ');
  await button('Add the event type').click();
  await page.locator('[data-fault="schema"]').filter({ hasText: 'This is not JSON' }).waitFor();
  await page.getByLabel('JSON Schema of data').fill('{"type": "no such type"}');
  await button('Add the event type').click();
  await page.locator('[data-fault^="schema"]').filter({ hasText: 'type' }).waitFor();
  assert.equal(await status('event-types/task.updated'), 404);
});

test('an event type is added, changed and shown', async () => {
  const schema = { type: 'object', required: ['status'], properties: { status: { enum: ['NEW', 'CUR'] } } };
  await page.getByLabel('JSON Schema of data').fill(JSON.stringify(schema));
  await page.getByLabel('Example of data').fill('{"status": "CUR"}');
  await page.getByLabel('Description, for people').fill('A task has changed');
  await button('Add the event type').click();
  await page.waitForFunction(() => location.hash === '#/event-types/task.updated');
  const made = await server.get('event-types/task.updated');
  assert.deepEqual([made.scope, made.description, made.schema, made.example, made.deprecated], ['tenant', 'A task has changed', schema, { status: 'CUR' }, false]);
  await button('Edit').click();
  await page.getByLabel('Deprecated').check();
  await page.getByLabel('Example of data').fill('');
  await button('Save').click();
  await page.getByText('Applications should stop sending this type').waitFor();
  const changed = await server.get('event-types/task.updated');
  assert.deepEqual([changed.deprecated, changed.example, changed.schema], [true, null, schema]);
  assert.deepEqual(await axe(page), []);
});

test('an event that does not fit is flagged by the rule that the page set, and its page says why', async () => {
  await go(page, '/event-types');
  await page.getByLabel('An event whose data does not fit').selectOption('flag');
  await page.getByText('Saved. It holds').waitFor();
  await page.getByLabel('An event whose type is not in the catalogue is').selectOption('refuse');
  await server.until('catalogue', (found) => found.own.unknown_types === 'refuse' && found.own.misfits === 'flag', 'the rule');
  await server.post('events', { id: 'odd', type: 'task.updated', object: 'task-17', data: { status: 'LOST' } });
  await go(page, '/events');
  await page.locator('.row', { hasText: 'flagged' }).getByRole('link').click();
  await page.getByText('It was flagged.').waitFor();
  await page.getByText('/status', { exact: true }).waitFor();
  await go(page, '/events/new');
  await page.getByLabel('Type', { exact: true }).fill('no.such');
  await button('Send').click();
  await page.locator('[role=alert]').filter({ hasText: 'catalogue' }).waitFor();
  await go(page, '/event-types');
  await page.getByLabel('An event whose type is not in the catalogue is').selectOption('');
  await server.until('catalogue', (found) => found.own.unknown_types === null, 'the server\'s rule');
});

test('deliveries and events are filtered by their object, in the address bar', async () => {
  await server.post('events', { type: 'task.updated', object: 'task-18', data: { status: 'CUR' } });
  await server.until('ledger', (ledger) => ledger.delivered === 2, 'the deliveries');
  for (const list of ['deliveries', 'events']) {
    await go(page, `/${list}`);
    await page.waitForFunction(() => document.querySelectorAll('.row').length === 2);
    await page.getByLabel('Object').fill('task-18');
    await page.keyboard.press('Enter');
    await page.waitForFunction((hash) => location.hash === hash, `#/${list}?object=task-18`);
    await page.waitForFunction(() => document.querySelectorAll('.row').length === 1);
  }
  assert.equal((await server.get('deliveries?object=task-18')).data.length, 1);
});

test('a payload is erased after somebody has read what is lost', async () => {
  await go(page, '/events/odd');
  await button('Erase the payload…').click();
  await page.getByText('What is lost, for ever:').waitFor();
  assert.ok(await inDialog('Erase the payload').isDisabled(), 'nothing is erased without the confirmation');
  assert.deepEqual(await axe(page), []);
  await inDialog('Keep it').click();
  assert.equal((await server.get('events/odd')).erased_at, null);
  await button('Erase the payload…').click();
  await page.getByLabel('I know that this cannot be taken back').check();
  await inDialog('Erase the payload').click();
  await page.getByText('Its payload was erased').waitFor();
  const erased = await server.get('events/odd');
  assert.ok(erased.erased_at);
  assert.equal(erased.data, null);
});

test('all of an object is erased from its list, and the erasures show their progress', async () => {
  await server.post('events', { type: 'task.updated', object: 'task-18', data: { status: 'NEW' } });
  await go(page, '/events?object=task-18');
  await button('Erase all of this object…').click();
  await page.getByText('The object has 2 events by now.').waitFor();
  await page.getByLabel('I know that this cannot be taken back').check();
  await inDialog('Erase all of it').click();
  await page.getByText('The erasure has begun.').waitFor();
  const { data } = await server.until('erasures', (list) => list.data[0].object === 'task-18' && list.data[0].state !== 'erasing', 'the erasure');
  assert.equal(data[0].erased, 2);
  await go(page, '/erasures');
  await page.locator('tr', { hasText: 'all of task-18' }).filter({ hasText: '2 events erased' }).waitFor();
  await page.locator('tr', { hasText: 'event odd' }).waitFor();
});

test('an erasure is begun from its page', async () => {
  await server.post('events', { id: 'p7', type: 'task.updated', object: 'person-7', data: { status: 'NEW' } });
  await page.getByLabel('Object', { exact: true }).fill('person-7');
  await button('Erase…').click();
  await page.getByLabel('I know that this cannot be taken back').check();
  await inDialog('Erase all of it').click();
  await server.until('events/p7', (event) => event.erased_at !== null, 'the erasure');
  await page.locator('tr', { hasText: 'all of person-7' }).waitFor();
});

test('an event type is deleted', async () => {
  await go(page, '/event-types/task.updated');
  await button('Delete').click();
  await inDialog('Delete it').click();
  await page.waitForFunction(() => location.hash === '#/event-types');
  assert.equal(await status('event-types/task.updated'), 404);
});

test('a type for all tenants is added by an admin', async () => {
  await go(page, '/event-types/new');
  await page.getByLabel('Name: words joined by dots').fill('server.notice');
  await page.getByLabel(/^For/).selectOption('server');
  await button('Add the event type').click();
  await page.getByText('of all tenants').waitFor();
  assert.equal((await server.get('event-types/server.notice')).scope, 'server');
});

test('all of this broke no policy', async () => assert.deepEqual(await violations(page), []));
