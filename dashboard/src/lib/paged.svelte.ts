import { untrack } from 'svelte';
import { connection } from './connection.svelte';
import { isAbort, words } from './problem';
import type { List } from './types';

interface Row {
  id: string;
}

type Read<T> = (page: { limit: number; cursor: string | null }, signal: AbortSignal) => Promise<List<T>>;

const FIRST = 200;
const MORE = 1000;
const EVERY_MS = 5000;

/**
 * A list of which pages are read as somebody scrolls down, newest first. Its beginning is read again
 * every few seconds: known rows are renewed in place, new ones wait in `fresh` until they are wanted,
 * so that nothing moves under the reader's eyes. Use it during a component's set-up.
 */
export class Paged<T extends Row> {
  rows = $state.raw<T[]>([]);
  fresh = $state.raw<T[]>([]);
  /** Whether more came than `fresh` holds: showing them begins the list anew. */
  hasGap = $state(false);
  isLoading = $state(true);
  hasMore = $state(false);
  error = $state<string | null>(null);
  /** How many pages without a row were read, one after the other, before a row was found. */
  looked = $state(0);
  #read: Read<T>;
  #cursor: string | null = null;
  #abort = new AbortController();
  #timer: ReturnType<typeof setInterval> | undefined;
  #known = new Set<string>();
  #isClosed = false;
  /** Whether new rows may be shown at once. */
  atTop = () => true;

  constructor(read: Read<T>, depends: () => unknown) {
    this.#read = read;
    let filters: string | null = null;
    $effect(() => {
      const wanted = JSON.stringify(depends());
      void connection.epoch;
      this.#isClosed = false;
      // Untracked: what these read must not start them again.
      untrack(() => void (filters === wanted && this.rows.length > 0 ? this.renew() : this.restart()));
      filters = wanted;
      this.#timer = setInterval(() => {
        if (!document.hidden) void this.renew();
      }, EVERY_MS);
      return () => {
        this.#isClosed = true;
        clearInterval(this.#timer);
        this.#abort.abort();
      };
    });
  }

  async restart() {
    if (this.#isClosed) return;
    this.#abort.abort();
    this.#abort = new AbortController();
    this.#cursor = null;
    this.#known.clear();
    this.fresh = [];
    this.hasGap = false;
    this.isLoading = true;
    await this.#page(FIRST, true);
  }

  async more() {
    if (this.isLoading || !this.hasMore) return;
    this.isLoading = true;
    await this.#page(MORE, false);
  }

  async #page(limit: number, isFirst: boolean) {
    const abort = this.#abort;
    this.looked = 0;
    try {
      let added: T[] = [];
      // A page may be empty and yet not the last: the server looks through a bounded number of rows for each.
      do {
        const list = await this.#read({ limit, cursor: this.#cursor }, abort.signal);
        if (abort.signal.aborted) return;
        added = list.data.filter((row) => !this.#known.has(row.id));
        this.#cursor = list.next_cursor ?? null;
        if (added.length > 0 || this.#cursor === null) break;
        if (isFirst) this.rows = [];
        this.looked += 1;
      } while (!abort.signal.aborted);
      for (const row of added) this.#known.add(row.id);
      this.rows = isFirst ? added : this.rows.concat(added);
      this.hasMore = this.#cursor !== null;
      this.error = null;
    } catch (error) {
      if (abort.signal.aborted || isAbort(error)) return;
      this.error = words(error);
    }
    this.isLoading = false;
  }

  async renew() {
    if (this.isLoading || this.#isClosed) return;
    const abort = this.#abort.signal.aborted ? (this.#abort = new AbortController()) : this.#abort;
    try {
      const list = await this.#read({ limit: FIRST, cursor: null }, abort.signal);
      if (abort.signal.aborted) return;
      this.error = null;
      const now = new Map(list.data.map((row) => [row.id, row]));
      // Rows that this page should have and has not do not match the filter any more.
      const last = list.data.at(-1)?.id;
      const head = list.next_cursor ? this.rows.slice(0, 2 * FIRST) : this.rows;
      const reach = list.next_cursor ? head.findIndex((row) => row.id === last) : head.length;
      const kept = head.filter((row, n) => n >= reach || now.has(row.id)).map((row) => now.get(row.id) ?? row);
      const rows = kept.concat(this.rows.slice(head.length));
      const fresh = list.data.filter((row) => !this.#known.has(row.id));
      this.rows = rows;
      this.fresh = fresh;
      this.hasGap = fresh.length >= FIRST;
      if (this.atTop()) this.take();
    } catch (error) {
      if (!isAbort(error) && !abort.signal.aborted) this.error = words(error);
    }
  }

  /** Shows the rows that came since. */
  take() {
    if (this.fresh.length === 0) return;
    if (this.hasGap) return void this.restart();
    for (const row of this.fresh) this.#known.add(row.id);
    this.rows = [...this.fresh, ...this.rows];
    this.fresh = [];
  }
}
