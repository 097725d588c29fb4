export {
  Client, Deliveries, Destinations, Events, Keys, List, Replays, Subscriptions, Tenants,
  type DeliveryQuery, type ListOptions,
} from "./client.js";
export { ConnectionError, PostriderError, ProblemError, TimeoutError } from "./errors.js";
export type { StreamOptions } from "./stream.js";
export type { Call, CallOptions, ClientOptions, Query } from "./transport.js";
export type * from "./types.js";
export {
  VerificationError, verify, type HeaderSource, type VerificationFailure, type Verified, type VerifyOptions,
} from "./verify.js";
