//! A seeded simulation of the real engine and domain: virtual time, simulated receivers, a store
//! that crashes, and an independent model of the contract that checks everything.
//!
//! **One seed decides everything**: the same seed gives the same trace, with the same hash. Never
//! part of a release build.

pub mod clock;
pub mod coverage;
pub mod edges;
mod limit_scenes;
pub mod oracle;
pub mod planted;
mod policy_scenes;
pub mod random;
mod recovery_scenes;
pub mod scenes;
pub mod seeds;
pub mod trace;
pub mod world;
