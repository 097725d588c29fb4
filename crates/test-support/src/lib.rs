//! Helpers for the tests of several crates. **Never part of a release build**: only tests and test
//! crates depend on it.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

pub mod receiver;
pub mod samples;
