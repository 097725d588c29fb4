// Whole lists, up to a limit, where the API cannot sort, search or count by itself.
import type { api as Api } from './api';
import type { Destination, EventType, List, Subscription } from './types';

export interface All<T> {
  rows: T[];
  /** False where the list goes on behind the limit. */
  isWhole: boolean;
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

export const DESTINATIONS_MAX = 5000;

export const everyDestination = (api: typeof Api, signal?: AbortSignal): Promise<All<Destination>> =>
  gather((cursor) => api.destinations({ limit: 1000, cursor }, signal), DESTINATIONS_MAX / 1000);

export const everySubscription = (api: typeof Api, signal?: AbortSignal): Promise<All<Subscription>> =>
  gather((cursor) => api.subscriptions({ limit: 1000, cursor }, signal), 5);

export const everyEventType = (api: typeof Api, signal?: AbortSignal): Promise<All<EventType>> =>
  gather((cursor) => api.eventTypes({ limit: 1000, cursor }, signal), 5);

/** The disabled and frozen destinations. */
export const everyFailing = (api: typeof Api, signal?: AbortSignal): Promise<All<Destination>> =>
  gather((cursor) => api.failingDestinations({ limit: 1000, cursor }, signal), DESTINATIONS_MAX / 1000);
