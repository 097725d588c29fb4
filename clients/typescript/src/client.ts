/** The client: one property for each kind of thing that the API has. */
import { PostriderError } from "./errors.js";
import { follow, type StreamOptions } from "./stream.js";
import { Transport, type Call, type CallOptions, type ClientOptions, type Query } from "./transport.js";
import type {
  Attempt, AuditEntry, Delivery, DeliveryDetail, DeliveryState, Destination, EventAccepted, EventDetail,
  Enable, EventSummary, Explanation, Filter, FilterVerdict, Key, KeyCreated, Ledger, Limit, NewEvent, NewKey, NewReplay,
  NewSubscription, NewTenant, Page, Replay, Stats, StreamEvent, Subscription, SubscriptionChange,
  SubscriptionWithSecret, Tenant, TestOutcome, Time, Transition,
} from "./types.js";

/** How many entries a list fetches at a time. `limit` does not limit how many are yielded. */
export interface ListOptions extends CallOptions {
  /** Entries on a page, 1 to 1000. */
  limit?: number;
}

/** Which deliveries. */
export interface DeliveryQuery {
  state?: DeliveryState;
  destination?: string;
  subscription?: string;
  event?: string;
  type?: string;
  object?: string;
  since?: Time;
  until?: Time;
}

const BATCH_EVENTS_MAX = 1000;
/** Below the server's 16 MiB, so that a batch is never refused for its size alone. */
const BATCH_BYTES_MAX = 15 * 1024 * 1024;

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
class Api {
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

  delete(path: string, options?: CallOptions): Promise<void> {
    return this.transport.send({ method: "DELETE", path }, options);
  }

  list<T>(path: string, options: ListOptions = {}, query: Query = {}): List<T> {
    return new List((cursor) => this.get(path, options, { ...query, limit: options.limit, cursor }));
  }
}

/** An identifier as a part of a path. An empty one would call another path. */
function part(id: string): string {
  if (id === "" || id === "." || id === "..") throw new PostriderError("an identifier is empty or malformed");
  return encodeURIComponent(id);
}

/** Hides a secret from logs: it is there by its name, and not enumerable. */
function hide<T extends object>(value: T, name: keyof T): T {
  return Object.defineProperty(value, name, { value: value[name], enumerable: false });
}

