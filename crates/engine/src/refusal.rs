//! Why something that was asked for did not happen.

use postrider_domain::delivery::WrongState;
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
    /// A replay is for deliveries that have ended.
    #[error("only dead, delivered or cancelled deliveries can be replayed")]
    NotAnEndState,
    /// A quota is reached.
    #[error(transparent)]
    Quota(#[from] QuotaReached),
    /// Another node owns it now.
    #[error("another node of the cluster is taking this over: try again in a few seconds")]
    Moved,
    /// The engine has stopped.
    #[error("the server is stopping")]
    Stopping,
    /// The store did not do it.
    #[error(transparent)]
    Store(#[from] StoreError),
}
