//! The conservation of deliveries.
//!
//! At any moment, per tenant and in total:
//! `accepted = queued + in flight + waiting + delivered + dead + cancelled`. A [`Ledger`] only
//! changes by accepting or by moving a delivery from one account to another, so it cannot go wrong
//! by itself; [`Ledger::balances`] is for ledgers that were counted or read back.

use crate::attempt::{Attempt, Verdict};
use crate::delivery::{Delivery, DeliveryState, StateName};
use crate::time::Timestamp;

/// How many deliveries there are, by where they stand.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Ledger {
    /// Every delivery that was ever accepted.
    pub accepted: u64,
    /// In the first lane.
    pub queued: u64,
    /// Being attempted now.
    pub in_flight: u64,
    /// In the retry lane.
    pub waiting: u64,
    /// Delivered.
    pub delivered: u64,
    /// Out of retries; kept.
    pub dead: u64,
    /// Cancelled by somebody.
    pub cancelled: u64,
}

/// A delivery goes from one account to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LedgerMove {
    /// Where it was.
    pub from: StateName,
    /// Where it is.
    pub to: StateName,
}

/// What one change of a delivery adds to the counters: the ledger, the charts and the count of
/// deliveries that wait at the destination.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Movement {
    /// From which account to which; `None` where the delivery stays in its account.
    pub step: Option<LedgerMove>,
    /// When it arrived, where it arrived by this change.
    pub delivered_at: Option<Timestamp>,
    /// When it died, where it died by this change.
    pub dead_at: Option<Timestamp>,
    /// When the attempt began, where there was one and it did not succeed, whoever is to blame.
    pub failed_at: Option<Timestamp>,
    /// By how much the number of deliveries that wait at the destination changes.
    pub waiting: i64,
}

/// What the counters change by when a delivery that was in state `before` becomes `after`, by this
/// attempt or without one. Every store counts by this function, so that no two of them disagree.
pub fn movement(before: StateName, after: &Delivery, attempt: Option<&Attempt>) -> Movement {
    let failed_at = attempt.and_then(|attempt| match attempt.ending.verdict() {
        Verdict::Success => None,
        Verdict::Failure | Verdict::Gone | Verdict::OwnFault => Some(attempt.started_at),
    });
    let now = after.state.name();
    if before == now {
        return Movement { failed_at, ..Movement::default() };
    }
    let (delivered_at, dead_at) = match after.state {
        DeliveryState::Delivered { at } => (Some(at), None),
        DeliveryState::Dead { at, .. } => (None, Some(at)),
        DeliveryState::Queued | DeliveryState::Waiting(_) | DeliveryState::Cancelled { .. } => {
            (None, None)
        }
    };
    let left = i64::from(before == StateName::Waiting);
    let came = i64::from(now == StateName::Waiting);
    let step = Some(LedgerMove { from: before, to: now });
    Movement { step, delivered_at, dead_at, failed_at, waiting: came - left }
}

/// By how much the accounts of a ledger in a store change. Nothing is in flight in a store.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LedgerDelta {
    accepted: i64,
    queued: i64,
    waiting: i64,
    delivered: i64,
    dead: i64,
    cancelled: i64,
}

impl LedgerDelta {
    /// So many new deliveries were accepted.
    pub fn accept(&mut self, deliveries: i64) {
        self.accepted += deliveries;
        self.queued += deliveries;
    }

    /// A delivery moved.
    pub fn apply(&mut self, step: LedgerMove) {
        *self.account(step.from) -= 1;
        *self.account(step.to) += 1;
    }

    /// The changes, in the order of the columns of every store: accepted, queued, waiting,
    /// delivered, dead, cancelled.
    pub fn columns(&self) -> [i64; 6] {
        [self.accepted, self.queued, self.waiting, self.delivered, self.dead, self.cancelled]
    }

    fn account(&mut self, state: StateName) -> &mut i64 {
        match state {
            // A store keeps a delivery that is in flight as queued until its attempt is settled.
            StateName::Queued | StateName::InFlight => &mut self.queued,
            StateName::Waiting => &mut self.waiting,
            StateName::Delivered => &mut self.delivered,
            StateName::Dead => &mut self.dead,
            StateName::Cancelled => &mut self.cancelled,
        }
    }
}

impl From<Ledger> for LedgerDelta {
    /// The change that makes an empty ledger this one.
    fn from(ledger: Ledger) -> Self {
        let signed = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        LedgerDelta {
            accepted: signed(ledger.accepted),
            queued: signed(ledger.queued),
            waiting: signed(ledger.waiting),
            delivered: signed(ledger.delivered),
            dead: signed(ledger.dead),
            cancelled: signed(ledger.cancelled),
        }
    }
}

