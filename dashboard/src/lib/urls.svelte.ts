// The URLs of destinations, by their ids, for rows that have ids only.
import { api } from './api';
import { everyDestination } from './everything';
import { session } from './session.svelte';

class Urls {
  #known = $state.raw(new Map<string, string>());
  #asked = '';
  #askedAt = 0;

  of(id: string): string | undefined {
    const found = this.#known.get(id);
    const isOld = Date.now() - this.#askedAt > 30_000;
    if (this.#asked !== session.tenant || (!found && isOld)) queueMicrotask(() => void this.#read());
    return found;
  }

  learn(id: string, url: string) {
    if (this.#known.get(id) === url) return;
    this.#known = new Map(this.#known).set(id, url);
  }

  async #read() {
    if (Date.now() - this.#askedAt < 1000 && this.#asked === session.tenant) return;
    const tenant = (this.#asked = session.tenant);
    this.#askedAt = Date.now();
    try {
      const all = await everyDestination(api);
      if (tenant !== session.tenant) return;
      this.#known = new Map(all.rows.map((row) => [row.id, row.url]));
    } catch {
      // The rows show the end of the id until the next reading.
    }
  }
}

export const urls = new Urls();
