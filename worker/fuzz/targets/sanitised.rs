//! libFuzzer's way to the sanitiser of the API: nothing that runs is left of any text.
#![no_main]

use std::time::{Duration, Instant};

#[path = "../../../scheduler/web/src/sanitised/attacks.rs"]
#[expect(dead_code, reason = "the attacks are written as seeds")]
mod attacks;
#[path = "../../../scheduler/web/src/sanitised.rs"]
mod sanitised;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let html = String::from_utf8_lossy(bytes);
    let deadline = Instant::now() + Duration::from_secs(600);
    let made = sanitised::sanitised(&html, Some("https://blog.example/2026/post"), deadline);
    attacks::assert_harmless(&made, &html);
});
