//! One suite that every backend must pass.
//!
//! Never shipped: it exists in tests and behind the feature `conformance` only.
#![expect(clippy::unwrap_used, reason = "these are tests, though the compiler cannot know it")]

pub mod samples;
