// Each page with data, in both themes and at phone width, with axe and the policy.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { axe, go, openBrowser, openPage, signIn, violations } from './browser.mjs';
import { enrich, makeWorld } from './world.mjs';

let world, server, browser, paths;

before(async () => {
  world = await makeWorld();
  server = world.server;
  const { described } = await enrich(world);
  browser = await openBrowser();
  const first = async (path) => (await server.get(path)).data[0].id;
  // Not one that the replay of the world is about to take.
  const dead = await first(`deliveries?state=dead&limit=1&destination=${world.destination('broken')}`);
  const waiting = await first(`deliveries?state=waiting&limit=1&destination=${world.destination('broken')}`);
  const event = await first('events?type=task.updated&limit=1');
  paths = {
    '/overview': ['In balance', 'What happened', 'Retries due in the next 48 hours', 'first lane', 'Disk', 'free of'],
    '/destinations': ['/gone', 'frozen', '/broken', 'disabled', '/healthy', 'enabled', 'Success, 24 h', '100 %'],
    [`/destinations/${world.destination('broken')}`]: ['Disabled by the share of failures', 'Timeline', 'What waits', 'task.*', 'How attempts went', 'an error of the receiver (5xx)'],
    '/deliveries': ['task.updated', '/healthy'],
    '/deliveries?state=dead': ['dead'],
    [`/deliveries/${dead}`]: ['Retry slots', 'Attempts', 'Replay', 'What helps'],
    [`/deliveries/${waiting}`]: ['Retry slots', 'Cancel'],
    '/events': ['task.updated', 'tsk_'],
    [`/events/${event}`]: ['Difference', 'What matches', '/healthy'],
    '/events?object=person-7': ['person.updated', 'flagged'],
    '/deliveries?object=tsk_1001': ['task.'],
    '/events/person-7-flagged': ['It was flagged.', 'does not fit the schema', '/age'],
    '/events/person-8-erased': ['Its payload was erased', 'Deliveries'],
    '/event-types': ['person.updated', 'deprecated', 'all tenants', 'Events that do not fit'],
    '/event-types/person.updated': ['A person has changed', 'Schema', '"integer"', 'Example'],
    '/event-types/new': ['New event type', 'JSON Schema of data'],
    '/erasures': ['event person-8-erased', '1 event erased'],
    '/events/new': ['Send an event', 'Data: the new state'],
    '/subscriptions': ['/flaky', 'data.status changed and data.priority is at least 1'],
    [`/subscriptions/${world.subscriptions.flaky.id}`]: ['Verify in the receiver', 'import base64', 'Rotate the secret'],
    [`/subscriptions/${described.id}`]: ['Warehouse', 'Ask Ada before', 'team: logistics', 'What holds', 'this subscription', 'the server', 'at most 20 a second'],
    '/subscriptions/new': ['New subscription', 'Every event of these types is delivered'],
    '/dead': ['What died, and why', '/broken', 'Replays', 'of 30 replayed'],
    '/live': ['Live'],
    '/simulator': ['Deliveries that wait', 'Svix', 'Stripe'],
    '/settings': ['acme', 'Acme Ltd'],
    '/settings?tab=keys': ['first admin key', 'Reporting'],
    '/settings?tab=limits': ['Limit of the tenant', 'limits.tenant_subscriptions'],
    '/settings?tab=portal': ['Create a link', 'No portal links'],
    '/settings?tab=alerts': ['Nobody is told'],
    '/settings?tab=config': ['retry.unit', 'command line'],
    '/settings?tab=audit': ['subscription.create', 'first admin key'],
    '/settings?tab=server': ['Version', '0.', 'embedded', 'Back everything up'],
    // All tenants together; those that come after stay with them.
    '/overview?tenant=*': ['of all tenants', 'In balance', '/gone?acme'],
    '/destinations?q=acme&tenant=*': ['/gone?acme', 'acme'],
    '/deliveries?tenant=*': ['invoice.paid', 'acme', 'task.updated', 'default'],
    '/events?tenant=*': ['invoice.paid', 'acme'],
    '/subscriptions?tenant=*': ['/gone?acme', 'tenant acme', 'tenant default'],
    '/dead?tenant=*': ['What died, and why', '/broken', 'default', 'Replays belong to a tenant'],
    '/live?tenant=*': ['one tenant at a time', 'acme'],
    '/settings?tab=keys&tenant=*': ['Acme backend', 'Reporting', 'first admin key'],
  };
});

after(async () => {
  await browser?.close();
  await world?.close();
});

async function shows(page, path, words) {
  for (const word of words) {
    await page.waitForFunction((text) => document.querySelector('main').innerText.includes(text), word).catch(() => assert.fail(`${path} does not say "${word}"`));
  }
}

for (const theme of ['light', 'dark']) {
  describe(`in ${theme} colours`, () => {
    let page;
    before(async () => {
      page = await openPage(browser, server, { theme });
    });
    after(() => page.context().close());

    test('the sign-in page passes axe and refuses a wrong key', async () => {
      await page.getByLabel('Key').fill('pr_wrong');
      await page.getByRole('button', { name: 'Sign in' }).click();
      await page.getByText('This key is not valid').waitFor();
      assert.deepEqual(await axe(page), []);
      await signIn(page, server.key);
    });

    test('each page shows its data, passes axe, and breaks no policy', async (context) => {
      for (const [path, words] of Object.entries(paths)) {
        await context.test(path, async () => {
          await go(page, path);
          await shows(page, path, words);
          assert.deepEqual(await axe(page), []);
          assert.deepEqual(await violations(page), []);
        });
      }
    });
  });
}

