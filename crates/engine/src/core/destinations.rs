//! The destinations in memory: circuit, lanes, limits, probe and ramp of each. Data only.

use std::collections::{BTreeSet, VecDeque};
use std::ops::{Index, IndexMut};
use std::sync::Arc;
use std::time::Duration;

use postrider_domain::delivery::{Delivery, Lane};
use postrider_domain::destination::Destination;
use postrider_domain::egress::DestinationUrl;
use postrider_domain::ids::{DeliveryId, ReplayId};
use postrider_domain::time::Timestamp;
use postrider_domain::token_bucket::TokenBucket;
use postrider_transport::Target;

use super::limiter::AdaptiveLimit;
use crate::options::Options;

/// The number of a read of the store.
pub(crate) type LoadId = u64;

/// The index of a destination in the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct DestIx(usize);

impl DestIx {
    pub(super) const fn new(ix: usize) -> Self {
        DestIx(ix)
    }

    pub(super) const fn get(self) -> usize {
        self.0
    }
}

/// The queue of one lane of a destination.
#[derive(Debug, Default)]
pub(super) struct Queue {
    pub(super) ids: VecDeque<DeliveryId>,
    /// How many of the identifiers still refer to a delivery in this queue.
    pub(super) len: usize,
    /// Whether the destination is in the lane's round-robin ring.
    pub(super) in_ring: bool,
    /// Whether the store has more deliveries for this lane than are in memory.
    pub(super) spilled: bool,
    /// Whether the lane is being read from the store.
    pub(super) loading: bool,
    /// Whether the lane waits for free memory before it is read.
    pub(super) starved: bool,
}

impl Queue {
    pub(super) fn is_empty(&self) -> bool {
        let has_more = self.in_ring || self.spilled || self.loading || self.starved;
        self.len == 0 && !has_more
    }
}

/// The progress of a destination's probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ProbeStage {
    /// There is no probe.
    None,
    /// The store is being asked for candidates.
    Choosing,
    /// The delivery is chosen; that is being made durable, or the probe is in flight.
    Chosen(DeliveryId),
}

/// A drain: waiting deliveries are sent ahead of their slots.
#[derive(Debug)]
pub(super) struct Ramp {
    /// How many deliveries may be sent at a time.
    pub(super) size: u32,
    /// How many deliveries of the ramp are queued or in flight now.
    pub(super) on_their_way: u32,
    /// The next deliveries, oldest first.
    pub(super) next: VecDeque<Delivery>,
    pub(super) loading: bool,
}

/// A destination in memory.
#[derive(Debug)]
pub(super) struct Dest {
    pub(super) record: Destination,
    pub(super) url: Arc<str>,
    pub(super) target: Option<Arc<Target>>,
    pub(super) tenant: usize,
    pub(super) first: Queue,
    pub(super) retry: Queue,
    pub(super) in_flight: u32,
    pub(super) retry_in_flight: u32,
    /// First attempts since the last retry.
    pub(super) first_since_retry: u32,
    pub(super) limit: AdaptiveLimit,
    pub(super) bucket: Option<TokenBucket>,
    pub(super) probe: ProbeStage,
    pub(super) ramp: Option<Ramp>,
    /// The jobs for what died of an outage, until they are stored.
    pub(super) dead_replays: BTreeSet<ReplayId>,
    /// Whether a replay job that somebody requested with the enabling runs beside those.
    pub(super) shares_pace: bool,
    /// Whether another node owns it now.
    pub(super) lost: bool,
    /// Results of earlier reads are ignored: another node may have owned the destination then.
    pub(super) known_since: LoadId,
    /// When it was last used.
    pub(super) used_at: Timestamp,
}

impl Dest {
    pub(super) fn new(
        record: Destination,
        tenant: usize,
        options: &Options,
        known_since: LoadId,
        now: Timestamp,
    ) -> Self {
        let target = DestinationUrl::from_trusted(&record.url).ok().and_then(|url| {
            let target = Target::new(record.tenant.clone(), record.id, url, None);
            target.ok().map(Arc::new)
        });
        Dest {
            url: record.url.as_str().into(),
            record,
            target,
            tenant,
            first: Queue::default(),
            retry: Queue::default(),
            in_flight: 0,
            retry_in_flight: 0,
            first_since_retry: 0,
            limit: AdaptiveLimit::new(
                options.destination_in_flight_start,
                options.destination_in_flight_max,
            ),
            bucket: None,
            probe: ProbeStage::None,
            ramp: None,
            dead_replays: BTreeSet::new(),
            shares_pace: false,
            lost: false,
            known_since,
            used_at: now,
        }
    }

    pub(super) fn queue(&mut self, lane: Lane) -> &mut Queue {
        match lane {
            Lane::First => &mut self.first,
            Lane::Retry => &mut self.retry,
        }
    }
}

/// The time in which all destinations are checked once, a share of them at a time.
const ROUND: Duration = Duration::from_secs(60);

/// The destinations in memory. A destination keeps its index while it is there.
#[derive(Debug, Default)]
pub(super) struct Dests {
    places: Vec<Option<Box<Dest>>>,
    free: Vec<DestIx>,
    /// The index to check next.
    hand: usize,
    looked_at: Option<Timestamp>,
}

impl Dests {
    pub(super) fn add(&mut self, dest: Dest) -> DestIx {
        let dest = Some(Box::new(dest));
        if let Some(ix) = self.free.pop() {
            self.places[ix.get()] = dest;
            return ix;
        }
        self.places.push(dest);
        DestIx::new(self.places.len() - 1)
    }

    pub(super) fn remove(&mut self, ix: DestIx) -> Option<Box<Dest>> {
        let removed = self.places[ix.get()].take()?;
        self.free.push(ix);
        Some(removed)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (DestIx, &Dest)> {
        let places = self.places.iter().enumerate();
        places.filter_map(|(at, dest)| Some((DestIx::new(at), dest.as_deref()?)))
    }

    /// The share of the destinations to be checked now.
    pub(super) fn next_share(&mut self, now: Timestamp) -> Vec<DestIx> {
        let all = self.places.len();
        let since = *self.looked_at.get_or_insert(now);
        let (passed, round) = (now.since(since).min(ROUND).as_millis(), ROUND.as_millis());
        let wanted = u128::try_from(all).unwrap_or(u128::MAX).saturating_mul(passed) / round;
        let wanted = usize::try_from(wanted).unwrap_or(all);
        if wanted == 0 {
            return Vec::new();
        }
        self.looked_at = Some(now);
        let begin = self.hand;
        self.hand = (begin + wanted) % all;
        let share = (begin..begin + wanted).map(|at| DestIx::new(at % all));
        share.filter(|ix| self.places[ix.get()].is_some()).collect()
    }
}

impl Index<usize> for Dests {
    type Output = Dest;

    fn index(&self, at: usize) -> &Dest {
        self.places[at].as_deref().expect("nothing refers to a destination that has left")
    }
}

impl IndexMut<usize> for Dests {
    fn index_mut(&mut self, at: usize) -> &mut Dest {
        self.places[at].as_deref_mut().expect("nothing refers to a destination that has left")
    }
}
