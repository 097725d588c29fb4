// Receivers that behave well or badly, each at a path of its own.
import { createServer } from 'node:http';

/** A response body that tries to run script wherever it is taken for HTML. */
export const HOSTILE =
  '</pre><script>window.hacked=1</script><img src=x onerror="window.hacked=1"><svg onload="window.hacked=1">{"__proto__":{"hacked":1}}';

const MOODS = {
  '/healthy': (_, response) => end(response, 200, '{"ok":true}'),
  '/slow': (_, response) => setTimeout(() => end(response, 200, 'late but well'), 250),
  '/flaky': (n, response) => end(response, n % 3 === 0 ? 503 : 200, n % 3 === 0 ? 'upstream timed out' : 'ok'),
  '/broken': (_, response) => end(response, 500, '{"error":"NullPointerException at OrderService:117"}'),
  '/hostile': (_, response) => end(response, 500, HOSTILE, 'text/html'),
  '/gone': (_, response) => end(response, 410, 'gone'),
  '/hangs': () => {},
};

function end(response, status, body, type = 'application/json') {
  response.writeHead(status, { 'content-type': type }).end(body);
}

export async function startReceivers() {
  const counts = new Map();
  const seen = [];
  const moods = { ...MOODS };
  const server = createServer((request, response) => {
    const n = (counts.get(request.url) ?? 0) + 1;
    counts.set(request.url, n);
    let body = '';
    request.on('data', (chunk) => (body += chunk));
    request.on('end', () => {
      if (seen.length < 50_000) seen.push({ url: request.url, headers: request.headers, body });
      (moods[request.url.split('?')[0]] ?? MOODS['/healthy'])(n, response);
    });
  });
  server.keepAliveTimeout = 30_000;
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  const base = `http://127.0.0.1:${server.address().port}`;
  return {
    base,
    seen,
    counts,
    /** Makes a path behave like another one. */
    turn: (path, like) => (moods[path] = MOODS[like]),
    close: () => {
      server.closeAllConnections();
      return new Promise((resolve) => server.close(resolve));
    },
  };
}