test('a row has a bar of its last attempts, its success rate and its response times', async () => {
  const page = await openPage(browser, server);
  await signIn(page, server.key);
  await go(page, '/destinations');
  for (const [name, words] of [['healthy', /^The last \d+ attempts?: all delivered; the last one: status 2\d\d$/], ['broken', /all failed; the last one: status 5\d\d$/]]) {
    const row = page.getByRole('row').filter({ has: page.getByRole('link', { name: new RegExp(`/${name}$`) }) });
    await row.getByRole('img', { name: words }).waitFor();
    const id = world.destination(name);
    const { data } = await server.get(`destinations/stats?ids=${id}`);
    assert.match(await row.innerText(), new RegExp(`${data[0].last_7_days.success_rate * 100} %`), name);
    assert.match(await row.innerText(), /\d+ m?s \/ \d/, name);
  }
  await page.context().close();
});

test('one destination shows hours, response times and classes of failures, over a day and a week', async () => {
  const page = await openPage(browser, server);
  await signIn(page, server.key);
  const id = world.destination('broken');
  await go(page, `/destinations/${id}?range=7d`);
  await page.getByRole('img', { name: 'Attempts and failed attempts by the hour, over 7 days' }).waitFor();
  await page.getByRole('img', { name: 'Response times by the hour, over 7 days' }).waitFor();
  const { failures } = await server.get(`destinations/${id}/stats?hours=168`);
  const table = page.getByRole('table', { name: 'Failures by class' });
  assert.equal(await table.getByRole('row').count(), failures.length + 1);
  const probes = page.getByRole('region', { name: 'Changes' }).locator('li').filter({ hasText: 'still disabled' });
  await probes.first().waitFor();
  for (const text of await probes.allInnerTexts()) assert.doesNotMatch(text, /from disabled/, 'a probe that fails changes nothing');
  await page.getByRole('group', { name: 'How far back' }).getByRole('button', { name: '24 hours' }).click();
  await page.waitForFunction(() => location.hash.includes('range=24h'));
  await page.getByRole('img', { name: 'Response times by the hour, over 24 hours' }).waitFor();
  assert.deepEqual(await axe(page), []);
  await page.context().close();
});

test('pages that still load pass axe', async () => {
  const page = await openPage(browser, server, { theme: 'dark' });
  await signIn(page, server.key);
  await page.route('**/v1/**', () => {});
  for (const path of Object.keys(paths)) {
    await go(page, path);
    assert.deepEqual(await axe(page), [], path);
  }
  await page.context().close();
});

test('no page is wider than a phone', async () => {
  const page = await openPage(browser, server, { width: 390, height: 844 });
  await signIn(page, server.key);
  for (const [path, words] of Object.entries(paths)) {
    await go(page, path);
    // Narrow lists leave columns out.
    await shows(page, path, words.slice(0, 1));
    const wide = await page.evaluate(() => [document.documentElement.scrollWidth, document.querySelector('main').scrollWidth]);
    assert.ok(Math.max(...wide) <= 390, `${path} is ${wide} wide`);
    const over = await page.evaluate(() => [...document.querySelectorAll('.row')].filter((row) => row.scrollHeight > row.clientHeight + 1).map((row) => row.innerText));
    assert.deepEqual(over, [], `${path} has rows that lie over the next one`);
    const unseen = await page.evaluate(() => [...document.querySelectorAll('[role=tab][aria-selected=true]')].filter((tab) => tab.getBoundingClientRect().right > innerWidth).map((tab) => tab.innerText));
    assert.deepEqual(unseen, [], `${path} does not show which tab is chosen`);
    if (path === '/events') assert.match(await page.locator('.row').first().innerText(), /\d owed/);
  }
  await page.getByRole('button', { name: 'Menu' }).click();
  await page.getByRole('link', { name: 'Destinations' }).waitFor();
  assert.deepEqual(await axe(page), []);
  await page.context().close();
});

test('the tab shows that something is frozen', async () => {
  const page = await openPage(browser, server);
  await signIn(page, server.key);
  await page.waitForFunction(() => document.title.startsWith('● 1 frozen'));
  assert.match(await page.locator('#favicon').getAttribute('href'), /alert/);
  await page.context().close();
});

test('the palette, the search key and j and k work', async () => {
  const page = await openPage(browser, server);
  await signIn(page, server.key);
  await page.keyboard.press('Control+k');
  await page.getByRole('combobox', { name: 'Command' }).fill('deliv');
  assert.deepEqual(await axe(page), []);
  await page.keyboard.press('Enter');
  await page.waitForFunction(() => location.hash === '#/deliveries');
  await page.locator('.row').first().waitFor();
  await page.keyboard.press('/');
  assert.ok(await page.evaluate(() => document.activeElement.matches('[data-search]')));
  await page.evaluate(() => document.activeElement.blur());
  await page.keyboard.press('j');
  await page.keyboard.press('j');
  await page.keyboard.press('k');
  await page.keyboard.press('j');
  const id = await page.locator('.row.chosen a').getAttribute('href');
  await page.keyboard.press('Enter');
  await page.waitForFunction((hash) => location.hash === hash, id);
  await page.context().close();
});

test('filters are kept in the address bar', async () => {
  const page = await openPage(browser, server);
  await signIn(page, server.key);
  await go(page, '/deliveries');
  await page.getByLabel('State').selectOption('dead');
  await page.waitForFunction(() => location.hash === '#/deliveries?state=dead');
  await page.waitForFunction(() => [...document.querySelectorAll('.row .state')].length > 0 && [...document.querySelectorAll('.row [role=cell]:first-child')].every((cell) => cell.innerText.trim() === 'dead'));
  await page.getByLabel('Destination').fill(world.destination('broken'));
  await page.keyboard.press('Enter');
  await page.waitForFunction(() => location.hash.includes('destination=dst_'));
  await page.context().close();
});
