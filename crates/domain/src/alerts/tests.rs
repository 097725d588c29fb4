//! Stories of outages in virtual time: each is a line of steps and the messages that follow.

use std::collections::BTreeMap;

use super::*;
use crate::ids::TenantId;

const START: Timestamp = Timestamp::from_unix_ms(1_763_199_000_000);

/// A server with one target, looked at every second.
struct World {
    book: Book,
    policy: AlertPolicy,
    wanted: Wanted,
    now: Timestamp,
    levels: BTreeMap<AlertKind, u64>,
    is_up: bool,
    trace: Vec<String>,
}

impl World {
    fn new(wanted: Wanted) -> Self {
        World {
            book: Book::default(),
            policy: AlertPolicy::default(),
            wanted,
            now: START,
            levels: BTreeMap::new(),
            is_up: true,
            trace: Vec::new(),
        }
    }

    fn report(&mut self, happened: Vec<Seen>) {
        let now = self.levels.iter().filter(|(_, count)| **count > 0).map(|(kind, count)| Seen {
            kind: *kind,
            scope: None,
            count: *count,
            worst: Vec::new(),
        });
        let report = Report { now: now.collect(), happened };
        self.book.report("", report, &[("ops", &self.wanted)], &self.policy, self.now);
        self.restart();
    }

    /// Every state that is stored is read back before it is used.
    fn restart(&mut self) {
        let bytes = serde_json::to_vec(&self.book).unwrap();
        self.book = serde_json::from_slice(&bytes).unwrap();
    }

    fn look(&mut self) {
        let due = self.book.due("ops", &self.wanted, &self.policy, self.now);
        let Some(message) = due else { return };
        self.restart();
        let at = self.now.since(START).as_secs();
        if self.is_up {
            self.trace.push(format!("{at}: {}", short(&message.subject())));
            self.book.sent("ops", &message, &self.policy, self.now);
        } else {
            self.trace.push(format!("{at}: failed"));
            self.book.failed("ops", self.now);
        }
    }

    fn step(&mut self, step: &str) {
        if let Some(seconds) = step.strip_prefix('+') {
            for _ in 0..seconds.parse::<u64>().unwrap() {
                self.now = self.now.saturating_add(Duration::from_secs(1));
                self.look();
            }
        } else if let Some((kind, count)) = step.split_once('=') {
            self.levels.insert(kind.parse().unwrap(), count.parse().unwrap());
            self.report(Vec::new());
        } else if let Some((kind, count)) = step.split_once('+') {
            let (kind, count) = (kind.parse::<AlertKind>().unwrap(), count.parse().unwrap());
            self.report(vec![Seen { kind, scope: None, count, worst: Vec::new() }]);
        } else {
            match step {
                "down" => self.is_up = false,
                "up" => self.is_up = true,
                other => panic!("{other}"),
            }
        }
    }
}

fn short(subject: &str) -> String {
    subject.trim_start_matches("[Postrider] ").to_owned()
}

/// Plays the steps; `+30` is half a minute, `disk=1` how many there are, `delivery_dead+5` how many
/// happened, `down` and `up` the target.
#[track_caller]
fn check(steps: &str, messages: &[&str]) {
    check_for(Wanted::default(), steps, messages);
}

#[track_caller]
fn check_for(wanted: Wanted, steps: &str, messages: &[&str]) {
    let mut world = World::new(wanted);
    steps.split_whitespace().for_each(|step| world.step(step));
    assert_eq!(world.trace, messages, "{steps}");
}

#[test]
fn outage_is_one_message_and_its_end_another() {
    check(
        "destination_disabled=1 +3 destination_disabled=40 +20 destination_disabled=900 +600 \
         destination_disabled=0 +3600",
        &["30: warning: 900 destinations disabled", "923: resolved: 900 destinations disabled"],
    );
}

#[test]
fn new_occurrences_are_reported_at_a_slowing_pace() {
    // One more dies every ten seconds, for three hours.
    let steps = "delivery_dead+1 +10 ".repeat(3 * 360);
    let mut world = World::new(Wanted::default());
    steps.split_whitespace().for_each(|step| world.step(step));
    let told: Vec<&str> = world.trace.iter().map(|line| line.split(':').next().unwrap()).collect();
    assert_eq!(told, ["30", "330", "930", "2130", "4530", "8130"]);
    let deaths = |line: &String| -> u64 {
        line.split_whitespace().find_map(|word| word.parse().ok()).unwrap()
    };
    assert!(world.trace.iter().map(deaths).sum::<u64>() <= 3 * 360);
    assert!(world.trace[5].ends_with("error: 360 deliveries dead"), "{:?}", world.trace);
}

#[test]
fn condition_that_lasts_is_repeated_once_a_day() {
    check(
        "destination_frozen=2 +200000",
        &[
            "30: error: 2 destinations frozen",
            "86430: still: 2 destinations frozen",
            "172830: still: 2 destinations frozen",
        ],
    );
}

