// The URLs of destinations, by their ids, for rows that have ids only. Only what is in view is asked for.
import { api } from './api';
import { session } from './session.svelte';

/** Where more ids are unknown at once, the newest destinations are read together first. */
const FEW = 8;
const NEWEST = 200;
/** Destinations that are read one by one at the same time. */
const AT_ONCE = 6;
/** The most ids that wait to be read: a search through thousands of rows names many that nobody sees. */
const WANTED_MAX = 200;
const FORGET_MS = 30_000;

class Urls {
  #known = $state.raw(new Map<string, string>());
  /** Each with the tenant that its row names. */
  #wanted = new Map<string, string | null>();
  /** When a destination could not be read. */
  #absent = new Map<string, number>();
  #tenant = '';
  #hasNewest = false;
  #isReading = false;

  /** The URL, where it is known; else it is asked for. */
  of(id: string, tenant: string | null = null): string | undefined {
    const found = this.#known.get(id);
    const isAbsent = Date.now() - (this.#absent.get(id) ?? 0) < FORGET_MS;
    if (!found && !isAbsent) {
      if (this.#wanted.size < WANTED_MAX) this.#wanted.set(id, tenant);
      queueMicrotask(() => void this.#read());
    }
    return found;
  }

  learn(id: string, url: string) {
    this.#learn([[id, url]]);
  }

  #learn(found: [string, string][]) {
    for (const [id] of found) this.#wanted.delete(id);
    if (found.every(([id, url]) => this.#known.get(id) === url)) return;
    this.#known = new Map([...this.#known, ...found]);
  }

  async #read() {
    if (this.#isReading) return;
    this.#isReading = true;
    try {
      while (this.#wanted.size > 0) {
        if (this.#tenant !== session.tenant) {
          this.#tenant = session.tenant;
          this.#hasNewest = false;
        }
        if (this.#wanted.size > FEW && !this.#hasNewest) {
          this.#hasNewest = true;
          const { data } = await api.destinations({ limit: NEWEST });
          this.#learn(data.map((row) => [row.id, row.url]));
          continue;
        }
        const ids = [...this.#wanted].slice(0, AT_ONCE);
        for (const [id] of ids) this.#wanted.delete(id);
        const found = await Promise.all(ids.map(([id, tenant]) => this.#one(id, tenant)));
        this.#learn(found.filter((one) => one !== null));
      }
    } catch {
      // The rows show the end of the id; they ask again when they are drawn again.
    } finally {
      this.#isReading = false;
    }
  }

  async #one(id: string, tenant: string | null): Promise<[string, string] | null> {
    try {
      return [id, (await (tenant ? api.destinationOf(tenant, id) : api.destination(id))).url];
    } catch {
      this.#absent.set(id, Date.now());
      return null;
    }
  }
}

export const urls = new Urls();
