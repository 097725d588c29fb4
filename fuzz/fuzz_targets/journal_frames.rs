//! The target `journal_frames` of `postrider_store::embedded::fuzzing`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Some(target) = postrider_store::embedded::fuzzing::TARGETS.iter().find(|target| target.name == "journal_frames") {
        (target.run)(bytes);
    }
});