#[test]
fn condition_that_ends_within_the_group_window_is_not_reported() {
    check("destination_disabled=3 destination_disabled+3 +20 destination_disabled=0 +4000", &[]);
    check("destination_disabled+1 +4000", &[]);
}

#[test]
fn relapse_before_the_all_clear_is_the_same_outage() {
    check(
        "disk=1 +60 disk=0 +200 disk=1 +60 disk=0 +1000",
        &["30: critical: the disk is full", "620: resolved: the disk is full"],
    );
}

#[test]
fn critical_alert_does_not_wait_for_the_pace_of_others() {
    check(
        "destination_disabled=1 +60 transitions_suspended=1 +60",
        &[
            "30: warning: 1 destination disabled",
            "90: critical: most destinations fail at once, 1 destination disabled",
        ],
    );
    check(
        "destination_disabled=1 +60 clock_stepped+1 +300",
        &[
            "30: warning: 1 destination disabled",
            "330: warning: 1 destination disabled, the clock was set",
        ],
    );
}

#[test]
fn new_occurrence_is_reported_although_the_count_is_the_same() {
    check(
        "destination_disabled=1 destination_disabled+1 +100 destination_disabled=0 +10 \
         destination_disabled+1 +1 destination_disabled=1 +400",
        &["30: warning: 1 destination disabled", "330: warning: 1 destination disabled"],
    );
}

#[test]
fn flapping_is_bounded_by_the_pace_and_by_the_hourly_maximum() {
    let steps = "disk=1 +60 disk=0 +400 ".repeat(200);
    let mut world = World::new(Wanted::default());
    steps.split_whitespace().for_each(|step| world.step(step));
    let hours = 200 * 460 / 3600;
    assert!(world.trace.len() <= 10 * (hours + 1), "{} messages", world.trace.len());
    let times: Vec<u64> =
        world.trace.iter().map(|line| line.split(':').next().unwrap().parse().unwrap()).collect();
    for window in times.windows(11) {
        assert!(window[10] - window[0] >= 3600, "{window:?}");
    }
}

#[test]
fn failing_target_is_tried_again_with_growing_pauses_and_then_gets_one_message() {
    check(
        "down delivery_dead+7 +100 delivery_dead+5 destination_disabled=2 +100 up +400",
        &[
            "30: failed",
            "40: failed",
            "60: failed",
            "100: failed",
            "180: failed",
            "340: error: 12 deliveries dead, 2 destinations disabled",
        ],
    );
    let mut world = World::new(Wanted::default());
    "down disk=1 +20000".split_whitespace().for_each(|step| world.step(step));
    let last = world.trace.len();
    let at = |n: usize| world.trace[n].split(':').next().unwrap().parse::<u64>().unwrap();
    assert_eq!(at(last - 1) - at(last - 2), 900, "the pause is a quarter of an hour at most");
}

#[test]
fn outage_that_ends_while_the_target_is_down_is_not_reported() {
    check(
        "down destination_disabled=2 +60 destination_disabled=0 +60 up +2000",
        &["30: failed", "40: failed", "60: failed"],
    );
}

#[test]
fn node_that_dies_while_it_sends_is_succeeded_by_another() {
    let (wanted, policy) = (Wanted::default(), AlertPolicy::default());
    let mut book = Book::default();
    let seen = Seen { kind: AlertKind::Disk, scope: None, count: 1, worst: Vec::new() };
    let report = Report { now: vec![seen], happened: Vec::new() };
    book.report("a", report, &[("ops", &wanted)], &policy, START);
    let at = |seconds| START.saturating_add(Duration::from_secs(seconds));
    assert!(book.due("ops", &wanted, &policy, at(30)).is_some());
    assert_eq!(book.due("ops", &wanted, &policy, at(31)), None, "another node sends it");
    assert!(book.due("ops", &wanted, &policy, at(120)).is_some());
}

#[test]
fn counts_of_all_living_nodes_are_added_and_those_of_others_forgotten() {
    let (wanted, policy) = (Wanted::default(), AlertPolicy::default());
    let mut book = Book::default();
    let kind = AlertKind::DestinationDisabled;
    for (node, count) in [("a", 3), ("b", 4), ("b", 5)] {
        let worst = vec![Example { weight: count, ..Example::of_server(node, "fails") }];
        let now = vec![Seen { kind, scope: None, count, worst }];
        let report = Report { now, happened: Vec::new() };
        book.report(node, report, &[("ops", &wanted)], &policy, START);
    }
    let at = START.saturating_add(Duration::from_secs(30));
    let message = book.clone().due("ops", &wanted, &policy, at).unwrap();
    assert_eq!(message.lines[0].count, 8);
    assert_eq!(message.lines[0].worst[0].name, "b", "the worst is first");
    book.keep_nodes(|node| node == "a");
    assert_eq!(book.due("ops", &wanted, &policy, at).unwrap().lines[0].count, 3);
}

