// The client's verify() with a browser's Web Crypto, over the same cases as every other client's.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';
import { openBrowser } from './browser.mjs';

const client = (path) => fileURLToPath(new URL(`../../clients/${path}`, import.meta.url));
const table = JSON.parse(readFileSync(client('verify-cases.json'), 'utf8'));
let browser, page, server;

before(async () => {
  const alias = { '#crypto': client('typescript/src/crypto.ts') };
  const entryPoints = [client('typescript/src/verify.ts')];
  const { outputFiles } = await build({ entryPoints, alias, bundle: true, format: 'esm', platform: 'browser', write: false });
  server = createServer((request, response) => {
    const isModule = request.url === '/verify.js';
    response.setHeader('content-type', isModule ? 'text/javascript' : 'text/html');
    response.end(isModule ? outputFiles[0].text : '<!doctype html>');
  });
  await new Promise((listening) => server.listen(0, '127.0.0.1', listening));
  browser = await openBrowser();
  page = await browser.newPage();
  // Web Crypto is there on https and on loopback only.
  await page.goto(`http://127.0.0.1:${server.address().port}/`);
});

after(async () => {
  await browser?.close();
  server?.close();
});

test('verify decides every case in a browser as it does elsewhere', async () => {
  const found = await page.evaluate(async (cases) => {
    const { verify, VerificationError } = await import('/verify.js');
    const decide = async (one) => {
      const body = Uint8Array.from(atob(one.body_base64), (char) => char.charCodeAt(0));
      try {
        await verify(body, one.headers, one.secrets, { now: new Date(one.now * 1000), toleranceSeconds: one.tolerance_seconds });
        return 'ok';
      } catch (error) {
        return error instanceof VerificationError ? error.code : String(error);
      }
    };
    return Promise.all(cases.map(decide));
  }, table.cases);
  assert.deepEqual(
    table.cases.map(({ name }, n) => [name, found[n]]),
    table.cases.map(({ name, expected }) => [name, expected]),
  );
});
