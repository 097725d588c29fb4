//! The screen as text, at several sizes and moments.

use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::super::receivers::{CAST, Diet, Mood};
use super::super::scene::{Change, Ledger, Seen, Standing};
use super::*;

fn look() -> Look {
    let connection = "--server http://127.0.0.1:40001 --key demo_0123456789abcdef0123456789abcdef";
    Look { is_coloured: true, connection: connection.to_owned() }
}

/// The screen as it is drawn, without colours.
fn drawn(scene: &Scene, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, scene, &look())).unwrap();
    terminal.backend().to_string()
}

// The rows.
const HEALTHY: usize = 0;
const SLOW: usize = 1;
const FLAKY: usize = 2;
const HANGS: usize = 3;
const COMES: usize = 4;
const BROKEN: usize = 5;
const GONE: usize = 6;

/// A demonstration in a small model. What was accepted is delivered, in flight, dead or behind, for each receiver;
/// so that rows, sentences and ledger of a screen agree.
struct Story {
    scene: Scene,
    seconds: u64,
    /// Deliveries that each receiver has not got, without those that died.
    behind: [u64; 7],
    delivered: u64,
    dead: Vec<String>,
    /// Requests that are not answered.
    open: [usize; 7],
}

impl Story {
    /// After so many seconds.
    fn after(seconds: u64) -> Story {
        let mut story = Story {
            scene: Scene::new(200, "http://127.0.0.1:40002/go/0a1b2c3d4e".to_owned()),
            seconds: 0,
            behind: [0; 7],
            delivered: 0,
            dead: Vec::new(),
            open: [0; 7],
        };
        for second in 0..seconds {
            story.step(second);
        }
        story.advance(seconds);
        story.scene.see(Seen::Ledger(story.ledger()));
        story.check();
        story
    }

    fn advance(&mut self, seconds: u64) {
        self.seconds = seconds;
        self.scene.advance(Duration::from_secs(seconds), self.open);
    }

    /// One second of the traffic and of the plot.
    fn step(&mut self, second: u64) {
        self.advance(second);
        let invoices = if second.is_multiple_of(3) { 4 } else { 3 };
        for (diet, events) in [(Diet::Orders, 30), (Diet::Invoices, invoices)] {
            self.scene.see(Seen::Accepted { diet, events });
            for (behind, role) in self.behind.iter_mut().zip(CAST) {
                *behind += if role.diet == diet { u64::try_from(events).unwrap() } else { 0 };
            }
        }
        let scene = &mut self.scene;
        match second {
            1 => transition(scene, GONE, State::Frozen, "gone"),
            3 => transition(scene, COMES, State::Disabled, "failure_share"),
            12 => scene.set_mood(COMES, Mood::Prompt, false),
            13 => transition(scene, COMES, State::Enabled, "success"),
            16 => transition(scene, BROKEN, State::Disabled, "failure_share"),
            22 => scene.set_mood(HANGS, Mood::Prompt, false),
            28..40 => self.die(BROKEN),
            40 => scene.set_mood(BROKEN, Mood::Prompt, false),
            42 => {
                transition(scene, BROKEN, State::Enabled, "success");
                self.replay(BROKEN);
            }
            51 => scene.set_mood(GONE, Mood::Prompt, false),
            52 => {
                transition(scene, GONE, State::Enabled, "by_hand");
                scene.set_mood(COMES, Mood::Failing, false);
            }
            57 => scene.set_mood(HANGS, Mood::Hanging, false),
            76 => transition(scene, COMES, State::Disabled, "consecutive_failures"),
            79 => scene.set_mood(HANGS, Mood::Prompt, false),
            84 => scene.set_mood(COMES, Mood::Prompt, false),
            86 => transition(scene, COMES, State::Enabled, "success"),
            _ => {}
        }
        for row in 0..CAST.len() {
            self.attempts(row);
        }
    }

    /// What a receiver is sent in one second.
    fn attempts(&mut self, row: usize) {
        let Row { mood, state, mood_since, .. } = &self.scene.rows()[row];
        let (mood, state) = (*mood, *state);
        let hangs_for = self.seconds - mood_since.as_secs();
        if mood == Mood::Hanging {
            // After the first timeouts it gets one request at a time.
            self.open[row] = if hangs_for < 5 { 8 } else { 1 };
            if hangs_for >= 5 && hangs_for.is_multiple_of(5) {
                self.attempt(row, Duration::from_secs(5), false);
            }
            return;
        }
        self.open[row] = if mood == Mood::Slow { 9 } else { 0 };
        if state != State::Enabled || mood.is_down() {
            if state == State::Enabled {
                self.attempt(row, Duration::from_millis(3), false);
            }
            self.stand(row, state);
            return;
        }
        let (ms, kept) = match mood {
            Mood::Slow => (304, 9),
            // A third waits for its first retry.
            Mood::Flaky => (6, 10),
            Mood::Prompt | Mood::Failing | Mood::Hanging | Mood::Gone => (4, 0),
        };
        for _ in 0..self.behind[row].saturating_sub(kept).min(300) {
            self.attempt(row, Duration::from_millis(ms), true);
        }
        self.stand(row, state);
    }

    fn attempt(&mut self, row: usize, latency: Duration, is_delivered: bool) {
        let delivery = format!("dlv_{row}_{}_{}", self.seconds, self.behind[row]);
        self.scene.see(Seen::Attempt { row, delivery, latency, is_delivered });
        if is_delivered {
            self.behind[row] -= 1;
            self.delivered += 1;
        }
    }

