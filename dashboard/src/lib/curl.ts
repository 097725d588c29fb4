/** The command that makes an API call; the key comes from the environment, never from this page. */
export function curl(method: string, path: string, options: { tenant?: string; body?: unknown } = {}): string {
  const quote = (text: string) => `'${text.replaceAll("'", `'\\''`)}'`;
  const parts = ['curl'];
  if (method !== 'GET') parts.push('-X', method);
  parts.push(quote(new URL(path, document.baseURI.split('#')[0]).href), '-H', '"authorization: Bearer $POSTRIDER_KEY"');
  if (options.tenant) parts.push('-H', quote(`postrider-tenant: ${options.tenant}`));
  if (options.body !== undefined) parts.push('-H', quote('content-type: application/json'), '-d', quote(JSON.stringify(options.body)));
  return parts.join(' ');
}
