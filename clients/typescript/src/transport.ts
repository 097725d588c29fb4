/**
 * One call of the API: sent, and sent again where that can help.
 *
 * A mutation carries one `Idempotency-Key` through all its attempts, so a repeat never does the thing twice,
 * also where the first answer was lost on its way.
 */
import { webCrypto } from "#crypto";

import { ConnectionError, PostriderError, ProblemError, TimeoutError } from "./errors.js";
import type { Problem } from "./types.js";

/** How to reach a server, and how patiently. */
export interface ClientOptions {
  /** Where the server is, such as `https://hooks.example.com`. */
  url: string;
  /** An API key. A page that the server itself serves leaves it out, and is known by its session. */
  key?: string;
  /** The tenant to act for. Only for admin keys; `default` where it is left out. */
  tenant?: string;
  /** Time limit of one attempt, until the whole answer has arrived. 35 s where it is left out. */
  timeoutMs?: number;
  /** How many times a failed request is sent again. 4 where it is left out; 0 for never. */
  retries?: number;
  /** The longest wait before a repeat. A longer `Retry-After` is not waited for. 30 s where it is left out. */
  retryWaitMaxMs?: number;
  /** What to send requests with. The global `fetch` where it is left out. */
  fetch?: typeof fetch;
}

/** What one call may choose for itself. */
export interface CallOptions {
  /** Ends the call, with its waits. */
  signal?: AbortSignal;
  timeoutMs?: number;
  retries?: number;
  /** A key of your own for a mutation, to make a repeat after a crash of your program safe too. */
  idempotencyKey?: string;
}

/** A query; what is undefined or null is left out. */
export type Query = Record<string, string | number | Date | null | undefined>;

/** A request, without what is the same for all. */
export interface Call {
  method: "GET" | "POST" | "PATCH" | "DELETE";
  path: string;
  query?: Query;
  /** A value to be sent as JSON, or text that is NDJSON already. */
  body?: unknown;
  ndjson?: string;
  /** True for a POST that changes nothing: it needs no idempotency key. */
  pure?: boolean;
  /** Reads the text of the answer. `JSON.parse` where it is left out. */
  parse?: (text: string) => unknown;
}

const USER_AGENT = "postrider-typescript/0.1.0";
const FIRST_WAIT_MS = 200;

/** Sends calls to one server with one key. The key is private: no log, `JSON.stringify` or inspection shows it. */
export class Transport {
  readonly #base: string;
  readonly #key: string | undefined;
  readonly #tenant: string | undefined;
  readonly #timeoutMs: number;
  readonly #retries: number;
  readonly #retryWaitMaxMs: number;
  readonly #fetch: typeof fetch;

  constructor(options: ClientOptions) {
    const url = new URL(options.url);
    if (url.username !== "" || url.password !== "" || url.search !== "" || url.hash !== "") {
      throw new PostriderError("the server's url must have no credentials, query or fragment");
    }
    this.#base = url.href.replace(/\/+$/, "");
    this.#key = options.key?.trim();
    // Checked here, because fetch would repeat a key that it refuses in its error message.
    if (this.#key !== undefined && !/^[\x21-\x7e]+$/.test(this.#key)) {
      throw new PostriderError("the key must be visible ASCII characters without spaces");
    }
    this.#tenant = options.tenant;
    this.#timeoutMs = options.timeoutMs ?? 35_000;
    this.#retries = options.retries ?? 4;
    this.#retryWaitMaxMs = options.retryWaitMaxMs ?? 30_000;
    this.#fetch = options.fetch ?? ((input, init) => globalThis.fetch(input, init));
  }

  /** The answer's JSON; undefined where the answer has no body. */
  async send<T>(call: Call, options: CallOptions = {}): Promise<T> {
    const init = this.#request(call, options);
    const timeoutMs = options.timeoutMs ?? this.#timeoutMs;
    const retries = options.retries ?? this.#retries;
    for (let attempt = 1; ; attempt += 1) {
      options.signal?.throwIfAborted();
      const outcome = await this.#attempt(call, init, timeoutMs, options.signal, attempt);
      if ("value" in outcome) return outcome.value as T;
      const wait = this.#waitMs(attempt, outcome.retryAfterSeconds);
      if (!outcome.again || attempt > retries || wait === null) throw outcome.error;
      await sleep(wait, options.signal);
    }
  }

  /** A response whose body is read by the caller. The request is not repeated. */
  async open(call: Call, signal: AbortSignal): Promise<Response> {
    let response: Response;
    try {
      response = await this.#fetch(this.#url(call), { ...this.#request(call, {}), signal });
    } catch (error) {
      throw new ConnectionError(`${call.method} ${call.path}: ${reason(error)}`, 1);
    }
    if (!response.ok) throw await problem(response, 1);
    return response;
  }

  /** The time limit of one attempt, for those who read a response themselves. */
  get timeoutMs(): number {
    return this.#timeoutMs;
  }

