//! The circuit's rules as traces in a small notation, its edges as tables, and its properties.
//!
//! A trace is a list of inputs. After each input, the state of the circuit and its admission are
//! compared with the expected ones. Inputs: `fail`, `ok`, `gone`, `ours` are outcomes (of the
//! probe, where one is in flight); `late-fail`, `late-ok`, `late-gone`, `late-ours` are those of
//! another attempt that was still in flight; `probe` admits a probe; `+10m` advances the clock;
//! `suspend` suspends transitions and `resume` ends that; `enable` and `freeze` are calls by a
//! person, `crash` is a restart. `x*n` is `x` n times.

use std::time::Duration;

use proptest::prelude::*;

use super::*;

/// How long it may take to notice an outage and to suspend transitions.
const MINUTE: Duration = Duration::from_secs(60);
const START: Timestamp = Timestamp::from_unix_ms(1_763_199_000_000);

/// A circuit with the clock and the suspension that a trace changes.
struct Bench {
    circuit: Circuit,
    now: Timestamp,
    suspension: Suspension,
    policy: CircuitPolicy,
    transitions: Vec<Transition>,
}

impl Bench {
    fn new(policy: CircuitPolicy) -> Self {
        let circuit = Circuit::new(START);
        Bench { circuit, now: START, suspension: Suspension::Off, policy, transitions: Vec::new() }
    }

    fn input(&mut self, word: &str) {
        if let Some((word, times)) = word.split_once('*') {
            (0..times.parse().unwrap()).for_each(|_: u32| self.input(word));
            return;
        }
        let (probe, other) = (DeliveryId::from_bytes([1; 16]), DeliveryId::from_bytes([2; 16]));
        let transition = match word {
            "fail" => self.learn(probe, Verdict::Failure),
            "ok" => self.learn(probe, Verdict::Success),
            "gone" => self.learn(probe, Verdict::Gone),
            "ours" => self.learn(probe, Verdict::OwnFault),
            "late-fail" => self.learn(other, Verdict::Failure),
            "late-ok" => self.learn(other, Verdict::Success),
            "late-gone" => self.learn(other, Verdict::Gone),
            "late-ours" => self.learn(other, Verdict::OwnFault),
            "probe" => {
                let sent = self.circuit.begin_probe(probe, self.now);
                assert!(sent.is_some(), "no probe is due");
                sent
            }
            "probe?" => self.circuit.begin_probe(probe, self.now),
            "enable" => self.circuit.enable(Some("mended".into()), self.now),
            "freeze" => self.circuit.freeze(Some("asked to".into()), self.now),
            "crash" => self.circuit.recover(self.now, &self.policy),
            "suspend" => {
                self.suspension = Suspension::On;
                self.circuit.suspend(self.now.saturating_sub(MINUTE), self.now)
            }
            "resume" => {
                self.suspension = Suspension::Off;
                self.circuit.take_back();
                None
            }
            wait => {
                self.now = self.now.saturating_add(duration(wait));
                None
            }
        };
        self.transitions.extend(transition);
    }

    fn learn(&mut self, delivery: DeliveryId, verdict: Verdict) -> Option<Transition> {
        self.circuit.learn(delivery, verdict, self.now, self.suspension, &self.policy)
    }

    /// Asks for admission, as a delivery would, and shows state and answer.
    fn shown(&mut self) -> &'static str {
        let (admission, transition) = self.circuit.ask(self.now, self.suspension, &self.policy);
        self.transitions.extend(transition);
        match (self.circuit.state_name(), admission) {
            (StateName::Closed, Admission::Admit) => "closed",
            (StateName::Open, Admission::WaitUntil(at)) => {
                assert!(at > self.now, "the wait is over");
                "open(wait)"
            }
            (StateName::Open, Admission::Probe) => "open(probe)",
            (StateName::HalfOpen, Admission::WaitUntil(_)) => "half-open(wait)",
            (StateName::Frozen, Admission::Refuse) => "frozen",
            (state, admission) => panic!("{state:?} answers {admission:?}"),
        }
    }
}

