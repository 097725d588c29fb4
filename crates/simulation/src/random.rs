//! The one source of chance: a small generator, and one stream of it per purpose, so that drawing
//! more for one thing moves nothing else.

/// SplitMix64.
#[derive(Debug, Clone)]
pub struct Random(u64);

const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

impl Random {
    /// The stream of a seed that serves this purpose.
    pub fn new(seed: u64, purpose: &str) -> Self {
        let mut random = Random(seed);
        for byte in purpose.bytes() {
            random.0 = random.draw().wrapping_add(u64::from(byte));
        }
        random
    }

    /// The next number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    /// A number below `n`, and 0 where that is 0.
    pub fn below(&mut self, n: u64) -> u64 {
        // The bias is far below what any run could see.
        self.draw() % n.max(1)
    }

    /// A number from `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// True in so many of a thousand cases.
    pub fn chance(&mut self, of_thousand: u64) -> bool {
        self.below(1000) < of_thousand
    }

    /// A place in a list of this length; `None` where it is empty.
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
