// The address after `#`: a path and the filters of its page. Works below any prefix.

class Router {
  path = $state('/');
  query = $state.raw(new URLSearchParams());

  constructor() {
    this.#read();
    addEventListener('hashchange', () => this.#read());
  }

  #read() {
    const [path, query] = (location.hash.slice(1) || '/').split('?', 2);
    this.path = path || '/';
    this.query = new URLSearchParams(query ?? '');
  }

  /** The words of the path. */
  get parts(): string[] {
    return this.path.split('/').filter(Boolean).map(decodeURIComponent);
  }

  get(name: string): string {
    return this.query.get(name) ?? '';
  }

  /** Changes filters without a new entry in the history. */
  set(changes: Record<string, string | null>) {
    const query = new URLSearchParams(this.query);
    for (const [name, value] of Object.entries(changes)) {
      if (value) query.set(name, value);
      else query.delete(name);
    }
    const text = query.toString();
    history.replaceState(null, '', `#${this.path}${text ? `?${text}` : ''}`);
    this.query = query;
  }

  /** Puts another path in the place of the current one: it is not in the history any more. */
  replace(to: string) {
    history.replaceState(null, '', `#${to}`);
    this.#read();
  }

  go(to: string) {
    location.hash = to;
  }
}

export const router = new Router();

/** A link to a page. */
export function link(path: string, query: Record<string, string> = {}): string {
  const text = new URLSearchParams(query).toString();
  return `#${path}${text ? `?${text}` : ''}`;
}

const PAGES: Record<string, string> = { evt: 'events', dlv: 'deliveries', dst: 'destinations', sub: 'subscriptions' };

/** The page of a thing, by its identifier; null where the prefix is none of ours. */
export function pageOf(id: string): string | null {
  const page = PAGES[id.split('_', 1)[0] ?? ''];
  return page && id.includes('_') ? `/${page}/${encodeURIComponent(id)}` : null;
}
