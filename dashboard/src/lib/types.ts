// The API's shapes, by the names that its OpenAPI document gives them.
import type { components } from '../../generated/openapi';

type Schemas = components['schemas'];

export type Attempt = Schemas['Attempt'];
export type AuditEntry = Schemas['AuditEntry'];
export type Backup = Schemas['Backup'];
export type Delivery = Schemas['Delivery'];
export type DeliveryDetail = Schemas['DeliveryDetail'] & { schedule: ScheduleView };
export type DeliveryState = Schemas['DeliveryState'];
export type Destination = Schemas['Destination'];
export type DestinationState = Schemas['DestinationState'];
export type EventDetail = Schemas['EventDetail'];
export type EventSummary = Schemas['EventSummary'];
export type Explanation = Schemas['Explanation'];
export type FilterVerdict = Schemas['FilterVerdict'];
export type Key = Schemas['Key'];
export type KeyCreated = Schemas['KeyCreated'];
export type Ledger = Schemas['Ledger'];
export type Limit = Schemas['Limit'];
export type NewEvent = Schemas['NewEvent'];
export type NewReplay = Schemas['NewReplay'];
export type NewSubscription = Schemas['NewSubscription'];
export type Replay = Schemas['Replay'];
export type Stats = Schemas['Stats'];
export type Subscription = Schemas['Subscription'] & { secret_overlap_ends_at?: string | null };
export type SubscriptionChange = Schemas['SubscriptionChange'];
export type SubscriptionWithSecret = Schemas['SubscriptionWithSecret'];
export type Tenant = Schemas['Tenant'];
export type TestOutcome = Schemas['TestOutcome'];
export type Transition = Schemas['Transition'];
export type ProblemBody = Schemas['Problem'];

/** What `GET /v1/policy` answers; durations in seconds, as the server uses them. */
export interface Policy {
  retry: { unit_seconds: number; max: number; measured_from: string; jitter: number; offsets_ms: number[] };
  circuit: {
    disable_share: number;
    disable_grace: number;
    disable_consecutive: number;
    probe_interval_seconds: number;
    freeze_over_consecutive: number;
    freeze_after_seconds: number;
    freeze_consecutive: number;
  };
  retention: { finished_seconds: number };
}

export interface ConfigEntry {
  key: string;
  value: unknown;
  origin: 'default' | 'file' | 'env' | 'flag';
  place?: string | null;
  help?: string | null;
  live?: boolean;
}

export interface Question {
  outage_seconds: number;
  deliveries: number;
  per_seconds: number;
  enable_after_seconds?: number;
  samples?: number;
  policy: { retry: Partial<Policy['retry']>; circuit: Partial<Policy['circuit']> };
  presets: string[];
}

export interface Plan {
  name: string;
  late: number;
  dead: number;
  waiting: number;
  failed_attempts: number;
  failed_probes: number;
  back_at_seconds: number | null;
  recovered_at_seconds: number | null;
  late_by_seconds: { p50: number; p99: number; max: number } | null;
  timeline: { at_seconds: number; state: string; why: unknown }[];
  samples: { at_seconds: number; backlog: number; dead: number }[];
}

export type SlotState = 'delivered' | 'failed' | 'spent' | 'in_flight' | 'next' | 'ahead' | 'unneeded';

/** The slots of a delivery: number 0 is the first attempt. */
export interface ScheduleView {
  started_at: string;
  exact: boolean;
  replay: boolean;
  asked_for_at?: string | null;
  slots: { number: number; due_at: string; state: SlotState; attempt?: number | null }[];
}

/** The request of an attempt, made again from what is kept. */
export interface AttemptRequest {
  method: string;
  url: string;
  headers: { name: string; value: string }[];
  body: string;
  body_bytes: number;
  rebuilt: boolean;
  changed_since: boolean;
}

/** Why a subscription wants an event or not, as it is now. */
export interface Match {
  subscription_id: string;
  url: string;
  matched: boolean;
  because: string;
  conditions: { place: string; holds: boolean }[];
}

export interface LaneView {
  depth: number;
  in_flight: number;
  oldest_seconds?: number | null;
}

export interface ServerView {
  version: string;
  started_at: string;
  time_scale: number;
  store: string;
  clock_ahead_ms: number;
  mass_failure: { suspended: boolean; suspended_since?: string | null };
  disk?: { free_bytes: number; total_bytes: number; data_bytes: number } | null;
  nodes: { name?: string | null; this: boolean; version?: string | null; shards: number; seen_at?: string | null }[];
  lanes: { first: LaneView; retry: LaneView };
}

export interface List<T> {
  data: T[];
  next_cursor?: string | null;
}

/** What `GET /v1/session` answers. */
export interface SessionView {
  tenant: string | null;
  scopes: string[];
  kind: 'key' | 'portal';
  expires_at: string | null;
  theme: Theme | null;
}

export interface PortalLink {
  id: string;
  tenant: string;
  access: 'read' | 'manage';
  created_at: string;
  expires_at: string;
  used_at?: string | null;
  session_expires_at?: string | null;
  theme?: Theme | null;
}

export interface NewPortalLink {
  access: 'read' | 'manage';
  expires_in?: number;
  theme?: Theme;
}

export interface PortalLinkCreated extends PortalLink {
  url: string;
}

/** How an application wants its portal to look. */
export interface Theme {
  name?: string | null;
  logo?: string | null;
  accent?: string | null;
  mode?: 'light' | 'dark' | null;
}
