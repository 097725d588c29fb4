export { List, type ListOptions } from "./api.js";
export {
  Client, Deliveries, Destinations, Events, Keys, Replays, Subscriptions, Tenants,
  type DeliveryQuery, type DestinationQuery, type SubscriptionQuery,
} from "./client.js";
export { ConnectionError, PostriderError, ProblemError, TimeoutError } from "./errors.js";
export {
  Alerts, Erasures, EventTypes, Operations, PortalLinks, type EventTypeQuery, type WaitOptions,
} from "./operations.js";
export type { StreamOptions } from "./stream.js";
export type { Call, CallOptions, ClientOptions, Query } from "./transport.js";
export type * from "./types.js";
export {
  VerificationError, verify, type HeaderSource, type VerificationFailure, type Verified, type VerifyOptions,
} from "./verify.js";
