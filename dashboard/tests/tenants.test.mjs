// An operator looks at all tenants, opens what fails in its own tenant, and changes tenants; the effects are read through the API.
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { after, before, test } from 'node:test';
import { axe, go, openBrowser, openPage, signIn, violations } from './browser.mjs';
import { startReceivers } from './receivers.mjs';
import { Postrider } from './server.mjs';

let receivers, server, browser, page;
const of = (tenant) => ({ 'postrider-tenant': tenant });

before(async () => {
  receivers = await startReceivers();
  // A fast clock, so that deliveries die soon.
  const secret = `whsec_${randomBytes(32).toString('base64')}`;
  const targets = [{ name: 'ops', url: `${receivers.base}/healthy?ops`, secret }, { name: 'night', slack: `${receivers.base}/gone?night` }];
  server = await Postrider.start({ timeScale: 20_000, settings: [`alerts.targets=${JSON.stringify(targets)}`] });
  for (const tenant of ['acme', 'globex']) {
    await server.post('tenants', { id: tenant });
    await server.call('POST', 'subscriptions', { url: `${receivers.base}/broken?${tenant}`, types: ['*'] }, of(tenant));
    await server.call('POST', 'events', { type: `${tenant}.happened`, data: {} }, of(tenant));
  }
  await server.until('ledger?scope=all', (ledger) => ledger.dead === 2, 'dead letters', 40);
  browser = await openBrowser();
  page = await openPage(browser, server);
  page.on('dialog', (dialog) => dialog.accept());
  await signIn(page, server.key);
});

after(async () => {
  await browser?.close();
  await server?.remove();
  await receivers?.close();
});

const button = (name) => page.getByRole('button', { name, exact: true });
const tenantField = () => page.getByRole('combobox', { name: 'Tenant' });
const main = () => page.locator('main');
/** The names of the tenants that the page has sent since, with what it asked them. */
function watch() {
  const seen = [];
  const note = (request) => request.url().includes('/v1/') && seen.push([request.method(), new URL(request.url()).pathname, request.headers()['postrider-tenant'] ?? null]);
  page.on('request', note);
  return { seen, stop: () => page.off('request', note) };
}

test('all tenants are looked at together, and each row names its own', async () => {
  await go(page, '/overview');
  await button('Look at all tenants').click();
  await main().getByText('of all tenants').first().waitFor();
  await main().getByText('In balance').waitFor();
  await go(page, '/destinations');
  for (const tenant of ['acme', 'globex']) await page.locator('.row', { hasText: `/broken?${tenant}` }).filter({ hasText: tenant }).waitFor();
  await go(page, '/deliveries?state=dead');
  await page.waitForFunction(() => document.querySelectorAll('.row').length === 2);
  await go(page, '/dead');
  await page.locator('tr', { hasText: '/broken?globex' }).waitFor();
  assert.deepEqual(await axe(page), []);
});

test('nothing that changes something is offered for all tenants, and nothing but reading is sent', async () => {
  const requests = watch();
  const offered = ['New subscription', 'Send an event', 'Replay many', 'Replay…', 'Retry now', 'Erase…', 'New event type'];
  for (const path of ['/overview', '/destinations', '/deliveries', '/events', '/subscriptions', '/dead', '/event-types', '/erasures', '/live']) {
    await go(page, path);
    for (const name of offered) assert.equal(await main().getByText(name, { exact: true }).count(), 0, `${name} on ${path}`);
    assert.equal(await main().getByRole('button', { name: /^Actions for/ }).count(), 0);
  }
  requests.stop();
  assert.deepEqual(requests.seen.filter(([method]) => method !== 'GET'), []);
  await main().getByText('This page shows one tenant at a time').waitFor();
});

test('a row is opened in its own tenant, where it can be acted on, and back leads to all tenants', async () => {
  await go(page, '/destinations');
  await page.locator('.row', { hasText: '/broken?globex' }).getByRole('link').click();
  await button('Enable, freeze, test…').waitFor();
  assert.equal(await tenantField().inputValue(), 'globex');
  await button('Enable, freeze, test…').click();
  await page.getByRole('dialog').getByRole('button', { name: 'Freeze' }).click();
  await main().getByText('frozen', { exact: true }).first().waitFor();
  const list = await server.call('GET', 'destinations', undefined, of('globex'));
  assert.equal(list.data[0].state, 'frozen');
  assert.equal((await server.call('GET', 'destinations', undefined, of('acme'))).data[0].state !== 'frozen', true, 'the other tenant is left alone');
  await page.goBack();
  await page.waitForFunction(() => location.hash === '#/destinations');
  await page.locator('.row', { hasText: '/broken?acme' }).waitFor();
  assert.equal(await tenantField().inputValue(), 'all tenants');
});

