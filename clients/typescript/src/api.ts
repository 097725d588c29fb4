/** What all parts of the client share: calls with their answers, lists by pages, and identifiers in paths. */
import { PostriderError } from "./errors.js";
import type { Call, CallOptions, Query, Transport } from "./transport.js";
import type { Page } from "./types.js";

/** How many entries a list fetches at a time. `limit` does not limit how many are yielded. */
export interface ListOptions extends CallOptions {
  /** Entries on a page, 1 to 1000. */
  limit?: number;
}

/** Pages of a list, one after the other, as one sequence. `for await` fetches a page when it is needed. */
export class List<T> implements AsyncIterable<T> {
  readonly #page: (cursor: string | undefined) => Promise<Page<T>>;

  constructor(page: (cursor: string | undefined) => Promise<Page<T>>) {
    this.#page = page;
  }

  /** One page, for those who keep the cursor themselves. */
  page(cursor?: string): Promise<Page<T>> {
    return this.#page(cursor);
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<T> {
    let cursor: string | undefined;
    do {
      const page: Page<T> = await this.#page(cursor);
      yield* page.data;
      cursor = page.next_cursor ?? undefined;
    } while (cursor !== undefined);
  }

  /** The first `max` entries as an array; all of them where `max` is left out. */
  async toArray(max = Infinity): Promise<T[]> {
    const entries: T[] = [];
    if (max <= 0) return entries;
    for await (const entry of this) {
      entries.push(entry);
      if (entries.length >= max) break;
    }
    return entries;
  }
}

/** What all parts of the client need. */
export class Api {
  readonly transport: Transport;

  constructor(transport: Transport) {
    this.transport = transport;
  }

  get<T>(path: string, options?: CallOptions, query: Query = {}): Promise<T> {
    return this.transport.send({ method: "GET", path, query }, options);
  }

  post<T>(path: string, options?: CallOptions, body?: unknown): Promise<T> {
    const call: Call = { method: "POST", path };
    if (body !== undefined) call.body = body;
    return this.transport.send(call, options);
  }

  patch<T>(path: string, options: CallOptions | undefined, body: unknown, query: Query = {}): Promise<T> {
    return this.transport.send({ method: "PATCH", path, query, body }, options);
  }

  delete(path: string, options?: CallOptions, query: Query = {}): Promise<void> {
    return this.transport.send({ method: "DELETE", path, query }, options);
  }

  list<T>(path: string, options: ListOptions = {}, query: Query = {}): List<T> {
    return new List((cursor) => this.get(path, options, { ...query, limit: options.limit, cursor }));
  }
}

/** An identifier as a part of a path. An empty one would call another path. */
export function part(id: string): string {
  if (id === "" || id === "." || id === "..") throw new PostriderError("an identifier is empty or malformed");
  return encodeURIComponent(id);
}

/** Hides a secret from logs: it is there by its name, and not enumerable. */
export function hide<T extends object>(value: T, name: keyof T): T {
  return Object.defineProperty(value, name, { value: value[name], enumerable: false });
}
