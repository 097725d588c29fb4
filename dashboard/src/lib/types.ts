// The API's shapes, by the names that its OpenAPI document gives them.
import type { components } from '../../generated/openapi';

type Schemas = components['schemas'];

export type AlertTarget = Schemas['AlertTarget'];
export type AlertTestResult = Schemas['AlertTestResult'];
export type Attempt = Schemas['Attempt'];
export type AttemptCounts = Schemas['AttemptCounts'];
export type AuditEntry = Schemas['AuditEntry'];
export type Backup = Schemas['Backup'];
export type Catalogue = Schemas['Catalogue'];
export type CatalogueChange = Schemas['CatalogueChange'];
export type Conduct = Schemas['Conduct'];
export type Configuration = Schemas['Configuration'];
export type DeadRecovery = Schemas['DeadRecovery'];
export type Delivery = Schemas['Delivery'];
export type DeliveryDetail = Schemas['DeliveryDetail'];
export type DeliveryState = Schemas['DeliveryState'];
export type Destination = Schemas['Destination'];
export type DestinationFigures = Schemas['DestinationFigures'];
export type DestinationState = Schemas['DestinationState'];
export type DestinationStats = Schemas['DestinationStats'];
export type DestinationSummary = Schemas['DestinationSummary'];
export type DryRun = Schemas['DryRun'];
export type Enable = Schemas['Enable'];
export type Erasure = Schemas['Erasure'];
export type EventAccepted = Schemas['EventAccepted'];
export type EventDetail = Schemas['EventDetail'];
export type EventSummary = Schemas['EventSummary'];
export type EventType = Schemas['EventType'];
export type EventTypeChange = Schemas['EventTypeChange'];
export type EventTypeScope = Schemas['EventTypeScope'];
export type Explanation = Schemas['Explanation'];
export type FilterTrialAnswer = Schemas['FilterTrialAnswer'];
export type FilterVerdict = Schemas['FilterVerdict'];
export type Key = Schemas['Key'];
export type KeyCreated = Schemas['KeyCreated'];
export type Ledger = Schemas['Ledger'];
export type Limits = Schemas['Limits'];
export type Match = Schemas['Match'];
export type NewErasure = Schemas['NewErasure'];
export type NewEvent = Schemas['NewEvent'];
export type NewEventType = Schemas['NewEventType'];
export type NewKey = Schemas['NewKey'];
export type NewPortalLink = Schemas['NewPortalLink'];
export type NewReplay = Schemas['NewReplay'];
export type NewSubscription = Schemas['NewSubscription'];
export type NewTheme = Schemas['NewTheme'];
// The document leaves a field named `retry` optional wherever it stands; here it is always there.
export type Policy = Schemas['Policy'] & { retry: Schemas['RetryPolicy'] };
export type PortalLink = Schemas['PortalLink'];
export type PortalLinkCreated = Schemas['PortalLinkCreated'];
export type ProblemBody = Schemas['Problem'];
export type RecentAttempt = Schemas['RecentAttempt'];
export type RecoveryMode = Schemas['RecoveryMode'];
export type Replay = Schemas['Replay'];
export type SentRequest = Schemas['SentRequest'];
export type Server = Schemas['Server'] & { lanes: { retry: Schemas['Lane'] } };
export type Session = Schemas['Session'];
export type SessionToken = Schemas['SessionToken'];
export type SimulatedPlan = Schemas['SimulatedPlan'];
export type Simulation = Schemas['Simulation'];
export type SimulationAnswer = Schemas['SimulationAnswer'];
export type SlotState = Schemas['SlotState'];
export type Stats = Schemas['Stats'];
export type Subscription = Schemas['Subscription'];
export type SubscriptionChange = Schemas['SubscriptionChange'];
export type SubscriptionWithSecret = Schemas['SubscriptionWithSecret'];
export type Tenant = Schemas['Tenant'];
export type TenantChange = Schemas['TenantChange'];
export type TestOutcome = Schemas['TestOutcome'];
export type Theme = Schemas['Theme'];
export type Transition = Schemas['Transition'];

export interface List<T> {
  data: T[];
  next_cursor: string | null;
}
