import type { Component } from 'svelte';
import type { IconName } from '../components/Icon.svelte';
import { waitForServer } from './api';

export interface PageEntry {
  path: string;
  name: string;
  icon: IconName;
  load: () => Promise<{ default: Component }>;
  /** The page of one thing below it. */
  one?: () => Promise<{ default: Component<{ id: string }> }>;
  /** Not for an application's customers. */
  notInPortal?: boolean;
  /** It also shows all tenants together. */
  ofAll?: boolean;
}

/** The pages in the order of the menu. Each is loaded when it is first opened. */
export const pages: PageEntry[] = [
  { path: 'overview', name: 'Overview', icon: 'overview', load: () => import('../pages/Overview.svelte'), ofAll: true },
  {
    path: 'destinations',
    name: 'Destinations',
    icon: 'destinations',
    load: () => import('../pages/Destinations.svelte'),
    one: () => import('../pages/Destination.svelte'),
    ofAll: true,
  },
  {
    path: 'deliveries',
    name: 'Deliveries',
    icon: 'deliveries',
    load: () => import('../pages/Deliveries.svelte'),
    one: () => import('../pages/Delivery.svelte'),
    ofAll: true,
  },
  {
    path: 'events',
    name: 'Events',
    icon: 'events',
    load: () => import('../pages/Events.svelte'),
    one: () => import('../pages/Event.svelte'),
    ofAll: true,
  },
  {
    path: 'event-types',
    name: 'Event types',
    icon: 'types',
    load: () => import('../pages/EventTypes.svelte'),
    one: () => import('../pages/EventType.svelte'),
  },
  {
    path: 'subscriptions',
    name: 'Subscriptions',
    icon: 'subscriptions',
    load: () => import('../pages/Subscriptions.svelte'),
    one: () => import('../pages/Subscription.svelte'),
    ofAll: true,
  },
  { path: 'dead', name: 'Dead letters', icon: 'dead', load: () => import('../pages/DeadLetters.svelte'), ofAll: true },
  { path: 'erasures', name: 'Erasures', icon: 'erase', load: () => import('../pages/Erasures.svelte') },
  { path: 'live', name: 'Live', icon: 'live', load: () => import('../pages/Live.svelte') },
  { path: 'simulator', name: 'Simulator', icon: 'simulator', load: () => import('../pages/Simulator.svelte'), ofAll: true },
  { path: 'settings', name: 'Settings', icon: 'settings', load: () => import('../pages/Settings.svelte'), notInPortal: true, ofAll: true },
];

/** Loads a page's code, and once more when the server is back. */
export async function loadPatiently<T>(load: () => Promise<T>): Promise<T> {
  try {
    return await load();
  } catch {
    await waitForServer();
    return load();
  }
}

/** Loads the code of all pages one after the other, so that they open while the server is away. */
export async function preload() {
  for (const { load, one } of pages) {
    // A page that cannot be loaded now is loaded when it is opened.
    await load().catch(() => {});
    await one?.().catch(() => {});
  }
}
