//! What the demonstration tells of what it sees.

use super::row::CHART_SECONDS;
use super::*;

const HEALTHY: usize = 0;
const HANGS: usize = 3;
const COMES: usize = 4;
const BROKEN: usize = 5;
const GONE: usize = 6;

fn scene() -> Scene {
    let mut scene = Scene::new(200, "http://127.0.0.1:1/go/x".to_owned());
    scene.advance(Duration::from_secs(3), [0; CAST.len()]);
    scene
}

fn change(to: State, why: &str, failures: u64, attempts: u64) -> Change {
    Change { to, why: why.to_owned(), failures, attempts }
}

fn accept(scene: &mut Scene, diet: Diet, events: usize) {
    scene.see(Seen::Accepted { diet, events });
}

fn attempt(row: usize, delivery: &str, ms: u64, is_delivered: bool) -> Seen {
    let latency = Duration::from_millis(ms);
    Seen::Attempt { row, delivery: delivery.to_owned(), latency, is_delivered }
}

/// The sentences so far.
fn told(scene: &Scene) -> Vec<&str> {
    scene.told().map(|told| told.text.as_str()).collect()
}

#[test]
fn outage_is_told_from_the_first_failure_to_the_last_delivery() {
    let mut scene = scene();
    accept(&mut scene, Diet::Orders, 412);
    let row = COMES;
    scene.see(Seen::Transition { row, change: change(State::Disabled, "failure_share", 101, 101) });
    for _ in 0..3 {
        scene
            .see(Seen::Transition { row, change: change(State::Disabled, "probe_sent", 101, 101) });
        scene.see(Seen::Transition {
            row,
            change: change(State::Disabled, "probe_failed", 102, 102),
        });
    }
    scene.see(Seen::Transition { row, change: change(State::Enabled, "success", 104, 105) });
    for n in 0..400 {
        scene.see(attempt(row, &format!("dlv_{n}"), 3, true));
    }
    let standing = Standing { state: State::Enabled, waiting: 0, probe_in: None };
    scene.see(Seen::Destination { row, standing });
    assert_eq!(
        told(&scene),
        [
            "/comes failed 101 times: disabled; probed in 3 s",
            "/comes: the probe failed; 412 wait, the next probe in 3 s",
            "/comes recovered at its 4th probe: 412 waiting are sent",
            "/comes has caught up: all that waited is delivered",
        ]
    );
    assert_eq!(scene.rows()[row].waiting(), 12);
}

#[test]
fn failed_share_and_failures_in_a_row_are_told_apart() {
    let mut scene = scene();
    let row = COMES;
    scene.see(Seen::Transition { row, change: change(State::Disabled, "failure_share", 80, 110) });
    let row = BROKEN;
    let in_a_row = change(State::Disabled, "consecutive_failures", 2_010, 3_400);
    scene.see(Seen::Transition { row, change: in_a_row });
    assert_eq!(
        told(&scene),
        [
            "/comes failed 80 of 110 times: disabled; probed in 3 s",
            "/broken failed 2,000 times in a row: disabled; probed in 3 s",
        ]
    );
}

#[test]
fn deliveries_that_died_are_told_when_they_are_replayed_and_delivered() {
    let mut scene = scene();
    let row = BROKEN;
    scene.see(Seen::Transition { row, change: change(State::Disabled, "failure_share", 101, 101) });
    for n in 0..11 {
        scene.see(Seen::Died { row, delivery: format!("dlv_{n}"), attempts: 7 });
    }
    scene.see(Seen::Transition { row, change: change(State::Enabled, "success", 0, 1) });
    for n in 0..11 {
        scene.see(attempt(row, &format!("dlv_{n}"), 3, true));
    }
    assert_eq!(
        told(&scene)[1..],
        [
            "/broken: a delivery died after 7 attempts; it is kept and can be replayed",
            "/broken: 10 have died by now; all are kept",
            "/broken recovered at its 1st probe: 0 waiting are sent, 11 that died are replayed",
            "/broken: all 11 that died were replayed and are delivered",
        ]
    );
    let kinds: Vec<Kind> = scene.told().map(|told| told.kind).collect();
    assert_eq!(kinds, [Kind::Disabled, Kind::Died, Kind::Died, Kind::Recovered, Kind::Replayed]);
}

