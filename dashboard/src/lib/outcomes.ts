// The outcomes of attempts in words.
import { plural } from './format';

const WORDS: Record<string, string> = {
  delivered: 'delivered',
  status_3xx: 'a redirect (3xx)',
  status_4xx: 'an error of the request (4xx)',
  status_410: 'gone (410)',
  status_429: 'too many requests (429)',
  status_5xx: 'an error of the receiver (5xx)',
  status_other: 'another status',
  refused: 'connection refused',
  reset: 'connection reset',
  dns: 'name does not resolve',
  tls: 'TLS handshake failed',
  timeout_dns: 'timeout while resolving',
  timeout_connect: 'timeout while connecting',
  timeout_tls: 'timeout in the TLS handshake',
  timeout_request: 'timeout while sending',
  timeout_response: 'timeout while waiting for the answer',
  blocked: 'address not allowed',
  protocol: 'not valid HTTP',
  own_fault: 'a fault of Postrider itself',
};

/** A class of outcomes in words. */
export const outcomeWords = (name: string) => WORDS[name] ?? name.replaceAll('_', ' ');

export interface Outcome {
  class: string;
  status?: number | null;
}

/** One outcome: the status where there was one. */
export const said = (one: Outcome) => (one.status ? `status ${one.status}` : outcomeWords(one.class));

/** What the bar of recent attempts shows, for those who do not see it. */
export function barWords(recent: Outcome[]): string {
  const last = recent.at(-1);
  if (!last) return 'No attempts in the last eight days';
  const failed = recent.filter((one) => one.class !== 'delivered').length;
  const counts = failed === 0 ? 'all delivered' : failed === recent.length ? 'all failed' : `${failed} failed`;
  return `The last ${plural(recent.length, 'attempt')}: ${counts}; the last one: ${said(last)}`;
}
