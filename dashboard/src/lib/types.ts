// The API's shapes, by the names that its OpenAPI document gives them.
import type { components } from '../../generated/openapi';

type Schemas = components['schemas'];

export type Attempt = Schemas['Attempt'];
export type AuditEntry = Schemas['AuditEntry'];
export type Backup = Schemas['Backup'];
export type Delivery = Schemas['Delivery'];
export type DeliveryDetail = Schemas['DeliveryDetail'];
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
export type Subscription = Schemas['Subscription'];
export type SubscriptionChange = Schemas['SubscriptionChange'];
export type SubscriptionWithSecret = Schemas['SubscriptionWithSecret'];
export type Tenant = Schemas['Tenant'];
export type TestOutcome = Schemas['TestOutcome'];
export type Transition = Schemas['Transition'];
export type ProblemBody = Schemas['Problem'];

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