test('a delivery and a dead letter are opened in their own tenants', async () => {
  await go(page, '/deliveries');
  await page.getByRole('link', { name: 'acme.happened' }).click();
  await main().getByText('Retry slots').waitFor();
  assert.equal(await tenantField().inputValue(), 'acme');
  await go(page, '/dead?tenant=*');
  await page.locator('tr', { hasText: '/broken?globex' }).getByRole('link', { name: 'Its dead letters' }).click();
  await button('Replay many').waitFor();
  assert.equal(await tenantField().inputValue(), 'globex');
  await page.reload();
  await button('Replay many').waitFor();
  assert.equal(await tenantField().inputValue(), 'globex', 'the tenant stays when the page is loaded again');
});

test('what became of the deliveries that a replay sent stands with it, also for readers', async () => {
  receivers.turn('/broken', '/healthy');
  const { data: [destination] } = await server.call('GET', 'destinations', undefined, of('globex'));
  await server.call('POST', `destinations/${destination.id}/enable`, {}, of('globex'));
  await server.call('POST', 'replays', { state: 'dead' }, of('globex'));
  const outcome = (on) => on.locator('li').filter({ hasText: '1 of 1 replayed' }).getByText('1 delivered · 0 failed');
  await outcome(page).waitFor();
  const { data: [job] } = await server.call('GET', 'replays', undefined, of('globex'));
  assert.deepEqual(job.outcomes, { pending: 0, failed: 0, delivered: 1, dead: 0, withdrawn: 0 });
  const { key } = await server.post('keys', { name: 'Reader', tenant: 'globex', scopes: ['read'] });
  const reader = await openPage(browser, server);
  await signIn(reader, key);
  await go(reader, '/dead');
  await outcome(reader).waitFor();
  assert.equal(await reader.getByRole('button', { name: 'Replay many' }).count(), 0, 'a reader replays nothing');
  assert.deepEqual(await violations(reader), []);
  await reader.context().close();
});

test('a tenant is described, gets limits of its own, and gives them back', async () => {
  await go(page, '/settings?tab=tenants');
  await button('Edit acme').click();
  const dialog = page.getByRole('dialog');
  await dialog.getByLabel('Name', { exact: true }).fill('Acme Ltd');
  await dialog.getByLabel('Description').fill('Pays by the month');
  await dialog.getByRole('button', { name: 'Add a pair' }).click();
  await dialog.getByLabel('Metadata: key 1').fill('plan');
  await dialog.getByLabel('Metadata: value 1').fill('gold');
  await dialog.getByLabel('events per second').fill('50');
  await dialog.getByLabel(/^subscriptions \(1 used\)/).fill('7');
  assert.deepEqual(await axe(page), []);
  await dialog.getByRole('button', { name: 'Save' }).click();
  await page.getByText('The tenant acme is changed.').waitFor();
  const changed = await server.get('tenants/acme');
  assert.deepEqual([changed.name, changed.description, changed.metadata, changed.events_per_second, changed.requests_per_second, changed.quotas], ['Acme Ltd', 'Pays by the month', { plan: 'gold' }, 50, null, { subscriptions: 7 }]);
  await page.locator('tr', { hasText: 'events per second: 50, subscriptions: 7' }).waitFor();
  await button('Edit acme').click();
  await dialog.getByLabel('events per second').fill('');
  await dialog.getByLabel(/^subscriptions \(1 used\)/).fill('');
  await dialog.getByRole('button', { name: 'Save' }).click();
  await dialog.waitFor({ state: 'detached' });
  const back = await server.get('tenants/acme');
  assert.deepEqual([back.events_per_second, back.quotas, back.name], [null, {}, 'Acme Ltd']);
});

test('keys of all tenants are listed, and one is made for a named tenant', async () => {
  await server.post('keys', { name: 'Globex backend', tenant: 'globex', scopes: ['ingest'] });
  await go(page, '/settings?tab=keys&tenant=acme');
  await main().getByText('first admin key').waitFor();
  assert.equal(await main().getByText('Globex backend').count(), 0);
  await page.getByLabel('Keys of all tenants').check();
  await page.locator('tr', { hasText: 'Globex backend' }).filter({ hasText: 'globex' }).waitFor();
  await page.getByLabel('New key: name').fill('Acme reports');
  assert.equal(await page.getByLabel('Of the tenant').inputValue(), 'acme');
  await page.getByLabel('Of the tenant').fill('globex');
  await button('Create').click();
  await page.locator('.notice code').waitFor();
  const made = (await server.get('keys?tenant=globex')).data.find((key) => key.name === 'Acme reports');
  assert.deepEqual(made.scopes, ['ingest']);
});

test('the targets of alerts are shown and tested', async () => {
  await go(page, '/settings?tab=alerts');
  const before = receivers.counts.get('/healthy?ops') ?? 0;
  await button('Test ops').click();
  await page.locator('tr', { hasText: 'ops' }).getByText('test sent').waitFor();
  assert.ok(receivers.counts.get('/healthy?ops') > before, 'the message arrived');
  await button('Test night').click();
  await page.locator('tr', { hasText: 'night' }).getByText('test failed').waitFor();
  assert.deepEqual(await axe(page), []);
});

test('all of this broke no policy', async () => assert.deepEqual(await violations(page), []));
