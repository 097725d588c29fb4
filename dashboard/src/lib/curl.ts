import type { SentRequest } from './types';

const quote = (text: string) => `'${text.replaceAll("'", `'\\''`)}'`;

/** The command that makes an API call; the key comes from the environment, never from this page. */
export function curl(method: string, path: string, options: { tenant?: string; body?: unknown } = {}): string {
  const parts = ['curl'];
  if (method !== 'GET') parts.push('-X', method);
  parts.push(quote(new URL(path, document.baseURI.split('#')[0]).href), '-H', '"authorization: Bearer $POSTRIDER_KEY"');
  if (options.tenant) parts.push('-H', quote(`postrider-tenant: ${options.tenant}`));
  if (options.body !== undefined) parts.push('-H', quote('content-type: application/json'), '-d', quote(JSON.stringify(options.body)));
  return parts.join(' ');
}

/** The command that makes a request like an attempt's. Its secrets are masked, so the receiver's check fails. */
export function curlOf(request: SentRequest): string {
  const headers = request.headers.flatMap(({ name, value }) => ['-H', quote(`${name}: ${value}`)]);
  return ['curl', '-X', request.method, quote(request.url), ...headers, '--data-raw', quote(request.body)].join(' ');
}
