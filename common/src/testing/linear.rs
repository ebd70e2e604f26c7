//! Time in proportion to the input: what reads the bytes of strangers must not take longer than that, whatever they repeat.

use std::time::Duration;

use super::numbers::{Numbers, number};

/// Returns the processor time of this thread so far, to some milliseconds: other load on the machine does not count.
pub fn processor_time() -> Duration {
    let statistics = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(statistics.split(' ').next().unwrap().parse().unwrap())
}

/// Bytes of the smallest input that is measured.
const LEAST: usize = 12 * 1024;
/// Bytes of the largest one is this, times [`TIMES`].
const MOST: usize = 192 * 1024;
/// How many times as long the larger input is.
const TIMES: u32 = 4;
/// Less than this is noise, and at the largest size no danger: 20 MB would take 27 times as long, and forty times as long if
/// the time were quadratic, in a build without optimisation.
const NOTHING: Duration = Duration::from_millis(20);
/// The larger input may take this many times as long. Linear work takes 4 times as long, quadratic work 16 times. A fifth of
/// the work may be quadratic at the smaller size.
const MOST_GROWTH: u32 = 6;
/// On a busy machine, caches and clock rates differ from one measurement to the next. What is quadratic fails each time.
const ROUNDS: usize = 8;

/// Fails unless reading four times the input takes about four times the processor time. `make` makes an input of about
/// that number of bytes; those that are read quickly are made larger until their time can be measured.
pub fn assert_linear(name: &str, make: impl Fn(usize) -> String, read: impl Fn(&str)) {
    let measured = |bytes: usize, times: u32| {
        let input = make(bytes);
        let begun = processor_time();
        (0..times).for_each(|_| read(&input));
        processor_time() - begun
    };
    let larger = |bytes: usize| bytes * TIMES as usize;
    let (mut bytes, mut large) = (LEAST, measured(larger(LEAST), 1));
    while large < NOTHING && bytes < MOST {
        bytes = larger(bytes);
        large = measured(larger(bytes), 1);
    }
    if large < NOTHING {
        return;
    }
    // The smaller input is read as often as makes the same number of bytes: both times are measured equally well.
    let mut small = measured(bytes, TIMES) / TIMES;
    let mut rounds = vec![(small, large)];
    while large >= MOST_GROWTH * small && rounds.len() < ROUNDS {
        small = small.min(measured(bytes, TIMES) / TIMES);
        large = large.min(measured(larger(bytes), 1));
        rounds.push((small, large));
    }
    assert!(
        large < MOST_GROWTH * small,
        "{name}: best processor times for {bytes} bytes and for {TIMES} times that, by round: {rounds:?}"
    );
}

/// Characters that mean something in the languages of feeds and pages, and some that do not.
const CHARACTERS: [&str; 32] = [
    "<",
    ">",
    "/",
    "!",
    "-",
    "[",
    "]",
    "?",
    "&",
    "#",
    ";",
    ":",
    "=",
    "'",
    "\"",
    "{",
    "}",
    "\\",
    ",",
    " ",
    "\n",
    "\t",
    "\0",
    "a",
    "b",
    "x",
    "p",
    "0",
    "9",
    "é",
    "\u{a0}",
    "\u{1f600}",
];

/// Returns pieces to repeat: two or three of these tokens, and strings of random characters. They are the same for the same
/// `FEEDFLEET_SEED`. `FEEDFLEET_PATTERNS` sets another number of them than `count`.
pub fn pieces(tokens: &[&str], count: u64) -> Vec<String> {
    let seed = number("FEEDFLEET_SEED", 1).wrapping_mul(1_000_003);
    let piece = |number_of: u64| {
        let mut numbers = Numbers::new(seed.wrapping_add(number_of));
        let (from, length) = match numbers.below(3) {
            0 => (tokens, 2),
            1 => (tokens, 3),
            _ => (&CHARACTERS[..], 1 + numbers.below(9)),
        };
        (0..length).map(|_| from[numbers.below(from.len())]).collect::<String>()
    };
    (0..number("FEEDFLEET_PATTERNS", count)).map(piece).collect()
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    /// Reads each byte once and, for each of `every`-th byte, all bytes before it once more.
    fn work(input: &str, every: usize) {
        let sum = |bytes: &[u8]| bytes.iter().fold(0_u64, |sum, byte| std::hint::black_box(sum + u64::from(*byte)));
        let mut total = 0;
        for (at, _) in input.bytes().enumerate().step_by(every) {
            total += sum(&input.as_bytes()[..at]);
        }
        (0..50).for_each(|_| total += sum(input.as_bytes()));
        std::hint::black_box(total);
    }

    #[test]
    fn linear_work_passes_and_quadratic_work_does_not() {
        let make = |length: usize| "x".repeat(length);
        assert_linear("linear", make, |input| work(input, usize::MAX));
        assert_linear("too cheap to matter", make, |_| {});
        let quadratic = || assert_linear("quadratic", make, |input| work(input, 64));
        assert!(catch_unwind(AssertUnwindSafe(quadratic)).is_err());
    }

    #[test]
    fn pieces_are_the_same_for_the_same_seed_and_differ_from_each_other() {
        let tokens = ["<a>", "</b>", "&", "]]>"];
        let all = pieces(&tokens, 50);
        assert_eq!(all, pieces(&tokens, 50));
        assert!(all.iter().all(|piece| !piece.is_empty()));
        let different: std::collections::HashSet<_> = all.iter().collect();
        assert!(different.len() > 30, "{all:?}");
    }
}
