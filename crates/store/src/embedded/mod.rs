//! The embedded store: a journal in front of SQLite, in one directory, for one node.
//!
//! An acknowledgement rests on the journal alone; SQLite follows it and is never ahead of it.

pub mod journal;
pub mod medium;