/// More deliveries would leave an account than are in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the ledger has no delivery that is {0}")]
pub struct Overdrawn(pub StateName);

impl Ledger {
    /// So many new deliveries were accepted.
    pub fn accept(&mut self, deliveries: u64) {
        self.accepted += deliveries;
        self.queued += deliveries;
    }

    /// A delivery moved. Refused, with nothing changed, where there is none to move.
    pub fn apply(&mut self, step: LedgerMove) -> Result<(), Overdrawn> {
        let from = self.account(step.from);
        *from = from.checked_sub(1).ok_or(Overdrawn(step.from))?;
        *self.account(step.to) += 1;
        Ok(())
    }

    /// Whether nothing is lost and nothing is invented.
    pub fn balances(&self) -> bool {
        let accounts =
            [self.queued, self.in_flight, self.waiting, self.delivered, self.dead, self.cancelled];
        accounts.iter().try_fold(0u64, |sum, n| sum.checked_add(*n)) == Some(self.accepted)
    }

    /// How many stand there.
    pub fn count(&self, state: StateName) -> u64 {
        match state {
            StateName::Queued => self.queued,
            StateName::InFlight => self.in_flight,
            StateName::Waiting => self.waiting,
            StateName::Delivered => self.delivered,
            StateName::Dead => self.dead,
            StateName::Cancelled => self.cancelled,
        }
    }

    fn account(&mut self, state: StateName) -> &mut u64 {
        match state {
            StateName::Queued => &mut self.queued,
            StateName::InFlight => &mut self.in_flight,
            StateName::Waiting => &mut self.waiting,
            StateName::Delivered => &mut self.delivered,
            StateName::Dead => &mut self.dead,
            StateName::Cancelled => &mut self.cancelled,
        }
    }
}

impl std::ops::Add for Ledger {
    type Output = Ledger;

    /// The total of two tenants.
    fn add(self, other: Ledger) -> Ledger {
        Ledger {
            accepted: self.accepted + other.accepted,
            queued: self.queued + other.queued,
            in_flight: self.in_flight + other.in_flight,
            waiting: self.waiting + other.waiting,
            delivered: self.delivered + other.delivered,
            dead: self.dead + other.dead,
            cancelled: self.cancelled + other.cancelled,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_accepted_is_somewhere() {
        let mut ledger = Ledger::default();
        assert!(ledger.balances());
        ledger.accept(2);
        assert_eq!((ledger.accepted, ledger.queued), (2, 2));
        ledger.apply(LedgerMove { from: StateName::Queued, to: StateName::Delivered }).unwrap();
        assert_eq!((ledger.queued, ledger.delivered), (1, 1));
        assert!(ledger.balances());
        let overdrawn = ledger.apply(LedgerMove { from: StateName::Dead, to: StateName::Waiting });
        assert_eq!(overdrawn, Err(Overdrawn(StateName::Dead)));
        assert_eq!(overdrawn.unwrap_err().to_string(), "the ledger has no delivery that is dead");
        assert!(ledger.balances());
    }

    #[test]
    fn a_ledger_that_lost_one_does_not_balance() {
        assert!(!Ledger { accepted: 1, ..Ledger::default() }.balances());
        assert!(!Ledger { delivered: 1, ..Ledger::default() }.balances());
        let huge = Ledger { queued: u64::MAX, dead: 1, ..Ledger::default() };
        assert!(!huge.balances(), "a sum that overflows is not zero");
    }

    proptest! {
        #[test]
        fn no_sequence_of_moves_unbalances_it(
            accepted in proptest::collection::vec(0u64..5, 1..10),
            moves in proptest::collection::vec((0usize..6, 0usize..6), 0..100),
        ) {
            let (mut ledger, mut other) = (Ledger::default(), Ledger::default());
            accepted.iter().for_each(|&n| ledger.accept(n));
            other.accept(3);
            for (from, to) in moves {
                let step = LedgerMove { from: StateName::ALL[from], to: StateName::ALL[to] };
                let before = ledger.count(step.from);
                prop_assert_eq!(ledger.apply(step).is_ok(), before > 0);
                prop_assert!(ledger.balances());
            }
            prop_assert!((ledger + other).balances());
            prop_assert_eq!((ledger + other).accepted, ledger.accepted + 3);
        }
    }
}
