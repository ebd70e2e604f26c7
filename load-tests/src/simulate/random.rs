//! The random numbers of a simulation: the Mersenne Twister (Matsumoto and Nishimura 1998) with the methods of Python's
//! `random.Random`, bit for bit.
//!
//! Any generator would be good enough. The reference simulation is a Python program; with the same numbers a seed
//! produces the same fleet in both, feed by feed, so that results can be compared closely instead of statistically.

use std::f64::consts::TAU;

const LENGTH: usize = 624;
const SHIFT: usize = 397;
/// The prime modulo which Python hashes numbers: 2^61 - 1.
const HASH_MODULUS_BITS: u32 = 61;

/// A stream of random numbers determined by its seed.
#[derive(Clone)]
pub struct Random {
    state: [u32; LENGTH],
    next: usize,
    /// The second of a pair of normal numbers.
    normal: Option<f64>,
}

impl Random {
    /// Returns `random.Random(seed)` for an integer.
    pub fn new(seed: u64) -> Self {
        let (low, high) = (lower_half(seed), lower_half(seed >> 32));
        let key: &[u32] = if high == 0 { &[low] } else { &[low, high] };
        Random { state: state_from(key), next: LENGTH, normal: None }
    }

    /// Returns `random.Random(seed)` for a fraction, 0 to 1.
    pub fn from_fraction(seed: f64) -> Self {
        Self::new(hash_of_fraction(seed))
    }

    fn word(&mut self) -> u32 {
        if self.next == LENGTH {
            self.turn();
        }
        let mut word = self.state[self.next];
        self.next += 1;
        word ^= word >> 11;
        word ^= word << 7 & 0x9d2c_5680;
        word ^= word << 15 & 0xefc6_0000;
        word ^ word >> 18
    }

    fn turn(&mut self) {
        for at in 0..LENGTH {
            let joined = self.state[at] & 0x8000_0000 | self.state[(at + 1) % LENGTH] & 0x7fff_ffff;
            let odd = if joined & 1 == 1 { 0x9908_b0df } else { 0 };
            self.state[at] = self.state[(at + SHIFT) % LENGTH] ^ joined >> 1 ^ odd;
        }
        self.next = 0;
    }

    /// Returns a number of at least 0 and less than 1, in steps of 2^-53.
    pub fn fraction(&mut self) -> f64 {
        let (high, low) = (self.word() >> 5, self.word() >> 6);
        (f64::from(high) * 67_108_864.0 + f64::from(low)) / 9_007_199_254_740_992.0
    }

    /// Returns a number between two numbers.
    pub fn uniform(&mut self, from: f64, to: f64) -> f64 {
        from + (to - from) * self.fraction()
    }

    /// Returns a number below `limit`, uniformly distributed; 0 for a limit of 0.
    pub fn below(&mut self, limit: usize) -> usize {
        let limit = u32::try_from(limit).unwrap_or(u32::MAX);
        if limit == 0 {
            return 0;
        }
        let unused = limit.leading_zeros();
        loop {
            let number = self.word() >> unused;
            if number < limit {
                return number as usize;
            }
        }
    }

    /// Returns the index of a weight, drawn in proportion to the weights; `cumulated` contains the running sums.
    pub fn weighted(&mut self, cumulated: &[f64]) -> usize {
        let total = cumulated.last().copied().unwrap_or(0.0);
        let at = self.fraction() * total;
        cumulated.partition_point(|sum| *sum <= at).min(cumulated.len().saturating_sub(1))
    }

    /// Returns a number normally distributed around 0.
    pub fn normal(&mut self, deviation: f64) -> f64 {
        if let Some(second) = self.normal.take() {
            return second * deviation;
        }
        let angle = self.fraction() * TAU;
        let radius = (-2.0 * (1.0 - self.fraction()).ln()).sqrt();
        self.normal = Some(angle.sin() * radius);
        angle.cos() * radius * deviation
    }

    /// Returns an exponentially distributed number with this mean.
    pub fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.fraction()).ln()
    }
}

/// Returns running sums, for [`Random::weighted`].
pub(super) fn cumulated(weights: impl IntoIterator<Item = f64>) -> Vec<f64> {
    let mut sum = 0.0;
    weights
        .into_iter()
        .map(|weight| {
            sum += weight;
            sum
        })
        .collect()
}

