//! Sweeps over faults: the k-th operation fails, or the power fails after the k-th, for every k.

use super::medium::{Fault, Repeat, When};
use super::*;

const STEPS: u64 = 20;

fn operations_of_the_script() -> u64 {
    let mut process = Process::new(SimulatedMedium::new(1));
    script(&mut process, STEPS);
    assert_eq!(process.unacknowledged, Vec::<Bytes>::new(), "without faults nothing is refused");
    assert!(process.acknowledged.len() > 40);
    process.medium.operations()
}

#[test]
fn whichever_operation_fails_nothing_acknowledged_is_lost_and_it_opens_again() {
    let operations = operations_of_the_script();
    let (mut runs, mut acknowledged, mut refused) = (0, 0, 0);
    for fault in [Fault::Io, Fault::Full, Fault::ShortWrite] {
        for repeat in [Repeat::Once, Repeat::FromThenOn] {
            for operation in 1..=operations {
                let mut process = Process::new(SimulatedMedium::new(operation));
                process.medium.fail(When { operation, fault, repeat });
                script(&mut process, STEPS);
                refused += process.unacknowledged.len();
                acknowledged += process.acknowledged.len();
                runs += 1;

                // The process ends and the fault is over; the machine keeps running.
                process.kill();
                process.start().unwrap();
                process.append(3, Reserve::Normal);
                // Records that a restart returned after a failed sync must be on the disk by now.
                process.crash(operation);
                process.start().unwrap();
                let refused_before = process.unacknowledged.len();
                process.append(3, Reserve::Normal);
                assert_eq!(process.unacknowledged.len(), refused_before, "it works again");
                assert!(process.close());
                process.start().unwrap();
            }
        }
    }
    println!(
        "journal k-th operation fails: {runs} runs over {operations} operations, \
         {acknowledged} acknowledged, {refused} refused, 0 lost"
    );
}

#[test]
fn whenever_the_power_fails_nothing_acknowledged_is_lost_and_it_opens_again() {
    const SEEDS: u64 = 24;
    let operations = operations_of_the_script();
    let (mut crashes, mut acknowledged) = (0, 0);
    for operation in 0..=operations {
        let mut process = Process::new(SimulatedMedium::new(operation));
        process.medium.power_off_after(operation);
        script(&mut process, STEPS);
        for seed in 0..SEEDS {
            let mut after = process.fork();
            after.crash(operation * SEEDS + seed);
            crashes += 1;
            acknowledged += after.acknowledged.len();
            if seed % 3 == 0 {
                // The power fails a second time, during the recovery.
                let later = after.medium.operations() + (operation + seed) % 17;
                after.medium.power_off_after(later);
                let opened = after.start();
                after.crash(seed);
                crashes += 1;
                assert!(
                    !matches!(opened, Err(JournalError::Corrupt { .. })),
                    "{operation} {seed}: {opened:?}"
                );
            }
            after.start().unwrap_or_else(|error| panic!("{operation} {seed}: {error}"));
            after.append(2, Reserve::Normal);
            after.crash(seed + 1);
            crashes += 1;
            after.start().unwrap_or_else(|error| panic!("{operation} {seed}: {error}"));
        }
    }
    println!(
        "journal power cut: {crashes} crashes over {operations} operations, \
         {acknowledged} acknowledged, 0 lost"
    );
}

#[test]
fn abandoned_batch_leaves_no_bytes_that_verify() {
    // Batches of equal shape, so that the records of the second are written exactly over those of
    // the first.
    for seed in 0..400 {
        let medium = SimulatedMedium::new(seed);
        let (journal, _, _) = open(&medium, options(seed)).unwrap();
        let batch = |letter: u8| {
            let record = || (1, Bytes::from(vec![letter; 492]), Reserve::Normal);
            (0..6).map(|_| record()).collect::<Vec<_>>()
        };
        let operation = medium.operations() + 1;
        medium.fail(When { operation, fault: Fault::ShortWrite, repeat: Repeat::Once });
        assert!(journal.append_together(batch(b'a')).iter().all(Result::is_err));
        medium.power_off_after(medium.operations() + 1);
        assert!(journal.append_together(batch(b'b')).iter().all(Result::is_err));
        medium.crash(seed);
        let (_, seen, _) = open(&medium, options(seed)).unwrap();
        assert!(seen.is_empty() || seen.len() == 6, "{}", seen.len());
        assert!(seen.iter().all(|(_, payload)| payload[..] == [b'b'; 492]), "a mixture");
    }
}
