//! The errors of the engine's commands.

use std::time::Duration;

use postrider_domain::delivery::WrongState;
use postrider_domain::time::Timestamp;
use postrider_store::StoreError;

use crate::quotas::QuotaReached;

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// The tenant has no such record.
    #[error("there is no such thing")]
    NotFound,
    /// The delivery is in a state that does not allow the command.
    #[error(transparent)]
    WrongState(#[from] WrongState),
    /// A delivery cannot be replayed after its subscription was deleted.
    #[error("the subscription of this delivery was deleted: there is nowhere to send it to")]
    SubscriptionGone,
    /// The replay job has ended.
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
        /// When it was frozen.
        since: Timestamp,
        /// The reason, as text.
        why: String,
    },
    /// A limit of attempts in flight is reached.
    #[error("{what}: try again in {} s", retry_after.as_secs().max(1))]
    Full {
        /// Which limit.
        what: String,
        /// When to try again.
        retry_after: Duration,
        /// Whether it is a limit of the caller's own tenant.
        is_own: bool,
    },
    /// The engine is shutting down.
    #[error("the server is stopping")]
    Stopping,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}
