// The only module that talks to the server.
import { isFramed, json, send, setBearer, type Query } from './http';
import { parseExactly } from './json';
import { Problem } from './problem';
import { sseParser } from './sse';
import type * as T from './types';

export { isFramed, setTenant, waitForServer, whenUnauthorized } from './http';

const at = (path: string, id: string, rest = '') => `v1/${path}/${encodeURIComponent(id)}${rest}`;
const get = <R>(path: string, query?: Query, signal?: AbortSignal) =>
  json<R>('GET', path, { ...(query && { query }), ...(signal && { signal }) });
const post = <R>(path: string, body?: unknown) => json<R>('POST', path, body === undefined ? {} : { body });

type Page = { limit?: number; cursor?: string | null };
export type DeliveryQuery = Page & {
  state?: string;
  destination?: string;
  subscription?: string;
  event?: string;
  type?: string;
  since?: string;
  until?: string;
};
export type EventQuery = Page & { type?: string; since?: string; until?: string };
export type AuditQuery = Page & { tenant?: string; action?: string; target?: string };

export const api = {
  deliveries: (query: DeliveryQuery, signal?: AbortSignal) => get<T.List<T.Delivery>>('v1/deliveries', query, signal),
  delivery: (id: string, signal?: AbortSignal) => get<T.DeliveryDetail>(at('deliveries', id), {}, signal),
  attempts: (id: string, page: Page) => get<T.List<T.Attempt>>(at('deliveries', id, '/attempts'), page),
  attemptRequest: (id: string, number: number) => get<T.SentRequest>(at('deliveries', id, `/attempts/${number}/request`)),
  explain: (id: string, signal?: AbortSignal) => get<T.Explanation>(at('deliveries', id, '/explain'), {}, signal),
  retryDelivery: (id: string) => post<T.Delivery>(at('deliveries', id, '/retry')),
  replayDelivery: (id: string) => post<T.Delivery>(at('deliveries', id, '/replay')),
  cancelDelivery: (id: string) => post<T.Delivery>(at('deliveries', id, '/cancel')),

  destinations: (page: Page, signal?: AbortSignal) => get<T.List<T.Destination>>('v1/destinations', page, signal),
  destinationSummary: (signal?: AbortSignal) =>
    get<T.DestinationSummary>('v1/destinations/summary', {}, signal),
  destination: (id: string, signal?: AbortSignal) => get<T.Destination>(at('destinations', id), {}, signal),
  timeline: (id: string, page: Page, signal?: AbortSignal) =>
    get<T.List<T.Transition>>(at('destinations', id, '/timeline'), page, signal),
  enable: (id: string, body: T.Enable) => post<T.Destination>(at('destinations', id, '/enable'), body),
  freeze: (id: string, reason: string | null) => post<T.Destination>(at('destinations', id, '/freeze'), { reason }),

  events: (query: EventQuery, signal?: AbortSignal) => get<T.List<T.EventSummary>>('v1/events', query, signal),
  /** With the digits of its numbers as they were sent. */
  event: async (id: string, signal?: AbortSignal) => {
    const response = await send('GET', at('events', id), signal ? { signal } : {});
    return parseExactly(await response.text()) as T.EventDetail;
  },
  matches: (id: string, signal?: AbortSignal) => get<T.List<T.Match>>(at('events', id, '/matches'), { limit: 1000 }, signal),
  sendEvent: (event: T.NewEvent) => post<T.EventAccepted>('v1/events', event),

  subscriptionsOf: (destination: string, signal?: AbortSignal) =>
    get<T.List<T.Subscription>>('v1/subscriptions', { destination, limit: 100 }, signal),
  subscriptions: (page: Page, signal?: AbortSignal) => get<T.List<T.Subscription>>('v1/subscriptions', page, signal),
  subscription: (id: string, signal?: AbortSignal) => get<T.Subscription>(at('subscriptions', id), {}, signal),
  createSubscription: (body: T.NewSubscription) => post<T.SubscriptionWithSecret>('v1/subscriptions', body),
  changeSubscription: (id: string, body: T.SubscriptionChange) =>
    json<T.Subscription>('PATCH', at('subscriptions', id), { body }),
  deleteSubscription: (id: string) => json<void>('DELETE', at('subscriptions', id)),
  rotateSecret: (id: string, overlap_seconds: number) =>
    post<T.SubscriptionWithSecret>(at('subscriptions', id, '/secret/rotate'), { overlap_seconds }),
  testSubscription: (id: string) => post<T.TestOutcome>(at('subscriptions', id, '/test')),
  testFilter: (filter: unknown, event: T.NewEvent, signal?: AbortSignal) =>
    json<T.FilterVerdict>('POST', 'v1/filters/test', { body: { filter, event }, pure: true, ...(signal && { signal }) }),

  tryFilter: (filter: unknown, event_ids: string[], signal?: AbortSignal) =>
    json<T.FilterTrialAnswer>('POST', 'v1/filters/test/events', { body: { filter, event_ids }, pure: true, ...(signal && { signal }) }),

  replays: (page: Page, signal?: AbortSignal) => get<T.List<T.Replay>>('v1/replays', page, signal),
  replay: (id: string) => get<T.Replay>(at('replays', id)),
  countReplay: (body: T.NewReplay) =>
    json<T.DryRun>('POST', 'v1/replays', { body: { ...body, dry_run: true }, pure: true }),
  startReplay: (body: T.NewReplay) => post<T.Replay>('v1/replays', body),
  steerReplay: (id: string, what: 'pause' | 'resume' | 'cancel') => post<T.Replay>(at('replays', id, `/${what}`)),

  ledger: (all: boolean, signal?: AbortSignal) => get<T.Ledger>('v1/ledger', { scope: all ? 'all' : null }, signal),
  stats: (query: { since?: string; step_minutes: number; all: boolean }, signal?: AbortSignal) =>
    get<T.Stats>('v1/stats', { since: query.since, step_minutes: query.step_minutes, scope: query.all ? 'all' : null }, signal),
  limits: (signal?: AbortSignal) => get<T.Limits>('v1/limits', {}, signal),

  tenants: (page: Page, signal?: AbortSignal) => get<T.List<T.Tenant>>('v1/tenants', page, signal),
  createTenant: (id: string, name: string | null) => post<T.Tenant>('v1/tenants', { id, name }),
  deleteTenant: (id: string) => json<void>('DELETE', at('tenants', id)),
  keys: (query: Page & { scope?: string }, signal?: AbortSignal) => get<T.List<T.Key>>('v1/keys', query, signal),
  createKey: (body: T.NewKey) => post<T.KeyCreated>('v1/keys', body),
  deleteKey: (id: string) => json<void>('DELETE', at('keys', id)),
  portalLinks: (page: Page, signal?: AbortSignal) => get<T.List<T.PortalLink>>('v1/portal-links', page, signal),
  createPortalLink: (body: T.NewPortalLink) => post<T.PortalLinkCreated>('v1/portal-links', body),
  deletePortalLink: (id: string) => json<void>('DELETE', at('portal-links', id)),
  audit: (query: AuditQuery, signal?: AbortSignal) => get<T.List<T.AuditEntry>>('v1/audit', query, signal),
  backup: (signal?: AbortSignal) => get<T.Backup>('v1/backup', {}, signal),
  startBackup: (to: string) => post<T.Backup>('v1/backup', { to }),

  policy: (signal?: AbortSignal) => get<T.Policy>('v1/policy', {}, signal),
  config: (signal?: AbortSignal) => get<T.Configuration>('v1/config', {}, signal),
  server: (signal?: AbortSignal) => get<T.Server>('v1/server', {}, signal),
  simulate: (question: T.Simulation, signal?: AbortSignal) =>
    json<T.SimulationAnswer>('POST', 'v1/simulate', { body: question, pure: true, ...(signal && { signal }) }),
  version: async () => (await get<{ info: { version: string } }>('openapi.json')).info.version,
};

