//! An independent model of the circuit, written from the contract's sentences. It keeps the whole
//! history and counts it again each time, and must agree with the real circuit at every step.

use std::time::Duration;

use postrider_domain::attempt::Verdict;
use postrider_domain::circuit::{Admission, Circuit, StateName, Suspension};
use postrider_domain::ids::DeliveryId;
use postrider_domain::policy::CircuitPolicy;
use postrider_domain::time::Timestamp;
use proptest::prelude::*;

const START: Timestamp = Timestamp::from_unix_ms(1_763_199_000_000);

/// The model's record of a destination.
#[derive(Default)]
struct Notebook {
    /// Settled attempts since the last reset.
    since_reset: Vec<Note>,
    last_success: Option<Timestamp>,
    disabled: bool,
    disabled_at: Option<Timestamp>,
    frozen: bool,
    /// The time from which the probe interval counts: when it was disabled, or when the last probe
    /// failed.
    ten_minutes_from: Option<Timestamp>,
    probe: Option<(u8, Timestamp)>,
}

/// A settled attempt.
struct Note {
    arrived: bool,
    at: Timestamp,
    /// "Failures counted while transitions are suspended are taken back when the suspension ends."
    to_be_taken_back: bool,
}

/// Consecutive failures that began up to a minute before the suspension belong to it.
const MINUTE: Duration = Duration::from_secs(60);

impl Notebook {
    fn note(&mut self, arrived: bool, at: Timestamp, suspended: bool) {
        self.since_reset.push(Note { arrived, at, to_be_taken_back: suspended && !arrived });
    }

    fn counted(&self) -> u64 {
        self.since_reset.iter().filter(|note| !note.to_be_taken_back).count() as u64
    }

    /// The consecutive failures that will not be dropped.
    fn run(&self) -> impl Iterator<Item = &Note> {
        let run = self.since_reset.iter().rev().take_while(|note| !note.arrived);
        run.filter(|note| !note.to_be_taken_back)
    }

    fn consecutive_failures(&self) -> u64 {
        self.run().count() as u64
    }

    fn failures(&self) -> u64 {
        let failures = self.since_reset.iter().filter(|note| !note.arrived);
        failures.filter(|note| !note.to_be_taken_back).count() as u64
    }

    /// "An outage of our own never disables anybody": not in its first minute either.
    fn suspended(&mut self, now: Timestamp) {
        let since = now.saturating_sub(MINUTE);
        if self.run().last().is_none_or(|first| first.at < since) {
            return;
        }
        if self.disabled && !self.frozen && self.disabled_at >= Some(since) {
            (self.disabled, self.disabled_at, self.ten_minutes_from) = (false, None, None);
            self.probe = None;
        }
        let notes = self.since_reset.iter_mut().rev();
        notes.take_while(|note| !note.arrived).for_each(|note| note.to_be_taken_back = true);
    }

    fn resumed(&mut self) {
        self.since_reset.retain(|note| !note.to_be_taken_back);
    }

    /// "Frozen when consecutive failures are over 2,000 and the last success is over 72 hours ago,
    /// or at 50,000 consecutive failures in any time."
    fn judge_frozen(&mut self, now: Timestamp, suspended: bool, policy: &CircuitPolicy) {
        let n = self.consecutive_failures();
        let quiet = now.since(self.last_success.unwrap_or(START));
        let by_time = n > policy.freeze_over_consecutive && quiet > policy.freeze_after;
        if !suspended && (by_time || n >= policy.freeze_consecutive) {
            self.frozen = true;
            self.probe = None;
        }
    }

    /// "Disabled when more than 70 % of more than 100 attempts since the last reset failed, or at
    /// 2,000 consecutive failures." "Only a failed attempt can disable a destination."
    fn judge_disabled(&mut self, now: Timestamp, suspended: bool, policy: &CircuitPolicy) {
        let attempts = self.counted();
        let share = self.failures() * 100 > attempts * 70 && attempts > policy.disable_grace;
        let row = self.consecutive_failures() >= policy.disable_consecutive;
        if !suspended && !self.frozen && !self.disabled && (share || row) {
            self.disabled = true;
            (self.disabled_at, self.ten_minutes_from) = (Some(now), Some(now));
        }
    }

    fn reset(&mut self) {
        *self = Notebook { last_success: self.last_success, ..Notebook::default() };
    }

    fn settled(
        &mut self,
        who: u8,
        arrived: bool,
        now: Timestamp,
        suspended: bool,
        p: &CircuitPolicy,
    ) {
        if arrived {
            self.last_success = Some(now);
            if self.disabled && !self.frozen {
                return self.reset();
            }
        }
        self.note(arrived, now, suspended);
        let was_probe = self.probe.is_some_and(|(probe, _)| probe == who);
        if arrived {
            return;
        }
        self.judge_frozen(now, suspended, p);
        if was_probe && !self.frozen {
            self.probe = None;
            self.ten_minutes_from = Some(now);
        }
        self.judge_disabled(now, suspended, p);
    }

    fn may_probe(&self, now: Timestamp, policy: &CircuitPolicy) -> bool {
        let waited = self.ten_minutes_from.map(|from| now.since(from) >= policy.probe_interval);
        self.disabled && !self.frozen && self.probe.is_none() && waited == Some(true)
    }

