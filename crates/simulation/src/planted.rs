//! Mistakes on purpose: each must be caught, and says by what.

use postrider_domain::planted::{Bug, plant};

use crate::edges::EDGES;
use crate::world::life::live;

/// All of them.
pub const BUGS: [Bug; 21] = [
    Bug::AcknowledgeBeforeSync,
    Bug::OffByOneConsecutive,
    Bug::ProbeNotClearedAfterCrash,
    Bug::CountersNotReset,
    Bug::SlotFromPreviousAttempt,
    Bug::SettlementSplit,
    Bug::ShareIncludesEquality,
    Bug::FreezeIgnoresTime,
    Bug::StragglerThawsFrozen,
    Bug::SlotNotSpentWhileOpen,
    Bug::LostOnOverflow,
    Bug::DuplicateProbe,
    Bug::ProbeTooSoon,
    Bug::RetryAfterEarlier,
    Bug::OwnFaultCounted,
    Bug::DeadInsteadOfMakeUp,
    Bug::FrozenAttempted,
    Bug::WebhookIdOfEvent,
    Bug::LeakedPlace,
    Bug::ProbeTakesSlot,
    Bug::ProbesDoNotRotate,
];

/// Tries seeds until the mistake shows; says how, or `None` where none of them shows it.
pub fn catch(bug: Bug, seeds: u64) -> Option<(u64, String)> {
    plant(Some(bug));
    let caught = (1..=seeds).find_map(|seed| {
        let what = match live(seed, Some(60)) {
            Ok(outcome) => outcome.violations.first()?.what.clone(),
            Err(error) => error.to_string(),
        };
        // A seed that fails without the mistake as well has not caught it.
        plant(None);
        let is_clean = live(seed, Some(60)).is_ok_and(|outcome| outcome.violations.is_empty());
        plant(Some(bug));
        is_clean.then_some((seed, what))
    });
    plant(None);
    caught
}

/// The edges that this mistake breaks.
pub fn edges_broken(bug: Bug) -> Vec<&'static str> {
    plant(Some(bug));
    let broken = EDGES
        .iter()
        .filter(|(_, edge)| edge().map_or(true, |outcome| !outcome.violations.is_empty()));
    let broken = broken.map(|(name, _)| *name).collect();
    plant(None);
    broken
}
