//! The API from outside, route by route, on a store in memory, the real engine and a receiver whose
//! URL selects its behaviour.

#![expect(clippy::unwrap_used, reason = "these are tests, their helpers too")]

mod admission;
mod audit;
mod canary;
mod certificates;
mod deliveries;
mod describing;
mod destinations;
mod erasures;
mod event_types;
mod events;
mod filters;
mod idempotency;
mod isolation;
mod keys;
mod ledger;
mod limits;
mod matches;
mod meta;
mod openapi;
mod overview;
mod page;
mod policies;
mod portal;
mod problems;
mod quotas;
mod reads;
mod replays;
mod schedules;
mod schema;
mod session;
mod stream;
mod strictness;
mod subscriptions;
mod summaries;
mod support;
mod tenants;
mod vault;
mod workfront;
