//! The ledger: the count of deliveries by state, which must always balance.
//!
//! At any moment, per tenant and in total: `accepted = queued + in flight + waiting + delivered +
//! dead + cancelled`. A [`Ledger`] only changes by accepting or by moving a delivery from one
//! account to another, so it always balances by construction; [`Ledger::balances`] checks ledgers
//! that were counted or read from a store.

use crate::attempt::{Attempt, Verdict};
use crate::delivery::{Delivery, DeliveryState, StateName};
use crate::time::Timestamp;

/// How many deliveries there are in each state.
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

/// The move of a delivery from one account to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LedgerMove {
    /// The account before.
    pub from: StateName,
    /// The account after.
    pub to: StateName,
}

/// What one change of a delivery adds to the counters: the ledger, the charts and the count of
/// deliveries that wait at the destination.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Movement {
    /// The move between accounts; `None` if the delivery stays in its account.
    pub step: Option<LedgerMove>,
    /// When the delivery succeeded, if it did by this change.
    pub delivered_at: Option<Timestamp>,
    /// When the delivery became dead, if it did by this change.
    pub dead_at: Option<Timestamp>,
    /// When the attempt began, if there was one and it did not succeed, for whatever reason.
    pub failed_at: Option<Timestamp>,
    /// The change of the number of deliveries that wait at the destination.
    pub waiting: i64,
}

/// The changes of the counters when a delivery goes from state `before` to `after`, by this attempt
/// or without one. All stores use this function, so that they count alike.
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

/// The changes of a stored ledger's accounts. A store does not know which deliveries are in flight.
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
    /// Counts newly accepted deliveries.
    pub fn accept(&mut self, deliveries: i64) {
        self.accepted += deliveries;
        self.queued += deliveries;
    }

    /// Counts the move of a delivery.
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
            // A store counts a delivery in flight as queued until its attempt is settled.
            StateName::Queued | StateName::InFlight => &mut self.queued,
            StateName::Waiting => &mut self.waiting,
            StateName::Delivered => &mut self.delivered,
            StateName::Dead => &mut self.dead,
            StateName::Cancelled => &mut self.cancelled,
        }
    }
}

impl From<Ledger> for LedgerDelta {
    /// The change from an empty ledger to this one.
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
    /// Counts newly accepted deliveries.
    pub fn accept(&mut self, deliveries: u64) {
        self.accepted += deliveries;
        self.queued += deliveries;
    }

    /// Counts the move of a delivery. Fails, and changes nothing, if the account is empty.
    pub fn apply(&mut self, step: LedgerMove) -> Result<(), Overdrawn> {
        let from = self.account(step.from);
        *from = from.checked_sub(1).ok_or(Overdrawn(step.from))?;
        *self.account(step.to) += 1;
        Ok(())
    }

    /// Whether the accounts add up to the accepted deliveries.
    pub fn balances(&self) -> bool {
        let accounts =
            [self.queued, self.in_flight, self.waiting, self.delivered, self.dead, self.cancelled];
        accounts.iter().try_fold(0u64, |sum, n| sum.checked_add(*n)) == Some(self.accepted)
    }

    /// The number of deliveries in a state.
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

    /// The sum of two ledgers.
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
    fn every_accepted_delivery_is_in_an_account() {
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
    fn ledger_that_lost_a_delivery_does_not_balance() {
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
