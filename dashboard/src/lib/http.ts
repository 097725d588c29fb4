// Requests and their repetition. Only api.ts uses this.
import { connection } from './connection.svelte';
import { Away, Problem } from './problem';

export type Query = Record<string, string | number | boolean | null | undefined>;

export interface Call {
  query?: Query;
  body?: unknown;
  signal?: AbortSignal;
  /** False: never wait for a server that is away. */
  patient?: boolean;
  accept?: string;
  /** True for a POST that changes nothing: it needs no idempotency key and may be repeated. */
  pure?: boolean;
}

const UNSAFE_TRIES = 4;
const BUSY_TRIES = 3;

/** In a frame of another site there is no cookie: what a link is exchanged for stays in memory. */
export const isFramed = window.self !== window.top;

let bearer: string | null = null;
let tenant: string | null = null;
let onUnauthorized: () => void = () => {};

/** The token of a portal session in a frame. It is gone when the frame is. */
export const setBearer = (token: string | null) => (bearer = token);
/** The tenant that an admin looks at. */
export const setTenant = (id: string | null) => (tenant = id);
export const whenUnauthorized = (act: () => void) => (onUnauthorized = act);

const sleep = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));
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

function address(path: string, query: Query = {}): string {
  const pairs = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== '');
  const text = new URLSearchParams(pairs.map(([name, value]) => [name, String(value)])).toString();
  return text ? `${path}?${text}` : path;
}

function headersOf(call: Call, idempotencyKey: string | null): Headers {
  const headers = new Headers({ accept: call.accept ?? 'application/json' });
  if (bearer) headers.set('authorization', `Bearer ${bearer}`);
  if (tenant) headers.set('postrider-tenant', tenant);
  if (call.body !== undefined) headers.set('content-type', 'application/json');
  if (idempotencyKey) headers.set('idempotency-key', idempotencyKey);
  return headers;
}

/** Sends a request, and again where that is safe. Resolves with a success, or throws why not. */
export async function send(method: string, path: string, call: Call = {}): Promise<Response> {
  const isSafe = method === 'GET' || call.pure === true;
  const idempotencyKey = isSafe ? null : crypto.randomUUID();
  let tries = 0;
  let busy = 0;
  for (;;) {
    let response: Response | null = null;
    try {
      response = await fetch(address(path, call.query), {
        method,
        headers: headersOf(call, idempotencyKey),
        body: call.body === undefined ? null : JSON.stringify(call.body),
        signal: call.signal ?? null,
        credentials: isFramed ? 'omit' : 'same-origin',
        cache: 'no-store',
      });
    } catch (error) {
      if (call.signal?.aborted) throw error;
    }
    if (response && !isGateway(response.status)) {
      if (response.ok) return response;
      const pause = Number(response.headers.get('retry-after') ?? NaN);
      const problem = await Problem.of(response);
      const isBusy = problem.status === 429 || problem.status === 503;
      if (isSafe && isBusy && call.patient !== false && ++busy <= BUSY_TRIES) {
        await sleep(Math.min(Number.isFinite(pause) ? pause * 1000 : 1000, 10_000));
        continue;
      }
      if (problem.status === 401) onUnauthorized();
      throw problem;
    }
    if (call.patient === false) {
      connection.lost(isThere);
      throw new Away();
    }
    if (isSafe) {
      await waitForServer(call.signal);
    } else {
      connection.lost(isThere);
      // The idempotency key makes the repetition safe.
      if (++tries >= UNSAFE_TRIES) throw new Away();
      await sleep(500 * 2 ** tries);
    }
  }
}

export async function json<T>(method: string, path: string, call?: Call): Promise<T> {
  const response = await send(method, path, call);
  return (response.status === 204 ? undefined : await response.json()) as T;
}
