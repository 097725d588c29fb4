//! Tests against the real server. `cargo xtask clients` starts one and names it in the environment.

#![expect(clippy::unwrap_used, reason = "a test fails where something is missing")]

mod records;
mod recovery;
mod repeats;
mod samples;
mod support;
mod webhooks;