#[test]
fn frozen_destination_waits_for_somebody_who_enables_it() {
    let mut scene = scene();
    accept(&mut scene, Diet::Invoices, 5);
    let row = GONE;
    scene.see(Seen::Transition { row, change: change(State::Frozen, "gone", 1, 1) });
    scene.set_mood(row, Mood::Prompt, true);
    scene.see(Seen::Transition { row, change: change(State::Enabled, "by_hand", 0, 0) });
    assert_eq!(
        told(&scene),
        [
            "/gone answered 410 Gone: frozen, not attempted until somebody enables it",
            "you repaired /gone: it answers at once",
            "/gone was enabled by hand: 5 waiting are sent",
        ]
    );
}

#[test]
fn hanging_receiver_is_compared_with_the_healthy_one() {
    let mut scene = scene();
    accept(&mut scene, Diet::Orders, 300);
    scene.see(attempt(HEALTHY, "dlv_a", 4, true));
    let mut open = [0; CAST.len()];
    open[HANGS] = 8;
    scene.advance(Duration::from_secs(4), open);
    assert_eq!(told(&scene), ["/hangs leaves 8 requests unanswered; /healthy's p99 is 4 ms"]);
    scene.see(attempt(HANGS, "dlv_b", 5_000, false));
    open[HANGS] = 1;
    scene.advance(Duration::from_secs(9), open);
    scene.advance(Duration::from_secs(10), open);
    assert_eq!(
        told(&scene)[1..],
        ["/hangs timed out: it gets one request at a time; nobody else waits for it"]
    );
    assert_eq!(
        scene.verdict(),
        "p99: /healthy 4 ms, /hangs 5.0 s, where 299 wait: each has its own slots."
    );
    scene.set_mood(HANGS, Mood::Prompt, false);
    assert_eq!(told(&scene)[2..], ["/hangs is repaired: it answers at once; 299 are waiting"]);
    assert_eq!(scene.verdict(), "/healthy's p99 is 4 ms; all are enabled.");
}

#[test]
fn interrupted_stream_takes_states_from_the_list_again() {
    let mut scene = scene();
    let standing = Standing { state: State::Disabled, waiting: 7, probe_in: None };
    scene.see(Seen::Destination { row: COMES, standing });
    assert_eq!(scene.rows()[COMES].state, State::Enabled, "the stream tells transitions");
    scene.see(Seen::Missed);
    scene.see(Seen::Destination { row: COMES, standing });
    assert_eq!(scene.rows()[COMES].state, State::Disabled);
    assert_eq!(told(&scene), Vec::<&str>::new());
}

#[test]
fn latency_and_chart_are_those_of_the_last_seconds() {
    let mut scene = scene();
    scene.see(attempt(HEALTHY, "dlv_a", 900, true));
    for n in 0..200 {
        scene.see(attempt(HEALTHY, &format!("dlv_{n}"), 4, true));
    }
    assert_eq!(scene.rows()[HEALTHY].p99(), Some(Duration::from_millis(4)));
    scene.advance(Duration::from_secs(5), [0; CAST.len()]);
    let chart = scene.rows()[HEALTHY].chart(scene.elapsed());
    assert_eq!(chart[CHART_SECONDS - 3..], [0, 201, 0]);
    scene.advance(Duration::from_secs(60), [0; CAST.len()]);
    assert_eq!(scene.rows()[HEALTHY].p99(), None);
}

#[test]
fn sentences_are_handed_out_once_even_where_old_ones_are_forgotten() {
    let mut scene = scene();
    for n in 0..TOLD_MAX + 5 {
        scene.tell(Kind::Note, None, n.to_string());
    }
    let (fresh, seen) = scene.told_after(0);
    assert_eq!(fresh.count(), TOLD_MAX);
    assert_eq!(seen, TOLD_MAX + 5);
    scene.tell(Kind::Note, None, "last".to_owned());
    let (mut fresh, _) = scene.told_after(seen);
    assert_eq!(fresh.next().map(|told| told.text.as_str()), Some("last"));
    assert!(fresh.next().is_none());
}
