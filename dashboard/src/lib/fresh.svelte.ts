// Secrets that were just made, until somebody has seen them. In memory only.

class Fresh {
  #secrets = $state<Record<string, string>>({});

  keep(id: string, secret: string) {
    this.#secrets[id] = secret;
  }

  of(id: string): string | null {
    return this.#secrets[id] ?? null;
  }

  forget(id: string) {
    delete this.#secrets[id];
  }
}

export const fresh = new Fresh();
