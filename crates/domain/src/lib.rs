//! Every decision that Postrider makes.
pub mod attempt;
pub mod credentials;
pub mod event;
pub mod ids;
pub mod limits;
pub mod payload;
pub mod policy;
pub mod signature;
pub mod time;
