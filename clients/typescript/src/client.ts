/** The client: one property for each kind of thing that the API has. */
import { Api, type List, type ListOptions, hide, part } from "./api.js";
import { Alerts, Erasures, EventTypes, Operations, PortalLinks } from "./operations.js";
import { follow, type StreamOptions } from "./stream.js";
import { Transport, type Call, type CallOptions, type ClientOptions } from "./transport.js";
import type {
  Attempt, AuditEntry, DeadLetters, Delivery, DeliveryDetail, DeliveryState, Destination, DestinationFigures, DestinationState,
  DestinationStats, DestinationSummary, Enable, EventAccepted, EventDetail, EventSummary, Explanation, Filter, FilterTrial, FilterTrialAnswer, FilterVerdict,
  Key, KeyCreated, Ledger, Limit, Match, NewEvent, NewKey, NewReplay, NewSubscription, NewTenant, Policy, RateLimit,
  Replay, RetriesDue, SentRequest, Simulation, SimulationAnswer, Stats, StreamEvent, Subscription, SubscriptionChange,
  SubscriptionWithSecret, Tenant, TenantChange, TestOutcome, Time, Transition,
} from "./types.js";

/** Which subscriptions. */
export interface SubscriptionQuery {
  destination?: string;
  /** The application's own identifier. */
  uid?: string;
  /** A part of the name, description, uid, URL or a value of the metadata. */
  q?: string;
  /** A pair, as `key:value`. */
  metadata?: string;
}

/** Which destinations. */
export interface DestinationQuery {
  state?: DestinationState;
  /** A part of the URL. */
  q?: string;
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
  /** What is left out stays as it is; null removes. `metadata` and `quotas` are replaced as a whole. */
  update(id: string, change: TenantChange, options?: CallOptions): Promise<Tenant> {
    return this.#api.patch(`/v1/tenants/${part(id)}`, options, change);
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

  /** Which subscriptions want this event, and why the others do not. */
  matches(id: string, options?: ListOptions): List<Match> {
    return this.#api.list(`/v1/events/${part(id)}/matches`, options);
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
   * is that one, and its `secret` is empty.
   */
  async create(subscription: NewSubscription, options?: CallOptions): Promise<SubscriptionWithSecret> {
    const created = await this.#api.post<SubscriptionWithSecret>("/v1/subscriptions", options, subscription);
    created.secret ??= "";
    return hide(created, "secret");
  }
  get(id: string, options?: CallOptions): Promise<Subscription> {
    return this.#api.get(`/v1/subscriptions/${part(id)}`, options);
  }
  list(options: SubscriptionQuery & ListOptions = {}): List<Subscription> {
    const { destination, uid, q, metadata, ...rest } = options;
    return this.#api.list("/v1/subscriptions", rest, { destination, uid, q, metadata });
  }
  update(id: string, change: SubscriptionChange, options?: CallOptions): Promise<Subscription> {
    return this.#api.patch(`/v1/subscriptions/${part(id)}`, options, change);
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
  /** How many waiting deliveries fall due in each of the next 48 hours. */
  due(options?: CallOptions): Promise<RetriesDue> {
    return this.#api.get("/v1/deliveries/due", options);
  }
  /** By destination and reason, the largest group first. */
  dead(query: { limit?: number } = {}, options?: CallOptions): Promise<DeadLetters> {
    return this.#api.get("/v1/deliveries/dead", options, query);
  }
  /** With the first attempts; see `attempts` for all of them. */
  get(id: string, options?: CallOptions): Promise<DeliveryDetail> {
    return this.#api.get(`/v1/deliveries/${part(id)}`, options);
  }
  attempts(id: string, options?: ListOptions): List<Attempt> {
    return this.#api.list(`/v1/deliveries/${part(id)}/attempts`, options);
  }
  /** What was sent to the receiver in an attempt, made again from the event. Its secrets are masked. */
  request(id: string, attempt: number, options?: CallOptions): Promise<SentRequest> {
    return this.#api.get(`/v1/deliveries/${part(id)}/attempts/${attempt}/request`, options);
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

  list(options: DestinationQuery & ListOptions = {}): List<Destination> {
    const { state, q, ...rest } = options;
    return this.#api.list("/v1/destinations", rest, { state, q });
  }
  /** How many there are in each state. */
  summary(options?: CallOptions): Promise<DestinationSummary> {
    return this.#api.get("/v1/destinations/summary", options);
  }
  /** The figures of at most 100 destinations, in the order of their identifiers; all zero for one that does not exist. */
  async figures(ids: string[], options?: CallOptions): Promise<DestinationFigures[]> {
    const query = { ids: ids.join(",") };
    return (await this.#api.get<{ data: DestinationFigures[] }>("/v1/destinations/stats", options, query)).data;
  }
  get(id: string, options?: CallOptions): Promise<Destination> {
    return this.#api.get(`/v1/destinations/${part(id)}`, options);
  }
  /** Its attempts by the hour: the last 24 hours, or up to 168. */
  stats(id: string, query: { hours?: number } = {}, options?: CallOptions): Promise<DestinationStats> {
    return this.#api.get(`/v1/destinations/${part(id)}/stats`, options, query);
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
  readonly eventTypes: EventTypes;
  readonly erasures: Erasures;
  readonly portalLinks: PortalLinks;
  readonly alerts: Alerts;
  readonly operations: Operations;

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
    this.eventTypes = new EventTypes(api);
    this.erasures = new Erasures(api);
    this.portalLinks = new PortalLinks(api);
    this.alerts = new Alerts(api);
    this.operations = new Operations(api);
  }

  /** The same client for another tenant. For admin keys. `*` reads lists of all tenants. */
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

  /** The rates of the tenant: requests and events per second. */
  async rates(options?: CallOptions): Promise<RateLimit[]> {
    return (await this.#api.get<{ rates?: RateLimit[] }>("/v1/limits", options)).rates ?? [];
  }

  /** The server's policy, and how far the policy of a subscription may go. */
  policy(options?: CallOptions): Promise<Policy> {
    return this.#api.get("/v1/policy", options);
  }

  /** What policies would do in an outage. Nothing is stored and nothing is sent. */
  simulate(simulation: Simulation, options?: CallOptions): Promise<SimulationAnswer> {
    return this.#api.post("/v1/simulate", options, simulation);
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

  /** Tries a filter on events that were accepted: those that are named, or the newest ones. */
  tryFilter(trial: FilterTrial, options?: CallOptions): Promise<FilterTrialAnswer> {
    return this.#api.post("/v1/filters/test/events", options, trial);
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