/// Parses `+71h59m59s` and the like.
fn duration(word: &str) -> Duration {
    let mut total = Duration::ZERO;
    let mut number = 0u64;
    for c in word.strip_prefix('+').unwrap_or_else(|| panic!("what is {word}?")).chars() {
        let unit = match c {
            'd' => Duration::from_secs(86_400),
            'h' => Duration::from_secs(3_600),
            'm' => Duration::from_secs(60),
            's' => Duration::from_secs(1),
            '~' => Duration::from_millis(1),
            digit => {
                number = number * 10 + u64::from(digit.to_digit(10).unwrap());
                continue;
            }
        };
        total += unit * u32::try_from(std::mem::take(&mut number)).unwrap();
    }
    assert_eq!(number, 0, "a number without a unit in {word}");
    total
}

#[track_caller]
fn check(inputs: &str, expected: &str) -> Bench {
    check_with(CircuitPolicy::default(), inputs, expected)
}

#[track_caller]
fn check_with(policy: CircuitPolicy, inputs: &str, expected: &str) -> Bench {
    let mut bench = Bench::new(policy);
    let shown: Vec<_> = inputs
        .split_whitespace()
        .map(|word| {
            bench.input(word);
            bench.shown()
        })
        .collect();
    assert_eq!(shown.join(" "), expected.split_whitespace().collect::<Vec<_>>().join(" "));
    bench
}

#[test]
fn a_disabled_destination_is_probed_every_ten_minutes_until_a_success() {
    check(
        "fail*2000  +10m        probe           fail       +10m        probe           ok",
        "open(wait) open(probe) half-open(wait) open(wait) open(probe) half-open(wait) closed",
    );
}

#[test]
fn a_hundred_attempts_are_the_grace_period() {
    check("fail*100 fail", "closed open(wait)");
    check("ok*30 fail*70 fail", "closed closed open(wait)");
    check("ok*29 fail*71 fail", "closed closed open(wait)");
}

#[test]
fn exactly_seventy_percent_of_failures_does_not_disable() {
    // 98 of 140 are exactly 70 %; 99 of 141 are more.
    check("ok*42 fail*98 fail", "closed closed open(wait)");
    // 100 of 143 are less than 70 %; 101 of 144 are more.
    check("ok*43 fail*100 fail", "closed closed open(wait)");
    check("fail*70 ok*30 ok fail", "closed closed closed closed");
}

#[test]
fn a_success_never_disables_whatever_the_share_is() {
    check("fail*100 ok*40", "closed closed");
    check("fail*90 ok*11 ok", "closed closed closed");
    // The next failure is evaluated: 101 of 102 failed.
    check("fail*100 ok fail", "closed closed open(wait)");
    check("fail*90 ok*11 fail", "closed closed open(wait)");
}

#[test]
fn two_thousand_consecutive_failures_disable_whatever_went_before() {
    check("ok*100000 fail*1999 fail", "closed closed open(wait)");
    check("ok*100000 fail*1999 ok fail*1999 fail", "closed closed closed closed open(wait)");
}

#[test]
fn a_success_resets_to_a_fresh_grace_period_and_is_not_counted_itself() {
    let bench = check(
        "fail*101   +10m        probe           ok",
        "open(wait) open(probe) half-open(wait) closed",
    );
    assert_eq!(bench.circuit.counters, Counters::default());
    check(
        "fail*101   +10m        probe           ok     fail*100 fail",
        "open(wait) open(probe) half-open(wait) closed closed   open(wait)",
    );
}

#[test]
fn probe_is_due_after_exactly_ten_minutes() {
    check("fail*101 +9m59s999~ +1~", "open(wait) open(wait) open(probe)");
    check(
        "fail*101   +10m        probe           +3s             fail       +9m59s999~ +1~",
        "open(wait) open(probe) half-open(wait) half-open(wait) open(wait) open(wait) open(probe)",
    );
}

#[test]
fn a_probe_may_be_late_but_is_single() {
    let bench = check(
        "fail*101   +1h         probe           probe?          +1h             probe?",
        "open(wait) open(probe) half-open(wait) half-open(wait) half-open(wait) half-open(wait)",
    );
    assert_eq!(bench.transitions.len(), 2);
}

