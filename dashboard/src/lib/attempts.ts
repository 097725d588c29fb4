// All attempts of a delivery. The server gives the oldest first, in pages: the newest are at the end.
import type { Attempt, List } from './types';

type Read = (cursor: string) => Promise<List<Attempt>>;

/** The most pages for one reading of the delivery; the next reading goes on from there. */
const PAGES_MAX = 10;

/** The pages behind the attempts that came with the delivery. Full pages do not change, and are read once. */
export class AttemptPages {
  #begin: string | null = null;
  #next: string | null = null;
  #full: Attempt[] = [];

  /** What follows `cursor`. Not whole where there are more pages than are read at once. */
  async after(cursor: string | null, read: Read): Promise<{ rows: Attempt[]; isWhole: boolean }> {
    if (cursor !== this.#begin) {
      this.#begin = this.#next = cursor;
      this.#full = [];
    }
    for (let page = 0; this.#next !== null && page < PAGES_MAX; page += 1) {
      const list: List<Attempt> = await read(this.#next);
      if (!list.next_cursor) return { rows: [...this.#full, ...list.data], isWhole: true };
      this.#full.push(...list.data);
      this.#next = list.next_cursor;
    }
    return { rows: [...this.#full], isWhole: cursor === null };
  }
}
