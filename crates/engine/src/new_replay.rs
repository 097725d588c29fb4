//! A request for a bulk replay.

use postrider_domain::ids::ReplayId;
use postrider_store::DeliveryFilter;

/// The deliveries that a job is to replay.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NewReplay {
    /// The job's identifier; generated if it is `None`.
    pub id: Option<ReplayId>,
    /// The filter; its default state is dead.
    pub filter: DeliveryFilter,
    /// The most deliveries per second; `None` for no limit.
    pub per_second: Option<u32>,
}
