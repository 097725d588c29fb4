// Serves dist with the strict policy and passes the API on, as the binary will.
import { createReadStream, existsSync, statSync } from 'node:fs';
import { randomUUID } from 'node:crypto';
import { createServer, request as ask } from 'node:http';
import { extname, join, normalize } from 'node:path';
import { fileURLToPath } from 'node:url';

const DIST = fileURLToPath(new URL('../dist', import.meta.url));
const TYPES = { '.html': 'text/html; charset=utf-8', '.js': 'text/javascript', '.css': 'text/css', '.svg': 'image/svg+xml' };
export const POLICY =
  "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
const API = /^\/(v1\/|healthz|readyz|metrics|openapi\.json|docs)/;

export async function startSite(target, port = 0, { sessions = false } = {}) {
  const desk = sessions ? new SessionDesk(target) : null;
  const server = createServer((request, response) => {
    if (desk && request.url === '/v1/session') return void desk.answer(request, response);
    desk?.letIn(request);
    if (API.test(request.url)) return pass(target(), request, response);
    const path = normalize(new URL(request.url, 'http://x').pathname);
    const file = join(DIST, path === '/' ? 'index.html' : path);
    if (!file.startsWith(DIST) || !existsSync(file) || !statSync(file).isFile()) return response.writeHead(404).end();
    response.writeHead(200, {
      'content-type': TYPES[extname(file)] ?? 'application/octet-stream',
      'content-security-policy': POLICY,
      'x-content-type-options': 'nosniff',
      'referrer-policy': 'no-referrer',
    });
    createReadStream(file).pipe(response);
  });
  await new Promise((resolve) => server.listen(port, '127.0.0.1', resolve));
  return {
    base: `http://127.0.0.1:${server.address().port}/`,
    close: () => {
      server.closeAllConnections();
      return new Promise((resolve) => server.close(resolve));
    },
  };
}

/** Stands in for the server's sessions: a cookie for a key. */
class SessionDesk {
  #keys = new Map();
  #target;

  constructor(target) {
    this.#target = target;
  }

  #id = (request) => /postrider=([\w-]+)/.exec(request.headers.cookie ?? '')?.[1];

  letIn(request) {
    const key = this.#keys.get(this.#id(request));
    if (key) request.headers.authorization = `Bearer ${key}`;
  }

  async answer(request, response) {
    const refuse = () => response.writeHead(401, { 'content-type': 'application/problem+json' }).end('{"code":"unauthorized","status":401,"detail":"sign in first"}');
    if (request.method === 'POST') {
      let body = '';
      for await (const chunk of request) body += chunk;
      const { key } = JSON.parse(body);
      const check = await fetch(`${this.#target()}/v1/ledger`, { headers: { authorization: `Bearer ${key}` } });
      if (!check.ok) return refuse();
      const id = randomUUID();
      this.#keys.set(id, key);
      return response.writeHead(204, { 'set-cookie': `postrider=${id}; HttpOnly; SameSite=Strict; Path=/` }).end();
    }
    if (!this.#keys.has(this.#id(request))) return refuse();
    if (request.method === 'DELETE') {
      this.#keys.delete(this.#id(request));
      return response.writeHead(204).end();
    }
    const view = { tenant: null, scopes: ['admin'], kind: 'key', expires_at: null, theme: null };
    return response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(view));
  }
}

function pass(target, request, response) {
  const { hostname, port } = new URL(target);
  const onward = ask({ hostname, port, path: request.url, method: request.method, headers: request.headers }, (answer) => {
    response.writeHead(answer.statusCode, answer.headers);
    // A stream has begun before its first event comes.
    response.flushHeaders();
    answer.pipe(response);
    // The stream of a server that stopped ends here too.
    answer.on('close', () => response.destroy());
  });
  onward.on('error', () => (response.headersSent ? response.destroy() : response.writeHead(502).end()));
  response.on('close', () => onward.destroy());
  request.pipe(onward);
}
