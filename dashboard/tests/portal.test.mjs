// The portal: one tenant for an application's customers, by a link that works once, also in a frame of another site.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { after, before, test } from 'node:test';
import { axe, go, openBrowser, openPage, signIn, violations } from './browser.mjs';
import { startReceivers } from './receivers.mjs';
import { Postrider } from './server.mjs';

// One transparent pixel.
const PNG = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==';
let server, receivers, browser, applications, ids;

/** What the document tells an application to put into its page. */
const [, SNIPPET] = /```html\n([^]*?)```/.exec(readFileSync(new URL('../../docs/portal.md', import.meta.url), 'utf8'));

/** The attributes of the frame in some HTML, but for those that say which frame it is. */
function frameIn(html) {
  const [, attributes] = /<iframe\s([^>]*)>/.exec(html);
  return Object.fromEntries([...attributes.matchAll(/([\w-]+)="([^"]*)"/g)].map(([, name, value]) => [name, value]).filter(([name]) => name !== 'id' && name !== 'src'));
}

/** Another site, `localhost` instead of `127.0.0.1`, whose page frames the portal in the documented way. */
async function startApplication() {
  const application = { url: null };
  application.site = createServer((request, response) => {
    const isAsked = request.method === 'POST' && request.url === '/webhooks/portal-link';
    response.writeHead(200, { 'content-type': isAsked ? 'application/json' : 'text/html' });
    response.end(isAsked ? JSON.stringify({ url: application.url }) : `<!doctype html><title>Application</title><h1>Application</h1>${SNIPPET}`);
  });
  await new Promise((resolve) => application.site.listen(0, 'localhost', resolve));
  application.base = `http://localhost:${application.site.address().port}`;
  return application;
}

/** Opens the application's page with this in its frame. */
function openFramed(application, url) {
  application.url = url;
  return openPage(browser, server, { at: `${application.base}/` });
}

before(async () => {
  applications = { listed: await startApplication(), other: await startApplication() };
  receivers = await startReceivers();
  server = await Postrider.start({ settings: [`portal.frame_ancestors=${applications.listed.base}`] });
  browser = await openBrowser();
  ids = {};
  for (const tenant of ['acme', 'globex']) {
    await server.post('tenants', { id: tenant, name: tenant });
    const of = (method, path, body) => server.call(method, path, body, { 'postrider-tenant': tenant });
    const subscription = await of('POST', 'subscriptions', { url: `${receivers.base}/healthy?${tenant}`, types: ['*'] });
    const event = await of('POST', 'events', { type: `${tenant}.made`, data: { of: tenant } });
    const { data } = await of('GET', 'deliveries?limit=1');
    ids[tenant] = { subscriptions: subscription.id, events: event.id, deliveries: data[0].id, destinations: subscription.destination_id };
  }
});

after(async () => {
  await browser?.close();
  await server?.remove();
  await receivers?.close();
  for (const { site } of Object.values(applications ?? {})) {
    site.closeAllConnections();
    site.close();
  }
});

/** The pages that a portal has. */
const pages = () => ['/overview', '/destinations', '/deliveries', '/events', '/event-types', '/subscriptions', `/subscriptions/${ids.acme.subscriptions}`, '/dead', '/erasures', '/live', '/simulator', `/deliveries/${ids.acme.deliveries}`, `/events/${ids.acme.events}`];
const link = (body) => server.call('POST', 'portal-links', body, { 'postrider-tenant': 'acme' });

test('the portal shows one tenant in its own look, and nothing of others', async () => {
  const made = await link({ access: 'read', theme: { name: 'Acme webhooks', logo: PNG, accent: '#ffdd00', mode: 'dark' } });
  const page = await openPage(browser, server, { at: made.url });
  await page.locator('main#main h1').waitFor();
  await page.locator('.brand').getByText('Acme webhooks').waitFor();
  assert.equal(await page.evaluate(() => document.documentElement.dataset.theme), 'dark');
  await page.waitForFunction(() => document.querySelector('.brand img').naturalWidth === 1);
  for (const path of pages()) {
    await go(page, path);
    assert.deepEqual(await axe(page), [], path);
    assert.ok(!(await page.locator('body').innerText()).includes('globex'), path);
  }
  await go(page, '/events');
  await page.locator('.row').filter({ hasText: 'acme.made' }).waitFor();
  await go(page, '/settings');
  await page.getByText('There is no such page').waitFor();
  // A link that names a tenant does not lead out of the portal's own.
  await go(page, '/events?tenant=globex');
  await page.locator('.row').filter({ hasText: 'acme.made' }).waitFor();
  await go(page, '/destinations?tenant=*');
  await page.locator('.row').filter({ hasText: '/healthy?acme' }).waitFor();
  assert.equal(await page.getByText('Look at all tenants').count(), 0);
  await go(page, `/subscriptions/${ids.acme.subscriptions}`);
  await page.getByText('Verify in the receiver').waitFor();
  assert.equal(await page.getByRole('button', { name: /Edit|Delete|Rotate/ }).count(), 0, 'a reader changes nothing');
  assert.deepEqual(await violations(page), []);

  const status = (path, headers = {}, method = 'GET') =>
    page.evaluate(async ([path, headers, method]) => (await fetch(`v1/${path}`, { headers, method })).status, [path, headers, method]);
  for (const [kind, id] of Object.entries(ids.globex)) {
    assert.equal(await status(`${kind}/${encodeURIComponent(id)}`), 404, kind);
    assert.notEqual(await status(`${kind}/${encodeURIComponent(id)}`, { 'postrider-tenant': 'globex' }), 200, kind);
  }
  for (const [kind, id] of Object.entries(ids.acme)) assert.equal(await status(`${kind}/${encodeURIComponent(id)}`), 200, kind);
  for (const path of ['tenants', 'keys', 'audit', 'backup', 'portal-links', 'ledger?scope=all']) assert.equal(await status(path), 403, path);
  assert.equal(await status(`subscriptions/${ids.acme.subscriptions}`, {}, 'DELETE'), 403);
  for (const kind of ['deliveries', 'destinations', 'events', 'subscriptions']) {
    await go(page, `/${kind}/${encodeURIComponent(ids.globex[kind])}`);
    await page.getByText('There is no such').waitFor();
  }
  await page.context().close();
});

test('the portal in light colours passes axe, with an accent that would be unreadable as it is', async () => {
  const made = await link({ access: 'manage', theme: { name: 'Acme webhooks', logo: PNG, accent: '#ffdd00', mode: 'light' } });
  const page = await openPage(browser, server, { at: made.url, theme: 'dark' });
  await page.locator('.brand').getByText('Acme webhooks').waitFor();
  assert.equal(await page.evaluate(() => document.documentElement.dataset.theme), 'light', 'whatever the system has');
  for (const path of pages()) {
    await go(page, path);
    assert.deepEqual(await axe(page), [], path);
  }
  assert.deepEqual(await violations(page), []);
  await page.context().close();
});

test('a link works once, not after its time, and its session ends when it is revoked', async () => {
  const short = await link({ access: 'read', expires_in: 10 });
  const made = await link({ access: 'read' });
  const page = await openPage(browser, server, { at: made.url });
  await page.locator('main#main h1').waitFor();
  const again = await openPage(browser, server, { at: made.url });
  await again.getByText('This link has expired or was used already.').waitFor();
  assert.equal(await again.getByLabel('Key').count(), 0, 'keys have no place in the portal');
  assert.deepEqual(await axe(again), []);
  await again.context().close();

  await server.call('DELETE', `portal-links/${made.id}`, undefined, { 'postrider-tenant': 'acme' });
  await page.getByText('The session has ended.').waitFor();
  await page.context().close();

  const left = Date.parse(short.expires_at) - Date.now();
  if (left > 0) await new Promise((resolve) => setTimeout(resolve, left + 500));
  const late = await openPage(browser, server, { at: short.url });
  await late.getByText('This link has expired or was used already.').waitFor();
  await late.context().close();
});

test('the portal works in a frame of a listed site, without a cookie', async () => {
  const made = await link({ access: 'manage', theme: { name: 'Acme webhooks' } });
  const page = await openFramed(applications.listed, made.url);
  const frame = page.frameLocator('iframe');
  await frame.locator('.brand').getByText('Acme webhooks').waitFor();
  await frame.getByRole('link', { name: 'Subscriptions' }).click();
  await frame.getByText('/healthy?acme').first().waitFor();
  await frame.getByText('/healthy?acme').first().click();
  await frame.getByRole('button', { name: 'Switch off' }).click();
  await frame.getByRole('button', { name: 'Switch on' }).waitFor();
  const found = await server.call('GET', `subscriptions/${ids.acme.subscriptions}`, undefined, { 'postrider-tenant': 'acme' });
  assert.equal(found.enabled, false);
  await frame.getByRole('button', { name: 'Switch on' }).click();
  await frame.getByRole('link', { name: 'Live', exact: true }).click();
  await frame.getByText('following').waitFor();
  assert.deepEqual(await page.context().cookies(), []);
  assert.match(await page.locator('iframe').getAttribute('sandbox'), /allow-scripts/);
  const inner = page.frames().find((one) => one.url().startsWith(server.base));
  assert.deepEqual(await inner.evaluate(() => window.violations), []);
  assert.ok(!inner.url().includes('pt_'));
  await inner.evaluate(() => location.reload());
  await frame.getByText('Reload the page that contains this one.').waitFor();
  await page.context().close();
});

test('other sites cannot frame the portal, and none the dashboard', async () => {
  const made = await link({ access: 'read' });
  for (const [application, url] of [[applications.other, made.url], [applications.listed, `${server.base}/`]]) {
    const page = await openFramed(application, url);
    const isRefused = () => page.troubles.some((one) => one.includes('frame-ancestors'));
    for (let n = 0; n < 100 && !isRefused(); n += 1) await new Promise((resolve) => setTimeout(resolve, 50));
    assert.ok(isRefused(), url);
    const frame = page.frameLocator('iframe');
    await frame.locator('html').waitFor({ state: 'attached' });
    assert.equal(await frame.locator('#app').count(), 0);
    await page.context().close();
  }
  // It was not used up by the site that could not show it.
  const page = await openPage(browser, server, { at: made.url });
  await page.locator('main#main h1').waitFor();
  await page.context().close();
});

test('links are made, listed and revoked in the settings', async () => {
  const page = await openPage(browser, server);
  page.on('dialog', (dialog) => dialog.accept());
  await signIn(page, server.key);
  await page.getByLabel('Tenant', { exact: true }).fill('acme');
  await page.keyboard.press('Enter');
  await go(page, '/settings?tab=portal');
  await page.getByLabel('May').selectOption('manage');
  await page.getByLabel('Name (optional)').fill('From the page');
  await page.getByLabel('Logo').setInputFiles({ name: 'logo.png', mimeType: 'image/png', buffer: Buffer.from(PNG, 'base64') });
  await page.getByLabel('Accent colour').check();
  await page.getByRole('button', { name: 'Create a link' }).click();
  const url = await page.locator('.notice code').innerText();
  await page.getByRole('button', { name: 'Copy as a frame' }).click();
  const copied = await page.evaluate(() => navigator.clipboard.readText());
  assert.ok(copied.includes(`src="${url}"`), copied);
  assert.deepEqual(frameIn(copied), frameIn(SNIPPET));
  const row = page.locator('tr').filter({ hasText: 'From the page' });
  await row.getByText('not yet').waitFor();
  assert.deepEqual(await axe(page), []);

  const customer = await openPage(browser, server, { at: url });
  await customer.locator('.brand').getByText('From the page').waitFor();
  await customer.waitForFunction(() => document.querySelector('.brand img').naturalWidth === 1);
  await row.getByRole('button', { name: 'Revoke' }).click();
  await page.getByText('The link is revoked.').waitFor();
  await customer.getByText('The session has ended.').waitFor();
  await customer.context().close();

  await page.getByLabel('Logo').setInputFiles({ name: 'logo.png', mimeType: 'image/png', buffer: Buffer.alloc(40_000) });
  await page.getByText('The logo has 40 KiB; at most 32 are allowed.').waitFor();
  assert.deepEqual(await violations(page), []);
  await page.context().close();
});
