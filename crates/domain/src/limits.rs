//! Every limit on input, in one file.
//!
//! These fixed limits keep memory and work bounded; the numbers that an operator may change are in
//! [`crate::policy`]. Every list, text and body that Postrider accepts has a limit here.

use std::time::Duration;

/// An event's request body, or its line in a batch.
pub const EVENT_BODY_BYTES_MAX: usize = 1024 * 1024;
/// Events in one batch.
pub const BATCH_EVENTS_MAX: usize = 1000;
/// The body of a batch.
pub const BATCH_BODY_BYTES_MAX: usize = 16 * 1024 * 1024;
/// The nesting of accepted JSON.
pub const JSON_DEPTH_MAX: usize = 64;

/// A tenant's identifier.
pub const TENANT_ID_BYTES_MAX: usize = 64;
/// An event's identifier.
pub const EVENT_ID_BYTES_MAX: usize = 256;
/// The identifier of the object that an event happened to.
pub const OBJECT_ID_CHARS_MAX: usize = 256;
/// An event's type.
pub const EVENT_TYPE_CHARS_MAX: usize = 128;

/// A subscription's identifier that the application chose.
pub const SUBSCRIPTION_UID_BYTES_MAX: usize = 128;
/// The description of a subscription or a tenant.
pub const DESCRIPTION_CHARS_MAX: usize = 1000;
/// Pairs in the metadata of a subscription or a tenant.
pub const METADATA_PAIRS_MAX: usize = 50;
/// A key of metadata.
pub const METADATA_KEY_CHARS_MAX: usize = 64;
/// A value of metadata.
pub const METADATA_VALUE_CHARS_MAX: usize = 500;
/// All keys and values of the metadata of a subscription or a tenant.
pub const METADATA_BYTES_MAX: usize = 16 * 1024;

/// Types that one subscription names.
pub const SUBSCRIPTION_TYPES_MAX: usize = 100;
/// Custom headers of one subscription.
pub const SUBSCRIPTION_HEADERS_MAX: usize = 20;
/// A custom header's name.
pub const HEADER_NAME_BYTES_MAX: usize = 64;
/// A custom header's value.
pub const HEADER_VALUE_BYTES_MAX: usize = 1024;
/// A subscription's rate limit, in requests per second.
pub const RATE_LIMIT_PER_SECOND_MAX: u32 = 1_000_000;
/// The shortest deadline of an attempt that a subscription may have.
pub const ATTEMPT_DEADLINE_MIN: Duration = Duration::from_millis(100);
/// A certificate chain, a key or a list of authorities of a subscription, as PEM.
pub const PEM_BYTES_MAX: usize = 64 * 1024;
/// A subscription's bearer token.
pub const AUTH_TOKEN_BYTES_MAX: usize = 4096;
/// Signing secrets of one subscription that are valid at the same time.
pub const SIGNING_SECRETS_MAX: usize = 10;
/// Signatures in a header that is being verified.
pub const SIGNATURES_MAX: usize = 32;

/// Groups in a filter, nested ones included.
pub const FILTER_GROUPS_MAX: usize = 10;
/// Conditions (and nested groups) directly in one group of a filter.
pub const FILTER_CONDITIONS_MAX: usize = 20;
/// The path of a field in a filter.
pub const FILTER_FIELD_CHARS_MAX: usize = 256;
/// The value that a filter's condition compares with, as JSON.
pub const FILTER_VALUE_BYTES_MAX: usize = 4096;
/// Values in the list of a `contains_only`.
pub const FILTER_SET_VALUES_MAX: usize = 100;
/// Steps that one filter may take on one event: see [`crate::filter::Budget`].
pub const FILTER_STEPS_MAX: u64 = 4_000_000;
/// Steps that every filter may take regardless of the others, so that a cheap filter is always
/// evaluated, even beside expensive ones.
pub const FILTER_STEPS_FREE: u64 = 256;
/// Steps beyond the free ones that all filters together may take on one event.
pub const EVENT_FILTER_STEPS_MAX: u64 = 16_000_000;
/// Steps beyond the free ones that all filters together may take on the events of one request.
pub const BATCH_FILTER_STEPS_MAX: u64 = 32_000_000;

/// The JSON Schema of an event type.
pub const SCHEMA_BYTES_MAX: usize = 64 * 1024;
/// The example of an event type.
pub const EXAMPLE_BYTES_MAX: usize = 64 * 1024;
/// The description of an event type.
pub const EVENT_TYPE_DESCRIPTION_CHARS_MAX: usize = 2_000;
/// Subschemas of a schema, also when each reference is replaced by what it names.
pub const SCHEMA_NODES_MAX: usize = 5_000;
/// Subschemas of which each applies the next one to the same value.
pub const SCHEMA_CHAIN_MAX: usize = 32;
/// Rules that a schema may apply to one value.
pub const SCHEMA_RULES_MAX: u64 = 20_000;
/// Steps that validating one event may take: see [`crate::catalogue::bounds`].
pub const SCHEMA_STEPS_MAX: u64 = 16_000_000;
/// Steps that validating the events of one request may take.
pub const BATCH_SCHEMA_STEPS_MAX: u64 = 32_000_000;
/// The compiled size of one pattern of a schema, in bytes.
pub const SCHEMA_PATTERN_BYTES_MAX: usize = 64 * 1024;
/// Groups in a filter that was compiled from Workfront's filters: one for the whole, one for each
/// group, one for each value that is an object, and one for each value that is true or false.
pub const FILTER_STORED_GROUPS_MAX: usize = 100;
/// Groups in Workfront's filters.
pub const WORKFRONT_GROUPS_MAX: usize = 10;
/// Filters in a group of Workfront's filters.
pub const WORKFRONT_GROUP_FILTERS: std::ops::RangeInclusive<usize> = 2..=5;
/// The bearer token of a subscription that Workfront's API creates.
pub const WORKFRONT_TOKEN_CHARS_MAX: usize = 255;
/// Subscriptions whose version one request changes by their identifiers.
pub const WORKFRONT_VERSION_IDS_MAX: usize = 1000;

/// A destination's URL.
pub const URL_BYTES_MAX: usize = 2048;
/// The reason given for enabling or freezing a destination.
pub const REASON_CHARS_MAX: usize = 500;
/// The detail that is kept of a failed attempt, beside its class.
pub const ERROR_DETAIL_CHARS_MAX: usize = 500;
/// The last attempts of a destination that its statistics show.
pub const RECENT_ATTEMPTS_MAX: usize = 30;
/// How long the statistics of a destination are kept, whatever the retention of deliveries.
pub const ATTEMPT_HOURS_KEPT: Duration = Duration::from_secs(8 * 24 * 60 * 60);
/// Entries of one page of a list.
pub const PAGE_MAX: usize = 1000;
/// Entries of one page where the caller names no limit.
pub const PAGE_DEFAULT: usize = 50;
/// A page ends early if its payloads and records are together larger.
pub const PAGE_BYTES_MAX: usize = 4 * 1024 * 1024;
/// A page of attempts ends early if they are together larger. As JSON they may be six times as
/// large.
pub const ATTEMPT_PAGE_BYTES_MAX: usize = 1024 * 1024;
