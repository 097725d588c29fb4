//! Every decision that Postrider makes.
pub mod attempt;
pub mod event;
pub mod filter;
pub mod ids;
pub mod limits;
pub mod matching;
pub mod policy;
pub mod subscription;
pub mod time;
