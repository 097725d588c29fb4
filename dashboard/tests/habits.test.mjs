// What a page does beside its data: notices, keys, the zone of times, folding, filters, and dialogs in dark colours.
import assert from 'node:assert/strict';
import { existsSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { axe, go, openBrowser, openPage, signIn, violations } from './browser.mjs';
import { enrich, makeWorld } from './world.mjs';

let world, server, browser, page, described;

before(async () => {
  world = await makeWorld();
  server = world.server;
  ({ described } = await enrich(world));
  browser = await openBrowser();
  page = await openPage(browser, server);
  await signIn(page, server.key);
});

after(async () => {
  await browser?.close();
  await world?.close();
});

const button = (name, options = { exact: true }) => page.getByRole('button', { name, ...options });

test('the guard of mass failures and the nodes of a cluster are shown', async () => {
  const since = new Date(Date.now() - 65_000).toISOString();
  const node = (name, shards, isThis) => ({ name, shards, this: isThis, version: '0.9.1', seen_at: since });
  const handle = async (route) => {
    const answer = await (await route.fetch()).json();
    const mass_failure = { ...answer.mass_failure, suspended: true, suspended_since: since };
    await route.fulfill({ json: { ...answer, store: 'postgres', mass_failure, nodes: [node('alpha', 120, true), node('beta', 136, false)] } });
  };
  await page.route('**/v1/server', handle);
  await go(page, '/overview');
  await page.getByRole('alert').filter({ hasText: 'Transitions are suspended' }).waitFor();
  await page.getByText(/on since .*: transitions are suspended/).waitFor();
  await page.locator('tr').filter({ hasText: 'alpha (answers now)' }).filter({ hasText: '120' }).waitFor();
  await page.locator('tr').filter({ hasText: 'beta' }).filter({ hasText: '136' }).filter({ hasText: '0.9.1' }).waitFor();
  assert.deepEqual(await axe(page), []);
  await go(page, '/settings?tab=server');
  await page.getByText('beta, 136 shards').waitFor();
  await page.unroute('**/v1/server', handle);
});

test('a backup is made from the page', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'postrider-backup-'));
  try {
    await go(page, '/settings?tab=server');
    await page.getByLabel(/New or empty directory/).fill('not/absolute');
    await button('Back everything up').click();
    await page.locator('[role=alert], [role=status]').filter({ hasText: /absolute/i }).first().waitFor();
    await page.getByLabel(/New or empty directory/).fill(join(folder, 'all'));
    await button('Back everything up').click();
    await page.getByText('The backup has begun.').waitFor();
    const made = await server.until('backup', (one) => one.finished_at !== null, 'the end of the backup');
    assert.deepEqual([made.to, made.error], [join(folder, 'all'), null]);
    assert.ok(existsSync(made.to) && readdirSync(made.to).length > 0);
    await page.locator('dd').filter({ hasText: join(folder, 'all') }).getByText('done').waitFor();
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
});

test('times are those of the viewer, or in UTC, and the choice is kept', async () => {
  const far = await openPage(browser, server, { zone: 'America/New_York' });
  await signIn(far, server.key);
  const { data: [event] } = await server.get('events?limit=1');
  await go(far, `/events/${event.id}`);
  const time = far.locator('dt', { hasText: 'Accepted' }).locator('+ dd time');
  await time.waitFor();
  const hourOf = (zone) => new Intl.DateTimeFormat('en-GB', { hour: '2-digit', minute: '2-digit', second: '2-digit', timeZone: zone }).format(new Date(event.accepted_at));
  assert.ok((await time.getAttribute('title')).includes(hourOf('America/New_York')));
  await far.getByRole('button', { name: 'Local time' }).click();
  await far.getByRole('button', { name: 'UTC' }).waitFor();
  assert.ok((await time.getAttribute('title')).includes(hourOf('UTC')));
  assert.match(await time.getAttribute('title'), /UTC/);
  await far.reload();
  await time.waitFor();
  assert.match(await time.getAttribute('title'), /UTC/);
  await far.context().close();
});

test('a payload is folded, unfolded and searched', async () => {
  const made = await server.post('events', { type: 'task.created', data: { order: { lines: [{ sku: 'needle-1' }, { sku: 'other' }, { sku: 'needle-2' }] } } });
  await go(page, `/events/${made.id}`);
  const lines = page.getByRole('region', { name: 'data' });
  await lines.getByText('needle-1').waitFor();
  await button('Fold order.lines').click();
  assert.equal(await lines.getByText('needle-1').count(), 0);
  await button('Unfold order.lines').click();
  await lines.getByText('needle-1').waitFor();
  await button('Fold').click();
  assert.equal(await lines.getByText('sku').count(), 0);
  await page.getByLabel('Search in data').fill('needle');
  await page.getByText('1 of 2', { exact: true }).waitFor();
  assert.match(await lines.locator('.now').innerText(), /needle-1/);
  await page.getByLabel('Search in data').press('Enter');
  await page.getByText('2 of 2', { exact: true }).waitFor();
  assert.match(await lines.locator('.now').innerText(), /needle-2/);
  await page.getByLabel('Search in data').fill('nowhere');
  await page.getByText('not found').waitFor();
});

