//! libFuzzer's way into `targets::html`.
#![no_main]

#[path = "../../tests/it/mutations/targets.rs"]
#[expect(dead_code, reason = "shared with the other targets")]
mod targets;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    targets::html(bytes);
});
