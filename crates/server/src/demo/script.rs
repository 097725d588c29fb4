//! The plot: which receivers are repaired and break again without anybody pressing a key.
//!
//! **It follows what has happened, not the clock alone**: `/broken` is repaired after something died there,
//! however slow the machine is. A receiver that a person has touched is left alone.

use std::time::Duration;

use super::receivers::Mood;
use super::scene::{Row, Scene, State};

/// The plot is written for policy time that is this much faster.
const WRITTEN_FOR: u32 = 200;

/// A receiver that hangs is left so at least so long, for attempts to time out.
const SHORTEST_DOWN: Duration = Duration::from_secs(7);

/// When a receiver is repaired.
#[derive(Debug, Clone, Copy)]
enum Cure {
    /// It has been down for so long.
    Down(Duration),
    /// It has been disabled for so long.
    Disabled(Duration),
    /// It has been frozen for so long.
    Frozen(Duration),
    /// So many deliveries have died there, and it is disabled.
    Died(usize),
}

/// The part of one receiver: it is down until it is cured, then well for a while, then down again.
struct Part {
    name: &'static str,
    down: Mood,
    cure: Cure,
    well: Duration,
}

const PARTS: [Part; 4] = [
    Part {
        name: "comes",
        down: Mood::Failing,
        cure: Cure::Disabled(Duration::from_secs(8)),
        well: Duration::from_secs(40),
    },
    Part {
        name: "hangs",
        down: Mood::Hanging,
        cure: Cure::Down(Duration::from_secs(22)),
        well: Duration::from_secs(35),
    },
    Part {
        name: "broken",
        down: Mood::Failing,
        cure: Cure::Died(12),
        well: Duration::from_secs(30),
    },
    Part {
        name: "gone",
        down: Mood::Gone,
        cure: Cure::Frozen(Duration::from_secs(50)),
        well: Duration::from_secs(45),
    },
];

/// A receiver that changes its mood now.
#[derive(Debug)]
pub(super) struct Cue {
    pub(super) row: usize,
    pub(super) mood: Mood,
}

/// The cues that the script gives at this moment.
pub(super) fn cues(scene: &Scene) -> Vec<Cue> {
    let scaled = |time: Duration| time * WRITTEN_FOR / scene.time_scale().max(1);
    let rows = scene.rows().iter().enumerate();
    rows.filter_map(|(row, receiver)| {
        let part = PARTS.iter().find(|part| part.name == receiver.name)?;
        let mood = part.next(receiver, scene.elapsed(), scaled)?;
        Some(Cue { row, mood })
    })
    .collect()
}

impl Part {
    fn next(
        &self,
        row: &Row,
        now: Duration,
        scaled: impl Fn(Duration) -> Duration,
    ) -> Option<Mood> {
        if row.is_touched {
            return None;
        }
        if !row.mood.is_down() {
            let is_over = now.saturating_sub(row.mood_since) >= scaled(self.well);
            return (is_over && row.state == State::Enabled).then_some(self.down);
        }
        let for_long = |time| now.saturating_sub(row.state_since) >= scaled(time);
        let is_cured = match self.cure {
            // The deadline of an attempt is 5 s at any scale.
            Cure::Down(time) => {
                now.saturating_sub(row.mood_since) >= scaled(time).max(SHORTEST_DOWN)
            }
            Cure::Disabled(time) => row.state == State::Disabled && for_long(time),
            Cure::Frozen(time) => row.state == State::Frozen && for_long(time),
            Cure::Died(count) => row.state == State::Disabled && row.dead.len() >= count,
        };
        is_cured.then_some(Mood::Prompt)
    }
}

#[cfg(test)]
mod tests {
    use super::super::scene::{Change, Seen};
    use super::*;

    fn scene_at(seconds: u64, scale: u32) -> Scene {
        let mut scene = Scene::new(scale, String::new());
        scene.advance(Duration::from_secs(seconds), [0; 7]);
        scene
    }

    fn row_of(name: &str) -> usize {
        super::super::receivers::CAST.iter().position(|role| role.name == name).unwrap()
    }

    /// The mood that the script gives to one receiver now, if it changes.
    fn cue_of(scene: &Scene, row: usize) -> Option<Mood> {
        cues(scene).into_iter().find(|cue| cue.row == row).map(|cue| cue.mood)
    }

    fn disable(scene: &mut Scene, row: usize) {
        let change = Change {
            to: State::Disabled,
            why: "failure_share".to_owned(),
            failures: 101,
            attempts: 101,
        };
        scene.see(Seen::Transition { row, change });
    }

    #[test]
    fn receiver_is_repaired_some_time_after_it_was_disabled_and_breaks_again() {
        let row = row_of("comes");
        let mut scene = scene_at(3, 200);
        assert_eq!(cue_of(&scene, row), None);
        disable(&mut scene, row);
        scene.advance(Duration::from_secs(10), [0; 7]);
        assert_eq!(cue_of(&scene, row), None);
        scene.advance(Duration::from_secs(11), [0; 7]);
        assert_eq!(cue_of(&scene, row), Some(Mood::Prompt));
        scene.set_mood(row, Mood::Prompt, false);
        assert_eq!(cue_of(&scene, row), None, "nobody repairs what works");
        let change =
            Change { to: State::Enabled, why: "success".to_owned(), failures: 0, attempts: 1 };
        scene.see(Seen::Transition { row, change });
        scene.advance(Duration::from_secs(51), [0; 7]);
        assert_eq!(cue_of(&scene, row), Some(Mood::Failing));
    }

    #[test]
    fn a_faster_clock_makes_a_faster_plot() {
        let row = row_of("comes");
        let mut scene = scene_at(3, 1_600);
        disable(&mut scene, row);
        scene.advance(Duration::from_secs(4), [0; 7]);
        assert_eq!(cue_of(&scene, row), Some(Mood::Prompt));
    }

    #[test]
    fn broken_receiver_is_repaired_only_after_deliveries_died() {
        let row = row_of("broken");
        let mut scene = scene_at(3, 200);
        disable(&mut scene, row);
        scene.advance(Duration::from_secs(600), [0; 7]);
        assert_eq!(cue_of(&scene, row), None);
        for n in 0..12 {
            scene.see(Seen::Died { row, delivery: format!("dlv_{n}"), attempts: 7 });
        }
        assert_eq!(cue_of(&scene, row), Some(Mood::Prompt));
    }

    #[test]
    fn a_receiver_that_somebody_touched_is_left_alone() {
        let row = row_of("comes");
        let mut scene = scene_at(3, 200);
        disable(&mut scene, row);
        scene.set_mood(row, Mood::Failing, true);
        scene.advance(Duration::from_secs(600), [0; 7]);
        assert_eq!(cue_of(&scene, row), None);
    }
}
