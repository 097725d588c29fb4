//! The simulation's random numbers: one stream for each purpose, so that drawing more for one purpose
//! does not change the numbers of another.

use postrider_domain::mixing::Sequence;

/// The stream of one seed and one purpose.
#[derive(Debug, Clone)]
pub struct Random(Sequence);

impl Random {
    /// The stream of a seed for this purpose.
    pub fn new(seed: u64, purpose: &str) -> Self {
        let mut sequence = Sequence::new(seed);
        for byte in purpose.bytes() {
            sequence = Sequence::new(sequence.draw().wrapping_add(u64::from(byte)));
        }
        Random(sequence)
    }

    /// The next number.
    pub fn draw(&mut self) -> u64 {
        self.0.draw()
    }

    /// A number below `n`; 0 when `n` is 0.
    pub fn below(&mut self, n: u64) -> u64 {
        self.0.below(n)
    }

    /// A number from `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// True in `of_thousand` of a thousand cases.
    pub fn chance(&mut self, of_thousand: u64) -> bool {
        self.below(1000) < of_thousand
    }

    /// An index into a list of this length; `None` when the list is empty.
    pub fn place(&mut self, len: usize) -> Option<usize> {
        let len = u64::try_from(len).ok().filter(|len| *len > 0)?;
        usize::try_from(self.below(len)).ok()
    }

    /// A duration in milliseconds: most are short, a few are as long as `max`.
    pub fn skewed(&mut self, max: u64) -> u64 {
        let bits = 64 - max.leading_zeros();
        let reach = 1u64.checked_shl(u32::try_from(self.below(u64::from(bits) + 1)).unwrap_or(0));
        self.below(reach.unwrap_or(max).min(max) + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::Random;

    #[test]
    fn a_seed_gives_the_same_stream_and_purposes_differ() {
        let draw = |seed, purpose| {
            let mut random = Random::new(seed, purpose);
            [random.draw(), random.draw(), random.draw()]
        };
        assert_eq!(draw(1, "traffic"), draw(1, "traffic"));
        assert_ne!(draw(1, "traffic"), draw(2, "traffic"));
        assert_ne!(draw(1, "traffic"), draw(1, "moods"));
    }

    #[test]
    fn numbers_stay_in_their_range() {
        let mut random = Random::new(7, "range");
        for _ in 0..1000 {
            assert!((3..=5).contains(&random.between(3, 5)));
            assert!(random.skewed(100) <= 100);
            assert_eq!(random.place(0), None);
        }
    }
}
