//! The screen as text, at several sizes and moments.

use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::super::receivers::{Diet, Mood};
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

/// A demonstration after so many seconds, as its receivers and the traffic go.
fn story(seconds: u64) -> Scene {
    let mut scene = Scene::new(200, "http://127.0.0.1:40002/go/0a1b2c3d4e".to_owned());
    scene.see(Seen::Accepted { diet: Diet::Orders, events: 1_290 });
    scene.see(Seen::Accepted { diet: Diet::Invoices, events: 140 });
    let attempt = |row: usize, n: usize, ms: u64| Seen::Attempt {
        row,
        delivery: format!("dlv_{row}_{n}"),
        latency: Duration::from_millis(ms),
        is_delivered: true,
    };
    for second in 0..seconds {
        scene.advance(Duration::from_secs(second), [0, 9, 0, 8, 0, 0, 0]);
        for n in 0..30 {
            scene.see(attempt(0, n, 4));
            scene.see(attempt(1, n, 304));
            scene.see(attempt(2, n, 6));
        }
        match second {
            1 => transition(&mut scene, 6, State::Frozen, "gone"),
            3 => transition(&mut scene, 4, State::Disabled, "failure_share"),
            13 => scene.set_mood(4, Mood::Prompt, false),
            14 => transition(&mut scene, 4, State::Enabled, "success"),
            16 => transition(&mut scene, 5, State::Disabled, "failure_share"),
            28 => scene.see(Seen::Died { row: 5, delivery: "dlv_x".to_owned(), attempts: 7 }),
            61 => scene.set_mood(5, Mood::Prompt, false),
            63 => transition(&mut scene, 5, State::Enabled, "success"),
            _ => {}
        }
    }
    scene
}

/// The screen after so many seconds, with a ledger that fits.
fn screen_after(seconds: u64) -> String {
    let mut scene = story(seconds);
    let (accepted, waiting) = (seconds * 160, seconds * 3);
    scene.see(Seen::Ledger(Ledger {
        accepted,
        queued: 10,
        in_flight: 17,
        waiting,
        delivered: accepted - waiting - 10 - 17,
        dead: 0,
        cancelled: 0,
    }));
    scene.advance(Duration::from_secs(seconds), [0, 9, 0, 1, 0, 0, 0]);
    drawn(&scene, 80, 24)
}

#[test]
fn screen_after_10_40_and_90_seconds() {
    insta::assert_snapshot!("screen_after_10_seconds", screen_after(10));
    insta::assert_snapshot!("screen_after_40_seconds", screen_after(40));
    insta::assert_snapshot!("screen_after_90_seconds", screen_after(90));
}

/// A demonstration in its second minute: one hangs, one is disabled, one is frozen, some died.
fn busy() -> Scene {
    let mut scene = story(43);
    let hung = Seen::Attempt {
        row: 3,
        delivery: "dlv_h".to_owned(),
        latency: Duration::from_secs(5),
        is_delivered: false,
    };
    scene.see(hung);
    let probe_in = Some(Duration::from_secs(2));
    let standing = Standing { state: State::Disabled, waiting: 96, probe_in };
    scene.see(Seen::Destination { row: 5, standing });
    scene.see(Seen::Ledger(Ledger {
        accepted: 7_012,
        queued: 620,
        in_flight: 17,
        waiting: 133,
        delivered: 6_228,
        dead: 14,
        cancelled: 0,
    }));
    scene.advance(Duration::from_secs(43), [0, 9, 0, 1, 0, 0, 0]);
    scene
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
