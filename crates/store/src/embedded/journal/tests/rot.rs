//! Bit rot, truncation and lost files in a closed journal.

use super::*;
use crate::embedded::medium::Medium;

/// A closed journal of several segments, and its records.
fn closed() -> (SimulatedMedium, Seen) {
    let medium = SimulatedMedium::new(1);
    let mut process = Process::new(medium.clone());
    process.start().unwrap();
    for count in [1, 3, 2, 4, 1] {
        process.append(count, Reserve::Normal);
    }
    assert!(process.close());
    let seen = (1..).zip(process.acknowledged).collect();
    (medium, seen)
}

fn segments(medium: &SimulatedMedium) -> Vec<String> {
    let names = medium.list().unwrap();
    names.into_iter().filter(|name| name.starts_with("journal-")).collect()
}

/// Opens a damaged journal; returns whether the damage was reported. Panics if it returns wrong
/// records.
fn detected(medium: &SimulatedMedium, expected: &Seen, what: &str) -> bool {
    match open(medium, JournalOptions { create: false, ..options(99) }) {
        Ok((_, seen, _)) => {
            assert!(seen == *expected, "{what}: silently wrong");
            false
        }
        Err(
            error @ (JournalError::Corrupt { .. }
            | JournalError::MissingSegment { .. }
            | JournalError::NoJournal { .. }),
        ) => {
            assert!(error.to_string().contains("journal-"), "{what}: {error}");
            true
        }
        Err(error) => panic!("{what}: {error}"),
    }
}

#[test]
fn flipped_bit_in_a_record_is_detected() {
    let (medium, expected) = closed();
    let (mut flips, mut found) = (0, 0);
    for name in segments(&medium) {
        let contents = medium.contents(&name).unwrap();
        for byte in 0..contents.len() {
            let damaged = medium.fork();
            let mut contents = contents.clone();
            contents[byte] ^= 1 << (byte % 8);
            damaged.overwrite(&name, contents);
            flips += 1;
            found += u32::from(detected(&damaged, &expected, &format!("{name} byte {byte}")));
        }
    }
    let payload_bytes: usize = expected.iter().map(|(_, payload)| payload.len()).sum();
    assert!(usize::try_from(found).unwrap() > payload_bytes, "{found} of {flips}");
    println!("journal bit rot: {flips} flips, {found} detected, the rest harmless, 0 silent");
}

#[test]
fn truncation_and_lost_segment_are_detected() {
    let (medium, expected) = closed();
    let mut cuts = 0;
    for name in segments(&medium) {
        let contents = medium.contents(&name).unwrap();
        for length in (0..contents.len()).step_by(97) {
            let damaged = medium.fork();
            damaged.overwrite(&name, contents[..length].to_vec());
            assert!(detected(&damaged, &expected, &format!("{name} cut at {length}")));
            cuts += 1;
        }
        let damaged = medium.fork();
        damaged.remove(&name).unwrap();
        assert!(detected(&damaged, &expected, &format!("{name} removed")));
        cuts += 1;
    }
    println!("journal truncation: {cuts} cuts, all detected");
}

#[test]
fn lost_or_misdirected_sector_of_a_record_is_detected() {
    let (medium, expected) = closed();
    for name in segments(&medium) {
        let contents = medium.contents(&name).unwrap();
        let sectors = contents.len() / 512;
        for a in 0..sectors {
            let b = (a * 7 + 3) % sectors;
            let mut misdirected = contents.clone();
            misdirected[a * 512..][..512].copy_from_slice(&contents[b * 512..][..512]);
            let damaged = medium.fork();
            damaged.overwrite(&name, misdirected);
            detected(&damaged, &expected, &format!("{name} sector {a} has the bytes of {b}"));

            let mut lost = contents.clone();
            lost[a * 512..][..512].fill(0);
            let damaged = medium.fork();
            damaged.overwrite(&name, lost);
            detected(&damaged, &expected, &format!("{name} sector {a} zero"));
        }
    }
}

#[test]
fn damage_is_named_by_file_offset_and_sequence() {
    let (medium, _) = closed();
    let name = &segments(&medium)[0];
    let mut contents = medium.contents(name).unwrap();
    // After the header page, the frame's header and the record's header: the first byte of the
    // first payload.
    contents[4096 + 64 + 20] ^= 1;
    medium.overwrite(name, contents);
    let error = open(&medium, options(9)).err().unwrap();
    assert_eq!(
        error.to_string(),
        "journal-0000000000000001.seg: damaged at offset 4096, record 1: \
         a later batch shows that this one was synced"
    );
}

#[test]
fn foreign_and_mislaid_segments_are_refused() {
    let (medium, _) = closed();
    let foreign = JournalOptions { store_id: [7; 16], ..options(9) };
    assert!(matches!(open(&medium, foreign), Err(JournalError::Foreign { .. })));
    let names = segments(&medium);
    let first = medium.contents(&names[0]).unwrap();
    medium.overwrite(&names[1], first);
    assert!(matches!(open(&medium, options(9)), Err(JournalError::Corrupt { .. })));
}