/** Who is signed in; null where nobody is. */
export async function currentSession(): Promise<T.Session | null> {
  try {
    return await get<T.Session>('v1/session');
  } catch (error) {
    if (error instanceof Problem && error.status === 401) return null;
    throw error;
  }
}

// No idempotency key at a sign-in: the answer is a credential, which nobody should keep.

/** Exchanges a key for a session. The key is not kept. */
export async function signIn(key: string): Promise<T.Session> {
  await json<void>('POST', 'v1/session', { body: { key }, pure: true });
  return get<T.Session>('v1/session');
}

/** Exchanges the token of a link, which works once, for a session: a cookie, or in a frame a token in memory. */
export async function exchange(token: string): Promise<T.Session> {
  const call = { patient: false, pure: true };
  if (isFramed) {
    const found = await json<T.SessionToken>('POST', 'v1/session', { body: { token, in_memory: true }, ...call });
    setBearer(found.token);
  } else {
    await json<void>('POST', 'v1/session', { body: { token }, ...call });
  }
  return get<T.Session>('v1/session');
}

export async function signOut(): Promise<void> {
  await json<void>('DELETE', 'v1/session', { patient: false, pure: true });
  setBearer(null);
}

export interface StreamEvents {
  attempt: { delivery: T.Delivery; attempt: T.Attempt };
  transition: { destination_id: string; url: string; transition: T.Transition };
  dead: { delivery: T.Delivery };
  warning: { destination_id: string; url: string; warning: unknown };
  filter_over_budget: { subscription_id: string; events: number };
  lagged: { missed: number };
  closed: { reason: string };
}

/** Follows the stream until it ends; the caller connects again. */
export async function follow(
  onEvent: (name: string, data: string) => void,
  signal: AbortSignal,
  onOpen: () => void,
): Promise<void> {
  const response = await send('GET', 'v1/stream', { accept: 'text/event-stream', query: { body: 'no' }, signal });
  onOpen();
  if (!response.body) return;
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  const parse = sseParser(onEvent);
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    parse(value);
  }
}
