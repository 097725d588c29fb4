//! HTTP in: every call that Postrider answers. **No SQL, no scheduling**: reads go to the store,
//! and whatever changes something goes through the engine.
//!
//! | question | module |
//! |---|---|
//! | who is asking, and may they? | [`auth`] |
//! | what is a caller told when something is wrong? | [`problem`] |
//! | how are secrets kept? | [`vault`], [`credentials`] |
//! | what goes in and out? | `wire`, one file per resource |
//! | what happens on a path? | `routes`, one file per resource |
//! | what if a request comes twice? | [`idempotency`] |

pub mod auth;
mod body;
pub mod credentials;
pub mod engine;
pub mod idempotency;
mod paging;
pub mod problem;
mod random;
mod rates;
pub mod settings;
pub mod state;
pub mod vault;
