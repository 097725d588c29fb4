import * as server from './api';
import { Problem, words } from './problem';
import { ALL_TENANTS, router } from './router.svelte';
import { toasts } from './toasts.svelte';
import { applyTheme } from './theme.svelte';
import type { Session as View } from './types';

const GONE = 'This link has expired or was used already.';

class Session {
  /** `asked`: a link would replace the session that there is. */
  status = $state<'unknown' | 'out' | 'in' | 'asked'>('unknown');
  view = $state<View | null>(null);
  /** Why somebody is not signed in, or not any more. */
  notice = $state<string | null>(null);
  #token: string | null = null;

  isAdmin = $derived(this.view?.scopes.includes('admin') ?? false);
  /** An admin looks at the tenant that the address has; everybody else has one. */
  tenant = $derived(this.#choosesTenant() ? router.tenant : (this.view?.tenant ?? ''));
  /** All tenants are looked at, and nothing of them is changed: a row is opened in its own tenant first. */
  isAll = $derived(this.isAdmin && this.tenant === ALL_TENANTS);
  canManage = $derived(!this.isAll && (this.isAdmin || (this.view?.scopes.includes('manage') ?? false)));
  canSend = $derived(!this.isAll && (this.isAdmin || (this.view?.scopes.includes('ingest') ?? false)));
  isPortal = $derived(this.view?.kind === 'portal');
  /** Event types, the catalogue's rules and payloads: what is sent is the application's, and a portal only shows it. */
  canChangeEvents = $derived(this.canManage && !this.isPortal);
  canLink = $derived(!this.isPortal && !this.isAll && (this.isAdmin || (this.canManage && (this.view?.scopes.includes('read') ?? false))));

  async begin() {
    server.whenUnauthorized(() => this.#lose());
    server.askForTenant(() => (this.#choosesTenant() ? router.tenant : null));
    const token = takeToken();
    // A frame has no cookie that could say who is there.
    const found = server.isFramed ? null : await server.currentSession();
    if (found) this.#enter(found);
    if (token) await this.offer(token);
    else if (!found) this.status = 'out';
  }

  /** A link was opened. Where somebody is signed in already, it asks first: somebody else may have sent the link. */
  async offer(token: string) {
    this.#token = token;
    if (this.view) this.status = 'asked';
    else await this.accept();
  }

  async accept() {
    const token = this.#token;
    this.#token = null;
    if (!token) return;
    try {
      const view = await server.exchange(token);
      this.view = null;
      this.#enter(view);
    } catch (error) {
      const reason = error instanceof Problem && error.code === 'link_gone' ? GONE : words(error);
      this.status = this.view ? 'in' : 'out';
      if (this.view) toasts.show('bad', reason);
      else this.notice = reason;
    }
  }

  decline() {
    this.#token = null;
    this.status = 'in';
  }

  async signIn(key: string) {
    this.#enter(await server.signIn(key));
  }

  async signOut() {
    await server.signOut();
    this.notice = null;
    this.#leave();
  }

  look(tenant: string) {
    router.look(tenant);
  }

  #enter(view: View) {
    this.view = view;
    this.status = 'in';
    this.notice = null;
    applyTheme(view.theme);
  }

  #lose() {
    if (this.status !== 'in') return;
    this.notice = this.isPortal ? 'The session has ended.' : 'The session has ended: it has expired, or its key was deleted. Sign in again.';
    this.#leave();
  }

  #leave() {
    this.status = 'out';
    this.view = null;
    router.look('default');
  }

  #choosesTenant() {
    return this.view?.kind === 'key' && this.view.scopes.includes('admin');
  }
}

/** The token of a link, taken out of the address bar before anything else happens with it. */
export function takeToken(): string | null {
  if (router.path !== '/signin') return null;
  const token = router.get('token');
  router.replace('/');
  return token || null;
}

export const session = new Session();
