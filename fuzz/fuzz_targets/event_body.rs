//! The target `event_body` of `postrider_api::fuzzing`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Some(target) = postrider_api::fuzzing::TARGETS.iter().find(|target| target.name == "event_body") {
        (target.run)(bytes);
    }
});
