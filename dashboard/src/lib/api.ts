// The only module that talks to the server: the page's calls, on @postrider/client.
import type { Enable, ListOptions } from '@postrider/client';
import { client, isFramed, request, requestNow, requestOf, setBearer, told } from './http';
import { parseExactly } from './json';
import { Problem } from './problem';
import type * as T from './types';

export { askForTenant, isFramed, waitForServer, whenUnauthorized } from './http';

const at = (path: string, id: string, rest = '') => `/v1/${path}/${encodeURIComponent(id)}${rest}`;
const until = (signal?: AbortSignal) => (signal ? { signal } : {});
const get = <R>(path: string, query?: Query, signal?: AbortSignal) =>
  request<R>({ method: 'GET', path, query: given(query) }, until(signal));
const patch = <R>(path: string, body: unknown, query?: Query) => request<R>({ method: 'PATCH', path, body, query: given(query) });
const post = <R>(path: string, body?: unknown) => request<R>({ method: 'POST', path, ...(body !== undefined && { body }) });
/** A POST that changes nothing. */
const ask = <R>(path: string, body: unknown, signal?: AbortSignal) =>
  request<R>({ method: 'POST', path, body, pure: true }, until(signal));

type Query = Record<string, string | number | null | undefined>;
/** An empty field of a form asks for nothing. */
const given = (query: Query = {}): Query => Object.fromEntries(Object.entries(query).filter(([, value]) => value !== ''));

/** One page of a list of the client. */
const page = <R>(list: (options: ListOptions) => { page(cursor?: string): Promise<unknown> }, { limit, cursor }: Page, signal?: AbortSignal) =>
  told(list({ ...(limit && { limit }), ...until(signal) }).page(cursor ?? undefined) as Promise<T.List<R>>);

type Page = { limit?: number; cursor?: string | null };
export type DeliveryQuery = Page & {
  state?: string;
  destination?: string;
  subscription?: string;
  event?: string;
  type?: string;
  object?: string;
  since?: string;
  until?: string;
};
export type EventQuery = Page & { type?: string; object?: string; since?: string; until?: string };
export type DestinationQuery = Page & { state?: string; q?: string };
export type SubscriptionQuery = Page & { q?: string };
export type AuditQuery = Page & { tenant?: string; action?: string; target?: string };

