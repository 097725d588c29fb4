//! Random runs, compared with the list of acknowledged records.

use proptest::collection::vec;
use proptest::prelude::*;

use super::medium::{Fault, Repeat, When};
use super::*;

#[derive(Debug, Clone)]
enum Act {
    Append(u64, Reserve),
    Release(u64),
    Close,
    Kill,
    Crash(u64),
    Fail(u64, Fault, Repeat),
    Heal,
    Capacity(Option<u64>),
}

fn act() -> impl Strategy<Value = Act> {
    let reserve = prop_oneof![Just(Reserve::Normal), Just(Reserve::MayUseReserve)];
    let fault = prop_oneof![Just(Fault::Io), Just(Fault::Full), Just(Fault::ShortWrite)];
    let repeat = prop_oneof![3 => Just(Repeat::Once), 1 => Just(Repeat::FromThenOn)];
    prop_oneof![
        12 => (1..7_u64, reserve).prop_map(|(count, reserve)| Act::Append(count, reserve)),
        4 => (0..9_u64).prop_map(Act::Release),
        1 => Just(Act::Close),
        1 => Just(Act::Kill),
        2 => any::<u64>().prop_map(Act::Crash),
        3 => (1..12_u64, fault, repeat).prop_map(|(after, f, r)| Act::Fail(after, f, r)),
        2 => Just(Act::Heal),
        1 => prop_oneof![Just(None), (0..8_u64).prop_map(|n| Some(n * SEGMENT_BYTES))]
            .prop_map(Act::Capacity),
    ]
}

/// Starts again; faults may be planned for the start.
fn restart(process: &mut Process) {
    if let Err(error) = process.start() {
        let harmless = matches!(error, JournalError::Io { .. });
        assert!(harmless, "{error}");
        process.medium.set_capacity_bytes(None);
        process.kill();
        process.start().unwrap();
    }
}

fn live(seed: u64, acts: Vec<Act>) {
    let mut process = Process::new(SimulatedMedium::new(seed));
    restart(&mut process);
    for act in acts {
        match act {
            Act::Append(count, reserve) => process.append(count, reserve),
            Act::Release(but_for) => process.release(but_for),
            Act::Close => {
                process.close();
                restart(&mut process);
            }
            Act::Kill => {
                process.kill();
                restart(&mut process);
            }
            Act::Crash(seed) => {
                process.crash(seed);
                restart(&mut process);
            }
            Act::Fail(after, fault, repeat) => {
                let operation = process.medium.operations() + after;
                process.medium.fail(When { operation, fault, repeat });
            }
            Act::Heal => process.medium.heal(),
            Act::Capacity(bytes) => process.medium.set_capacity_bytes(bytes),
        }
        process.check_handed_on();
    }
    process.medium.set_capacity_bytes(None);
    process.crash(seed);
    process.start().unwrap();
    let refused = process.unacknowledged.len();
    process.append(2, Reserve::Normal);
    assert_eq!(process.unacknowledged.len(), refused, "with room and without faults it works");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn random_runs_lose_no_acknowledged_record(seed in any::<u64>(), acts in vec(act(), 1..60)) {
        live(seed, acts);
    }
}
