//! The journal without faults, or with one.

use super::super::writer;
use super::medium::{Fault, Repeat, When};
use super::*;
use crate::embedded::medium::Medium;

fn append(journal: &Journal, payload: Bytes) -> Result<Position, AppendError> {
    now(journal.append(1, payload, Reserve::Normal))
}

fn count_of(medium: &SimulatedMedium, prefix: &str) -> usize {
    medium.list().unwrap().iter().filter(|name| name.starts_with(prefix)).count()
}

#[test]
fn records_come_back_in_order_with_their_kinds_after_the_applied_position() {
    let medium = SimulatedMedium::new(1);
    let (journal, seen, _) = open(&medium, options(1)).unwrap();
    assert!(seen.is_empty());
    for kind in 0..=255 {
        let position = now(journal.append(kind, payload(u64::from(kind)), Reserve::Normal));
        assert_eq!(position.unwrap().sequence(), u64::from(kind) + 1);
    }
    journal.close().unwrap();
    assert!(matches!(append(&journal, payload(1)), Err(AppendError::Closed)));
    for applied in [0, 1, 100, 255, 256] {
        let options = JournalOptions { applied: Position::new(applied), ..options(2) };
        let (journal, recovered) =
            Journal::open(Arc::new(medium.fork()), options, Hooks::none()).unwrap();
        assert_eq!((recovered.last(), recovered.torn()), (Position::new(256), None));
        let kinds: Vec<u64> =
            recovered.into_records().map(|record| u64::from(record.unwrap().kind) + 1).collect();
        assert_eq!(kinds, (applied + 1..=256).collect::<Vec<_>>());
        assert_eq!(append(&journal, payload(1)).unwrap().sequence(), 257);
    }
    let ahead = JournalOptions { applied: Position::new(257), ..options(2) };
    let error = open(&medium, ahead).err().unwrap();
    assert_eq!(error.to_string(), "the journal ends at record 256, but the store has applied 257");
}

#[test]
fn missing_journal_that_must_exist_is_not_created() {
    let medium = SimulatedMedium::new(1);
    let existing = JournalOptions { create: false, ..options(1) };
    assert!(matches!(open(&medium, existing), Err(JournalError::NoJournal { .. })));
    let later = JournalOptions { applied: Position::new(41), ..options(1) };
    let (journal, _, _) = open(&medium, later).unwrap();
    assert_eq!(append(&journal, payload(1)).unwrap().sequence(), 42);
}

#[test]
fn second_opening_is_refused_while_the_first_is_open() {
    let medium = SimulatedMedium::new(1);
    let (journal, _, _) = open(&medium, options(1)).unwrap();
    assert!(matches!(open(&medium, options(2)), Err(JournalError::Locked { .. })));
    drop(journal);
    assert!(open(&medium, options(2)).is_ok());
}

#[test]
fn options_that_cannot_work_are_refused() {
    for segment_bytes in [0, 4096, 8191, 10_000, 1 << 33] {
        let options = JournalOptions { segment_bytes, ..options(1) };
        let opened = open(&SimulatedMedium::new(1), options);
        assert!(matches!(opened, Err(JournalError::Options(_))), "{segment_bytes}");
    }
}

#[test]
fn the_longest_record_fits_and_a_longer_one_is_refused() {
    let medium = SimulatedMedium::new(1);
    let (journal, _, _) = open(&medium, options(1)).unwrap();
    let longest = journal.record_bytes_max();
    assert!(append(&journal, payload(3)).is_ok());
    assert!(append(&journal, Bytes::from(vec![7; longest])).is_ok());
    let refused = append(&journal, Bytes::from(vec![7; longest + 1]));
    assert!(
        matches!(refused, Err(AppendError::TooLarge { bytes_max, .. }) if bytes_max == longest)
    );
    journal.close().unwrap();
    let (_, seen, _) = open(&medium, options(2)).unwrap();
    assert_eq!(seen[1].1, vec![7; longest]);

    let of_the_default = writer::record_bytes_max(JournalOptions::new(STORE, 1).segment_bytes);
    assert!(of_the_default >= 32 << 20);
}

