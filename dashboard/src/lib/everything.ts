// Whole lists, up to a limit, where the API cannot sort, search or count by itself.
import type { api as Api } from './api';
import { count } from './format';
import type { Destination, EventType, List, Subscription } from './types';

export interface All<T> {
  rows: T[];
  /** False where the list goes on behind the limit. */
  isWhole: boolean;
  /** What the list has in it, where it is not whole. */
  of?: string;
}

async function gather<T>(
  read: (cursor: string | null) => Promise<List<T>>,
  pagesMax: number,
): Promise<All<T>> {
  const rows: T[] = [];
  let cursor: string | null = null;
  for (let page = 0; page < pagesMax; page += 1) {
    const list: List<T> = await read(cursor);
    rows.push(...list.data);
    cursor = list.next_cursor ?? null;
    if (!cursor) return { rows, isWhole: true };
  }
  return { rows, isWhole: false };
}

/** How long to wait before a list of this length is read again: what takes long is read less often. */
export const pauseFor = (rows: number) => (rows <= 500 ? 3000 : rows <= 2000 ? 10_000 : 30_000);

/** Destinations by state and by a part of the URL, newest first, up to a number of pages. */
export const findDestinations = (api: typeof Api, query: { state?: string; q?: string }, pages: number, signal?: AbortSignal): Promise<All<Destination>> =>
  gather((cursor) => api.destinations({ ...query, limit: 1000, cursor }, signal), pages);

const PAGES_MAX = 5;
const ROWS_MAX = PAGES_MAX * 1000;

/** The disabled and frozen destinations. */
export const everyFailing = (api: typeof Api, signal?: AbortSignal): Promise<All<Destination>> => findDestinations(api, { state: 'failing' }, PAGES_MAX, signal);

/** All destinations. Where there are more than it reads: the newest ones, and those that fail. */
export async function everyDestination(api: typeof Api, signal?: AbortSignal): Promise<All<Destination>> {
  const newest = await findDestinations(api, {}, PAGES_MAX, signal);
  if (newest.isWhole) return newest;
  const failing = await everyFailing(api, signal);
  const known = new Set(failing.rows.map((row) => row.id));
  const of = `the newest ${count(ROWS_MAX)} and ${failing.isWhole ? 'all' : `the newest ${count(ROWS_MAX)}`} that are disabled or frozen`;
  return { rows: [...failing.rows, ...newest.rows.filter((row) => !known.has(row.id))], isWhole: false, of };
}

export const everySubscription = (api: typeof Api, signal?: AbortSignal): Promise<All<Subscription>> =>
  gather((cursor) => api.subscriptions({ limit: 1000, cursor }, signal), 5);

/** The subscriptions of one tenant with a text in their name, description, uid, URL or metadata. */
export const findSubscriptions = (api: typeof Api, q: string, signal?: AbortSignal): Promise<All<Subscription>> =>
  gather((cursor) => api.subscriptions({ q, limit: 100, cursor }, signal), 5);

export const everyEventType = (api: typeof Api, signal?: AbortSignal): Promise<All<EventType>> =>
  gather((cursor) => api.eventTypes({ limit: 1000, cursor }, signal), 5);
