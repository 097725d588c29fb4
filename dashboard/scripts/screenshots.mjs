// Pictures of all pages from realistic data: `POSTRIDER_BINARY=… node scripts/screenshots.mjs FOLDER [names…]`.
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { go, openBrowser, openPage, signIn } from '../tests/browser.mjs';
import { enrich, makeWorld, send } from '../tests/world.mjs';

const [folder, ...wanted] = process.argv.slice(2);
if (!folder) throw new Error('say where the pictures go');
mkdirSync(folder, { recursive: true });
const LOOKS = {
  light: { theme: 'light', width: 1280, height: 860 },
  dark: { theme: 'dark', width: 1280, height: 860 },
  phone: { theme: 'light', width: 390, height: 844 },
};

const world = await makeWorld();
const { server } = world;
const { described } = await enrich(world);
let n = 9000;
const traffic = setInterval(() => void send(server, (n += 7), 7).catch(() => {}), 400);
const browser = await openBrowser();
try {
  const first = async (path) => (await server.get(path)).data[0].id;
  const broken = world.destination('broken');
  // The one with the most attempts has the most to show.
  const [died] = (await server.get(`deliveries?state=dead&limit=200&destination=${broken}`)).data.sort((a, b) => b.attempts - a.attempts);
  const pages = {
    overview: ['/overview', 'In balance'],
    destinations: ['/destinations', '/healthy'],
    destination: [`/destinations/${broken}`, 'Timeline'],
    deliveries: ['/deliveries', 'task.updated'],
    'delivery-dead': [`/deliveries/${died.id}`, 'Retry slots'],
    'delivery-waiting': [`/deliveries/${await first(`deliveries?state=waiting&limit=1&destination=${broken}`)}`, 'Retry slots'],
    events: ['/events', 'task.updated'],
    event: [`/events/${await first('events?type=task.updated&limit=1')}`, 'What matches'],
    'event-new': ['/events/new', 'Send an event'],
    'event-flagged': ['/events/person-7-flagged', 'It was flagged'],
    'event-types': ['/event-types', 'person.updated'],
    'event-type': ['/event-types/person.updated', 'Schema'],
    'event-type-new': ['/event-types/new', 'New event type'],
    erasures: ['/erasures', 'person-8-erased'],
    subscriptions: ['/subscriptions', '/flaky'],
    subscription: [`/subscriptions/${world.subscriptions.flaky.id}`, 'Verify in the receiver'],
    'subscription-policy': [`/subscriptions/${described.id}`, 'What holds'],
    'subscription-new': ['/subscriptions/new', 'New subscription'],
    dead: ['/dead', 'What died'],
    live: ['/live', 'seen'],
    simulator: ['/simulator?outage=216000000&rate=2&unit=84800&probe=600000&freeze=259200000', 'Arrive late'],
    tenants: ['/settings?tab=tenants', 'acme'],
    keys: ['/settings?tab=keys', 'Reporting'],
    limits: ['/settings?tab=limits', 'Limit of the tenant'],
    'portal-links': ['/settings?tab=portal', 'Create a link'],
    alerts: ['/settings?tab=alerts', 'told'],
    config: ['/settings?tab=config', 'retry.unit'],
    audit: ['/settings?tab=audit', 'subscription.create'],
    server: ['/settings?tab=server', 'Version'],
    // All tenants together; those that come after stay with them.
    'all-overview': ['/overview?tenant=*', 'of all tenants'],
    'all-destinations': ['/destinations?tenant=*', 'acme'],
    'all-deliveries': ['/deliveries?tenant=*', 'default'],
    'all-dead': ['/dead?tenant=*', 'What died'],
    'all-keys': ['/settings?tab=keys&tenant=*', 'Reporting'],
  };
  /** What is opened on a page. They come after the pages of all tenants. */
  const OPENED = {
    palette: async (page) => {
      await go(page, '/overview?tenant=default');
      await page.keyboard.press('Control+k');
      await page.getByRole('combobox', { name: 'Command' }).fill('de');
    },
    dialog: async (page) => {
      await go(page, `/destinations/${broken}?tenant=default`);
      await page.getByRole('button', { name: 'Enable, freeze, test…' }).click();
    },
    filter: async (page) => {
      await go(page, `/subscriptions/${world.subscriptions.flaky.id}?tenant=default`);
      await page.getByRole('button', { name: 'Edit' }).click();
      await page.locator('.tried strong').waitFor();
    },
  };
  for (const [look, options] of Object.entries(LOOKS)) {
    const page = await openPage(browser, server, options);
    // The machine may have more to do than this.
    page.setDefaultTimeout(60_000);
    const keep = (name) => page.screenshot({ path: join(folder, `${name}-${look}.png`) });
    if (wanted.length === 0) await keep('sign-in');
    await signIn(page, server.key);
    for (const [name, [path, word]] of Object.entries(pages)) {
      if (wanted.length > 0 && !wanted.includes(name)) continue;
      await go(page, path);
      await page.waitForFunction((text) => document.querySelector('main').innerText.includes(text), word);
      // Two reads of the page's data, so that charts have something to draw.
      await page.waitForTimeout(name === 'overview' || name === 'live' ? 6000 : 700);
      await keep(name);
    }
    for (const [name, open] of Object.entries(OPENED)) {
      if (wanted.length > 0 && !wanted.includes(name)) continue;
      await open(page);
      await page.waitForTimeout(1200);
      await keep(name);
      await page.keyboard.press('Escape');
    }
    await page.context().close();
    if (wanted.length > 0 && !wanted.includes('portal')) continue;
    const { url } = await server.post('portal-links', { access: 'manage', theme: { name: 'Acme webhooks', accent: '#0a7d4b', mode: options.theme } });
    const customer = await openPage(browser, server, { ...options, at: url });
    await go(customer, '/destinations');
    await customer.locator('.row').first().waitFor();
    await customer.waitForTimeout(1200);
    await customer.screenshot({ path: join(folder, `portal-${look}.png`) });
    await customer.context().close();
  }
  console.log(`pictures are in ${folder}`);
} finally {
  clearInterval(traffic);
  await browser.close();
  await world.close();
}
