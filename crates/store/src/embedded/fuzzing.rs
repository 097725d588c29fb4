//! The bodies of the store's fuzz targets: properties that hold for any bytes on the disk.
//!
//! **Nothing may panic. Whatever decodes must encode to the same bytes or, where several encodings
//! mean the same, to bytes that decode to the same value.** Never part of a release build.

use bytes::Bytes;
use postrider_domain::fuzzing::Target;

use crate::embedded::files::codec::{
    Decoder, Encoder, get_acceptances, get_attempt, get_commit, get_whole_replay, put_acceptances,
    put_attempt, put_commit, put_whole_replay,
};
use crate::embedded::journal;

/// The fuzz targets: everything that this crate reads from disk.
pub const TARGETS: &[Target] = &[
    Target { name: "journal_records", run: records, seeds: &[b"\x01\0", b"\x01\x01\x07default"] },
    Target { name: "journal_frames", run: journal::fuzz_frames, seeds: &[b"PRJOURNL", b"PJ"] },
];

fn records(bytes: &[u8]) {
    let given = || Bytes::copy_from_slice(bytes);
    if let Ok(batch) = get_acceptances(given()) {
        let written = put_acceptances(&batch);
        let again = get_acceptances(written.clone().into());
        assert!(again.is_ok_and(|again| put_acceptances(&again) == written), "acceptances");
    }
    if let Ok(commit) = get_commit(given()) {
        let written = put_commit(&commit);
        let again = get_commit(written.clone().into());
        assert!(again.is_ok_and(|again| put_commit(&again) == written), "commit");
    }
    if let Ok(attempt) = get_attempt(&mut Decoder::new(given())) {
        let mut out = Encoder::with_capacity(64);
        put_attempt(&mut out, &attempt);
        let again = get_attempt(&mut Decoder::new(out.finish().into()));
        assert!(again.is_ok_and(|again| again == attempt), "attempt");
    }
    if let Ok(job) = get_whole_replay(&mut Decoder::new(given())) {
        let mut out = Encoder::with_capacity(64);
        put_whole_replay(&mut out, &job);
        let again = get_whole_replay(&mut Decoder::new(out.finish().into()));
        assert!(again.is_ok_and(|again| again == job), "replay job");
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use postrider_domain::event::{Event, RawJson};
    use postrider_domain::fuzzing::{run_all, stir};
    use postrider_domain::ids::TenantId;
    use postrider_domain::time::Timestamp;

    use super::*;
    use crate::records::{Acceptance, Commit};

    /// Valid records as seeds, so that mutated ones get past the first checks.
    fn written() -> Vec<Vec<u8>> {
        let event = Event {
            id: "e1".parse().unwrap(),
            tenant: TenantId::default_tenant(),
            kind: "task.updated".parse().unwrap(),
            object: Some("o1".parse().unwrap()),
            data: RawJson::from_trusted(Bytes::from_static(b"{\"a\":1}")),
            old: None,
            time: Timestamp::from_unix_ms(1_794_735_000_000),
            trace: None,
        };
        let acceptance = Acceptance {
            accepted_at: event.time,
            event: Arc::new(event),
            fingerprint: [1; 32],
            id_given: true,
            mark: postrider_domain::catalogue::EventMark::default(),
            deliveries: Vec::new(),
        };
        vec![put_acceptances(&[acceptance.clone(), acceptance]), put_commit(&Commit::default())]
    }

    #[test]
    fn random_and_mutated_bytes_break_no_decoder() {
        let mut runs = run_all(TARGETS, 20_000);
        let written = written();
        let seeds: Vec<&[u8]> = written.iter().map(Vec::as_slice).collect();
        for number in 0..20_000 {
            records(&stir(&seeds, number));
            runs += 1;
        }
        println!("fuzz: store, {} targets, {runs} runs, 0 failures", TARGETS.len());
    }
}