  #url(call: Call): string {
    const query = new URLSearchParams();
    for (const [name, value] of Object.entries(call.query ?? {})) {
      if (value === undefined || value === null) continue;
      query.set(name, value instanceof Date ? value.toISOString() : String(value));
    }
    const text = query.toString();
    return this.#base + call.path + (text === "" ? "" : `?${text}`);
  }

  #request(call: Call, options: CallOptions): RequestInit {
    const headers: Record<string, string> = {
      accept: call.path === "/v1/stream" ? "text/event-stream" : "application/json",
    };
    if (this.#key !== undefined) headers["authorization"] = `Bearer ${this.#key}`;
    // A browser sends its own name and would ask the server for leave to send another.
    if (!("document" in globalThis)) headers["user-agent"] = USER_AGENT;
    if (this.#tenant !== undefined) headers["postrider-tenant"] = this.#tenant;
    if (call.method !== "GET" && !call.pure) headers["idempotency-key"] = options.idempotencyKey ?? randomKey();
    // A redirect is never followed, so that the key goes to no other server.
    const init: RequestInit = { method: call.method, headers, redirect: "manual" };
    if (call.ndjson !== undefined) {
      headers["content-type"] = "application/x-ndjson";
      init.body = call.ndjson;
    } else if (call.body !== undefined) {
      headers["content-type"] = "application/json";
      init.body = JSON.stringify(call.body);
    }
    return init;
  }

  async #attempt(
    call: Call,
    init: RequestInit,
    timeoutMs: number,
    signal: AbortSignal | undefined,
    attempt: number,
  ): Promise<{ value: unknown } | { error: Error; again: boolean; retryAfterSeconds: number | null }> {
    const limit = new AbortController();
    const stop = () => limit.abort();
    signal?.addEventListener("abort", stop, { once: true });
    let late = false;
    const timer = setTimeout(() => { late = true; limit.abort(); }, timeoutMs);
    try {
      const response = await this.#fetch(this.#url(call), { ...init, signal: limit.signal });
      if (response.ok) {
        const text = await response.text();
        return { value: text === "" ? undefined : (call.parse ?? JSON.parse)(text) };
      }
      const error = await problem(response, attempt);
      const again = response.status === 408 || response.status === 429 || response.status >= 500;
      return { error, again, retryAfterSeconds: error.retryAfterSeconds };
    } catch (error) {
      signal?.throwIfAborted();
      const place = `${call.method} ${call.path}`;
      const told = late
        ? new TimeoutError(`${place}: no answer within ${timeoutMs} ms`, attempt)
        : new ConnectionError(`${place}: ${reason(error)}`, attempt);
      return { error: told, again: true, retryAfterSeconds: null };
    } finally {
      clearTimeout(timer);
      signal?.removeEventListener("abort", stop);
    }
  }

  /** How long to wait before the next attempt; null where the server asks for more patience than is allowed. */
  #waitMs(attempt: number, retryAfterSeconds: number | null): number | null {
    const backoff = Math.min(FIRST_WAIT_MS * 2 ** (attempt - 1), this.#retryWaitMaxMs);
    const jittered = backoff * (0.5 + Math.random() / 2);
    if (retryAfterSeconds === null) return jittered;
    const asked = retryAfterSeconds * 1000;
    if (asked > this.#retryWaitMaxMs) return null;
    // Later by the jitter and never earlier: the server has said when.
    return asked + jittered;
  }
}

/** A new idempotency key. Not `randomUUID`, which browsers offer to https pages only. */
function randomKey(): string {
  const bytes = webCrypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

async function problem(response: Response, attempts: number): Promise<ProblemError> {
  let document: Partial<Problem> = {};
  try {
    const parsed: unknown = JSON.parse(await response.text());
    if (typeof parsed === "object" && parsed !== null && "code" in parsed) {
      document = parsed as Partial<Problem>;
    }
  } catch {
    // Not a problem document: the status is all that is known.
  }
  return new ProblemError({ ...document, status: response.status }, retryAfter(response), attempts);
}

function retryAfter(response: Response): number | null {
  const value = response.headers.get("retry-after");
  if (value === null) return null;
  if (/^\d+$/.test(value)) return Number(value);
  const at = Date.parse(value);
  return Number.isNaN(at) ? null : Math.max(0, (at - Date.now()) / 1000);
}

/** fetch says "fetch failed" and keeps what happened in its cause. */
function reason(error: unknown): string {
  if (!(error instanceof Error)) return "the request failed";
  // The message of a syntax error repeats a part of the answer, which may hold a secret.
  if (error instanceof SyntaxError) return "the answer is not JSON";
  const cause = error.cause;
  const code = cause instanceof Error ? ((cause as { code?: string }).code ?? cause.message) : undefined;
  return code === undefined ? error.message : `${error.message} (${code})`;
}

function sleep(ms: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve, reject) => {
    const done = () => { signal?.removeEventListener("abort", stop); resolve(); };
    const timer = setTimeout(done, ms);
    const stop = () => { clearTimeout(timer); reject(signal?.reason as Error); };
    signal?.addEventListener("abort", stop, { once: true });
  });
}
