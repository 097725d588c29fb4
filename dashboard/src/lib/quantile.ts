/** The latest values up to a limit, and their quantiles. */
export class Window {
  #values: number[] = [];
  #next = 0;
  #max: number;

  constructor(max: number) {
    this.#max = max;
  }

  add(value: number) {
    this.#values[this.#next] = value;
    this.#next = (this.#next + 1) % this.#max;
  }

  get size() {
    return this.#values.length;
  }

  quantile(share: number): number | null {
    if (this.#values.length === 0) return null;
    const sorted = [...this.#values].sort((a, b) => a - b);
    return sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))] ?? null;
  }
}