#[test]
fn target_is_sent_only_the_kinds_and_tenants_it_wants() {
    let errors = Wanted { severity: Severity::Error, ..Wanted::default() };
    check_for(
        errors,
        "destination_disabled=1 clock_stepped+1 delivery_dead+1 +100",
        &["30: error: 1 delivery dead"],
    );
    let disk = Wanted { kinds: [AlertKind::Disk].into(), ..Wanted::default() };
    check_for(disk, "destination_frozen=1 disk=1 +100", &["30: critical: the disk is full"]);

    let acme: TenantId = "acme".parse().unwrap();
    let wanted = Wanted { tenants: [acme.clone()].into(), ..Wanted::default() };
    let policy = AlertPolicy::default();
    let mut book = Book::default();
    let kind = AlertKind::DestinationFrozen;
    let seen = |kind, scope, count| Seen { kind, scope, count, worst: Vec::new() };
    let now = vec![
        seen(kind, None, 9),
        seen(kind, Some(acme), 2),
        seen(kind, Some("other".parse().unwrap()), 7),
        seen(AlertKind::Disk, None, 1),
    ];
    book.report("", Report { now, happened: Vec::new() }, &[("x", &wanted)], &policy, START);
    let at = START.saturating_add(Duration::from_secs(30));
    let message = book.due("x", &wanted, &policy, at).unwrap();
    assert_eq!(short(&message.subject()), "error: 2 destinations frozen");
}

#[test]
fn book_is_quiet_when_everything_is_reported_and_resolved() {
    let mut world = World::new(Wanted::default());
    assert!(world.book.is_quiet());
    for step in ["disk=1", "+40"] {
        world.step(step);
        assert!(!world.book.is_quiet(), "after {step}");
    }
    assert_eq!(world.book.state("ops").firing, [(AlertKind::Disk, 1)]);
    ["disk=0", "delivery_dead+2", "+2000"].iter().for_each(|step| world.step(step));
    assert!(world.book.is_quiet());
    assert_eq!(world.book.state("ops").messages, 3);
}

#[test]
fn text_has_counts_the_worst_examples_and_advice() {
    let tenant: TenantId = "acme".parse().unwrap();
    let worst = (0..2u64).map(|n| Example {
        tenant: Some(tenant.clone()),
        id: Some(format!("dst_{n}")),
        name: origin_of("https://hooks.example.com:8443/secret?token=1"),
        detail: "101 consecutive failures".to_owned(),
        weight: n,
    });
    let line = AlertLine {
        kind: AlertKind::DestinationDisabled,
        status: AlertStatus::Firing,
        count: 12,
        new: 5,
        since: START,
        worst: worst.collect(),
    };
    let lines = vec![line];
    let message = AlertMessage {
        number: 3,
        at: START,
        status: AlertStatus::Firing,
        is_reminder: false,
        lines,
    };
    assert_eq!(message.subject(), "[Postrider] warning: 12 destinations disabled");
    let expected = "\
12 destinations disabled, since 2025-11-15T09:30:00.000Z (5 since the last message).
  - https://hooks.example.com:8443 (dst_0, tenant acme): 101 consecutive failures
  - https://hooks.example.com:8443 (dst_1, tenant acme): 101 consecutive failures
  … and 10 more
It is probed at intervals, and a success enables it again: postrider destinations get ID.
";
    assert_eq!(message.text(), expected);
}

#[test]
fn nothing_that_a_tenant_chose_ends_a_line_or_shows_a_path() {
    for (url, origin) in [
        ("https://hooks.example.com/services/T0/B0/secret?token=x#y", "https://hooks.example.com"),
        ("https://xn--bcher-kva.example:8443/", "https://xn--bcher-kva.example:8443"),
        ("https://a.example/\r\nBcc: x@y.example", "https://a.example"),
        ("not a url\r\nBcc: x", "?"),
        ("data:text/plain,x", "null"),
    ] {
        assert_eq!(origin_of(url), origin, "{url:?}");
    }
    for (text, shown) in [
        ("a\r\nBcc: x@example.com", "a\u{fffd}\u{fffd}Bcc: x@example.com"),
        ("\u{1b}[2J\u{202e}gpj.exe\u{2028}", "\u{fffd}[2J\u{fffd}gpj.exe\u{fffd}"),
        ("fine, ünïcode", "fine, ünïcode"),
    ] {
        assert_eq!(plain(text), shown);
    }
    let long = plain(&"x".repeat(10_000));
    assert!(long.ends_with('…') && long.chars().count() == 160, "{long}");
}

#[test]
fn one_destination_is_named_in_the_subject() {
    let line = AlertLine {
        kind: AlertKind::DestinationFrozen,
        status: AlertStatus::Firing,
        count: 1,
        new: 1,
        since: START,
        worst: vec![Example::of_server("https://hooks.example.com", "410 Gone")],
    };
    let (status, lines) = (AlertStatus::Firing, vec![line]);
    let message = AlertMessage { number: 0, at: START, status, is_reminder: false, lines };
    assert_eq!(
        message.subject(),
        "[Postrider] error: 1 destination frozen (https://hooks.example.com)"
    );
    let test = AlertMessage::test(START);
    assert_eq!(test.subject(), "[Postrider] test: alerts arrive here");
    assert!(test.text().contains("Nothing is wrong"));
}
