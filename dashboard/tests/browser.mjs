// Drives Debian's Chromium. Each page counts its CSP violations and its errors.
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { chromium } from 'playwright-core';

const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const EXECUTABLE = process.env.CHROMIUM ?? '/usr/bin/chromium';
const RULES = ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa'];

export const openBrowser = () => chromium.launch({ executablePath: EXECUTABLE, args: ['--no-sandbox', '--disable-dev-shm-usage'] });

export async function openPage(browser, server, { theme = 'light', width = 1280, height = 860, at = `${server.base}/`, zone } = {}) {
  const context = await browser.newContext({ viewport: { width, height }, colorScheme: theme, reducedMotion: 'reduce', ...(zone && { timezoneId: zone }), permissions: ['clipboard-read', 'clipboard-write'] });
  const page = await context.newPage();
  page.setDefaultTimeout(15_000);
  page.troubles = [];
  page.on('pageerror', (error) => page.troubles.push(`error: ${error.message}`));
  page.on('console', (message) => {
    if (/Content Security Policy/i.test(message.text())) page.troubles.push(`csp: ${message.text()}`);
  });
  await page.addInitScript(() => {
    window.violations = [];
    document.addEventListener('securitypolicyviolation', (event) => window.violations.push(`${event.violatedDirective} ${event.blockedURI}`));
  });
  await page.goto(at);
  return page;
}

export async function signIn(page, key) {
  await page.getByLabel('Key').fill(key);
  await page.getByRole('button', { name: 'Sign in' }).click();
  await page.locator('main#main').waitFor();
}

/** Goes to a page without loading the document again. */
export async function go(page, path) {
  await page.evaluate((hash) => (location.hash = hash), path);
  await page.locator('main#main h1').first().waitFor();
}

export async function violations(page) {
  return [...(await page.evaluate(() => window.violations)), ...page.troubles];
}

/** What axe finds wrong: the rule, and the first place. Runs outside of the page's policy. */
export async function axe(page) {
  const client = await page.context().newCDPSession(page);
  const { executionContextId } = await isolated(client);
  await client.send('Runtime.evaluate', { expression: AXE, contextId: executionContextId });
  const run = `axe.run(document, { runOnly: ${JSON.stringify(RULES)} }).then((found) => JSON.stringify(found.violations.map((one) => one.id + ': ' + one.nodes.slice(0, 3).map((node) => node.html.slice(0, 160) + ' ' + node.failureSummary.split('\\n').slice(1, 2).join('')).join(' | '))))`;
  const { result, exceptionDetails } = await client.send('Runtime.evaluate', { expression: run, contextId: executionContextId, awaitPromise: true });
  await client.detach();
  if (exceptionDetails) throw new Error(exceptionDetails.exception?.description ?? exceptionDetails.text);
  return JSON.parse(result.value);
}

async function isolated(client) {
  const { frameTree } = await client.send('Page.getFrameTree');
  return client.send('Page.createIsolatedWorld', { frameId: frameTree.frame.id, worldName: 'axe' });
}
