//! Seeded mutations of what strangers send: whatever reads it survives them, and none takes long.
//!
//! Tests run a few hundred. `FEEDFLEET_MUTATIONS` sets another number (`dev/soak mutations`), and `FEEDFLEET_SEED` repeats
//! another run.

use std::path::PathBuf;
use std::time::Duration;

use super::linear::processor_time;
use super::numbers::{Numbers, number};

/// Without optimisation everything takes ten times as long.
const P99: Duration = Duration::from_millis(if cfg!(debug_assertions) { 500 } else { 50 });

/// Returns how many mutations to make.
pub fn count() -> u64 {
    number("FEEDFLEET_MUTATIONS", 500)
}

/// Returns mutation `number` of these documents: one to five flips, cuts, repetitions and splices of one with another.
pub fn mutated(documents: &[Vec<u8>], number_of: u64) -> Vec<u8> {
    // Each mutation has its own seed, so that one of them can be repeated alone.
    let mut numbers = Numbers::new(number("FEEDFLEET_SEED", 1).wrapping_mul(1_000_003).wrapping_add(number_of));
    let mut bytes = documents[numbers.below(documents.len())].clone();
    for _ in 0..=numbers.below(4) {
        match numbers.below(6) {
            0 | 1 => {
                let at = numbers.below(bytes.len());
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 1 << numbers.below(8);
                }
            }
            2 => bytes.truncate(numbers.below(bytes.len() + 1)),
            3 => drop(bytes.drain(numbers.range(bytes.len()))),
            4 => {
                let piece = bytes[numbers.range(bytes.len())].to_vec();
                let at = numbers.below(bytes.len() + 1);
                bytes.splice(at..at, piece);
            }
            _ => {
                let other = &documents[numbers.below(documents.len())];
                let piece = other[numbers.range(other.len())].to_vec();
                bytes.splice(numbers.range(bytes.len()), piece);
            }
        }
    }
    bytes
}

/// Writes seeds for libFuzzer's target of this name into the folder that `FEEDFLEET_SEEDS` names, if it is set.
pub fn write_seeds(target: &str, seeds: &[Vec<u8>]) {
    let Some(folder) = std::env::var_os("FEEDFLEET_SEEDS").map(PathBuf::from) else { return };
    let folder = folder.join(target);
    std::fs::create_dir_all(&folder).unwrap();
    for (number, seed) in seeds.iter().enumerate() {
        std::fs::write(folder.join(number.to_string()), seed).unwrap();
    }
}

/// Passes mutations of these documents to a reader, prints how long it took, and fails if it panics or takes long.
pub fn survives(what: &str, documents: &[Vec<u8>], count: u64, mut read: impl FnMut(&[u8])) {
    assert!(!documents.is_empty(), "nothing to mutate");
    let mut times: Vec<(Duration, u64)> = Vec::new();
    for number in 0..count {
        let bytes = mutated(documents, number);
        let begun = processor_time();
        let survived = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| read(&bytes))).is_ok();
        assert!(survived, "mutation {number} of {what}: {}", String::from_utf8_lossy(&bytes).escape_debug());
        times.push((processor_time() - begun, number));
    }
    times.sort();
    let (p99, (slowest, which)) = (times[times.len() * 99 / 100].0, times[times.len() - 1]);
    println!(
        "{count} mutations of {} {what}, seed {}: deaths 0, p99 {p99:?}, slowest {slowest:?} (mutation {which})",
        documents.len(),
        number("FEEDFLEET_SEED", 1)
    );
    assert!(p99 < P99, "p99 {p99:?}, slowest mutation {which} with {slowest:?}");
}
