// The figures of the destinations in view, read together and read again. Use it during a component's set-up.
import { untrack } from 'svelte';
import { api } from './api';
import { Resource } from './resource.svelte';
import type { DestinationFigures } from './types';

/** The most destinations that the server takes at once. */
const MOST = 100;
/** While somebody scrolls, nothing is asked for. */
const PAUSE_MS = 150;

export class Figures {
  known = $state.raw<ReadonlyMap<string, DestinationFigures>>(new Map());
  #ids = $state.raw<string[]>([]);
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor() {
    const read = new Resource(
      async (signal) => (this.#ids.length > 0 ? api.figures(this.#ids, signal) : []),
      { every: 10_000, depends: () => this.#ids },
    );
    $effect(() => {
      const found = read.value;
      if (found) this.known = new Map([...untrack(() => this.known), ...found.map((one) => [one.destination_id, one] as const)]);
    });
    $effect(() => () => clearTimeout(this.#timer));
  }

  /** Names the destinations in view. */
  show(ids: string[]) {
    clearTimeout(this.#timer);
    const wanted = ids.slice(0, MOST);
    if (wanted.join() === this.#ids.join()) return;
    this.#timer = setTimeout(() => (this.#ids = wanted), this.#ids.length === 0 ? 0 : PAUSE_MS);
  }
}