test('the live page shows what its filters say', async () => {
  await go(page, '/live');
  await page.getByText('following').waitFor();
  await server.post('subscriptions', { url: `${world.receivers.base}/healthy?live`, types: ['live.*'] });
  await server.post('subscriptions', { url: `${world.receivers.base}/broken?live`, types: ['live.bad'] });
  await server.post('events', { type: 'live.good', data: {} });
  await server.post('events', { type: 'live.bad', data: {} });
  const rows = page.locator('.row').filter({ hasText: 'live.' });
  await rows.filter({ hasText: 'live.good' }).first().waitFor();
  await rows.filter({ hasText: 'live.bad' }).nth(1).waitFor();
  await page.getByLabel('Show').selectOption('failed');
  await page.waitForFunction(() => [...document.querySelectorAll('.row')].every((row) => !row.innerText.includes('live.good')));
  assert.ok((await rows.count()) >= 1);
  for (const text of await rows.allInnerTexts()) assert.match(text, /500/, 'only failed ones');
  await page.getByLabel('Show').selectOption('delivered');
  await rows.filter({ hasText: 'live.good' }).first().waitFor();
  await page.getByRole('searchbox', { name: 'Search' }).fill('live.good');
  await page.waitForFunction(() => [...document.querySelectorAll('.row')].every((row) => row.innerText.includes('live.good')));
  await page.waitForFunction(() => location.hash.includes('what=delivered') && location.hash.includes('q=live.good'));
});

test('j and k walk through plain tables, and Enter opens', async () => {
  await go(page, '/subscriptions');
  await page.locator('tbody tr').nth(2).waitFor();
  await page.keyboard.press('j');
  const focused = () => page.evaluate(() => [...document.querySelectorAll('tbody tr')].indexOf(document.activeElement.closest('tr')));
  assert.equal(await focused(), 0);
  await page.keyboard.press('j');
  await page.keyboard.press('j');
  assert.equal(await focused(), 2);
  await page.keyboard.press('k');
  assert.equal(await focused(), 1);
  const href = await page.evaluate(() => document.activeElement.getAttribute('href'));
  await page.keyboard.press('Enter');
  await page.waitForFunction((hash) => location.hash === hash, href);
  await go(page, '/subscriptions');
  await page.getByRole('searchbox', { name: 'Search' }).fill('jjj');
  assert.equal(await page.getByRole('searchbox', { name: 'Search' }).inputValue(), 'jjj', 'in a field they are letters');
});

test('dialogs pass axe in dark and in light colours', async () => {
  const dialogs = {
    destination: ['/destinations', () => button(/Actions for .*\/broken$/, {})],
    replay: ['/dead', () => button('Replay many')],
    rotate: [`/subscriptions/${described.id}`, () => button('Rotate the secret')],
    delete: [`/subscriptions/${described.id}`, () => button('Delete')],
    erase: ['/events/person-7-flagged', () => button('Erase the payload…')],
    tenant: ['/settings?tab=tenants', () => button('Edit acme')],
    palette: ['/overview', () => button(/Go to/, {})],
  };
  for (const theme of ['dark', 'light']) {
    await page.emulateMedia({ colorScheme: theme });
    for (const [name, [path, opener]] of Object.entries(dialogs)) {
      await go(page, path);
      await opener().first().click();
      await page.locator('dialog[open]').waitFor();
      assert.equal(await page.evaluate(() => document.documentElement.dataset.theme), theme);
      assert.deepEqual(await axe(page), [], `${name}, ${theme}`);
      await page.keyboard.press('Escape');
      await page.locator('dialog[open]').waitFor({ state: 'detached' });
    }
  }
  await page.emulateMedia({ colorScheme: 'light' });
});

test('how much pages move while they load is measured', async (context) => {
  const fresh = await openPage(browser, server);
  await fresh.evaluate(() => {
    window.shifts = 0;
    new PerformanceObserver((list) => {
      for (const entry of list.getEntries()) window.shifts += entry.value;
    }).observe({ type: 'layout-shift', buffered: true });
  });
  await signIn(fresh, server.key);
  const { data: [event] } = await server.get('events?type=task.updated&limit=1');
  const { data: [delivery] } = await server.get('deliveries?state=dead&limit=1');
  const found = [];
  for (const path of ['/overview', '/destinations', `/destinations/${world.destination('broken')}`, '/deliveries', `/deliveries/${delivery.id}`, '/events', `/events/${event.id}`, '/subscriptions', `/subscriptions/${described.id}`, '/dead', '/live', '/simulator', '/settings']) {
    await fresh.evaluate(() => (window.shifts = 0));
    await go(fresh, path);
    await fresh.waitForTimeout(2500);
    found.push(`${path.replace(/_[\w-]+$/, '_…')} ${(await fresh.evaluate(() => window.shifts)).toFixed(3)}`);
  }
  context.diagnostic(`layout shift within 2.5 s of opening: ${found.join(', ')}`);
  await fresh.context().close();
});

test('all of this broke no policy', async () => assert.deepEqual(await violations(page), []));
