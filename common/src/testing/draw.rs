//! Random numbers for tests that make long random histories.

/// Random numbers from a fixed seed, so that a failing run can be reproduced.
pub struct Draw(pub u64);

impl Draw {
    /// Returns a number below this one.
    pub fn below(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % below
    }

    /// Returns one of these.
    pub fn of<T: Copy>(&mut self, choice: &[T]) -> T {
        choice[self.below(choice.len())]
    }
}
