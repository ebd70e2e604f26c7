//! Numbers that tests take from their environment, and random ones that a seed repeats.

/// Returns the number in a variable of the environment.
pub(super) fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap_or_else(|error| panic!("{name}: {error}")))
}

/// SplitMix64: the same numbers for the same seed on every machine.
pub(super) struct Numbers(u64);

impl Numbers {
    pub(super) fn new(seed: u64) -> Self {
        Numbers(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    pub(super) fn below(&mut self, limit: usize) -> usize {
        let limit = u64::try_from(limit.max(1)).unwrap_or(u64::MAX);
        usize::try_from(self.next() % limit).unwrap_or(usize::MAX)
    }

    pub(super) fn range(&mut self, length: usize) -> std::ops::Range<usize> {
        let begins = self.below(length + 1);
        begins..begins + self.below((length - begins).min(512) + 1)
    }
}
