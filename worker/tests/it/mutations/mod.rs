//! Seeded mutations of what strangers send: feeds, coded bodies, header fields. Nothing kills their readers, and nothing
//! takes long.
//!
//! In `dev/test` a few hundred mutations of our own feeds; in `dev/soak corpus`, which names a folder of feeds in
//! `FEEDFLEET_CORPUS`, `FEEDFLEET_MUTATIONS` of that. `FEEDFLEET_SEED` repeats another run. `dev/soak fuzz` has libFuzzer do
//! better (`worker/fuzz`).

mod targets;

use std::path::{Path, PathBuf};
use std::time::Duration;

use common::testing::processor_time;

/// Without optimisation everything takes ten times as long.
const P99: Duration = Duration::from_millis(if cfg!(debug_assertions) { 500 } else { 50 });

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap_or_else(|error| panic!("{name}: {error}")))
}

/// All files below a folder, in the order of their names.
fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let members = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        for member in members.flatten() {
            let path = member.path();
            if path.is_dir() { folders.push(path) } else { files.push(path) }
        }
    }
    files.sort();
    files
}

/// SplitMix64: the same numbers for the same seed, everywhere and for ever.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        let limit = u64::try_from(limit.max(1)).unwrap_or(u64::MAX);
        usize::try_from(self.next() % limit).unwrap_or(usize::MAX)
    }

    fn range(&mut self, length: usize) -> std::ops::Range<usize> {
        let begins = self.below(length + 1);
        begins..begins + self.below((length - begins).min(512) + 1)
    }
}

/// One to four flips, cuts, repetitions and splices of one document with another.
fn mutated(numbers: &mut Numbers, documents: &[Vec<u8>]) -> Vec<u8> {
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

/// Has a reader take mutations of these documents; prints how long they took, and fails where that is long.
fn readers_survive(what: &str, documents: &[Vec<u8>], count: u64, mut read: impl FnMut(&[u8])) {
    assert!(!documents.is_empty(), "nothing to mutate");
    let seed = number("FEEDFLEET_SEED", 1);
    let mut times: Vec<(Duration, u64)> = Vec::new();
    for number in 0..count {
        // Each mutation has a seed of its own, so that one of them can be repeated alone.
        let bytes = mutated(&mut Numbers(seed.wrapping_mul(1_000_003).wrapping_add(number)), documents);
        let begun = processor_time();
        let survived = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| read(&bytes))).is_ok();
        assert!(survived, "mutation {number} of {what}, seed {seed}");
        times.push((processor_time() - begun, number));
    }
    times.sort();
    let (p99, (slowest, which)) = (times[times.len() * 99 / 100].0, times[times.len() - 1]);
    let documents = documents.len();
    println!(
        "{count} mutations of {documents} {what}, seed {seed}: deaths 0, p99 {p99:?}, slowest {slowest:?} (mutation {which})"
    );
    assert!(p99 < P99, "p99 {p99:?}, slowest mutation {which} with {slowest:?}");
}

#[test]
fn mutated_feeds_neither_kill_the_parser_nor_take_long() {
    let ours = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/feeds");
    let folder = std::env::var_os("FEEDFLEET_CORPUS").map_or(ours, PathBuf::from);
    let documents: Vec<Vec<u8>> = files_below(&folder).iter().map(|path| std::fs::read(path).unwrap()).collect();
    let (mut feeds, mut repaired) = (0, 0);
    readers_survive("feeds", &documents, number("FEEDFLEET_MUTATIONS", 500), |bytes| {
        if let Some(was_repaired) = targets::feed(bytes) {
            feeds += 1;
            repaired += usize::from(was_repaired);
        }
    });
    println!("{feeds} were feeds, {repaired} of them repaired");
}

#[test]
fn mutated_bodies_neither_kill_the_decoders_nor_take_long() {
    readers_survive("coded bodies", &targets::body_seeds(), number("FEEDFLEET_MUTATIONS", 500), targets::body);
}

#[test]
fn mutated_header_fields_neither_kill_their_readers_nor_take_long() {
    let seeds = targets::header_seeds();
    readers_survive("header blocks", &seeds, 10 * number("FEEDFLEET_MUTATIONS", 500), targets::headers);
}

#[test]
fn mutated_pages_neither_kill_their_readers_nor_take_long() {
    readers_survive("pages", &targets::html_seeds(), 4 * number("FEEDFLEET_MUTATIONS", 500), targets::html);
}

/// Unmutated, the seeds reach what they are meant for. `FEEDFLEET_SEEDS` names a folder that they are also written to, for
/// libFuzzer.
#[test]
fn the_seeds_are_what_the_readers_take() {
    let all = [
        ("feed", targets::feed_seeds()),
        ("body", targets::body_seeds()),
        ("headers", targets::header_seeds()),
        ("html", targets::html_seeds()),
    ];
    assert!(all[0].1.iter().all(|seed| targets::feed(seed).is_some()));
    all[1].1.iter().for_each(|seed| targets::body(seed));
    all[2].1.iter().for_each(|seed| targets::headers(seed));
    all[3].1.iter().for_each(|seed| targets::html(seed));
    let Some(folder) = std::env::var_os("FEEDFLEET_SEEDS").map(PathBuf::from) else { return };
    for (target, seeds) in all {
        std::fs::create_dir_all(folder.join(target)).unwrap();
        for (number, seed) in seeds.iter().enumerate() {
            std::fs::write(folder.join(target).join(number.to_string()), seed).unwrap();
        }
    }
}
