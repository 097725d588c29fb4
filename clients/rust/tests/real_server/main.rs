//! Tests against the real server. `cargo xtask clients` starts one and names it in the environment.

mod records;
mod repeats;
mod support;
mod webhooks;
