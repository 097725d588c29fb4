//! A bulk replay as somebody asks for it.

use postrider_domain::ids::ReplayId;
use postrider_store::DeliveryFilter;

/// Which deliveries a job is to replay.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NewReplay {
    /// The job's identifier; made where it is `None`.
    pub id: Option<ReplayId>,
    /// Which ones; dead ones where no state is named.
    pub filter: DeliveryFilter,
    /// How many a second; as fast as the lanes take them where it is `None`.
    pub per_second: Option<u32>,
}
