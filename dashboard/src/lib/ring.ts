/** The latest entries up to a limit. */
export class Ring<T> {
  #items: T[] = [];
  #start = 0;
  readonly #max: number;

  constructor(max: number) {
    this.#max = max;
  }

  push(item: T) {
    if (this.#items.length < this.#max) this.#items.push(item);
    else {
      this.#items[this.#start] = item;
      this.#start = (this.#start + 1) % this.#max;
    }
  }

  /** The entries that pass, newest first. */
  newest(passes: (item: T) => boolean): T[] {
    const found: T[] = [];
    for (let n = this.#items.length - 1; n >= 0; n -= 1) {
      const item = this.#items[(this.#start + n) % this.#items.length]!;
      if (passes(item)) found.push(item);
    }
    return found;
  }

  clear() {
    this.#items = [];
    this.#start = 0;
  }
}
