// The clients of the API that the page uses, with the patience and the credentials of a page. Only api.ts uses this.
import { Client, ConnectionError, ProblemError, type Call, type CallOptions } from '@postrider/client';
import { untrack } from 'svelte';
import { connection } from './connection.svelte';
import { Away, Problem } from './problem';
import { ALL_TENANTS } from './router.svelte';

/** How often a request is repeated where the server is busy, or where its answer to a change was lost. */
const RETRIES = 3;
const RETRY_WAIT_MAX_MS = 10_000;
/** A page waits for as long as it is open: the longest time that a timer can wait. */
const TIMEOUT_MS = 2 ** 31 - 1;

/** In a frame of another site there is no cookie: what a link is exchanged for stays in memory. */
export const isFramed = window.self !== window.top;

let bearer: string | null = null;
let tenantNow: () => string | null = () => null;
let onUnauthorized: () => void = () => {};

/** The token of a portal session in a frame. It is gone when the frame is. */
export const setBearer = (token: string | null) => (bearer = token);
/** Says how to find the tenant that an admin looks at; null where the session has one of its own. */
export const askForTenant = (ask: () => string | null) => (tenantNow = ask);
export const whenUnauthorized = (act: () => void) => (onUnauthorized = act);

/** Calls about the server, which an admin also makes while looking at all tenants. */
const OF_THE_SERVER = new Set(['alerts', 'ledger', 'policy', 'session', 'simulate', 'stats', 'tenants', 'backup', 'audit', 'config', 'server']);

/** The tenant that a request names. All tenants can be looked at by some lists; other calls then name none, or are refused. */
function tenantOf(url: string): string | null {
  const tenant = untrack(tenantNow);
  const resource = /\/v1\/([\w-]+)/.exec(url)?.[1] ?? '';
  // A call about keys names its tenant in its query or body, or means all of them.
  return resource === 'keys' || (tenant === ALL_TENANTS && OF_THE_SERVER.has(resource)) ? null : tenant;
}

const isGateway = (status: number) => status === 502 || status === 504;

async function isThere(): Promise<boolean> {
  try {
    const answer = await fetch('healthz', { cache: 'no-store', signal: AbortSignal.timeout(3000) });
    return answer.ok;
  } catch {
    return false;
  }
}

/** Notes that nobody answered; resolves when somebody does again. */
export function waitForServer(signal?: AbortSignal): Promise<void> {
  connection.lost(isThere);
  return connection.back(signal);
}

/** What a client sends its requests with: the cookie or the token of the session, and the tenant. */
async function once(input: RequestInfo | URL, init: RequestInit = {}): Promise<Response | null> {
  const headers = new Headers(init.headers);
  if (bearer) headers.set('authorization', `Bearer ${bearer}`);
  const tenant = tenantOf(String(input));
  if (tenant && !headers.has('postrider-tenant')) headers.set('postrider-tenant', tenant);
  try {
    const credentials = isFramed ? 'omit' : 'same-origin';
    const response = await fetch(input, { ...init, headers, credentials, cache: 'no-store' });
    return isGateway(response.status) ? null : response;
  } catch (error) {
    if (init.signal?.aborted) throw error;
    return null;
  }
}

/** Waits for a server that is away, where a repetition is safe without an idempotency key. */
const patiently: typeof fetch = async (input, init) => {
  const isSafe = !new Headers(init?.headers).has('idempotency-key');
  for (;;) {
    const response = await once(input, init);
    if (response) return response;
    if (!isSafe) break;
    await waitForServer(init?.signal ?? undefined);
  }
  connection.lost(isThere);
  // The client repeats it with the same idempotency key.
  throw new TypeError('the server does not answer');
};

const hastily: typeof fetch = async (input, init) => {
  const response = await once(input, init);
  if (response) return response;
  connection.lost(isThere);
  throw new TypeError('the server does not answer');
};

// Relative to the page, so that it works below any prefix of a reverse proxy.
const url = new URL('.', document.baseURI).href;
const common = { url, timeoutMs: TIMEOUT_MS, retryWaitMaxMs: RETRY_WAIT_MAX_MS };

/** The client that waits for a server that is away. */
export const client = new Client({ ...common, retries: RETRIES, fetch: patiently });
/** The client that does not wait. */
const hasty = new Client({ ...common, retries: 0, fetch: hastily });

/** What a client answers, with the errors that the page shows. */
export async function told<T>(answer: Promise<T>): Promise<T> {
  try {
    return await answer;
  } catch (error) {
    if (error instanceof ConnectionError) throw new Away();
    if (!(error instanceof ProblemError)) throw error;
    if (error.status === 401) onUnauthorized();
    throw new Problem(error.status, error);
  }
}

/** A call that has no method of its own in the client. */
export const request = <T>(call: Call, options: CallOptions = {}) => told(client.request<T>(call, options));
/** The same for one tenant, whichever the page looks at. */
export const requestOf = <T>(tenant: string, call: Call, options: CallOptions = {}) =>
  told(new Client({ ...common, tenant, retries: RETRIES, fetch: patiently }).request<T>(call, options));
/** The same, never waiting for a server that is away. */
export const requestNow = <T>(call: Call) => told(hasty.request<T>(call));
