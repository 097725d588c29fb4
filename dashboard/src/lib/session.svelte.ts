import * as server from './api';
import { applyTheme } from './theme.svelte';
import type { SessionView } from './types';

class Session {
  status = $state<'unknown' | 'out' | 'in'>('unknown');
  view = $state<SessionView | null>(null);
  /** The tenant that an admin looks at. */
  tenant = $state('default');
  /** Why somebody who was signed in is not any more. */
  notice = $state<string | null>(null);

  isAdmin = $derived(this.view?.scopes.includes('admin') ?? false);
  canManage = $derived(this.isAdmin || (this.view?.scopes.includes('manage') ?? false));
  canSend = $derived(this.isAdmin || (this.view?.scopes.includes('ingest') ?? false));
  isPortal = $derived(this.view?.kind === 'portal');

  async begin() {
    server.whenUnauthorized(() => this.#lose());
    const found = await server.currentSession();
    if (typeof found === 'string') this.status = 'out';
    else this.#enter(found);
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
    this.tenant = tenant;
    server.setTenant(tenant);
  }

  #enter(view: SessionView) {
    this.view = view;
    this.status = 'in';
    this.notice = null;
    const isAdmin = view.scopes.includes('admin') && view.kind === 'key';
    this.tenant = isAdmin ? 'default' : (view.tenant ?? '');
    server.setTenant(isAdmin ? this.tenant : null);
    if (view.theme) applyTheme(view.theme);
  }

  #lose() {
    if (this.status !== 'in') return;
    this.notice = 'The session has ended: its key was revoked or has expired. Sign in again.';
    this.#leave();
  }

  #leave() {
    this.status = 'out';
    this.view = null;
    server.setTenant(null);
  }
}

export const session = new Session();