    /// The destination as the API lists it.
    fn stand(&mut self, row: usize, state: State) {
        let is_disabled = state == State::Disabled;
        let probe_in = is_disabled.then(|| Duration::from_secs(1 + self.seconds % 3));
        let waiting = self.behind[row] - u64::try_from(self.open[row]).unwrap();
        let standing = Standing { state, waiting, probe_in };
        self.scene.see(Seen::Destination { row, standing });
    }

    fn die(&mut self, row: usize) {
        let delivery = format!("dlv_dead_{}", self.dead.len());
        self.scene.see(Seen::Died { row, delivery: delivery.clone(), attempts: 7 });
        self.dead.push(delivery);
        self.behind[row] -= 1;
    }

    /// Those that died are sent again, and arrive.
    fn replay(&mut self, row: usize) {
        for delivery in std::mem::take(&mut self.dead) {
            let latency = Duration::from_millis(4);
            self.scene.see(Seen::Attempt { row, delivery, latency, is_delivered: true });
            self.delivered += 1;
        }
    }

    fn ledger(&self) -> Ledger {
        let in_flight: usize = self.open.iter().sum();
        let (in_flight, dead) =
            (u64::try_from(in_flight).unwrap(), u64::try_from(self.dead.len()).unwrap());
        let behind: u64 = self.behind.iter().sum();
        // Those that have not had their first attempt are behind the one that hangs.
        let queued = self.behind[HANGS] - u64::try_from(self.open[HANGS]).unwrap();
        Ledger {
            accepted: behind + self.delivered + dead,
            queued,
            in_flight,
            waiting: behind - in_flight - queued,
            delivered: self.delivered,
            dead,
            cancelled: 0,
        }
    }

    /// What the rows show adds up to what the ledger says.
    fn check(&self) {
        let ledger = self.scene.ledger();
        let rows = self.scene.rows();
        let waiting: u64 = rows.iter().map(Row::waiting).sum();
        assert_eq!(waiting, ledger.queued + ledger.waiting, "after {} s", self.seconds);
        let dead: usize = rows.iter().map(|row| row.dead.len()).sum();
        assert_eq!(u64::try_from(dead).unwrap(), ledger.dead, "after {} s", self.seconds);
        let open: usize = rows.iter().map(|row| row.open).sum();
        assert_eq!(u64::try_from(open).unwrap(), ledger.in_flight, "after {} s", self.seconds);
        for row in [HEALTHY, SLOW, FLAKY] {
            assert!(rows[row].waiting() <= 10, "{} keeps up", rows[row].name);
        }
    }
}

/// The screen after so many seconds.
fn screen_after(seconds: u64) -> String {
    drawn(&Story::after(seconds).scene, 80, 24)
}

#[test]
fn screen_after_10_40_and_90_seconds() {
    insta::assert_snapshot!("screen_after_10_seconds", screen_after(10));
    insta::assert_snapshot!("screen_after_40_seconds", screen_after(40));
    insta::assert_snapshot!("screen_after_90_seconds", screen_after(90));
    // The one that hangs is compared with the healthy one while it hangs.
    insta::assert_snapshot!("screen_after_20_seconds", screen_after(20));
}

#[test]
fn rows_and_ledger_of_the_story_agree_at_every_second() {
    for seconds in 1..=95 {
        Story::after(seconds).check();
    }
}

/// A demonstration in its first minute: one is disabled, one is frozen, some died.
fn busy() -> Scene {
    Story::after(40).scene
}

fn transition(scene: &mut Scene, row: usize, to: State, why: &str) {
    let change = Change { to, why: why.to_owned(), failures: 101, attempts: 101 };
    scene.see(Seen::Transition { row, change });
}

#[test]
fn screen_at_the_start() {
    let mut scene = Scene::new(200, "http://127.0.0.1:40002/go/0a1b2c3d4e".to_owned());
    scene.tell(Kind::Note, None, "30 orders a second go to five receivers".to_owned());
    insta::assert_snapshot!(drawn(&scene, 80, 24));
}

#[test]
fn screen_in_the_middle_fits_80_by_24() {
    insta::assert_snapshot!(drawn(&busy(), 80, 24));
}

#[test]
fn wide_screen_has_a_chart() {
    insta::assert_snapshot!(drawn(&busy(), 120, 30));
}

#[test]
fn explanation_covers_the_narration() {
    let mut scene = busy();
    scene.selected = 5;
    scene.see(Seen::Explained(vec![
        "dlv_01a1ec86c85a7eecaf1e16cbc52d8c7e (demo.invoice.sent)".to_owned(),
        "waiting for retry 5 of 6".to_owned(),
        "• the destination is disabled: 101 of 101 attempts failed, which is more than 70 %"
            .to_owned(),
        "To unblock it: repair the receiver; the next probe that succeeds enables the destination"
            .to_owned(),
    ]));
    insta::assert_snapshot!(drawn(&scene, 80, 24));
}

#[test]
fn help_says_how_to_look_from_another_terminal() {
    let mut scene = busy();
    scene.panel = Some(Panel::Help);
    insta::assert_snapshot!(drawn(&scene, 80, 24));
}

#[test]
fn window_that_is_too_small_says_so() {
    insta::assert_snapshot!(drawn(&busy(), 60, 3));
}

#[test]
fn nothing_is_cut_at_80_columns_with_large_numbers() {
    let mut scene = busy();
    scene.see(Seen::Ledger(Ledger {
        accepted: 999_999,
        queued: 99_000,
        in_flight: 999,
        waiting: 9_999,
        delivered: 888_888,
        dead: 999,
        cancelled: 0,
    }));
    let screen = drawn(&scene, 80, 24);
    assert!(screen.contains("999 dead"), "{screen}");
    assert!(screen.contains("q  quit"), "{screen}");
    assert!(screen.contains("by default."), "{screen}");
}