#[test]
fn released_segments_are_recycled_up_to_a_bound_and_never_read_as_live() {
    let medium = SimulatedMedium::new(1);
    let mut process = Process::new(medium.clone());
    process.start().unwrap();
    for _ in 0..40 {
        process.append(3, Reserve::Normal);
    }
    assert!(count_of(&medium, "journal-") > 10);
    process.release(0);
    assert_eq!(count_of(&medium, "journal-0"), 1, "only the active one is left");
    assert_eq!(count_of(&medium, "spare-"), 4);
    for round in 0..60 {
        process.append(2, Reserve::Normal);
        process.release(1);
        assert!(count_of(&medium, "spare-") <= 4);
        if round % 7 == 0 {
            process.kill();
            process.start().unwrap();
        }
    }
    process.check_handed_on();
}

#[test]
fn segments_of_another_length_are_read_and_then_replaced() {
    let medium = SimulatedMedium::new(1);
    let (journal, _, _) = open(&medium, options(1)).unwrap();
    for number in 0..12 {
        append(&journal, payload(number)).unwrap();
    }
    journal.close().unwrap();
    let longer = || JournalOptions { segment_bytes: 3 * SEGMENT_BYTES, ..options(2) };
    let (journal, seen, _) = open(&medium, longer()).unwrap();
    assert_eq!(seen.len(), 12);
    append(&journal, Bytes::from(vec![1; 2 * 8192])).unwrap();
    journal.release(Position::new(12));
    journal.close().unwrap();
    let applied = JournalOptions { applied: Position::new(12), ..longer() };
    let (_, seen, _) = open(&medium, applied).unwrap();
    assert_eq!(seen, [(13, Bytes::from(vec![1; 2 * 8192]))]);
}

#[test]
fn a_torn_tail_is_cut_and_reported() {
    let mut torn = 0;
    for seed in 0..200 {
        let medium = SimulatedMedium::new(seed);
        let (journal, _, _) = open(&medium, options(1)).unwrap();
        append(&journal, payload(1)).unwrap();
        medium.power_off_after(medium.operations() + 1); // the write, not the sync
        assert!(append(&journal, Bytes::from(vec![9; 2000])).is_err());
        medium.crash(seed);
        let (_, seen, tail) = open(&medium, options(2)).unwrap();
        if let Some(tail) = tail {
            torn += 1;
            assert_eq!(seen, [(1, payload(1))]);
            assert_eq!((tail.position.sequence(), tail.bytes), (2, 2020));
            assert_eq!(tail.file, "journal-0000000000000001.seg");
            let (_, seen, tail) = open(&medium, options(3)).unwrap();
            assert_eq!((seen.len(), tail), (1, None), "cut once and for all");
        }
    }
    assert!(torn > 20, "{torn} of 200 torn");
}

