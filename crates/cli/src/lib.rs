//! Shared parts of the commands of `postrider`: the client of the API, output, and failures.
//!
//! **No command is here.** The server and the benchmark both have commands, and neither may depend
//! on the other.

pub mod client;
pub mod exit;
pub mod output;
pub mod show;
pub mod table;
pub mod times;