#[test]
fn earlier_admission_is_valid_only_while_the_state_allows_it() {
    let (probe, other) = (DeliveryId::from_bytes([1; 16]), DeliveryId::from_bytes([2; 16]));
    let cases = [
        ("fail*100", (true, true)),
        ("fail*101", (false, false)),
        ("fail*101 +10m", (false, false)),
        ("fail*101 +10m probe", (true, false)),
        ("fail*101 +10m probe fail", (false, false)),
        ("fail*101 +10m probe freeze", (false, false)),
        ("fail*101 +10m probe enable", (true, true)),
        ("freeze", (false, false)),
    ];
    for (inputs, expected) in cases {
        let mut bench = Bench::new(CircuitPolicy::default());
        inputs.split_whitespace().for_each(|word| bench.input(word));
        let circuit = &bench.circuit;
        let admitted = (circuit.still_admits(probe), circuit.still_admits(other));
        assert_eq!(admitted, expected, "{inputs}");
    }
}

#[test]
fn only_the_probe_restarts_the_probe_interval() {
    check(
        "fail*101   +9m        late-fail  +1m         probe           late-fail       fail",
        "open(wait) open(wait) open(wait) open(probe) half-open(wait) half-open(wait) open(wait)",
    );
}

#[test]
fn a_success_of_an_attempt_still_in_flight_enables_too() {
    let bench = check("fail*101 late-ok", "open(wait) closed");
    assert_eq!(bench.transitions[1].evidence, Evidence::Success { by_probe: false });
    assert_eq!(bench.circuit.counters, Counters::default());
    let bench = check(
        "fail*101   +10m        probe           late-ok fail",
        "open(wait) open(probe) half-open(wait) closed  closed",
    );
    // The probe's failure, settled after that, counts as an ordinary failure.
    assert_eq!(bench.circuit.counters.failures, 1);
    assert_eq!(bench.transitions.len(), 3);
}

#[test]
fn frozen_over_two_thousand_failures_and_seventy_two_hours() {
    check("ok fail*2000 +72h1s", "closed open(wait) open(probe)");
    check(
        "ok     fail*2000  late-fail  +71h59m59s  +1s         +1~",
        "closed open(wait) open(wait) open(probe) open(probe) frozen",
    );
    check("ok fail*2000 late-fail +72h1s", "closed open(wait) open(wait) frozen");
    // In the other order: first the hours pass, then the failure comes.
    check("fail*2000 +72h1s late-fail", "open(wait) open(probe) frozen");
}

#[test]
fn the_hours_count_from_creation_where_there_was_no_success() {
    check("+72h fail*2000 late-fail +1~", "closed open(wait) open(wait) frozen");
    check("+72h1~ fail*1999 fail late-fail", "closed open(wait) open(wait) frozen");
}

#[test]
fn fifty_thousand_consecutive_failures_freeze_in_any_time() {
    check(
        "ok     fail*2000  late-fail*47999 late-fail",
        "closed open(wait) open(wait)      frozen",
    );
}

#[test]
fn a_failed_probe_can_be_what_freezes() {
    let bench = check(
        "fail*2000  +73h        probe           fail",
        "open(wait) open(probe) half-open(wait) frozen",
    );
    let last = bench.transitions.last().unwrap();
    assert_eq!((last.from, last.to), (StateName::HalfOpen, StateName::Frozen));
    assert_eq!(last.evidence, Evidence::NoSuccess { since: START });
    assert_eq!(last.counters.consecutive_failures, 2_001);
}

#[test]
fn only_enabling_by_hand_ends_frozen() {
    check(
        "freeze +100d  late-ok late-fail late-gone probe? ours   crash  enable",
        "frozen frozen frozen  frozen    frozen    frozen frozen frozen closed",
    );
    let bench = check("fail*50 freeze late-ok", "closed frozen frozen");
    assert_eq!(bench.circuit.last_success_at, START);
    assert!(bench.circuit.ever_succeeded);
    assert_eq!(bench.circuit.counters.successes, 1, "a late success is recorded");
    assert_eq!(bench.circuit.counters.consecutive_failures, 0);
    let bench = check("fail*50 freeze enable", "closed frozen closed");
    assert_eq!(bench.circuit.counters, Counters::default());
}

