//! What the tests of several crates share. **Nothing of it is shipped**: it is a dependency of tests
//! and of test crates only.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

pub mod receiver;
pub mod samples;
