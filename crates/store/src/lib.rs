//! What Postrider remembers.
//!
//! Whatever this crate has acknowledged is on stable storage; it decides nothing about deliveries.

pub mod embedded;
