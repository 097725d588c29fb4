//! The target `workfront` of `postrider_domain::fuzzing`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Some(target) = postrider_domain::fuzzing::TARGETS.iter().find(|target| target.name == "workfront") {
        (target.run)(bytes);
    }
});