    fn shown(&self) -> StateName {
        match (self.frozen, self.disabled, self.probe) {
            (true, _, _) => StateName::Frozen,
            (false, true, Some(_)) => StateName::HalfOpen,
            (false, true, None) => StateName::Open,
            (false, false, _) => StateName::Closed,
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Settle { who: u8, verdict: u8, times: u16 },
    Wait { ms: u64 },
    Probe { who: u8 },
    Enable,
    Freeze,
    Suspend(bool),
    Crash,
}

fn any_step(times: u16) -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (0u8..3, 0u8..20, 1..=times)
            .prop_map(|(who, verdict, times)| Step::Settle { who, verdict, times }),
        3 => (0u64..700_000).prop_map(|ms| Step::Wait { ms }),
        1 => (0u64..100 * 3_600_000).prop_map(|ms| Step::Wait { ms }),
        3 => Just(Step::Wait { ms: 600_000 }),
        4 => (0u8..3).prop_map(|who| Step::Probe { who }),
        1 => Just(Step::Enable),
        1 => Just(Step::Freeze),
        1 => any::<bool>().prop_map(Step::Suspend),
        1 => Just(Step::Crash),
    ]
}

fn id(who: u8) -> DeliveryId {
    DeliveryId::from_bytes([who; 16])
}

/// Runs both and compares after every single outcome.
fn agree(steps: Vec<Step>, policy: &CircuitPolicy) -> Result<(), TestCaseError> {
    let (mut circuit, mut notebook) = (Circuit::new(START), Notebook::default());
    let (mut now, mut suspended) = (START, false);
    for step in steps {
        let suspension = if suspended { Suspension::On } else { Suspension::Off };
        match step {
            Step::Settle { who, verdict, times } => {
                for _ in 0..times {
                    settle(&mut circuit, &mut notebook, (who, verdict), now, suspension, policy);
                    prop_assert_eq!(circuit.state_name(), notebook.shown(), "{:?}", step);
                }
            }
            Step::Wait { ms } => now = now.saturating_add(Duration::from_millis(ms)),
            Step::Probe { who } => {
                let sent = circuit.begin_probe(id(who), now).is_some();
                prop_assert_eq!(sent, notebook.may_probe(now, policy));
                if sent {
                    notebook.probe = Some((who, now));
                }
            }
            Step::Enable => {
                circuit.enable(None, now);
                notebook.reset();
            }
            Step::Freeze => {
                circuit.freeze(None, now);
                (notebook.frozen, notebook.probe) = (true, None);
            }
            Step::Suspend(true) if !suspended => {
                suspended = true;
                circuit.suspend(now.saturating_sub(MINUTE), now);
                notebook.suspended(now);
            }
            Step::Suspend(on) => {
                suspended = on;
                if !suspended {
                    circuit.take_back();
                    notebook.resumed();
                }
            }
            Step::Crash => {
                circuit.recover(now, policy);
                if let Some((_, sent_at)) = notebook.probe.take() {
                    notebook.ten_minutes_from = Some(sent_at);
                }
            }
        }
        ask(&mut circuit, &mut notebook, now, suspended, policy)?;
    }
    Ok(())
}

fn settle(
    circuit: &mut Circuit,
    notebook: &mut Notebook,
    (who, verdict): (u8, u8),
    now: Timestamp,
    suspension: Suspension,
    policy: &CircuitPolicy,
) {
    let suspended = suspension == Suspension::On;
    let verdict = match verdict {
        0..4 => {
            notebook.settled(who, true, now, suspended, policy);
            Verdict::Success
        }
        4..18 => {
            notebook.settled(who, false, now, suspended, policy);
            Verdict::Failure
        }
        18 => {
            notebook.note(false, now, suspended);
            (notebook.frozen, notebook.probe) = (true, None);
            Verdict::Gone
        }
        _ => {
            if notebook.probe.is_some_and(|(probe, _)| probe == who) {
                (notebook.probe, notebook.ten_minutes_from) = (None, Some(now));
            }
            Verdict::OwnFault
        }
    };
    circuit.learn(id(who), verdict, now, suspension, policy);
}

/// Asks both for admission, and checks that the answers agree.
fn ask(
    circuit: &mut Circuit,
    notebook: &mut Notebook,
    now: Timestamp,
    suspended: bool,
    policy: &CircuitPolicy,
) -> Result<(), TestCaseError> {
    let suspension = if suspended { Suspension::On } else { Suspension::Off };
    let (admission, _) = circuit.ask(now, suspension, policy);
    if !notebook.frozen {
        notebook.judge_frozen(now, suspended, policy);
    }
    prop_assert_eq!(circuit.state_name(), notebook.shown());
    prop_assert_eq!(circuit.counters.attempts, notebook.counted());
    prop_assert_eq!(circuit.shown_counters().attempts, notebook.since_reset.len() as u64);
    prop_assert_eq!(circuit.counters.failures, notebook.failures());
    prop_assert_eq!(circuit.counters.consecutive_failures, notebook.consecutive_failures());
    prop_assert_eq!(circuit.last_success_at, notebook.last_success.unwrap_or(START));
    let expected = match notebook.shown() {
        StateName::Closed => admission == Admission::Admit,
        StateName::Frozen => admission == Admission::Refuse,
        StateName::Open if notebook.may_probe(now, policy) => admission == Admission::Probe,
        StateName::Open | StateName::HalfOpen => matches!(admission, Admission::WaitUntil(_)),
    };
    prop_assert!(expected, "{:?} answers {:?}", notebook.shown(), admission);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn model_agrees_with_the_circuit_at_low_thresholds(
        steps in proptest::collection::vec(any_step(3), 1..150),
    ) {
        let policy = CircuitPolicy {
            disable_grace: 10,
            disable_consecutive: 15,
            freeze_over_consecutive: 15,
            freeze_consecutive: 30,
            ..CircuitPolicy::default()
        };
        agree(steps, &policy)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn model_agrees_with_the_circuit_at_the_defaults(
        steps in proptest::collection::vec(any_step(600), 1..40),
    ) {
        agree(steps, &CircuitPolicy::default())?;
    }
}
