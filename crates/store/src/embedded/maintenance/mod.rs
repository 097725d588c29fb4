//! Work on a whole data directory: opening, checking, copying, and transfer to another store.

mod backup;
pub(in crate::embedded) mod check;
pub(in crate::embedded) mod loss;
mod open;
mod transfer;
mod verify;
