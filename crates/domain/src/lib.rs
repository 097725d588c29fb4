//! Every decision that Postrider makes.
pub mod attempt;
pub mod egress;
pub mod event;
pub mod ids;
pub mod limits;
pub mod policy;
pub mod time;
