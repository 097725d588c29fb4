// The address after `#`: a path and the filters of its page. Works below any prefix.

/** Stands for all tenants together, to look at. */
export const ALL_TENANTS = '*';

/** A word of the path. One that is not encoded well is taken as it is: somebody typed it. */
function decoded(word: string): string {
  try {
    return decodeURIComponent(word);
  } catch {
    return word;
  }
}

class Router {
  path = $state('/');
  query = $state.raw(new URLSearchParams());
  /** The tenant that an admin looks at. It is kept with each entry of the history, so that going back goes back to it. */
  tenant = $state('default');

  constructor() {
    this.#read();
    addEventListener('hashchange', () => this.#read());
  }

  #read() {
    const [path, query] = (location.hash.slice(1) || '/').split('?', 2);
    this.path = path || '/';
    this.query = new URLSearchParams(query ?? '');
    const named = this.query.get('tenant');
    const kept = (history.state as { tenant?: string } | null)?.tenant;
    this.tenant = named || kept || this.tenant;
    this.query.delete('tenant');
    if (named !== null) this.#write();
    else if (kept !== this.tenant) history.replaceState({ tenant: this.tenant }, '');
  }

  #write() {
    const text = this.query.toString();
    history.replaceState({ tenant: this.tenant }, '', `#${this.path}${text ? `?${text}` : ''}`);
  }

  /** Looks at another tenant from here on. */
  look(tenant: string) {
    this.tenant = tenant;
    this.#write();
  }

  /** The words of the path. */
  get parts(): string[] {
    return this.path.split('/').filter(Boolean).map(decoded);
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
    this.query = query;
    this.#write();
  }

  /** Puts another path in the place of the current one: it is not in the history any more. */
  replace(to: string) {
    history.replaceState({ tenant: this.tenant }, '', `#${to}`);
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

/** The path of a row's thing. A row of all tenants names its own, and that is where it is opened. */
export function inTenant(path: string, tenant?: string | null): string {
  return tenant ? `${path}${path.includes('?') ? '&' : '?'}tenant=${encodeURIComponent(tenant)}` : path;
}

const PAGES: Record<string, string> = { evt: 'events', dlv: 'deliveries', dst: 'destinations', sub: 'subscriptions' };

/** The page of a thing, by its identifier; null where the prefix is none of ours. */
export function pageOf(id: string): string | null {
  const page = PAGES[id.split('_', 1)[0] ?? ''];
  return page && id.includes('_') ? `/${page}/${encodeURIComponent(id)}` : null;
}
