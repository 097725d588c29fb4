import { words } from './problem';

export interface Toast {
  id: number;
  kind: 'ok' | 'bad';
  text: string;
  href: string | null;
}

class Toasts {
  list = $state<Toast[]>([]);
  #next = 1;

  show(kind: Toast['kind'], text: string, href: string | null = null) {
    const id = this.#next++;
    this.list.push({ id, kind, text, href });
    if (kind === 'ok') setTimeout(() => this.close(id), 6000);
  }

  close(id: number) {
    this.list = this.list.filter((toast) => toast.id !== id);
  }
}

export const toasts = new Toasts();

/** Does something and tells how it went. */
export async function act<T>(what: () => Promise<T>, done: string | ((result: T) => string)): Promise<T | null> {
  try {
    const result = await what();
    toasts.show('ok', typeof done === 'string' ? done : done(result));
    return result;
  } catch (error) {
    toasts.show('bad', words(error));
    return null;
  }
}
