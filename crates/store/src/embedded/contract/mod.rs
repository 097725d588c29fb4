//! The methods of the contract, one file for each of its traits.
//!
//! A write is appended to the journal or is a task of the applier; a read goes through the read pool.
//! **No method writes to SQLite by itself.**

pub(in crate::embedded) mod answers;
pub(in crate::embedded) mod audit;
pub(in crate::embedded) mod configuration;
mod cursor;
mod deliveries;
pub(in crate::embedded) mod documents;
mod erasing;
mod event_list;
pub(in crate::embedded) mod history;
mod intake;
mod object_list;
mod overview;
pub(in crate::embedded) mod passes;
pub(in crate::embedded) mod pending_ids;
mod replays;
mod statistics;
mod summaries;
pub(in crate::embedded) mod tenants;
mod unused_destinations;
pub(in crate::embedded) mod upkeep;
mod usage;
mod work;