#[test]
fn gone_freezes_from_every_state_and_says_so() {
    for (inputs, expected) in [
        ("gone", "frozen"),
        ("fail*101 late-gone", "open(wait) frozen"),
        ("fail*101 +10m probe gone", "open(wait) open(probe) half-open(wait) frozen"),
        ("suspend gone", "closed frozen"),
    ] {
        let bench = check(inputs, expected);
        assert_eq!(bench.transitions.last().unwrap().evidence, Evidence::Gone);
        assert!(bench.circuit.shown_counters().failures >= 1, "it counts as a failure too");
    }
    assert_eq!(check("freeze gone", "frozen frozen").transitions.len(), 1);
}

#[test]
fn faults_of_our_own_never_count() {
    let bench = check("fail*100 ours*100000 fail", "closed closed open(wait)");
    assert_eq!(bench.circuit.counters.attempts, 101);
    // A probe that failed through our own fault proves nothing; the next one follows ten minutes
    // later.
    let bench = check(
        "fail*101   +10m        probe           ours       +10m        probe           ok",
        "open(wait) open(probe) half-open(wait) open(wait) open(probe) half-open(wait) closed",
    );
    assert_eq!(bench.transitions[2].evidence, Evidence::ProbeLost);
    check(
        "fail*101   +10m        probe           late-ours",
        "open(wait) open(probe) half-open(wait) half-open(wait)",
    );
}

#[test]
fn failures_while_transitions_are_suspended_are_taken_back() {
    let bench = check("ok*7 suspend fail*60000 +100d", "closed closed closed closed");
    let counters = bench.circuit.shown_counters();
    assert_eq!((counters.attempts, counters.consecutive_failures), (60_007, 60_000), "counted");
    let bench = check(
        "ok*7 suspend fail*9 ok fail*60000 resume",
        "closed closed closed closed closed closed",
    );
    assert_eq!(bench.circuit.shown_counters(), bench.circuit.counters);
    assert_eq!((bench.circuit.counters.attempts, bench.circuit.counters.failures), (8, 0));
    check("suspend fail*1999 resume fail*100 fail", "closed closed closed closed open(wait)");
    check("suspend fail*150 resume ok", "closed closed closed closed");
    check("suspend fail*50000 resume +100d fail*100", "closed closed closed closed closed");
    // The failures before the suspension stay.
    check(
        "fail*90 +2m suspend fail*150 resume fail*10 fail",
        "closed closed closed closed closed closed open(wait)",
    );
    // A process that ends during the suspension drops the failures when it reads the circuit again.
    let mut bench = check("suspend fail*50000", "closed closed");
    bench.circuit.take_back();
    assert_eq!(bench.circuit, Circuit::new(START));
    // Transitions to enabled are not suspended.
    check(
        "fail*101   +2m        suspend    +8m         probe           ok",
        "open(wait) open(wait) open(wait) open(probe) half-open(wait) closed",
    );
    check(
        "fail*101   +2m        suspend    +8m         probe           fail",
        "open(wait) open(wait) open(wait) open(probe) half-open(wait) open(wait)",
    );
}

#[test]
fn failures_of_the_minute_before_a_suspension_are_taken_back() {
    let bench = check(
        "ok*20 fail*60 +59s suspend fail*9 resume",
        "closed closed closed closed closed closed",
    );
    assert_eq!((bench.circuit.counters.attempts, bench.circuit.counters.failures), (20, 0));
    // A run of failures that is older than a minute began before the outage.
    let bench = check("fail*60 +1m1~ suspend resume", "closed closed closed closed");
    assert_eq!(bench.circuit.counters.failures, 60);
    let bench = check("fail +1m1~ fail*59 suspend resume", "closed closed closed closed closed");
    assert_eq!(bench.circuit.counters.failures, 60, "one run of failures is one");
    let bench = check("fail*60 ok fail*9 suspend resume", "closed closed closed closed closed");
    assert_eq!(bench.circuit.counters.failures, 60, "a success ends a run");
}

