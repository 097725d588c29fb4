// Payloads and response bodies that try to run script, a server that goes away, and a key that is revoked.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { go, openBrowser, openPage, signIn, violations } from './browser.mjs';
import { HOSTILE } from './receivers.mjs';
import { makeWorld } from './world.mjs';

let world, browser, server;

before(async () => {
  world = await makeWorld();
  server = world.server;
  browser = await openBrowser();
});

after(async () => {
  await browser?.close();
  await world?.close();
});

test('a hostile payload and a hostile response body are shown as text', async () => {
  const page = await openPage(browser, server);
  await signIn(page, server.key);
  const sent = await server.post('events', { type: 'task.created', object: 'x', data: { note: HOSTILE, [HOSTILE]: HOSTILE }, old: { note: '' } });
  await go(page, `/events/${sent.id}`);
  await page.getByRole('tab', { name: 'Data' }).click();
  await page.getByText('<script>window.hacked=1</script>').first().waitFor();
  await page.getByRole('tab', { name: 'Difference' }).click();
  await page.getByText('onerror=').first().waitFor();
  const { data } = await server.get(`deliveries?state=dead&limit=1&destination=${world.destination('hostile')}`);
  await go(page, `/deliveries/${data[0].id}`);
  await page.locator('pre').filter({ hasText: '<svg onload=' }).first().waitFor();
  await go(page, '/live');
  await page.getByText('following').waitFor();
  const again = await server.post('events', { type: 'task.created', object: HOSTILE, data: {} });
  await page.locator('.row').filter({ hasText: 'task.created' }).first().waitFor();
  await go(page, '/events');
  await page.locator('.row').filter({ hasText: 'onerror=' }).first().waitFor();
  await go(page, `/events/${again.id}`);
  await page.getByText('onerror=').first().waitFor();
  await go(page, '/dead');
  await page.locator('tr').filter({ hasText: '/hostile' }).first().waitFor();
  await go(page, `/destinations/${world.destination('hostile')}`);
  await page.getByText('Timeline').waitFor();
  assert.equal(await page.evaluate(() => window.hacked ?? Object.prototype.hacked ?? null), null);
  assert.equal(await page.locator('main img, main script').count(), 0);
  assert.deepEqual(await violations(page), []);
  await page.context().close();
});

test('an inline script or style would be refused, and counted', async () => {
  const page = await openPage(browser, server);
  await page.evaluate(() => {
    const script = document.createElement('script');
    script.textContent = 'window.hacked = 1';
    document.body.append(script);
    document.body.insertAdjacentHTML('beforeend', '<p style="color: red">x</p>');
  });
  await page.waitForFunction(() => window.violations.length >= 2);
  assert.equal(await page.evaluate(() => window.hacked ?? null), null);
  await page.context().close();
});

test('the page goes on by itself when the server was stopped and started', async () => {
  const page = await openPage(browser, server);
  await signIn(page, server.key);
  await go(page, '/deliveries');
  await page.locator('.row').first().waitFor();
  await page.waitForFunction(() => performance.getEntriesByType('resource').some((one) => /assets\/Settings-.*js/.test(one.name)));
  await server.down();
  await page.getByText('The server does not answer.').waitFor();
  assert.ok((await page.locator('.row').count()) > 5, 'the last rows stay');
  await go(page, '/destinations');
  await server.up({ timeScale: 60 });
  await page.getByText('The server does not answer.').waitFor({ state: 'detached' });
  await page.locator('.row').filter({ hasText: '/healthy' }).waitFor();
  const sent = await server.post('events', { type: 'after.restart', data: {} });
  await go(page, '/events');
  await page.locator('.row').filter({ hasText: 'after.restart' }).waitFor();
  await go(page, '/live');
  await page.getByText('following').waitFor();
  await server.post('events', { type: 'again.live', data: {} });
  await page.locator('.row').filter({ hasText: 'again.live' }).waitFor();
  assert.ok(sent.id);
  await page.context().close();
});

test('a revoked key ends the session with the reason', async () => {
  const made = await server.post('keys', { name: 'short-lived', scopes: ['read'] });
  const page = await openPage(browser, server);
  await signIn(page, made.key);
  await go(page, '/destinations');
  await page.locator('.row').first().waitFor();
  assert.equal(await page.getByRole('button', { name: /Actions for/ }).count(), 0, 'a reader gets no actions');
  await server.call('DELETE', `keys/${made.id}`);
  await page.getByText('The session has ended').waitFor();
  await page.context().close();
});
