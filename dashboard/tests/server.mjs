// The real binary, on a free port and its own data directory.
import { spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { startFront } from './front.mjs';

const BINARY = process.env.POSTRIDER_BINARY;
/** Tests the page of this folder instead of the one that is built into the binary. */
const HAS_FRONT = Boolean(process.env.DASHBOARD_DIST);
// The server takes every variable with its prefix for a setting, and refuses to start with an unknown one.
const ENVIRONMENT = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith('POSTRIDER_')));

export async function freePort() {
  const server = createServer();
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address();
  await new Promise((resolve) => server.close(resolve));
  return port;
}

export class Postrider {
  constructor(port) {
    if (!BINARY) throw new Error('set POSTRIDER_BINARY to the path of the built binary');
    this.port = port;
    this.base = `http://127.0.0.1:${port}`;
    this.data = mkdtempSync(join(tmpdir(), 'postrider-dashboard-'));
    this.key = null;
    /** The one-time link that it prints. */
    this.link = null;
  }

  static async start(options) {
    for (let tries = 1; ; tries += 1) {
      const server = new Postrider(await freePort());
      try {
        await server.up(options);
        return server;
      } catch (error) {
        // Somebody else may have taken the port in between.
        await server.remove();
        if (tries >= 3) throw error;
      }
    }
  }

  async up({ timeScale = 1, settings = [] } = {}) {
    const port = HAS_FRONT ? await freePort() : this.port;
    if (HAS_FRONT) this.closeFront = await startFront(this.port, port);
    const flags = ['serve', '--dev', '--listen', `127.0.0.1:${port}`, '--data-dir', this.data];
    if (timeScale !== 1) flags.push('--time-scale', String(timeScale));
    for (const setting of settings) flags.push('--set', setting);
    this.process = spawn(BINARY, flags, { env: ENVIRONMENT, stdio: ['ignore', 'pipe', 'pipe'] });
    const child = this.process;
    process.once('exit', () => child.kill('SIGKILL'));
    let said = '';
    this.process.stdout.on('data', (chunk) => (said += chunk));
    this.process.stderr.on('data', (chunk) => (said += chunk));
    for (let n = 0; n < 300; n += 1) {
      if (this.process.exitCode !== null) throw new Error(`postrider ended: ${said}`);
      const answer = await fetch(`${this.base}/readyz`).catch(() => null);
      const file = join(this.data, 'admin.key');
      // It is ready before it prints its link.
      this.link = /(http\S+#\/signin\?token=[\w-]+)\s/.exec(said)?.[1].replace(`:${port}/`, `:${this.port}/`) ?? null;
      if (answer?.ok && existsSync(file) && this.link) {
        this.key = readFileSync(file, 'utf8').trim();
        return;
      }
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
    throw new Error(`postrider did not get ready: ${said}`);
  }

  async down() {
    const { process: child } = this;
    await this.closeFront?.();
    this.closeFront = null;
    if (!child || child.exitCode !== null) return;
    const ended = new Promise((resolve) => child.once('exit', resolve));
    child.kill('SIGTERM');
    await Promise.race([ended, new Promise((resolve) => setTimeout(resolve, 8000))]);
    if (child.exitCode === null) child.kill('SIGKILL');
    await ended;
  }

  async remove() {
    await this.down();
    rmSync(this.data, { recursive: true, force: true });
  }

  /** Calls the API, and throws what it refuses. */
  async call(method, path, body, headers = {}) {
    const request = {
      method,
      headers: {
        authorization: `Bearer ${this.key}`,
        ...(method !== 'GET' && { 'idempotency-key': randomUUID() }),
        ...(body !== undefined && { 'content-type': 'application/json' }),
        ...headers,
      },
      body: body === undefined ? undefined : JSON.stringify(body),
    };
    const url = `${this.base}/v1/${path}`;
    // An idle connection may have been closed just now: once more, which the idempotency key makes safe.
    const answer = await fetch(url, request).catch(() => fetch(url, request));
    const text = await answer.text();
    if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${text}`);
    return text ? JSON.parse(text) : null;
  }

  get = (path) => this.call('GET', path);
  post = (path, body) => this.call('POST', path, body);

  /** Reads until it is as wanted. */
  async until(path, isWanted, what = path, seconds = 20) {
    const end = Date.now() + seconds * 1000;
    for (;;) {
      const found = await this.get(path);
      if (isWanted(found)) return found;
      if (Date.now() > end) throw new Error(`waited in vain for ${what}: ${JSON.stringify(found).slice(0, 600)}`);
      await new Promise((resolve) => setTimeout(resolve, 150));
    }
  }
}
