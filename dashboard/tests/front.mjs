// Serves the page of a folder, such as dist, in front of a binary that has another one built in: a changed page is tested without
// building the binary again. Everything else, and the headers of the page, are the binary's own.
import { existsSync, readFileSync } from 'node:fs';
import { Agent, createServer, request as ask } from 'node:http';
import { extname, join, resolve as absolute } from 'node:path';

const DIST = absolute(process.env.DASHBOARD_DIST ?? 'dist');
const TYPES = { '.js': 'text/javascript; charset=utf-8', '.css': 'text/css; charset=utf-8', '.svg': 'image/svg+xml', '.txt': 'text/plain; charset=utf-8' };

export async function startFront(port, target) {
  const agent = new Agent({ keepAlive: true });
  const server = createServer((incoming, outgoing) => {
    const path = new URL(incoming.url, 'http://localhost').pathname;
    const file = join(DIST, path);
    if (incoming.method === 'GET' && extname(path) in TYPES && existsSync(file)) {
      outgoing.writeHead(200, { 'content-type': TYPES[extname(path)] }).end(readFileSync(file));
      return;
    }
    const headers = { ...incoming.headers };
    delete headers['accept-encoding'];
    delete headers['if-none-match'];
    const passed = ask({ host: '127.0.0.1', port: target, method: incoming.method, path: incoming.url, headers, agent }, (answer) => {
      const isPage = answer.headers['content-type']?.startsWith('text/html') && path !== '/docs';
      if (!isPage) {
        outgoing.writeHead(answer.statusCode, answer.headers);
        // A stream is open before it says something.
        outgoing.flushHeaders();
        answer.pipe(outgoing);
        return;
      }
      answer.resume();
      const { 'content-length': _, 'content-encoding': __, etag: ___, ...kept } = answer.headers;
      outgoing.writeHead(answer.statusCode, kept).end(readFileSync(join(DIST, 'index.html')));
    });
    passed.on('error', () => outgoing.destroy());
    outgoing.on('close', () => passed.destroy());
    incoming.pipe(passed);
  });
  server.keepAliveTimeout = 30_000;
  await new Promise((resolve, reject) => {
    server.once('error', reject);
    server.listen(port, '127.0.0.1', resolve);
  });
  return () => {
    agent.destroy();
    server.closeAllConnections();
    return new Promise((resolve) => server.close(resolve));
  };
}