fn lower_half(number: u64) -> u32 {
    u32::try_from(number & u64::from(u32::MAX)).unwrap_or(0)
}

/// Returns the state after `init_by_array` of the published generator.
fn state_from(key: &[u32]) -> [u32; LENGTH] {
    let mut state = [0_u32; LENGTH];
    state[0] = 19_650_218;
    for (number, at) in (1..LENGTH).zip(1_u32..) {
        state[number] = mixed(&state, number, 1_812_433_253).wrapping_add(at);
    }
    let mut at = 1;
    let mut places = (0_u32..).zip(key).cycle();
    for _ in 0..LENGTH.max(key.len()) {
        let (place, part) = places.next().unwrap_or((0, &0));
        state[at] = (state[at] ^ mixed(&state, at, 1_664_525)).wrapping_add(*part).wrapping_add(place);
        at = following(&mut state, at);
    }
    for _ in 0..LENGTH - 1 {
        let number = u32::try_from(at).unwrap_or(0);
        state[at] = (state[at] ^ mixed(&state, at, 1_566_083_941)).wrapping_sub(number);
        at = following(&mut state, at);
    }
    state[0] = 0x8000_0000;
    state
}

fn mixed(state: &[u32; LENGTH], at: usize, factor: u32) -> u32 {
    let before = state[at - 1];
    (before ^ before >> 30).wrapping_mul(factor)
}

/// Returns the index after `at`; copies the last word to the first place when it wraps around.
fn following(state: &mut [u32; LENGTH], at: usize) -> usize {
    if at + 1 < LENGTH {
        return at + 1;
    }
    state[0] = state[LENGTH - 1];
    1
}

/// Returns Python's `hash` of a fraction: numerator times the inverse of the denominator, modulo 2^61 - 1. The
/// denominator is a power of two, so that the inverse is a rotation.
fn hash_of_fraction(fraction: f64) -> u64 {
    if fraction <= 0.0 || !fraction.is_finite() {
        return 0;
    }
    let bits = fraction.to_bits();
    let exponent = i32::try_from(bits >> 52 & 0x7ff).unwrap_or(0) - 1075;
    let mantissa = bits & ((1 << 52) - 1) | 1 << 52;
    let turn = u32::try_from(exponent.rem_euclid(61)).unwrap_or(0);
    let modulus = (1_u64 << HASH_MODULUS_BITS) - 1;
    (mantissa << turn & modulus | mantissa.checked_shr(HASH_MODULUS_BITS - turn).unwrap_or(0)) % modulus
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_python() {
        // python3 -c "import random; r = random.Random(5); print(r.random(), r.random(), r.random())"
        let mut random = Random::new(5);
        let drawn = [random.fraction(), random.fraction(), random.fraction()];
        assert_eq!(drawn, [0.622_901_694_889_701_9, 0.741_786_989_260_729_4, 0.795_193_565_565_696_6]);
        // r = random.Random(9): r.choice(range(128)) three times, then r.gauss(0, 2) twice
        let mut random = Random::new(9);
        assert_eq!([random.below(128), random.below(128), random.below(128)], [118, 95, 68]);
        let drawn = [random.normal(2.0), random.normal(2.0)];
        assert!(
            (drawn[0] - 2.5869547224641964).abs() < 1e-12 && (drawn[1] - 3.0693000664833567).abs() < 1e-12,
            "{drawn:?}"
        );
    }

    #[test]
    fn fractions_and_large_numbers_are_seeds_as_in_python() {
        // random.Random(0.3745401188473625).random(), random.Random(2**40 + 7).random(), hash(0.3745401188473625)
        assert_eq!(hash_of_fraction(0.374_540_118_847_362_5), 863_630_714_714_256_896);
        assert_eq!(Random::from_fraction(0.374_540_118_847_362_5).fraction(), 0.420_658_098_223_466_34);
        assert_eq!(Random::new((1 << 40) + 7).fraction(), 0.613_703_777_993_651_1);
    }

    #[test]
    fn weights_are_met() {
        let mut random = Random::new(1);
        let sums = cumulated([1.0, 0.0, 3.0]);
        let mut counts = [0; 3];
        (0..10_000).for_each(|_| counts[random.weighted(&sums)] += 1);
        assert_eq!(counts[1], 0);
        assert!((2300..2700).contains(&counts[0]), "{counts:?}");
    }
}
