// What a session is not allowed to do is not offered: keys and portal links with some scopes, with and without data.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { axe, go, openBrowser, openPage, signIn, violations } from './browser.mjs';
import { startReceivers } from './receivers.mjs';
import { Postrider } from './server.mjs';

let receivers, server, browser, ids;
const of = (tenant) => (method, path, body) => server.call(method, path, body, { 'postrider-tenant': tenant });

before(async () => {
  receivers = await startReceivers();
  server = await Postrider.start();
  for (const id of ['busy', 'empty']) await server.post('tenants', { id, name: id });
  const call = of('busy');
  const subscription = await call('POST', 'subscriptions', { url: `${receivers.base}/broken`, types: ['*'] });
  await call('POST', 'event-types', { name: 'order.paid', description: 'An order was paid' });
  const event = await call('POST', 'events', { type: 'order.paid', object: 'order-1', data: { n: 1 } });
  let delivery;
  do [delivery] = (await call('GET', 'deliveries?state=waiting')).data;
  while (!delivery);
  ids = { subscription: subscription.id, destination: subscription.destination_id, event: event.id, delivery: delivery.id };
  browser = await openBrowser();
});

after(async () => {
  await browser?.close();
  await server?.remove();
  await receivers?.close();
});

/** The pages with what they say once they have been read. */
const pagesOf = {
  busy: () => ({
    '/overview': '/broken',
    '/destinations': '/broken',
    [`/destinations/${ids.destination}`]: 'What waits',
    '/deliveries': 'order.paid',
    [`/deliveries/${ids.delivery}`]: 'Retry slots',
    '/events': 'order.paid',
    '/events?object=order-1': 'order.paid',
    [`/events/${ids.event}`]: 'What matches',
    '/event-types': 'An order was paid',
    '/event-types/order.paid': 'An order was paid',
    '/subscriptions': '/broken',
    [`/subscriptions/${ids.subscription}`]: 'Verify in the receiver',
    '/dead': 'Nothing is dead',
    '/live': 'Nothing happened yet',
  }),
  empty: () => ({
    '/overview': 'No destinations yet',
    '/destinations': 'No destinations yet',
    '/deliveries': 'No deliveries yet',
    '/events': 'No events yet',
    '/event-types': 'No event types yet',
    '/subscriptions': 'No subscriptions yet',
    '/erasures': 'No erasures yet',
    '/dead': 'Nothing is dead',
    '/live': 'Nothing happened yet',
  }),
};

const FORMS = ['subscriptions', 'events', 'event-types'];
const CHANGES = /^(Edit|Delete|Rotate|Switch|Erase|Replay|Retry|Enable|Cancel|Actions for|New |Send)/;
const CASES = [
  { who: 'a key that reads', scopes: ['read'], forms: [], changes: false },
  { who: 'a key that reads and sends', scopes: ['read', 'ingest'], forms: ['events'], changes: false },
  { who: 'a key that reads and manages', scopes: ['read', 'manage'], forms: ['subscriptions', 'event-types'], changes: true },
  { who: 'a portal that reads', access: 'read', forms: [], changes: false },
  { who: 'a portal that manages', access: 'manage', forms: ['subscriptions'], changes: true },
];

async function enter(tenant, { scopes, access }) {
  if (access) {
    const { url } = await of(tenant)('POST', 'portal-links', { access });
    const page = await openPage(browser, server, { at: url });
    await page.locator('main#main h1').waitFor();
    return page;
  }
  const { key } = await server.post('keys', { name: scopes.join(), tenant, scopes });
  const page = await openPage(browser, server);
  await signIn(page, key);
  return page;
}

for (const one of CASES) {
  test(`${one.who} is offered what it may do, and nothing else`, async () => {
    const offered = new Set();
    const changing = new Set();
    for (const tenant of ['busy', 'empty']) {
      const page = await enter(tenant, one);
      const refused = [];
      page.on('response', (response) => response.status() === 403 && refused.push(response.url()));
      for (const [path, words] of Object.entries(pagesOf[tenant]())) {
        await go(page, path);
        await page.locator('main').getByText(words).first().waitFor();
        const found = await page.evaluate(() => ({
          links: [...document.querySelectorAll('main a[href]')].map((link) => link.getAttribute('href')),
          buttons: [...document.querySelectorAll('main button, main a.button')].map((one) => one.getAttribute('aria-label') ?? one.innerText.trim()),
        }));
        for (const href of found.links) if (/\/new(\?|$)/.test(href)) offered.add(href.split('/')[1]);
        for (const name of found.buttons) if (CHANGES.test(name)) changing.add(`${path}: ${name}`);
      }
      for (const form of FORMS) {
        await go(page, `/${form}/new`);
        const isAllowed = one.forms.includes(form);
        assert.equal(await page.locator('main form').count() > 0, isAllowed, `${form}: ${tenant}`);
        if (!isAllowed) await page.getByText(one.access ? 'This cannot be done here' : 'Your key does not allow it').waitFor();
        assert.deepEqual(await axe(page), [], form);
      }
      assert.deepEqual(refused, [], 'no page asks for what its session may not see');
      assert.deepEqual(await violations(page), []);
      await page.context().close();
    }
    assert.deepEqual([...offered].sort(), [...one.forms].sort());
    if (one.changes) assert.ok(changing.size > 0);
    else assert.deepEqual([...changing].filter((name) => !/Send/.test(name) || !one.forms.includes('events')), []);
  });
}

test('a portal that manages shows event types, their rules and erasures, and changes none of them', async () => {
  const page = await enter('busy', { access: 'manage' });
  await go(page, '/event-types');
  await page.getByText('accepted without being checked').first().waitFor();
  assert.equal(await page.locator('main select').count(), 0, 'the rules are words');
  await go(page, '/event-types/order.paid');
  await page.getByText('An order was paid').waitFor();
  assert.equal(await page.getByRole('button', { name: /Edit|Delete/ }).count(), 0);
  for (const path of ['/erasures', '/events?object=order-1', `/events/${ids.event}`]) {
    await go(page, path);
    await page.locator('main').getByText(/No erasures yet|order-1|order\.paid/).first().waitFor();
    assert.equal(await page.getByRole('button', { name: /Erase/ }).count(), 0, path);
  }
  await page.keyboard.press('Control+k');
  await page.getByRole('combobox', { name: 'Command' }).fill('e');
  assert.equal(await page.getByRole('option', { name: /Add an event type|Erase payloads/ }).count(), 0);
  await page.keyboard.press('Escape');
  const status = (method, path, body) =>
    page.evaluate(
      async ([method, path, body]) => (await fetch(`v1/${path}`, { method, headers: { 'content-type': 'application/json' }, body: body && JSON.stringify(body) })).status,
      [method, path, body],
    );
  assert.equal(await status('PATCH', 'catalogue', { unknown_types: 'refuse', misfits: 'refuse' }), 403);
  assert.equal(await status('POST', 'event-types', { name: 'order.new' }), 403);
  assert.equal(await status('DELETE', 'event-types/order.paid'), 403);
  assert.equal(await status('POST', 'erasures', { event: ids.event }), 403);
  await of('busy')('POST', 'events', { type: 'not.in.the.catalogue', data: {} });
  assert.equal((await of('busy')('GET', `events/${ids.event}`)).erased_at, null);
  await page.context().close();
});