export const api = {
  deliveries: (query: DeliveryQuery, signal?: AbortSignal) => get<T.List<T.Delivery>>('/v1/deliveries', query, signal),
  retriesDue: (signal?: AbortSignal) => told(client.deliveries.due(until(signal))),
  deadLetters: (limit: number, signal?: AbortSignal) => told(client.deliveries.dead({ limit }, until(signal))),
  delivery: (id: string, signal?: AbortSignal) => told(client.deliveries.get(id, until(signal))),
  attempts: (id: string, where: Page, signal?: AbortSignal) =>
    page<T.Attempt>((options) => client.deliveries.attempts(id, options), where, signal),
  attemptRequest: (id: string, number: number) => get<T.SentRequest>(at('deliveries', id, `/attempts/${number}/request`)),
  explain: (id: string, signal?: AbortSignal) => told(client.deliveries.explain(id, until(signal))),
  retryDelivery: (id: string) => told(client.deliveries.retry(id)),
  replayDelivery: (id: string) => told(client.deliveries.replay(id)),
  cancelDelivery: (id: string) => told(client.deliveries.cancel(id)),

  destinations: (query: DestinationQuery, signal?: AbortSignal) => get<T.List<T.Destination>>('/v1/destinations', query, signal),
  /** One of the named tenant, whichever the page looks at. */
  destinationOf: (tenant: string, id: string, signal?: AbortSignal) =>
    requestOf<T.Destination>(tenant, { method: 'GET', path: at('destinations', id) }, until(signal)),
  destinationSummary: (signal?: AbortSignal) =>
    get<T.DestinationSummary>('/v1/destinations/summary', {}, signal),
  destination: (id: string, signal?: AbortSignal) => told(client.destinations.get(id, until(signal))),
  figures: (ids: string[], signal?: AbortSignal) => told(client.destinations.figures(ids, until(signal))),
  destinationStats: (id: string, hours: number, signal?: AbortSignal) =>
    told(client.destinations.stats(id, { hours }, until(signal))),
  timeline: (id: string, where: Page, signal?: AbortSignal) =>
    page<T.Transition>((options) => client.destinations.timeline(id, options), where, signal),
  enable: (id: string, why: Enable) => told(client.destinations.enable(id, why)),
  freeze: (id: string, reason: string | null) => told(client.destinations.freeze(id, reason ?? undefined)),

  events: (query: EventQuery, signal?: AbortSignal) => get<T.List<T.EventSummary>>('/v1/events', query, signal),
  /** With the digits of its numbers as they were sent. */
  event: (id: string, signal?: AbortSignal) => {
    return request<T.EventDetail>({ method: 'GET', path: at('events', id), parse: parseExactly }, until(signal));
  },
  matches: (id: string, signal?: AbortSignal) => get<T.List<T.Match>>(at('events', id, '/matches'), { limit: 1000 }, signal),
  eventTypes: (where: Page, signal?: AbortSignal) => get<T.List<T.EventType>>('/v1/event-types', where, signal),
  eventType: (name: string, scope: string, signal?: AbortSignal) => get<T.EventType>(at('event-types', name), { scope }, signal),
  createEventType: (body: T.NewEventType) => post<T.EventType>('/v1/event-types', body),
  changeEventType: (name: string, scope: T.EventTypeScope, body: T.EventTypeChange) =>
    patch<T.EventType>(at('event-types', name), body, { scope }),
  deleteEventType: (name: string, scope: T.EventTypeScope) =>
    request<void>({ method: 'DELETE', path: at('event-types', name), query: { scope } }),
  catalogue: (signal?: AbortSignal) => get<T.Catalogue>('/v1/catalogue', {}, signal),
  changeCatalogue: (body: T.CatalogueChange) => patch<T.Catalogue>('/v1/catalogue', body),

  erasures: (where: Page, signal?: AbortSignal) => get<T.List<T.Erasure>>('/v1/erasures', where, signal),
  erase: (what: T.NewErasure) => post<T.Erasure>('/v1/erasures', what),
  sendEvent: (event: T.NewEvent) => told(client.events.send(event)),

  subscriptionsOf: (destination: string, signal?: AbortSignal) =>
    get<T.List<T.Subscription>>('/v1/subscriptions', { destination, limit: 100 }, signal),
  subscriptions: (query: SubscriptionQuery, signal?: AbortSignal) => get<T.List<T.Subscription>>('/v1/subscriptions', query, signal),
  subscription: (id: string, signal?: AbortSignal) => get<T.Subscription>(at('subscriptions', id), {}, signal),
  createSubscription: (body: T.NewSubscription) => post<T.SubscriptionWithSecret>('/v1/subscriptions', body),
  changeSubscription: (id: string, body: T.SubscriptionChange) =>
    patch<T.Subscription>(at('subscriptions', id), body),
  deleteSubscription: (id: string) => told(client.subscriptions.delete(id)),
  rotateSecret: (id: string, overlap_seconds: number) =>
    post<T.SubscriptionWithSecret>(at('subscriptions', id, '/secret/rotate'), { overlap_seconds }),
  testSubscription: (id: string) => told(client.subscriptions.test(id)),
  testFilter: (filter: unknown, event: T.NewEvent, signal?: AbortSignal) =>
    ask<T.FilterVerdict>('/v1/filters/test', { filter, event }, signal),

  tryFilter: (filter: unknown, event_ids: string[], signal?: AbortSignal) =>
    ask<T.FilterTrialAnswer>('/v1/filters/test/events', { filter, event_ids }, signal),

  replays: (where: Page, signal?: AbortSignal) => page<T.Replay>((options) => client.replays.list(options), where, signal),
  replay: (id: string) => told(client.replays.get(id)),
  countReplay: (body: T.NewReplay, signal?: AbortSignal) =>
    ask<T.DryRun>('/v1/replays', { ...body, dry_run: true }, signal),
  startReplay: (body: T.NewReplay) => post<T.Replay>('/v1/replays', body),
  steerReplay: (id: string, what: 'pause' | 'resume' | 'cancel') => told(client.replays[what](id)),

  ledger: (all: boolean, signal?: AbortSignal) => get<T.Ledger>('/v1/ledger', { scope: all ? 'all' : null }, signal),
  stats: (query: { since?: string; step_minutes: number; all: boolean }, signal?: AbortSignal) =>
    get<T.Stats>('/v1/stats', { since: query.since, step_minutes: query.step_minutes, scope: query.all ? 'all' : null }, signal),
  limitsOf: (tenant: string, signal?: AbortSignal) => requestOf<T.Limits>(tenant, { method: 'GET', path: '/v1/limits' }, until(signal)),
  limits: (signal?: AbortSignal) => get<T.Limits>('/v1/limits', {}, signal),

  tenants: (where: Page, signal?: AbortSignal) => page<T.Tenant>((options) => client.tenants.list(options), where, signal),
  createTenant: (id: string, name: string | null) => told(client.tenants.create({ id, name })),
  changeTenant: (id: string, body: T.TenantChange) => patch<T.Tenant>(at('tenants', id), body),
  deleteTenant: (id: string) => told(client.tenants.delete(id)),
  keys: (query: Page & { scope?: string; tenant?: string }, signal?: AbortSignal) => get<T.List<T.Key>>('/v1/keys', query, signal),
  createKey: (body: T.NewKey) => post<T.KeyCreated>('/v1/keys', body),
  deleteKey: (id: string) => told(client.keys.delete(id)),
  portalLinks: (page: Page, signal?: AbortSignal) => get<T.List<T.PortalLink>>('/v1/portal-links', page, signal),
  createPortalLink: (body: T.NewPortalLink) => post<T.PortalLinkCreated>('/v1/portal-links', body),
  deletePortalLink: (id: string) => request<void>({ method: 'DELETE', path: at('portal-links', id) }),
  audit: (query: AuditQuery, signal?: AbortSignal) => get<T.List<T.AuditEntry>>('/v1/audit', query, signal),
  alerts: (signal?: AbortSignal) => get<{ data: T.AlertTarget[] }>('/v1/alerts', {}, signal),
  testAlerts: (target: string) => post<{ data: T.AlertTestResult[] }>('/v1/alerts/test', { target }),
  backup: (signal?: AbortSignal) => get<T.Backup>('/v1/backup', {}, signal),
  startBackup: (to: string) => post<T.Backup>('/v1/backup', { to }),

  policy: (signal?: AbortSignal) => get<T.Policy>('/v1/policy', {}, signal),
  config: (signal?: AbortSignal) => get<T.Configuration>('/v1/config', {}, signal),
  server: (signal?: AbortSignal) => get<T.Server>('/v1/server', {}, signal),
  simulate: (question: T.Simulation, signal?: AbortSignal) =>
    ask<T.SimulationAnswer>('/v1/simulate', question, signal),
  version: async () => (await get<{ info: { version: string } }>('/openapi.json')).info.version,
};

