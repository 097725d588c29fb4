import { untrack } from 'svelte';
import { connection } from './connection.svelte';
import { isAbort, words } from './problem';

interface Options<T> {
  /** Milliseconds between two readings, or how many of them after this value. */
  every?: number | ((value: T | null) => number);
  /** Names what makes another thing of it: the value is forgotten then. */
  depends?: () => unknown;
  /** The value stays until there is the one of the other thing. */
  keeps?: boolean;
}

/**
 * Something that is read from the server and read again every `every` milliseconds while the page is
 * visible. The last value stays while the server is away. Use it during a component's set-up.
 */
export class Resource<T> {
  value = $state.raw<T | null>(null);
  error = $state<string | null>(null);
  /** The thing that was thrown, for callers that look at its code. */
  cause = $state.raw<unknown>(null);
  readAt = $state(0);
  /** Whether the value is of the thing that is wanted now. */
  isCurrent = $state(false);
  #read: (signal: AbortSignal) => Promise<T>;
  #abort: AbortController | null = null;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #every: () => number;
  /** Its component is gone: nobody sees what would be read. */
  #isClosed = false;

  constructor(read: (signal: AbortSignal) => Promise<T>, options: Options<T> = {}) {
    this.#read = read;
    const { every = 0 } = options;
    this.#every = typeof every === 'number' ? () => every : () => every(this.value);
    let known: unknown;
    $effect(() => {
      const wanted = JSON.stringify(options.depends?.() ?? null);
      void connection.epoch;
      if (known !== undefined && known !== wanted) {
        this.isCurrent = false;
        if (!options.keeps) this.value = null;
      }
      known = wanted;
      this.#isClosed = false;
      untrack(() => void this.reload());
      return () => {
        this.#isClosed = true;
        this.#abort?.abort();
        clearTimeout(this.#timer);
      };
    });
  }

  async reload(): Promise<void> {
    // An action may end after its page was left: reading again would also poll again, for ever.
    if (this.#isClosed) return;
    clearTimeout(this.#timer);
    this.#abort?.abort();
    const abort = (this.#abort = new AbortController());
    try {
      const value = await this.#read(abort.signal);
      if (abort.signal.aborted) return;
      this.value = value;
      this.isCurrent = true;
      this.error = null;
      this.cause = null;
      this.readAt = Date.now();
    } catch (error) {
      if (abort.signal.aborted || isAbort(error)) return;
      this.error = words(error);
      this.cause = error;
    }
    this.#schedule(abort);
  }

  #schedule(abort: AbortController) {
    const pause = this.#every();
    if (!pause || abort.signal.aborted) return;
    this.#timer = setTimeout(() => {
      if (document.hidden) this.#schedule(abort);
      else void this.reload();
    }, pause);
  }
}
