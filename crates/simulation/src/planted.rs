//! Mistakes on purpose: each must be caught, and says by what.

use postrider_domain::planted::{Bug, plant};

use anyhow::Result;

use crate::edges::EDGES;
use crate::scenes::SCENES;
use crate::world::life::{Outcome, live};

/// All of them.
pub const BUGS: [Bug; 31] = [
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
    Bug::GaveWayForgotten,
    Bug::HoldIgnored,
    Bug::SuccessDisables,
    Bug::SuspendedFailuresCounted,
    Bug::FirstFailuresKept,
    Bug::RelapseNotRecognised,
    Bug::RampIgnoresFailure,
    Bug::ClockFollowsStepAhead,
    Bug::ClockFollowsStepBack,
    Bug::ClockForgetsOffset,
];

/// Plays the edges and scenes, then lives seeds, until the mistake shows; says where and how, or
/// `None` where nothing shows it.
pub fn catch(bug: Bug, seeds: u64) -> Option<(String, String)> {
    // The one with 50,000 failures takes longer than all others.
    let played = SCENES.iter().chain(&EDGES).filter(|(name, _)| !name.contains("50,000"));
    let played = played.map(|(name, play)| (format!("\"{name}\""), *play));
    for (name, play) in played {
        if let Some(what) = wrong_with(bug, play) {
            return Some((name, what));
        }
    }
    (1..=seeds).find_map(|seed| {
        let what = wrong_with(bug, || live(seed, Some(60)))?;
        Some((format!("seed {seed}"), what))
    })
}

/// What goes wrong with the mistake and not without it.
fn wrong_with(bug: Bug, play: impl Fn() -> Result<Outcome>) -> Option<String> {
    plant(Some(bug));
    let what = wrong(play());
    plant(None);
    what.filter(|_| wrong(play()).is_none())
}

fn wrong(outcome: Result<Outcome>) -> Option<String> {
    match outcome {
        Ok(outcome) => outcome.violations.first().map(|first| first.what.clone()),
        Err(error) => Some(error.to_string()),
    }
}
