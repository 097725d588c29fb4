// A long list, and many attempts a second. The figures are printed, not asserted.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { go, openBrowser, openPage, signIn } from './browser.mjs';
import { startReceivers } from './receivers.mjs';
import { Postrider } from './server.mjs';

const ROWS = Number(process.env.DASHBOARD_ROWS ?? 100_000);
const PER_SECOND = Number(process.env.DASHBOARD_RATE ?? 1000);
const SECONDS = 5;
let server, receivers, browser;

before(async () => {
  receivers = await startReceivers();
  server = await Postrider.start();
  browser = await openBrowser();
  await server.post('subscriptions', { url: `${receivers.base}/healthy`, types: ['*'] });
});

after(async () => {
  await browser?.close();
  await server?.remove();
  await receivers?.close();
});

const events = (count, type) => Array.from({ length: count }, (_, n) => ({ type, data: { n } }));

/** Measures the longest time between two frames until it is asked for. */
const watchFrames = (page) =>
  page.evaluate(() => {
    window.frames_ = { longest: 0, count: 0 };
    let last = performance.now();
    const tick = (now) => {
      window.frames_.longest = Math.max(window.frames_.longest, now - last);
      window.frames_.count += 1;
      last = now;
      requestAnimationFrame(tick);
    };
    requestAnimationFrame((now) => ((last = now), requestAnimationFrame(tick)));
  });

test(`a list of ${ROWS} deliveries scrolls to its end and holds few rows`, async (context) => {
  const began = Date.now();
  for (let n = 0; n < ROWS; n += 1000) await server.post('events/batch', events(Math.min(1000, ROWS - n), 'bulk.made'));
  context.diagnostic(`${ROWS} events were accepted in ${((Date.now() - began) / 1000).toFixed(1)} s`);
  // What follows measures the page, not a server that still sends.
  await server.until('ledger', (ledger) => ledger.queued + ledger.in_flight === 0, 'everything to be sent', 300);
  const page = await openPage(browser, server);
  await signIn(page, server.key);
  await go(page, '/deliveries');
  await page.locator('.row').first().waitFor();
  await watchFrames(page);
  // At each frame to the end of what is loaded, which loads more.
  const loaded = await page.waitForFunction(
    (wanted) => {
      const scroller = document.querySelector('.scroller');
      scroller.scrollTop = scroller.scrollHeight;
      const rows = Number(document.querySelector('[role=table]').getAttribute('aria-rowcount')) - 1;
      return rows >= wanted && rows;
    },
    ROWS,
    { polling: 'raf', timeout: 300_000 },
  );
  const rows = await loaded.jsonValue();
  assert.ok((await page.locator('.row').count()) < 100, 'only the rows in view exist');
  const { longest } = await page.evaluate(() => window.frames_);
  context.diagnostic(`longest frame while loading and scrolling ${rows} rows: ${longest.toFixed(0)} ms`);
  await page.context().close();
});

test(`the live page keeps up with ${PER_SECOND} attempts a second`, async (context) => {
  const page = await openPage(browser, server);
  await signIn(page, server.key);
  await go(page, '/live');
  await page.getByText('following').waitFor();
  await watchFrames(page);
  const before = Date.now();
  for (let second = 0; second < SECONDS; second += 1) {
    const began = Date.now();
    await server.post('events/batch', events(PER_SECOND, 'live.made'));
    await new Promise((resolve) => setTimeout(resolve, Math.max(0, 1000 - (Date.now() - began))));
  }
  const total = PER_SECOND * SECONDS;
  // Ends also where some were neither seen nor counted: those between a lag and the stream that follows it.
  const told = await page.waitForFunction(
    ({ wanted, quietMs }) => {
      const number = (pattern) => Number((pattern.exec(document.querySelector('.head').innerText)?.[1] ?? '0').replaceAll(',', ''));
      const [seen, missed] = [number(/([\d,]+) seen/), number(/([\d,]+) missed/)];
      const now = performance.now();
      if (window.told_?.sum !== seen + missed) window.told_ = { sum: seen + missed, at: now };
      return (seen + missed >= wanted || now - window.told_.at > quietMs) && { seen, missed };
    },
    { wanted: total, quietMs: 10_000 },
    { timeout: 120_000 },
  );
  const { seen, missed } = await told.jsonValue();
  const seconds = (Date.now() - before) / 1000;
  const { longest, count } = await page.evaluate(() => window.frames_);
  context.diagnostic(`${seen} of ${total} attempts seen, ${missed} missed, ${Math.max(0, total - seen - missed)} not told, in ${seconds.toFixed(1)} s; longest frame ${longest.toFixed(0)} ms of ${count}`);
  assert.ok(seen > 0);
  assert.ok((await page.locator('.row').count()) < 120);
  await page.getByRole('button', { name: 'Pause' }).click();
  await page.getByText('paused').first().waitFor();
  await page.context().close();
});
