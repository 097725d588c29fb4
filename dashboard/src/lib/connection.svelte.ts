// Whether the server answers. The API client is the only writer.

class Connection {
  /** True from the first request that found no server until the server answers again. */
  away = $state(false);
  /** Goes up each time that the server is back: whoever depends on it reads again. */
  epoch = $state(0);
  #waiting: (() => void)[] = [];
  #watching = false;

  /** Notes that nobody answered, and asks `probe` until somebody does. */
  lost(probe: () => Promise<boolean>) {
    this.away = true;
    if (this.#watching) return;
    this.#watching = true;
    let pause = 500;
    const ask = async () => {
      if (await probe()) {
        this.#watching = false;
        this.away = false;
        this.epoch += 1;
        for (const wake of this.#waiting.splice(0)) wake();
        return;
      }
      pause = Math.min(pause * 1.5, 5000);
      setTimeout(ask, pause);
    };
    setTimeout(ask, pause);
  }

  /** Resolves when the server answers again, or rejects when `signal` is aborted. */
  back(signal?: AbortSignal): Promise<void> {
    if (!this.away) return Promise.resolve();
    return new Promise((resolve, reject) => {
      signal?.addEventListener('abort', () => reject(signal.reason), { once: true });
      this.#waiting.push(resolve);
    });
  }
}

export const connection = new Connection();
