// Each action of the page, with its effect checked through the API.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { after, before, test } from 'node:test';
import { go, openBrowser, openPage, signIn, violations } from './browser.mjs';
import { makeWorld } from './world.mjs';

let world, browser, page, server;

before(async () => {
  world = await makeWorld();
  server = world.server;
  browser = await openBrowser();
  page = await openPage(browser, server);
  page.on('dialog', (dialog) => dialog.accept());
  await signIn(page, server.key);
});

after(async () => {
  await browser?.close();
  await world?.close();
});

const button = (name, options) => page.getByRole('button', { name, ...options });
const dialogButton = (name) => page.getByRole('dialog').getByRole('button', { name });

test('an event is sent from the page', async () => {
  await go(page, '/events/new');
  await page.getByLabel('Type', { exact: true }).fill('task.updated');
  await page.getByLabel('Data: the new state').fill('{"status": "CPL", "big": 12345678901234567890}');
  await button('Send', { exact: true }).click();
  await page.getByText('Accepted:').waitFor();
  await page.getByRole('link', { name: 'Open the event' }).click();
  const id = decodeURIComponent((await page.waitForFunction(() => /#\/events\/(evt_.*)/.exec(location.hash)?.[1]).then((handle) => handle.jsonValue())));
  assert.equal((await server.get(`events/${id}`)).data.status, 'CPL');
  await page.getByText('12345678901234567890').waitFor();
});

test('bad JSON is refused in the form, and a bad type by the server', async () => {
  await go(page, '/events/new');
  await page.getByLabel('Data: the new state').fill('{');
  await button('Send', { exact: true }).click();
  await page.getByText('This is not JSON').waitFor();
  await page.getByLabel('Data: the new state').fill('{}');
  await page.getByLabel('Type', { exact: true }).fill('not a type!');
  await button('Send', { exact: true }).click();
  await page.locator('[role=alert]').filter({ hasText: '(type)' }).waitFor();
});

test('a subscription is created with a filter that is tried while it is built', async () => {
  await go(page, '/subscriptions/new');
  await page.getByLabel('URL', { exact: true }).fill(`${world.receivers.base}/healthy?mine`);
  await page.getByLabel('Event types').fill('task.*');
  await button('Add a filter').click();
  await page.getByLabel('Field', { exact: true }).fill('data.status');
  await page.getByLabel('Value', { exact: true }).fill('CUR');
  await page.locator('.tried[aria-busy=false]').getByText(/\d+ of 12 recent events/).waitFor();
  const said = await page.locator('.tried strong').innerText();
  const events = (await server.get('events?limit=200')).data.filter((one) => one.type.startsWith('task.')).slice(0, 12);
  const details = await Promise.all(events.map((one) => server.get(`events/${one.id}`)));
  assert.equal(said, `${details.filter((one) => one.data.status === 'CUR').length} of 12 recent events`);
  // What an event carries is looked at here: the form keeps what was typed.
  await page.locator('.tried button').first().click();
  await page.getByRole('dialog').getByLabel('data', { exact: true }).getByText('status').waitFor();
  await page.getByRole('dialog').getByLabel('Search in data').press('Enter');
  await dialogButton('Close').click();
  await button('Create the subscription').click();
  const secret = await page.locator('.once code').innerText();
  assert.match(secret, /^whsec_/);
  const id = (await page.evaluate(() => location.hash)).split('/').at(-1);
  const made = await server.get(`subscriptions/${id}`);
  assert.deepEqual(made.filter, { all: [{ field: 'data.status', op: 'eq', value: 'CUR' }] });
  world.made = { id, secret };
});

test('a twin is refused with a link to the existing subscription', async () => {
  await go(page, '/subscriptions/new');
  await page.getByLabel('URL', { exact: true }).fill(`${world.receivers.base}/healthy`);
  await page.getByLabel('Event types').fill('*');
  await button('Create the subscription').click();
  await page.getByRole('link', { name: 'Open the existing one' }).waitFor();
});

test('a malformed filter is refused with its place', async () => {
  await go(page, '/events');
  await go(page, '/subscriptions/new');
  await button('Add a filter').click();
  await button('JSON', { exact: true }).click();
  await page.getByLabel('Filter as JSON').fill('{"all": [{"field": "data.x", "op": "bogus", "value": 1}]}');
  await page.getByText('filter.all[0].op').waitFor();
});

test('a filter that is not JSON is not saved, and the fault is at the filter', async () => {
  const { id } = world.made;
  const before = await server.get(`subscriptions/${id}`);
  await go(page, `/subscriptions/${id}`);
  await button('Edit', { exact: true }).click();
  await button('JSON', { exact: true }).click();
  await page.getByLabel('Filter as JSON').fill('{"all": [');
  await page.getByText('This is not JSON').waitFor();
  assert.ok(await button('Builder', { exact: true }).isDisabled());
  await button('Save', { exact: true }).click();
  await page.locator('form > .notice').filter({ hasText: /nothing was saved: This is not JSON.*\(filter\)/i }).waitFor();
  await page.getByLabel('Filter as JSON').fill('3');
  await page.getByText('filter must be an object').waitFor();
  assert.equal((await server.get(`subscriptions/${id}`)).updated_at, before.updated_at, 'nothing was saved');
  await page.getByLabel('Filter as JSON').fill('{"all": [{"field": "data.at", "op": "gt", "value": "2026-01-01T00:00:00Z", "as": "time"}]}');
  await button('Builder', { exact: true }).click();
  await page.getByLabel('Comparison').selectOption('lte');
  await button('Save', { exact: true }).click();
  await button('Edit', { exact: true }).waitFor();
  assert.deepEqual((await server.get(`subscriptions/${id}`)).filter, { all: [{ field: 'data.at', op: 'lte', value: '2026-01-01T00:00:00Z', as: 'time' }] });
});

test('a subscription is edited, tested, rotated, switched off and deleted', async () => {
  const { id, secret } = world.made;
  await go(page, `/subscriptions/${id}`);
  await button('I have kept it').click();
  await button('Send a test event').click();
  await page.getByText('arrived, status 200').waitFor();
  assert.ok(world.receivers.seen.some((one) => one.url === '/healthy?mine'));
  await button('Edit', { exact: true }).click();
  await page.getByLabel('Event types').fill('task.created, task.updated');
  await button('Save').click();
  await page.locator('dl').getByText('task.created, task.updated').waitFor();
  assert.deepEqual((await server.get(`subscriptions/${id}`)).types.sort(), ['task.created', 'task.updated']);
  await button('Rotate the secret').click();
  await page.getByLabel('Overlap in hours').fill('2');
  await dialogButton('Rotate').click();
  const rotated = await page.locator('.once code').innerText();
  assert.notEqual(rotated, secret);
  await page.getByText('one, and 1 older one that still signs along').waitFor();
  assert.equal((await server.get(`subscriptions/${id}`)).retiring_secrets, 1);
  await button('Switch off').click();
  await button('Switch on').waitFor();
  assert.equal((await server.get(`subscriptions/${id}`)).enabled, false);
  await button('Delete', { exact: true }).click();
  await dialogButton('Delete it').click();
  await page.waitForFunction(() => location.hash === '#/subscriptions');
  await assert.rejects(server.get(`subscriptions/${id}`), /404/);
});

test('a frozen destination is enabled, and an enabled one frozen, with a reason', async () => {
  const id = world.destination('gone');
  await go(page, '/destinations');
  await button(/Actions for .*\/gone/).click();
  await page.getByLabel('Reason').fill('the receiver is back');
  await dialogButton('Enable').click();
  await server.until(`destinations/${id}/timeline`, (list) => JSON.stringify(list).includes('the receiver is back'));
  await go(page, `/destinations/${world.destination('healthy')}`);
  await button('Enable, freeze, test…').click();
  await dialogButton('Freeze').click();
  await server.until(`destinations/${world.destination('healthy')}`, (found) => found.state === 'frozen');
  await page.locator('.head').getByText('frozen').waitFor();
  await button('Enable, freeze, test…').click();
  assert.equal(await dialogButton('Send a test event').count(), 0, 'a frozen destination gets no test event');
  await dialogButton('Enable').click();
  await server.until(`destinations/${world.destination('healthy')}`, (found) => found.state === 'enabled');
  await page.locator('.head').getByText('enabled').waitFor();
  await button('Enable, freeze, test…').click();
  await dialogButton('Send a test event').click();
  await page.getByText('arrived, status 200').waitFor();
  await dialogButton('Close').click();
});

test('a dead delivery is replayed', async () => {
  const { data } = await server.get(`deliveries?state=dead&limit=1&destination=${world.destination('broken')}`);
  await go(page, `/deliveries/${data[0].id}`);
  await button('Replay').click();
  await page.getByText('Replayed: a new schedule begins.').waitFor();
  await server.until(`deliveries/${data[0].id}`, (found) => found.state !== 'dead');
});

test('a delivery that waits is retried at once, from its page and from the list', async () => {
  const { data } = await server.get(`deliveries?state=waiting&limit=2&destination=${world.destination('broken')}`);
  const [one, two] = data;
  await go(page, `/deliveries/${one.id}`);
  await button('Retry now', { exact: true }).click();
  await page.getByText('It is attempted as soon as its turn comes.').first().waitFor();
  await server.until(`deliveries/${one.id}`, (found) => found.attempts > one.attempts || found.state !== 'waiting', 'the attempt', 60);
  await go(page, `/deliveries?state=waiting&destination=${world.destination('broken')}`);
  await button(new RegExp(`Retry now: .*${two.id}`)).click();
  await server.until(`deliveries/${two.id}`, (found) => found.attempts > two.attempts || found.state !== 'waiting', 'the attempt', 60);
});

test('a waiting delivery is cancelled', async () => {
  const { data } = await server.get(`deliveries?state=waiting&limit=1&destination=${world.destination('broken')}`);
  await go(page, `/deliveries/${data[0].id}`);
  await button('Cancel', { exact: true }).click();
  await page.locator('.head').getByText('cancelled').waitFor();
  assert.equal((await server.get(`deliveries/${data[0].id}`)).state, 'cancelled');
});

test('the request of an attempt is shown as it was sent, without its secrets', async () => {
  const { data } = await server.get(`deliveries?state=dead&limit=1&destination=${world.destination('broken')}`);
  await go(page, `/deliveries/${data[0].id}`);
  await button('Show the request').first().click();
  const request = page.locator('pre').filter({ hasText: 'POST http' });
  await request.waitFor();
  const text = await request.innerText();
  assert.match(text, /authorization: Bearer \*\*\*\*/);
  assert.match(text, /webhook-id: /);
  assert.ok(text.includes('"type":"task.'), text);
  assert.ok(!text.includes('a-very-secret'), text);
  await button('Copy the request as curl').click();
  const command = await page.evaluate(() => navigator.clipboard.readText());
  const before = world.receivers.counts.get('/broken');
  await promisify(execFile)('bash', ['-c', `${command} --silent`]);
  assert.equal(world.receivers.counts.get('/broken'), before + 1, 'the copied command reaches the receiver');
});

test('an API call is copied as a curl command that works', async () => {
  const { data } = await server.get('deliveries?limit=1');
  await go(page, `/deliveries/${data[0].id}`);
  await button('Copy as curl').click();
  const command = await page.evaluate(() => navigator.clipboard.readText());
  const { stdout } = await promisify(execFile)('bash', ['-c', command], { env: { ...process.env, POSTRIDER_KEY: server.key } });
  assert.equal(JSON.parse(stdout).delivery.id, data[0].id);
});

test('many dead ones are counted, replayed at a pace, paused, resumed and cancelled', async () => {
  const dead = (await server.post('replays', { destination: world.destination('broken'), dry_run: true })).total;
  assert.ok(dead > 10);
  await go(page, '/dead');
  const row = page.locator('tr').filter({ hasText: '/broken' });
  await row.getByRole('button', { name: 'Replay…' }).first().click();
  await page.getByText(`${dead} deliveries would be replayed.`).waitFor();
  await page.getByLabel('At most per second').fill('2');
  await dialogButton(`Replay ${dead} deliveries`).click();
  const job = () => server.get('replays?limit=1').then((list) => list.data[0]);
  await page.locator('li').filter({ hasText: '/broken' }).first().getByRole('button', { name: 'Pause' }).click();
  await page.getByText('Paused.').waitFor();
  assert.equal((await job()).state, 'paused');
  assert.equal((await job()).per_second, 2);
  await page.locator('li').filter({ hasText: '/broken' }).first().getByRole('button', { name: 'Resume' }).click();
  await page.getByText('Goes on.').waitFor();
  await page.locator('li').filter({ hasText: '/broken' }).first().getByRole('button', { name: 'Cancel' }).click();
  await page.getByText('What was replayed stays replayed.').waitFor();
  assert.equal((await job()).state, 'cancelled');
});

test('tenants and keys are created, looked at and deleted', async () => {
  await go(page, '/settings?tab=tenants');
  await page.getByLabel('New tenant').fill('globex');
  await button('Create', { exact: true }).click();
  await page.getByRole('cell', { name: 'globex', exact: true }).waitFor();
  await page.locator('tr').filter({ hasText: 'globex' }).getByRole('button', { name: 'Look at it' }).click();
  await go(page, '/deliveries');
  await page.getByText('No deliveries yet').waitFor();
  await go(page, '/settings?tab=keys');
  assert.equal(await page.getByLabel('Of the tenant').inputValue(), 'globex');
  await page.getByLabel('New key: name').fill('Globex backend');
  await button('Create', { exact: true }).click();
  const key = await page.locator('.notice code').innerText();
  const answer = await fetch(`${server.base}/v1/events`, { method: 'POST', headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' }, body: '{"type":"a.b","data":1}' });
  assert.equal(answer.status, 202);
  await page.locator('tr').filter({ hasText: 'Globex backend' }).getByRole('button', { name: 'Delete' }).click();
  await page.getByText('The key is deleted.').waitFor();
  await page.getByLabel('Tenant', { exact: true }).fill('default');
  await page.keyboard.press('Enter');
  await go(page, '/settings?tab=tenants');
  await page.locator('tr').filter({ hasText: 'globex' }).getByRole('button', { name: 'Delete' }).click();
  await page.getByText('The tenant globex is deleted.').waitFor();
  assert.ok(!(await server.get('tenants')).data.some((tenant) => tenant.id === 'globex'));
});

test('the event page says which condition did not hold', async () => {
  const made = await server.post('events', { type: 'task.updated', data: { status: 'A', priority: 0 }, old: { status: 'B' } });
  await go(page, `/events/${made.id}`);
  await page.locator('li').filter({ hasText: '/flaky' }).getByText('its filter does not let it through').waitFor();
  await page.locator('li').filter({ hasText: '/flaky' }).getByRole('button', { name: 'Which condition?' }).click();
  await page.locator('.conditions li').filter({ hasText: 'data.priority' }).getByLabel('does not hold').waitFor();
  await page.locator('.conditions li').filter({ hasText: 'data.status' }).getByLabel('holds', { exact: true }).waitFor();
});

test('all of this broke no policy', async () => assert.deepEqual(await violations(page), []));
