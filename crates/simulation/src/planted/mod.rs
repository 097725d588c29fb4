//! Planted bugs: the simulation must catch each of them, and say how it noticed.

mod switches;

use anyhow::Result;

use self::switches::plant;
use crate::edges::EDGES;
use crate::scenes::SCENES;
use crate::world::life::{Outcome, live};

pub use self::switches::BUGS;

/// Plays the edge cases and scenes, then simulates seeds, until the bug of this name causes a
/// violation. Returns where and how, or `None` if nothing shows it.
pub fn catch(bug: &str, seeds: u64) -> Option<(String, String)> {
    // The case with 50,000 failures takes longer than all others.
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

/// The violation that occurs with the bug and not without it.
fn wrong_with(bug: &str, play: impl Fn() -> Result<Outcome>) -> Option<String> {
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
