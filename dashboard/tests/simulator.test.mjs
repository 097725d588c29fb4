// The simulator answers to its sliders and to an outage that is drawn.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { go, openBrowser, openPage, signIn, violations } from './browser.mjs';
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

test('a longer outage kills more, and an outage can be drawn', async () => {
  const page = await openPage(browser, server);
  await signIn(page, server.key);
  await go(page, '/simulator?outage=21600000&rate=10');
  const dead = () => page.locator('table.plain tr').filter({ hasText: 'Dead' }).locator('td').nth(1).innerText();
  await page.getByText('down for 6 h').waitFor();
  await page.waitForFunction(() => document.querySelectorAll('table.plain thead th').length === 5);
  assert.equal(await dead(), '0');
  const told = await server.post('simulate', { outage_seconds: 21_600, deliveries: 10, presets: ['server'] });
  const late = await page.locator('table.plain tr').filter({ hasText: 'Arrive late' }).locator('td').nth(1).innerText();
  assert.equal(late.replaceAll(',', ''), String(told.plans[0].late), 'the figures are those of the server');
  const box = await page.locator('.u-over').boundingBox();
  await page.mouse.move(box.x + 5, box.y + 50);
  await page.mouse.down();
  await page.mouse.move(box.x + box.width - 2, box.y + 50, { steps: 5 });
  await page.mouse.up();
  await page.waitForFunction(() => Number(/outage=(\d+)/.exec(location.hash)[1]) > 30_000_000);
  await page.getByLabel('The URL is down for').fill('1000');
  await page.getByText('down for 14 d').waitFor();
  await page.waitForFunction(() => [...document.querySelectorAll('table.plain tr')].some((row) => /^Dead/.test(row.innerText) && !/^Dead[^\t]*\t0\t/.test(row.innerText)));
  await page.getByText('Frozen after').first().waitFor();
  await page.getByRole('link', { name: 'Back to the defaults' }).click();
  await page.getByText('down for 6 h').waitFor();
  assert.deepEqual(await violations(page), []);
  await page.context().close();
});

test('the grace and the failures above which it freezes are knobs, and the server is asked with them', async () => {
  const page = await openPage(browser, server);
  await signIn(page, server.key);
  const { circuit } = await server.get('policy');
  const asked = [];
  page.on('request', (request) => request.url().endsWith('/v1/simulate') && asked.push(request.postDataJSON().policy.circuit));
  const until = async (name, wanted) => {
    for (let n = 0; n < 100 && asked.at(-1)?.[name] !== wanted; n += 1) await new Promise((resolve) => setTimeout(resolve, 100));
    assert.equal(asked.at(-1)?.[name], wanted, name);
  };
  await go(page, '/simulator');
  await until('disable_grace', circuit.disable_grace);
  await until('freeze_over_consecutive', circuit.freeze_over_consecutive);
  await page.getByLabel('A share counts from so many attempts').fill('1000');
  await until('disable_grace', 10_000);
  await page.getByLabel('Frozen only above so many failures in a row').fill('1000');
  await until('freeze_over_consecutive', 20_000);
  assert.match(await page.evaluate(() => location.hash), /grace=10000.*over=20000/);
  await page.context().close();
});

test('what died and is replayed stands beside it, for the preset and for this policy', async () => {
  const page = await openPage(browser, server);
  await signIn(page, server.key);
  await go(page, '/simulator?outage=216000000&rate=0.1');
  await page.getByText('down for 2 d 12 h').waitFor();
  const [replay] = (await server.post('simulate', { outage_seconds: 216_000, deliveries: 10, per_seconds: 100, presets: ['replay'] })).plans;
  assert.ok(replay.replayed > 0);
  const row = page.locator('table.plain tr').filter({ hasText: 'replayed when the URL was back' }).locator('td');
  const shows = (column, number) => row.nth(column).filter({ hasText: new RegExp(`^${number.toLocaleString('en-US')}$`) }).waitFor();
  await page.locator('table.plain th').nth(2).filter({ hasText: 'Defaults, with replay' }).waitFor();
  await shows(2, replay.replayed);
  await shows(1, 0);
  await page.getByLabel('Replay what died when the URL is back').check();
  await shows(1, replay.replayed);
  assert.match(await page.evaluate(() => location.hash), /dead=replay/);
  assert.deepEqual(await violations(page), []);
  await page.context().close();
});
