// Signing in with a key or a link, and out again.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { axe, go, openBrowser, openPage, signIn, violations } from './browser.mjs';
import { Postrider } from './server.mjs';

const COOKIE = '__Host-postrider';
let server, browser;

before(async () => {
  server = await Postrider.start();
  browser = await openBrowser();
});

after(async () => {
  await browser?.close();
  await server?.remove();
});

const cookieOf = async (page) => (await page.context().cookies()).find((one) => one.name === COOKIE);

/** A call as a browser of another site would make it, with the cookie. */
const withCookie = (cookie, method, path, headers = {}) =>
  fetch(`${server.base}/v1/${path}`, {
    method,
    headers: { cookie: `${COOKIE}=${cookie.value}`, 'content-type': 'application/json', ...headers },
    ...(method !== 'GET' && { body: JSON.stringify({ id: 'evil' }) }),
  });

test('a session outlives a reload, and the key is sent once and kept nowhere', async () => {
  const page = await openPage(browser, server);
  const carriers = [];
  page.on('request', (request) => {
    const sent = JSON.stringify([request.url(), request.headers(), request.postData()]);
    if (sent.includes(server.key)) carriers.push(`${request.method()} ${new URL(request.url()).pathname}`);
  });
  await page.getByLabel('Key').fill('pr_wrong');
  await page.getByRole('button', { name: 'Sign in' }).click();
  await page.getByText('This key is not valid').waitFor();
  await signIn(page, server.key);
  const cookie = await cookieOf(page);
  assert.ok(cookie.httpOnly && cookie.secure && cookie.sameSite === 'Strict');
  await page.reload();
  await page.locator('main#main h1').waitFor();
  await go(page, '/settings');
  await page.getByRole('cell', { name: 'default', exact: true }).waitFor();
  assert.deepEqual(carriers, ['POST /v1/session']);
  const kept = await page.evaluate(() => JSON.stringify([{ ...localStorage }, { ...sessionStorage }, document.cookie, location.href, document.documentElement.outerHTML]));
  assert.ok(!kept.includes(server.key.slice(4)) && !kept.includes(cookie.value));
  assert.deepEqual(await violations(page), []);

  await page.getByRole('button', { name: 'Sign out' }).click();
  await page.getByLabel('Key').waitFor();
  await page.reload();
  await page.getByLabel('Key').waitFor();
  assert.equal((await withCookie(cookie, 'GET', 'ledger')).status, 401, 'the session itself has ended');
  await page.context().close();
});

test('a cross-site request with the cookie is refused', async () => {
  const page = await openPage(browser, server);
  await signIn(page, server.key);
  const cookie = await cookieOf(page);
  for (const headers of [{ origin: 'http://evil.example', 'sec-fetch-site': 'cross-site' }, { origin: 'null' }, {}]) {
    const answer = await withCookie(cookie, 'POST', 'tenants', headers);
    assert.equal(answer.status, 403);
    assert.equal((await answer.json()).code, 'cross_site');
  }
  assert.equal((await withCookie(cookie, 'POST', 'tenants', { origin: server.base, 'sec-fetch-site': 'same-origin' })).status, 201);
  await server.call('DELETE', 'tenants/evil');
  await page.context().close();
});

test('the link that the server prints signs in once, and leaves the address bar', async () => {
  assert.match(server.link, /#\/signin\?token=pt_/);
  const page = await openPage(browser, server, { at: server.link });
  await page.locator('main#main h1').waitFor();
  assert.ok(!(await page.evaluate(() => location.href + JSON.stringify(history.state))).includes('pt_'));
  await go(page, '/settings');
  await page.getByRole('cell', { name: 'default', exact: true }).waitFor();
  await page.context().close();

  const again = await openPage(browser, server, { at: server.link });
  await again.getByText('This link has expired or was used already.').waitFor();
  await again.getByLabel('Key').waitFor();
  assert.deepEqual(await axe(again), []);
  await again.context().close();
});

test('a link does not take the place of a session without a question', async () => {
  const made = await server.post('portal-links', { access: 'read' });
  const page = await openPage(browser, server);
  await signIn(page, server.key);
  const token = new URL(made.url).hash;
  await page.evaluate((hash) => (location.hash = hash), token);
  await page.getByText('Sign in by this link?').waitFor();
  assert.deepEqual(await axe(page), []);
  await page.getByRole('button', { name: 'Stay signed in as now' }).click();
  await go(page, '/settings');
  await page.getByRole('cell', { name: 'default', exact: true }).waitFor();
  await page.evaluate((hash) => (location.hash = hash), token);
  await page.getByRole('button', { name: 'Use the link' }).click();
  await page.locator('main#main h1').waitFor();
  assert.equal(await page.getByRole('link', { name: 'Settings' }).count(), 0, 'a portal session has no settings');
  await page.context().close();
});