/** Tenants, for admin keys. */
export class Tenants {
  readonly #api: Api;
  constructor(api: Api) { this.#api = api; }

  create(tenant: NewTenant, options?: CallOptions): Promise<Tenant> {
    return this.#api.post("/v1/tenants", options, tenant);
  }
  get(id: string, options?: CallOptions): Promise<Tenant> {
    return this.#api.get(`/v1/tenants/${part(id)}`, options);
  }
  list(options?: ListOptions): List<Tenant> {
    return this.#api.list("/v1/tenants", options);
  }
  delete(id: string, options?: CallOptions): Promise<void> {
    return this.#api.delete(`/v1/tenants/${part(id)}`, options);
  }
}

/** API keys, for admin keys. */
export class Keys {
  readonly #api: Api;
  constructor(api: Api) { this.#api = api; }

  /** The answer's `key` is shown this once. */
  async create(key: NewKey, options?: CallOptions): Promise<KeyCreated> {
    return hide(await this.#api.post<KeyCreated>("/v1/keys", options, key), "key");
  }
  get(id: string, options?: CallOptions): Promise<Key> {
    return this.#api.get(`/v1/keys/${part(id)}`, options);
  }
  list(query: { tenant?: string; scope?: "admin" } = {}, options?: ListOptions): List<Key> {
    return this.#api.list("/v1/keys", options, query);
  }
  delete(id: string, options?: CallOptions): Promise<void> {
    return this.#api.delete(`/v1/keys/${part(id)}`, options);
  }
}

/** Events: what happened. */
export class Events {
  readonly #api: Api;
  constructor(api: Api) { this.#api = api; }

  /** Resolves when the event and all its deliveries are on stable storage. */
  send(event: NewEvent, options?: CallOptions): Promise<EventAccepted> {
    return this.#api.post("/v1/events", options, event);
  }

  /** One request with at most 1000 events, accepted whole or refused whole. */
  async sendBatch(events: readonly NewEvent[], options?: CallOptions): Promise<EventAccepted[]> {
    return this.#send(events.map((event) => JSON.stringify(event)), options);
  }

  /**
   * Any number of events, in as many batches as are needed, each with its own idempotency key. Yields one result
   * for each event, in order. Where a batch is refused, all results before it have been yielded.
   */
  async *sendAll(
    events: Iterable<NewEvent> | AsyncIterable<NewEvent>,
    options: Omit<CallOptions, "idempotencyKey"> = {},
  ): AsyncGenerator<EventAccepted> {
    const encoder = new TextEncoder();
    let lines: string[] = [];
    let bytes = 0;
    for await (const event of events) {
      const line = JSON.stringify(event);
      const size = encoder.encode(line).length + 1;
      if (lines.length === BATCH_EVENTS_MAX || (lines.length > 0 && bytes + size > BATCH_BYTES_MAX)) {
        yield* await this.#send(lines, options);
        lines = [];
        bytes = 0;
      }
      lines.push(line);
      bytes += size;
    }
    if (lines.length > 0) yield* await this.#send(lines, options);
  }

  /** With its payload and its deliveries. */
  get(id: string, options?: CallOptions): Promise<EventDetail> {
    return this.#api.get(`/v1/events/${part(id)}`, options);
  }
  list(
    query: { type?: string; object?: string; since?: Time; until?: Time } = {},
    options?: ListOptions,
  ): List<EventSummary> {
    return this.#api.list("/v1/events", options, query);
  }

  async #send(lines: string[], options?: CallOptions): Promise<EventAccepted[]> {
    const call: Call = { method: "POST", path: "/v1/events/batch", ndjson: lines.join("\n") };
    const answer = await this.#api.transport.send<{ results: EventAccepted[] }>(call, options);
    return answer.results;
  }
}

/** Subscriptions: who wants to know what, and where. */
export class Subscriptions {
  readonly #api: Api;
  constructor(api: Api) { this.#api = api; }

  /**
   * The answer's `secret` is shown this once. With the `uid` and the fields of a subscription that exists, the answer
   * is that one, and its `secret` is absent.
   */
  async create(subscription: NewSubscription, options?: CallOptions): Promise<SubscriptionWithSecret> {
    const created = this.#api.post<SubscriptionWithSecret>("/v1/subscriptions", options, subscription);
    return hide(await created, "secret");
  }
  get(id: string, options?: CallOptions): Promise<Subscription> {
    return this.#api.get(`/v1/subscriptions/${part(id)}`, options);
  }
  list(options?: ListOptions): List<Subscription> {
    return this.#api.list("/v1/subscriptions", options);
  }
  update(id: string, change: SubscriptionChange, options?: CallOptions): Promise<Subscription> {
    const path = `/v1/subscriptions/${part(id)}`;
    return this.#api.transport.send({ method: "PATCH", path, body: change }, options);
  }
  /** What is still owed to the subscription is cancelled. */
  delete(id: string, options?: CallOptions): Promise<void> {
    return this.#api.delete(`/v1/subscriptions/${part(id)}`, options);
  }
  /** A new secret. The one before signs along for `overlapSeconds`, a day where it is left out. */
  async rotateSecret(
    id: string, rotation: { overlapSeconds?: number } = {}, options?: CallOptions,
  ): Promise<SubscriptionWithSecret> {
    const body = rotation.overlapSeconds === undefined ? {} : { overlap_seconds: rotation.overlapSeconds };
    const path = `/v1/subscriptions/${part(id)}/secret/rotate`;
    return hide(await this.#api.post<SubscriptionWithSecret>(path, options, body), "secret");
  }
  /** Sends a test event now and says how it went. */
  test(id: string, options?: CallOptions): Promise<TestOutcome> {
    return this.#api.post(`/v1/subscriptions/${part(id)}/test`, options);
  }
}

/** Deliveries: one event owed to one subscription. */
export class Deliveries {
  readonly #api: Api;
  constructor(api: Api) { this.#api = api; }

  list(query: DeliveryQuery = {}, options?: ListOptions): List<Delivery> {
    return this.#api.list("/v1/deliveries", options, { ...query });
  }
  /** With the first attempts; see `attempts` for all of them. */
  get(id: string, options?: CallOptions): Promise<DeliveryDetail> {
    return this.#api.get(`/v1/deliveries/${part(id)}`, options);
  }
  attempts(id: string, options?: ListOptions): List<Attempt> {
    return this.#api.list(`/v1/deliveries/${part(id)}/attempts`, options);
  }
  /** Where it stands, why, what happens next, and what would help. */
  explain(id: string, options?: CallOptions): Promise<Explanation> {
    return this.#api.get(`/v1/deliveries/${part(id)}/explain`, options);
  }
  /** Attempts a delivery that waits now, without waiting for its slot. */
  retry(id: string, options?: CallOptions): Promise<Delivery> {
    return this.#api.post(`/v1/deliveries/${part(id)}/retry`, options);
  }
  /** Sends a delivery that has ended once more. */
  replay(id: string, options?: CallOptions): Promise<Delivery> {
    return this.#api.post(`/v1/deliveries/${part(id)}/replay`, options);
  }
  /** Ends a delivery that has not ended. */
  cancel(id: string, options?: CallOptions): Promise<Delivery> {
    return this.#api.post(`/v1/deliveries/${part(id)}/cancel`, options);
  }
}

/** Destinations: URLs with their circuits. */
export class Destinations {
  readonly #api: Api;
  constructor(api: Api) { this.#api = api; }

  list(options?: ListOptions): List<Destination> {
    return this.#api.list("/v1/destinations", options);
  }
  get(id: string, options?: CallOptions): Promise<Destination> {
    return this.#api.get(`/v1/destinations/${part(id)}`, options);
  }
  /** Every change of its state, with the evidence. */
  timeline(id: string, options?: ListOptions): List<Transition> {
    return this.#api.list(`/v1/destinations/${part(id)}/timeline`, options);
  }
  /** The only way out of frozen: with a reason, or with what is to be sent. */
  enable(id: string, why: string | Enable = {}, options?: CallOptions): Promise<Destination> {
    const body = typeof why === "string" ? { reason: why } : why;
    return this.#api.post(`/v1/destinations/${part(id)}/enable`, options, body);
  }
  freeze(id: string, reason?: string, options?: CallOptions): Promise<Destination> {
    return this.#api.post(`/v1/destinations/${part(id)}/freeze`, options, reason === undefined ? {} : { reason });
  }
}

/** Bulk replays. */
export class Replays {
  readonly #api: Api;
  constructor(api: Api) { this.#api = api; }

  create(replay: NewReplay, options?: CallOptions): Promise<Replay> {
    return this.#api.post("/v1/replays", options, { ...replay, dry_run: false });
  }
  /** How many deliveries such a replay would send. Nothing is sent. */
  async count(replay: NewReplay, options?: CallOptions): Promise<number> {
    const body = { ...replay, dry_run: true };
    return (await this.#api.post<{ total: number }>("/v1/replays", options, body)).total;
  }
  get(id: string, options?: CallOptions): Promise<Replay> {
    return this.#api.get(`/v1/replays/${part(id)}`, options);
  }
  list(options?: ListOptions): List<Replay> {
    return this.#api.list("/v1/replays", options);
  }
  pause(id: string, options?: CallOptions): Promise<Replay> {
    return this.#api.post(`/v1/replays/${part(id)}/pause`, options);
  }
  resume(id: string, options?: CallOptions): Promise<Replay> {
    return this.#api.post(`/v1/replays/${part(id)}/resume`, options);
  }
  cancel(id: string, options?: CallOptions): Promise<Replay> {
    return this.#api.post(`/v1/replays/${part(id)}/cancel`, options);
  }
}

/** A client of one server with one key. */
export class Client {
  readonly #api: Api;
  readonly #options: ClientOptions;
  readonly tenants: Tenants;
  readonly keys: Keys;
  readonly events: Events;
  readonly subscriptions: Subscriptions;
  readonly deliveries: Deliveries;
  readonly destinations: Destinations;
  readonly replays: Replays;

  constructor(options: ClientOptions) {
    this.#options = { ...options };
    const api = new Api(new Transport(options));
    this.#api = api;
    this.tenants = new Tenants(api);
    this.keys = new Keys(api);
    this.events = new Events(api);
    this.subscriptions = new Subscriptions(api);
    this.deliveries = new Deliveries(api);
    this.destinations = new Destinations(api);
    this.replays = new Replays(api);
  }

  /** The same client for another tenant. For admin keys. */
  forTenant(tenant: string): Client {
    return new Client({ ...this.#options, tenant });
  }

  /** `accepted = queued + in_flight + waiting + delivered + dead + cancelled`. `all`: of all tenants. */
  ledger(query: { scope?: "all" } = {}, options?: CallOptions): Promise<Ledger> {
    return this.#api.get("/v1/ledger", options, query);
  }

  /** What happened over time, in spans of equal length. */
  stats(
    query: { since?: Time; until?: Time; stepMinutes?: number; scope?: "all" } = {}, options?: CallOptions,
  ): Promise<Stats> {
    const { stepMinutes, ...rest } = query;
    return this.#api.get("/v1/stats", options, { ...rest, step_minutes: stepMinutes });
  }

  /** The limits of the tenant, and how near it is to each. */
  async limits(options?: CallOptions): Promise<Limit[]> {
    return (await this.#api.get<{ data: Limit[] }>("/v1/limits", options)).data;
  }

  /** Who changed what. */
  audit(
    query: { tenant?: string; key?: string; action?: string; target?: string; since?: Time; until?: Time } = {},
    options?: ListOptions,
  ): List<AuditEntry> {
    return this.#api.list("/v1/audit", options, query);
  }

  /** Tries a filter on an event. Nothing is stored and nothing is sent. */
  testFilter(filter: Filter, event: NewEvent, options?: CallOptions): Promise<FilterVerdict> {
    return this.#api.post("/v1/filters/test", options, { filter, event });
  }

  /** Any call of the API, for those that have no method here. */
  request<T>(call: Call, options?: CallOptions): Promise<T> {
    return this.#api.transport.send(call, options);
  }

  /** What happens from now on, live. Ends when the server ends it or `signal` aborts; connect again then. */
  stream(options?: StreamOptions): AsyncGenerator<StreamEvent> {
    return follow(this.#api.transport, options);
  }
}
