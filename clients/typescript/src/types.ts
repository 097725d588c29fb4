/**
 * The names of the API's data. They are taken from the OpenAPI document (`schema.ts` is generated from it at
 * build time); only what the document cannot say exactly is written here by hand.
 */
import type { components } from "./schema.js";

type Schemas = components["schemas"];

/** Any JSON value. */
export type Json = string | number | boolean | null | Json[] | { [key: string]: Json };

/** A time in a request: a `Date`, or text as RFC 3339 has it. Times in answers are always text. */
export type Time = Date | string;

/** A condition on an event. */
export type FilterCondition = {
  field: string;
  op:
    | "eq" | "ne" | "gt" | "gte" | "lt" | "lte"
    | "contains" | "not_contains" | "contains_only" | "changed" | "exists";
  value?: unknown;
  /** Beside `gt`, `gte`, `lt` and `lte`: both sides are read as times, also with an offset without a colon. */
  as?: "time";
};
/** A filter: a condition, or a group of them. */
export type Filter = FilterCondition | { all: Filter[] } | { any: Filter[] };

/** What a key may do. */
export type Scope = "ingest" | "manage" | "read" | "admin";
/** How the payload of a delivery looks. */
export type Format = "standard" | "cloudevents" | "raw" | "workfront";

/** One page of a list. */
export type Page<T> = { data: T[]; next_cursor: string | null };

export type Tenant = Schemas["Tenant"];
export type NewTenant = Schemas["NewTenant"];
/** What is left out stays as it is; null removes. */
export type TenantChange = Schemas["TenantChange"];

export type Key = Schemas["Key"];
/** A key that was just created. `key` is not enumerable, so that no log shows it by accident. */
export type KeyCreated = Schemas["KeyCreated"];
export type NewKey = Omit<Schemas["NewKey"], "scopes" | "expires_at"> & {
  scopes: Scope[];
  expires_at?: Time | null;
};

export type NewEvent = Omit<Schemas["NewEvent"], "time"> & { time?: Time | null };
export type EventAccepted = Schemas["EventAccepted"];
export type EventSummary = Schemas["EventSummary"];
export type EventDetail = Schemas["EventDetail"];
/** Why an event did not fit the catalogue. */
export type Misfit = Schemas["Misfit"];
/** Whether a subscription wants an event, and why. */
export type Match = Schemas["Match"];

export type EventType = Schemas["EventType"];
export type EventTypeScope = Schemas["EventTypeScope"];
export type NewEventType = Omit<Schemas["NewEventType"], "scope"> & { scope?: EventTypeScope | null };
/** What is left out stays as it is; null removes. */
export type EventTypeChange = Schemas["EventTypeChange"];
/** What is done with an event that does not fit: `accept`, `flag` or `refuse`. */
export type Conduct = Schemas["Conduct"];
export type Catalogue = Schemas["Catalogue"];
/** What is left out stays as it is; null takes the server's choice. */
export type CatalogueChange = Schemas["CatalogueChange"];

export type Erasure = Schemas["Erasure"];
/** One event, or all events of an object. */
export type NewErasure = { event: string } | { object: string };

export type Subscription = Omit<Schemas["Subscription"], "filter"> & { filter: Filter | null };
/** A subscription with its secret. `secret` is not enumerable, so that no log shows it by accident. */
export type SubscriptionWithSecret = Subscription & { secret: string };
export type NewSubscription = Omit<Schemas["NewSubscription"], "filter" | "format"> & {
  filter?: Filter | null;
  format?: Format | null;
};
/** What is left out stays as it is; null removes what can be removed. */
export type SubscriptionChange = Omit<
  Schemas["SubscriptionChange"],
  "filter" | "format" | "secret" | "enabled"
> & {
  filter?: Filter | null;
  format?: Format | null;
  enabled?: boolean;
};
export type TestOutcome = Schemas["TestOutcome"];
/** What a subscription wants otherwise than the server's policy. */
export type SubscriptionPolicy = Schemas["SubscriptionPolicy"];
/** The same in a request: what is left out stays as it is, and null goes back to the server's policy. */
export type NewSubscriptionPolicy = Schemas["NewSubscriptionPolicy"];
/** What holds for the deliveries of a subscription. */
export type EffectivePolicy = Schemas["EffectivePolicy"];

