//! What the commands of `postrider` share: the client of the API, how they print, and how they end.
//!
//! **No command is here.** The server and the benchmark both have commands, and neither may depend
//! on the other.

pub mod client;
pub mod exit;
pub mod output;
