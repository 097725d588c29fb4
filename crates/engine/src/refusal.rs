//! Why something that was asked for did not happen.

use std::time::Duration;

use postrider_domain::delivery::WrongState;
use postrider_domain::time::Timestamp;
use postrider_store::StoreError;

use crate::quotas::QuotaReached;

/// Why something that was asked for did not happen.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// The tenant has no such thing.
    #[error("there is no such thing")]
    NotFound,
    /// The delivery stands elsewhere.
    #[error(transparent)]
    WrongState(#[from] WrongState),
    /// A delivery cannot be replayed when its subscription is gone.
    #[error("the subscription of this delivery was deleted: there is nowhere to send it to")]
    SubscriptionGone,
    /// The replay job is over.
    #[error("the replay job has ended already")]
    JobEnded,
    /// A job is for deliveries that have ended, or that wait.
    #[error(
        "only dead, delivered or cancelled deliveries can be replayed, and waiting ones be retried"
    )]
    NotReplayable,
    /// A quota is reached.
    #[error(transparent)]
    Quota(#[from] QuotaReached),
    /// Another node owns it now.
    #[error("another node of the cluster is taking this over: try again in a few seconds")]
    Moved,
    /// Nothing is sent to a frozen destination.
    #[error(
        "the destination is frozen since {since} ({why}): nothing is sent there until you enable it"
    )]
    Frozen {
        /// Since when.
        since: Timestamp,
        /// Why, in words.
        why: String,
    },
    /// Everything that it would take is taken.
    #[error("{what}: try again in {} s", retry_after.as_secs().max(1))]
    Full {
        /// What is taken.
        what: String,
        /// When to ask again.
        retry_after: Duration,
        /// Whether it is the caller's own limit.
        is_own: bool,
    },
    /// The engine has stopped.
    #[error("the server is stopping")]
    Stopping,
    /// The store did not do it.
    #[error(transparent)]
    Store(#[from] StoreError),
}
