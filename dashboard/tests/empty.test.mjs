// A server that nobody has used yet.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { go, openBrowser, openPage, signIn } from './browser.mjs';
import { Postrider } from './server.mjs';

let server, browser;

before(async () => {
  server = await Postrider.start();
  browser = await openBrowser();
});

after(async () => {
  await browser?.close();
  await server?.remove();
});

test('an empty server says on each page what to do next', async () => {
  const page = await openPage(browser, server);
  await signIn(page, server.key);
  for (const [path, words] of [
    ['/overview', 'No destinations yet'],
    ['/destinations', 'No destinations yet'],
    ['/deliveries', 'No deliveries yet'],
    ['/events', 'No events yet'],
    ['/event-types', 'No event types yet'],
    ['/subscriptions', 'No subscriptions yet'],
    ['/erasures', 'No erasures yet'],
    ['/settings?tab=alerts', 'Nobody is told'],
    ['/dead', 'Nothing is dead'],
    ['/live', 'Nothing happened yet'],
  ]) {
    await go(page, path);
    await page.getByText(words).first().waitFor();
  }
  for (const [path, what] of [['deliveries/dlv_0', 'delivery'], ['destinations/dst_0', 'destination'], ['events/evt_0', 'event'], ['subscriptions/sub_0', 'subscription'], ['event-types/no.such', 'event type'], ['events/%', 'event'], ['deliveries/%zz', 'delivery']]) {
    await go(page, `/${path}`);
    await page.getByText(`There is no such ${what}`).waitFor();
  }
  await go(page, '/nonsense');
  await page.getByText('There is no such page').waitFor();
  await page.context().close();
});