#[test]
fn a_destination_that_the_first_minute_of_an_outage_disabled_is_enabled_again() {
    let bench =
        check("fail*101 +50s suspend fail*50 resume", "open(wait) open(wait) closed closed closed");
    assert!(bench.transitions[1].evidence.is_taken_back());
    assert_eq!(bench.transitions[1].counters.failures, 101, "what was counted until then");
    assert_eq!(bench.circuit.counters, Counters::default());
    check("ok*9000 fail*2000 suspend", "closed open(wait) closed");
    // A destination that was disabled before the outage, frozen by a person, or gone stays as it
    // is.
    check("fail*101 +1m1~ late-fail suspend", "open(wait) open(wait) open(wait) open(wait)");
    check("fail*9 freeze suspend resume", "closed frozen frozen frozen");
    check("fail*9 gone suspend resume", "closed frozen frozen frozen");
}

#[test]
fn a_circuit_that_an_older_version_stored_is_read() {
    let stored = r#"{"state":{"state":"closed"},"counters":{"attempts":90,"successes":0,
        "failures":90,"consecutive_failures":90},"last_success_at":"2026-01-01T00:00:00.000Z",
        "ever_succeeded":false}"#;
    let mut circuit: Circuit = serde_json::from_str(stored).unwrap();
    assert_eq!((circuit.failing_since, circuit.suspended), (None, Suspended::default()));
    circuit.suspend(Timestamp::EPOCH, START);
    assert_eq!(circuit.counters.failures, 90, "nobody knows when they began");
}

#[test]
fn a_crash_loses_the_probe_but_not_its_ten_minutes() {
    check(
        "fail*101   +10m        probe           +2m             crash      +7m59s     +1s",
        "open(wait) open(probe) half-open(wait) half-open(wait) open(wait) open(wait) open(probe)",
    );
    check("crash fail*101 crash", "closed open(wait) open(wait)");
}

#[test]
fn enabling_and_freezing_by_hand_work_in_every_state() {
    check("freeze freeze enable enable", "frozen frozen closed closed");
    let bench = check("fail*60 enable fail*60", "closed closed closed");
    assert_eq!(bench.circuit.counters.attempts, 60, "enabling resets the counters");
    assert!(bench.transitions.is_empty());
    let bench = check("fail*101 enable", "open(wait) closed");
    let reason = Some("mended".to_owned());
    assert_eq!(bench.transitions[1].evidence, Evidence::ByHand { reason });
    let bench = check(
        "fail*101   +10m        probe           enable fail",
        "open(wait) open(probe) half-open(wait) closed closed",
    );
    assert_eq!(bench.circuit.counters.failures, 1, "what was the probe is an ordinary attempt");
}

#[test]
fn every_transition_has_its_evidence() {
    let bench = check(
        "fail*101   +10m        probe           fail       freeze enable",
        "open(wait) open(probe) half-open(wait) open(wait) frozen closed",
    );
    let shown: Vec<_> = bench.transitions.iter().map(|t| (t.from, t.to)).collect();
    use StateName::{Closed, Frozen, HalfOpen, Open};
    assert_eq!(
        shown,
        [(Closed, Open), (Open, HalfOpen), (HalfOpen, Open), (Open, Frozen), (Frozen, Closed)]
    );
    assert_eq!(bench.transitions[0].evidence, Evidence::FailureShare);
    assert_eq!(bench.transitions[0].counters.failures, 101);
    assert_eq!(bench.transitions[2].evidence, Evidence::ProbeFailed);
    assert_eq!(bench.transitions[4].counters.failures, 102, "what was known before the reset");
    let CircuitState::Closed = bench.circuit.state else { panic!() };
}

#[test]
fn circuit_round_trips_through_its_stored_form() {
    for inputs in ["ok", "fail*101", "fail*101 +10m probe", "gone", "freeze", "suspend fail"] {
        let mut bench = Bench::new(CircuitPolicy::default());
        inputs.split_whitespace().for_each(|word| bench.input(word));
        let json = serde_json::to_string(&bench.circuit).unwrap();
        assert_eq!(serde_json::from_str::<Circuit>(&json).unwrap(), bench.circuit, "{json}");
        for transition in bench.transitions {
            let json = serde_json::to_string(&transition).unwrap();
            assert_eq!(serde_json::from_str::<Transition>(&json).unwrap(), transition);
        }
    }
}

#[test]
fn thresholds_of_one_are_a_policy_too() {
    let policy = CircuitPolicy { disable_consecutive: 1, ..CircuitPolicy::default() };
    check_with(policy, "fail", "open(wait)");
    let policy = CircuitPolicy { freeze_consecutive: 1, ..CircuitPolicy::default() };
    check_with(policy, "fail", "frozen");
}

