// Serves dist with the strict policy and passes the API on, as the binary will.
import { createReadStream, existsSync, statSync } from 'node:fs';
import { createServer, request as ask } from 'node:http';
import { extname, join, normalize } from 'node:path';
import { fileURLToPath } from 'node:url';

const DIST = fileURLToPath(new URL('../dist', import.meta.url));
const TYPES = { '.html': 'text/html; charset=utf-8', '.js': 'text/javascript', '.css': 'text/css', '.svg': 'image/svg+xml' };
export const POLICY =
  "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
const API = /^\/(v1\/|healthz|readyz|metrics|openapi\.json|docs)/;

export async function startSite(target, port = 0) {
  const server = createServer((request, response) => {
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

function pass(target, request, response) {
  const { hostname, port } = new URL(target);
  const onward = ask({ hostname, port, path: request.url, method: request.method, headers: request.headers }, (answer) => {
    response.writeHead(answer.statusCode, answer.headers);
    answer.pipe(response);
    // The stream of a server that stopped ends here too.
    answer.on('close', () => response.destroy());
  });
  onward.on('error', () => (response.headersSent ? response.destroy() : response.writeHead(502).end()));
  response.on('close', () => onward.destroy());
  request.pipe(onward);
}