export type Delivery = Schemas["Delivery"];
export type DeliveryState = Schemas["DeliveryState"];
export type DeliveryDetail = Schemas["DeliveryDetail"];
export type Attempt = Schemas["Attempt"];
export type Explanation = Schemas["Explanation"];
/** When waiting deliveries fall due. */
export type RetriesDue = Schemas["RetriesDue"];
/** Dead deliveries by destination and reason. */
export type DeadLetters = Schemas["DeadLetters"];
/** A request to a receiver, with masked secrets. */
export type SentRequest = Schemas["SentRequest"];

export type Destination = Schemas["Destination"];
export type DestinationState = Schemas["DestinationState"];
export type DestinationSummary = Schemas["DestinationSummary"];
/** What the attempts of a destination came to lately. */
export type DestinationFigures = Schemas["DestinationFigures"];
/** The attempts of a destination by the hour. */
export type DestinationStats = Schemas["DestinationStats"];
export type Transition = Omit<Schemas["Transition"], "evidence"> & { evidence: { [key: string]: unknown } };

export type Replay = Schemas["Replay"];
/** Which deliveries to replay. `dry_run` is not a field here: see `replays.count`. */
export type NewReplay = Omit<Schemas["NewReplay"], "dry_run" | "since" | "until" | "ended_since" | "state"> & {
  state?: "dead" | "delivered" | "cancelled" | "waiting" | null;
  since?: Time | null;
  until?: Time | null;
  ended_since?: Time | null;
};
/** Why a destination is enabled, and what is sent then. */
export type Enable = {
  reason?: string | null;
  /** What waits follows its slots or is drained; as the server is configured where it is left out. */
  waiting?: "slots" | "drain" | null;
  /** Replays what died there since then; `replay` of the answer names the job. */
  dead_since?: Time | null;
};

export type Ledger = Schemas["Ledger"];
export type Stats = Schemas["Stats"];
export type Limit = Schemas["Limit"];
export type RateLimit = Schemas["RateLimit"];
export type FilterVerdict = Schemas["FilterVerdict"];
/** A filter, and the events to try it on. */
export type FilterTrial = Omit<Schemas["FilterTrial"], "filter"> & { filter: Filter };
export type FilterTrialAnswer = Schemas["FilterTrialAnswer"];
/** The server's policy. */
export type Policy = Schemas["Policy"];
export type Simulation = Schemas["Simulation"];
export type SimulationAnswer = Schemas["SimulationAnswer"];
export type AuditEntry = Schemas["AuditEntry"];

export type PortalLink = Schemas["PortalLink"];
/** A link that was just made. `url` is not enumerable, so that no log shows it by accident. */
export type PortalLinkCreated = Schemas["PortalLinkCreated"];
export type NewPortalLink = Omit<Schemas["NewPortalLink"], "access"> & { access: "read" | "manage" };

export type AlertTarget = Schemas["AlertTarget"];
export type AlertTestResult = Schemas["AlertTestResult"];
export type Server = Schemas["Server"];
export type Setting = Schemas["Setting"];
export type Backup = Schemas["Backup"];

/** Why a request was refused (RFC 9457). */
export type Problem = Schemas["Problem"];

/** What `GET /v1/stream` tells. The OpenAPI document does not describe these. */
export type StreamEvent =
  | { event: "attempt"; delivery: Delivery; attempt: Attempt }
  | { event: "transition"; destination_id: string; url: string; transition: Transition }
  | { event: "dead"; delivery: Delivery }
  | { event: "warning"; destination_id: string; url: string; warning: unknown }
  | { event: "filter_over_budget"; subscription_id: string; events: number; last_event_id: string; since: string }
  /** The reader was too slow: so many events were missed, and the stream ends. */
  | { event: "lagged"; missed: number }
  /** The key was revoked or has expired, and the stream ends. */
  | { event: "closed"; reason: string };
