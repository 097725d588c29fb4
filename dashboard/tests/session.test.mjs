// Signing in by a cookie, with a stand-in for the server's part.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { go, openBrowser, openPage, signIn, violations } from './browser.mjs';
import { Postrider } from './server.mjs';
import { startSite } from './site.mjs';

let server, site, browser;

before(async () => {
  server = await Postrider.start();
  site = await startSite(() => server.base, 0, { sessions: true });
  browser = await openBrowser();
});

after(async () => {
  await browser?.close();
  await site?.close();
  await server?.remove();
});

test('a session outlives a reload, and the key is sent once only', async () => {
  const page = await openPage(browser, site);
  const bearers = [];
  page.on('request', (request) => request.headers().authorization && bearers.push(request.url()));
  await page.getByLabel('Key').fill('pr_wrong');
  await page.getByRole('button', { name: 'Sign in' }).click();
  await page.getByText('This key is not valid').waitFor();
  await signIn(page, server.key);
  await page.reload();
  await page.locator('main#main h1').waitFor();
  await go(page, '/settings');
  await page.getByRole('cell', { name: 'default', exact: true }).waitFor();
  assert.deepEqual(bearers, []);
  assert.deepEqual(await violations(page), []);
  await page.getByRole('button', { name: 'Sign out' }).click();
  await page.getByLabel('Key').waitFor();
  await page.reload();
  await page.getByLabel('Key').waitFor();
  await page.context().close();
});

test('an empty server says on each page what to do next', async () => {
  const page = await openPage(browser, site);
  await signIn(page, server.key);
  for (const [path, words] of [
    ['/overview', 'No destinations yet'],
    ['/destinations', 'No destinations yet'],
    ['/deliveries', 'No deliveries yet'],
    ['/events', 'No events yet'],
    ['/subscriptions', 'No subscriptions yet'],
    ['/dead', 'Nothing is dead'],
    ['/live', 'Nothing happened yet'],
  ]) {
    await go(page, path);
    await page.getByText(words).first().waitFor();
  }
  for (const [path, what] of [['deliveries/dlv_0', 'delivery'], ['destinations/dst_0', 'destination'], ['events/evt_0', 'event'], ['subscriptions/sub_0', 'subscription']]) {
    await go(page, `/${path}`);
    await page.getByText(`There is no such ${what}`).waitFor();
  }
  await go(page, '/nonsense');
  await page.getByText('There is no such page').waitFor();
  await page.context().close();
});
