// One stream for the whole page, handed out once per animation frame.
import { follow, type Told } from './api';
import { session } from './session.svelte';

export type { Told };
type Listener = (batch: Told[]) => void;

const PENDING_MAX = 20_000;
const PAUSE_MS = 1000;
const HIDDEN_MS = 500;

class Live {
  isOpen = $state(false);
  /** Events that did not reach this page: it or the server was too slow. */
  missed = $state(0);
  #listeners = new Set<Listener>();
  #abort: AbortController | null = null;
  #pending: Told[] = [];
  #isScheduled = false;

  /** Listens during the life of a component: use it in an effect and return its result. */
  listen(listener: Listener): () => void {
    void session.tenant;
    this.#listeners.add(listener);
    if (!this.#abort) void this.#run();
    return () => {
      this.#listeners.delete(listener);
      if (this.#listeners.size > 0) return;
      this.#abort?.abort();
      this.#abort = null;
      this.isOpen = false;
    };
  }

  async #run() {
    const abort = (this.#abort = new AbortController());
    while (!abort.signal.aborted) {
      try {
        await follow((told) => this.#take(told), abort.signal, () => (this.isOpen = true));
      } catch {
        // A refusal or a lost connection: both are tried again.
      }
      if (this.#abort === abort) this.isOpen = false;
      await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
    }
  }

  #take(told: Told) {
    if (this.#pending.length >= PENDING_MAX) {
      this.#pending.splice(0, PENDING_MAX / 2);
      this.missed += PENDING_MAX / 2;
    }
    this.#pending.push(told);
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    const flush = () => this.#flush();
    if (document.hidden) setTimeout(flush, HIDDEN_MS);
    else requestAnimationFrame(flush);
  }

  #flush() {
    this.#isScheduled = false;
    const batch = this.#pending.splice(0);
    for (const told of batch) if (told.name === 'lagged') this.missed += told.data.missed;
    for (const listener of this.#listeners) listener(batch);
  }
}

export const live = new Live();