fn any_input() -> impl Strategy<Value = &'static str> {
    prop_oneof![
        8 => Just("fail"),
        3 => Just("ok"),
        2 => Just("late-fail"),
        1 => Just("late-ok"),
        1 => Just("ours"),
        1 => Just("late-gone"),
        3 => Just("probe?"),
        3 => Just("+10m"),
        1 => Just("+30h"),
        1 => Just("enable"),
        1 => Just("freeze"),
        1 => Just("suspend"),
        1 => Just("resume"),
        1 => Just("crash"),
    ]
}

/// Thresholds so low that random sequences reach all of them.
fn low_thresholds() -> CircuitPolicy {
    CircuitPolicy {
        disable_grace: 5,
        disable_consecutive: 8,
        freeze_over_consecutive: 8,
        freeze_consecutive: 14,
        ..CircuitPolicy::default()
    }
}

proptest! {
    /// `shown` panics on a state without an answer, so this also checks that every state has one.
    #[test]
    fn frozen_ends_by_hand_only_and_probes_are_single(
        inputs in proptest::collection::vec(any_input(), 1..200),
    ) {
        let mut bench = Bench::new(low_thresholds());
        let mut probe_sent_at: Option<Timestamp> = None;
        for word in inputs {
            let before = bench.circuit.state_name();
            bench.input(word);
            let after = bench.circuit.state_name();
            if before == StateName::Frozen && word != "enable" {
                prop_assert_eq!(after, StateName::Frozen);
            }
            if word == "probe?" && before != after {
                prop_assert_eq!((before, after), (StateName::Open, StateName::HalfOpen));
                if let Some(at) = probe_sent_at {
                    prop_assert!(bench.now.since(at) >= bench.policy.probe_interval);
                }
                probe_sent_at = Some(bench.now);
            }
            if word == "enable" {
                probe_sent_at = None;
            }
            let shown = bench.shown();
            prop_assert!(shown != "closed" || bench.circuit.state == CircuitState::Closed);
        }
        for pair in bench.transitions.windows(2) {
            prop_assert_eq!(pair[0].to, pair[1].from, "the timeline has no gaps");
            prop_assert!(pair[0].at <= pair[1].at);
        }
    }

    #[test]
    fn counters_never_disagree_with_the_sequence_they_came_from(
        inputs in proptest::collection::vec(any_input(), 1..200),
    ) {
        let mut bench = Bench::new(low_thresholds());
        let (mut attempts, mut failures, mut row) = (0, 0, 0);
        for word in inputs.into_iter().filter(|word| !matches!(*word, "suspend" | "resume")) {
            let was = bench.circuit.state_name();
            bench.input(word);
            let reset = word == "enable"
                || (word.ends_with("ok") && matches!(was, StateName::Open | StateName::HalfOpen));
            match word {
                "fail" | "late-fail" | "late-gone" => {
                    (attempts, failures, row) = (attempts + 1, failures + 1, row + 1);
                }
                "ok" | "late-ok" => (attempts, row) = (attempts + 1, 0),
                _ => {}
            }
            if reset {
                (attempts, failures, row) = (0, 0, 0);
            }
            bench.shown();
            let counters = bench.circuit.counters;
            prop_assert_eq!(counters.attempts, attempts);
            prop_assert_eq!(counters.failures, failures);
            prop_assert_eq!(counters.successes, attempts - failures);
            prop_assert_eq!(counters.consecutive_failures, row);
        }
    }
}

#[test]
fn every_evidence_has_the_word_that_the_api_shows_as_why() {
    let delivery = DeliveryId::from_bytes([1; 16]);
    for evidence in [
        Evidence::FailureShare,
        Evidence::ConsecutiveFailures,
        Evidence::NoSuccess { since: Timestamp::EPOCH },
        Evidence::Gone,
        Evidence::ProbeSent { delivery },
        Evidence::ProbeFailed,
        Evidence::ProbeLost,
        Evidence::Success { by_probe: true },
        Evidence::ByHand { reason: None },
    ] {
        let shown = serde_json::to_value(&evidence).unwrap();
        assert_eq!(shown["why"], evidence.as_str());
    }
}