/** Who is signed in; null where nobody is. */
export async function currentSession(): Promise<T.Session | null> {
  try {
    return await get<T.Session>('/v1/session');
  } catch (error) {
    if (error instanceof Problem && error.status === 401) return null;
    throw error;
  }
}

// No idempotency key at a sign-in: the answer is a credential, which nobody should keep.

/** Exchanges a key for a session. The key is not kept. */
export async function signIn(key: string): Promise<T.Session> {
  await ask<void>('/v1/session', { key });
  return get<T.Session>('/v1/session');
}

/** Exchanges the token of a link, which works once, for a session: a cookie, or in a frame a token in memory. */
export async function exchange(token: string): Promise<T.Session> {
  const call = { method: 'POST', path: '/v1/session', pure: true } as const;
  if (isFramed) {
    const found = await requestNow<T.SessionToken>({ ...call, body: { token, in_memory: true } });
    setBearer(found.token);
  } else {
    await requestNow<void>({ ...call, body: { token } });
  }
  return get<T.Session>('/v1/session');
}

export async function signOut(): Promise<void> {
  await requestNow<void>({ method: 'DELETE', path: '/v1/session', pure: true });
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

export type Told = { [Name in keyof StreamEvents]: { name: Name; data: StreamEvents[Name] } }[keyof StreamEvents];

/** Follows the stream until it ends; the caller connects again. */
export async function follow(onEvent: (told: Told) => void, signal: AbortSignal, onOpen: () => void): Promise<void> {
  for await (const { event, ...data } of client.stream({ signal, onOpen, body: 'no' })) {
    onEvent({ name: event, data } as Told);
  }
}
