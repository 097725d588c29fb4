// One stream for the whole page, handed out once per animation frame.
import { follow, type Told } from './api';
import { session } from './session.svelte';

export type { Told };
type Listener = (batch: Told[]) => void;

const PENDING_MAX = 20_000;
const PAUSE_MS = 1000;
/** The pause doubles up to this while the server refuses the stream. */
const PAUSE_MAX_MS = 15_000;
/** After a lag the stream is opened again at once, unless the last lag was less than this ago: who lags all the time pauses. */
const LAG_ALONE_MS = 15_000;
const HIDDEN_MS = 500;

class Live {
  isOpen = $state(false);
  /** Events that did not reach this page: it or the server was too slow. */
  missed = $state(0);
  /** Whether the stream was open before and broke: what happened in between is not counted anywhere. */
  hasGap = $state(false);
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
      // It may be of another tenant than what comes next.
      this.#pending = [];
    };
  }

  /** Begins to count anew what did not reach the page. */
  forget() {
    this.missed = 0;
    this.hasGap = false;
  }

  async #run() {
    const abort = (this.#abort = new AbortController());
    let wasOpen = false;
    let pause = PAUSE_MS;
    let laggedAt = -Infinity;
    while (!abort.signal.aborted) {
      let hasLagged = false;
      const take = (told: Told) => {
        hasLagged = told.name === 'lagged';
        this.#take(told);
      };
      const opened = () => {
        if (wasOpen) this.hasGap = true;
        wasOpen = true;
        pause = PAUSE_MS;
        this.isOpen = true;
      };
      try {
        await follow(take, abort.signal, opened);
      } catch {
        // A refusal or a lost connection: both are tried again.
      }
      // What happens until the stream is open again is lost: after a lag, which it said itself, there is no pause.
      const isAlone = performance.now() - laggedAt >= LAG_ALONE_MS;
      if (hasLagged) laggedAt = performance.now();
      if (hasLagged && isAlone) continue;
      if (this.#abort === abort) this.isOpen = false;
      await new Promise((resolve) => setTimeout(resolve, pause));
      pause = Math.min(pause * 2, PAUSE_MAX_MS);
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
