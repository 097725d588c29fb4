//! How records of the API read on a terminal: lists as tables, single ones field by field.
//!
//! Pure functions of an answer, the time and the width of the terminal. **An answer is shown through
//! [`Cell`](crate::table::Cell), which escapes it.**

pub(super) mod access;
pub(super) mod alert;
pub(super) mod delivery;
pub(super) mod destination;
pub(super) mod erasure;
pub(super) mod event;
pub(super) mod event_type;
pub(super) mod replay;
pub(super) mod subscription;
#[cfg(test)]
mod tests;
