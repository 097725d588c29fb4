//! Every decision that Postrider makes.
pub mod egress;
pub mod event;
pub mod ids;
pub mod limits;
pub mod time;
