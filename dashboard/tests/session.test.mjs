// Signing in with a key or a link, and out again.
import assert from 'node:assert/strict';
import { createServer } from 'node:http';
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

/** A page of somebody else, at another site or only at another port, that attacks the server when it is opened. */
async function startAttacker(host) {
  const site = createServer((request, response) => {
    response.writeHead(200, { 'content-type': 'text/html' });
    response.end(`<!doctype html><title>Attack</title><iframe name="sink"></iframe>
      <form method="post" target="sink" enctype="text/plain" action="${server.base}/v1/tenants"><input name='{"id":"evil","name":"' value='"}'></form>`);
  });
  await new Promise((resolve) => site.listen(0, host, resolve));
  return { base: `http://${host}:${site.address().port}`, close: () => (site.closeAllConnections(), site.close()) };
}

/** What the server answered to a page, also where the page itself is not told. The form's frame may be in a process of its own. */
async function watchAnswers(page) {
  const answers = [];
  const answered = (method, status, cookie = '') => method !== 'OPTIONS' && answers.push({ method, status, hasCookie: cookie.includes(COOKIE) });
  page.on('response', async (response) => {
    const request = response.request();
    if (!response.url().startsWith(server.base) || !request.isNavigationRequest()) return;
    answered(request.method(), response.status(), (await request.allHeaders()).cookie);
  });
  const client = await page.context().newCDPSession(page);
  const sent = new Map();
  const of = (id) => sent.get(id) ?? sent.set(id, {}).get(id);
  client.on('Network.requestWillBeSent', ({ requestId, request, type }) => Object.assign(of(requestId), { method: request.method, isOurs: type === 'Fetch' && request.url.startsWith(server.base) }));
  client.on('Network.requestWillBeSentExtraInfo', ({ requestId, headers }) => (of(requestId).cookie = headers.Cookie ?? headers.cookie));
  client.on('Network.responseReceivedExtraInfo', ({ requestId, statusCode }) => {
    const { method, isOurs, cookie } = of(requestId);
    if (isOurs) answered(method, statusCode, cookie);
  });
  await client.send('Network.enable');
  return answers;
}

test('a page of another site or port changes nothing with a form or with fetch, signed in or not', async () => {
  const page = await openPage(browser, server);
  await signIn(page, server.key);
  const { id } = await server.post('subscriptions', { url: 'https://example.com/kept', types: ['*'] });
  const state = async () => JSON.stringify([await server.get('tenants'), await server.get('keys'), await server.get('events'), await server.get('subscriptions')].map((list) => list.data.map(({ last_used_at: _, ...kept }) => kept)));
  const before = await state();
  // Another port is the same site: there the cookie goes along, and the check of the origin decides.
  for (const [host, hasCookie] of [['localhost', false], ['127.0.0.1', true]]) {
    const attacker = await startAttacker(host);
    const evil = await page.context().newPage();
    const answers = await watchAnswers(evil);
    await evil.goto(attacker.base);
    await evil.evaluate(() => document.forms[0].submit());
    const read = await evil.evaluate(async ([base, id]) => {
      const attempt = async (method, path, init) => {
        try {
          const answer = await fetch(`${base}/v1/${path}`, { method, credentials: 'include', ...init });
          return answer.type === 'opaque' ? '' : await answer.text();
        } catch {
          return '';
        }
      };
      const body = JSON.stringify({ id: 'evil' });
      const event = JSON.stringify({ type: 'evil.made', data: {} });
      const json = { 'content-type': 'application/json' };
      return Promise.all([
        attempt('POST', 'tenants', { mode: 'no-cors', headers: { 'content-type': 'text/plain' }, body }),
        attempt('POST', 'events', { mode: 'no-cors', body: event }),
        attempt('POST', 'tenants', { headers: json, body }),
        attempt('POST', 'events', { headers: json, body: event }),
        attempt('POST', 'keys', { headers: json, body: JSON.stringify({ name: 'evil', scopes: ['admin'] }) }),
        attempt('PATCH', `subscriptions/${id}`, { headers: json, body: JSON.stringify({ enabled: false }) }),
        attempt('DELETE', `subscriptions/${id}`, {}),
        attempt('DELETE', 'session', {}),
        attempt('GET', 'keys', {}),
      ]);
    }, [server.base, id]);
    for (let n = 0; n < 100 && answers.filter(({ method }) => method === 'POST').length < 3; n += 1) await new Promise((resolve) => setTimeout(resolve, 50));
    assert.deepEqual(read.filter(Boolean), [], `${host}: nothing can be read`);
    const expected = { method: 'POST', status: hasCookie ? 403 : 401, hasCookie };
    const posts = answers.filter(({ method }) => method === 'POST');
    assert.deepEqual(posts, [expected, expected, expected], `${host}: the form and two simple requests reached the server, and are refused`);
    assert.equal(await state(), before, `${host}: nothing has changed`);
    attacker.close();
    await evil.close();
  }
  await page.reload();
  await page.locator('main#main h1').waitFor();
  await server.call('DELETE', `subscriptions/${id}`);
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
