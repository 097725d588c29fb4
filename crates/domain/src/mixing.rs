//! Pseudo-random numbers that depend on their input alone: SplitMix64.
//!
//! For jitter, simulated worlds and tests. **Never for identifiers, keys or secrets**: one output
//! reveals the seed, and with it all other outputs.

/// The increment of the state of a [`Sequence`]. It is odd, so that the state takes every value
/// before it repeats.
pub const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// A hash of `x` in which every bit depends on every bit of `x`.
pub const fn mix(x: u64) -> u64 {
    finish(x.wrapping_add(STEP))
}

/// The last part of [`mix`], which maps 0 to 0.
pub const fn finish(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// A pseudo-random sequence that is the same for the same seed, on every machine and in every
/// version.
#[derive(Debug, Clone)]
pub struct Sequence(u64);

impl Sequence {
    /// The sequence of a seed.
    pub const fn new(seed: u64) -> Self {
        Sequence(seed)
    }

    /// The next number.
    pub const fn draw(&mut self) -> u64 {
        let drawn = mix(self.0);
        self.0 = self.0.wrapping_add(STEP);
        drawn
    }

    /// The next number, below `n`; 0 when `n` is 0. The bias is far too small for any test to see.
    pub fn below(&mut self, n: u64) -> u64 {
        self.draw() % n.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequence_is_that_of_the_reference_implementation() {
        let mut sequence = Sequence::new(1_234_567);
        let expected = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
            4_593_380_528_125_082_431,
            16_408_922_859_458_223_821,
        ];
        assert_eq!(expected.map(|_| sequence.draw()), expected);
    }

    #[test]
    fn numbers_stay_below_their_limit() {
        let mut sequence = Sequence::new(7);
        assert!((0..1000).all(|_| sequence.below(3) < 3));
        assert_eq!(sequence.below(0), 0);
    }
}
