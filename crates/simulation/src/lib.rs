//! The seeded world in which the real engine and domain are tried: virtual time that jumps, simulated
//! receivers, a store that crashes, and an independent model of the contract that looks on.
//!
//! **One seed decides everything**: the same seed gives the same trace, hash for hash. Never shipped.

pub mod clock;
pub mod coverage;
pub mod edges;
pub mod oracle;
pub mod planted;
pub mod random;
mod recovery_scenes;
pub mod scenes;
pub mod seeds;
pub mod trace;
pub mod world;