#[test]
fn on_a_full_disk_ingest_is_refused_and_settlements_go_on_until_space_comes_back() {
    let medium = SimulatedMedium::new(1);
    let mut process = Process::new(medium.clone());
    process.start().unwrap();
    medium.set_capacity_bytes(Some(4 * SEGMENT_BYTES));
    while process.unacknowledged.is_empty() {
        process.append(1, Reserve::Normal);
    }
    let journal = process.journal.as_ref().unwrap();
    assert!(journal.is_disk_full());
    assert!(matches!(append(journal, payload(1)), Err(AppendError::DiskFull)));
    assert_eq!(count_of(&medium, "spare-"), 1, "the reserve is untouched");

    let refused = process.unacknowledged.len();
    while count_of(&medium, "spare-") == 1 {
        process.append(1, Reserve::MayUseReserve);
        assert_eq!(process.unacknowledged.len(), refused, "settlements go on, in the reserve");
    }
    process.append(1, Reserve::Normal);
    assert_eq!(process.unacknowledged.len(), refused + 1, "ingest does not touch it");

    // A restart with a full disk loses nothing, and new events are still refused.
    process.kill();
    process.start().unwrap();
    process.append(1, Reserve::Normal);
    assert_eq!(process.unacknowledged.len(), refused + 2);

    // The reserve is used up at last; that does no harm.
    let mut settlements = 0;
    let journal = process.journal.as_ref().unwrap();
    let full = loop {
        match now(journal.append(1, Bytes::from_static(b"settled"), Reserve::MayUseReserve)) {
            Ok(_) => {
                process.acknowledged.push(Bytes::from_static(b"settled"));
                settlements += 1;
            }
            Err(error) => break error,
        }
    };
    assert!(matches!(full, AppendError::DiskFull) && settlements > 10, "{settlements} {full}");

    // There is space again because SQLite has caught up, and later because the disk has more.
    process.release(0);
    process.append(1, Reserve::Normal);
    assert_eq!(process.unacknowledged.len(), refused + 2, "resumed without a restart");
    assert!(!process.journal.as_ref().unwrap().is_disk_full());
    while process.unacknowledged.len() == refused + 2 {
        process.append(1, Reserve::Normal);
    }
    medium.set_capacity_bytes(None);
    process.append(1, Reserve::Normal);
    assert_eq!(process.unacknowledged.len(), refused + 3);
    process.check_handed_on();
    process.crash(5);
    process.start().unwrap();
}

#[test]
fn failed_sync_is_final_and_reported_once() {
    let medium = SimulatedMedium::new(1);
    let told = Arc::new(Mutex::new(0));
    let for_hook = Arc::clone(&told);
    let fatal: Box<dyn FnOnce(_) + Send> = Box::new(move |_| *for_hook.lock().unwrap() += 1);
    let hooks = Hooks { synced: Box::new(|_| {}), fatal: Some(fatal) };
    let (journal, _) = Journal::open(Arc::new(medium.clone()), options(1), hooks).unwrap();
    append(&journal, payload(1)).unwrap();
    let operation = medium.operations() + 2;
    medium.fail(When { operation, fault: Fault::Io, repeat: Repeat::Once });
    for _ in 0..3 {
        assert!(matches!(append(&journal, payload(2)), Err(AppendError::SyncFailed)));
    }
    let operations = medium.operations();
    assert!(matches!(journal.close(), Err(JournalError::SyncFailed(_))));
    assert_eq!(medium.operations(), operations, "nothing is touched after a failed sync");
    assert_eq!(*told.lock().unwrap(), 1);
    drop(journal);
    let (_, seen, _) = open(&medium, options(2)).unwrap();
    assert_eq!(seen[0], (1, payload(1)));
}

#[test]
fn a_failed_write_is_refused_and_the_next_append_takes_its_place() {
    for fault in [Fault::Io, Fault::Full, Fault::ShortWrite] {
        let medium = SimulatedMedium::new(1);
        let (journal, _, _) = open(&medium, options(1)).unwrap();
        append(&journal, payload(1)).unwrap();
        let operation = medium.operations() + 1;
        medium.fail(When { operation, fault, repeat: Repeat::Once });
        match append(&journal, Bytes::from(vec![1; 1000])) {
            Err(AppendError::Write(_)) => assert_eq!(fault, Fault::Io),
            Err(AppendError::DiskFull) => assert_ne!(fault, Fault::Io),
            other => panic!("{other:?}"),
        }
        assert_eq!(append(&journal, payload(2)).unwrap().sequence(), 2);
        drop(journal);
        let (_, seen, _) = open(&medium, options(2)).unwrap();
        assert_eq!(seen, [(1, payload(1)), (2, payload(2))]);
    }
}
