//! What concerns a whole data directory: opening it, checking it, copying it, moving it elsewhere.

mod backup;
pub(in crate::embedded) mod check;
pub(in crate::embedded) mod loss;
mod open;
mod transfer;
mod verify;
