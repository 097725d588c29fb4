//! How many attempts may be in flight at a destination.
//!
//! An adaptive limit grows by one for each round of quick answers that used all of it, and halves
//! on each timeout or refusal.

/// How many attempts may be in flight at a destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AdaptiveLimit {
    limit: u32,
    max: u32,
    /// Quick answers since the limit last changed and was felt.
    quick: u32,
    /// Whether more would have been sent but for the limit.
    felt: bool,
    /// Whether the last answer was a quick one.
    proven: bool,
}

/// What an attempt taught about how much a destination takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pace {
    /// It answered quickly.
    Quick,
    /// It answered.
    Slow,
    /// It timed out, refused, or asked for less.
    Strained,
    /// Nothing.
    Unknown,
}

impl AdaptiveLimit {
    pub(crate) fn new(start: u32, max: u32) -> Self {
        let max = max.max(1);
        AdaptiveLimit { limit: start.clamp(1, max), max, quick: 0, felt: false, proven: false }
    }

    /// The limit, while there is enough for all; under `pressure` a destination that has not just
    /// answered quickly gets one.
    pub(crate) fn get(&self, pressure: bool) -> u32 {
        if pressure && !self.proven { 1 } else { self.limit }
    }

    /// More would have been sent but for the limit.
    pub(crate) fn feel(&mut self) {
        self.felt = true;
    }

    /// An attempt ended.
    pub(crate) fn learn(&mut self, pace: Pace) {
        match pace {
            Pace::Quick => {
                self.proven = true;
                // Only a limit that is felt needs to grow.
                self.quick += u32::from(self.felt);
                if self.quick >= self.limit && self.limit < self.max {
                    self.limit += 1;
                    (self.quick, self.felt) = (0, false);
                }
            }
            Pace::Slow => self.quick = 0,
            Pace::Strained => {
                self.limit = (self.limit / 2).max(1);
                self.quick = 0;
                self.proven = false;
            }
            Pace::Unknown => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_grows_while_it_is_felt_and_answers_are_quick() {
        let mut limit = AdaptiveLimit::new(8, 64);
        for _ in 0..1000 {
            limit.learn(Pace::Quick);
        }
        assert_eq!(limit.get(false), 8, "a limit that is not felt does not grow");
        limit.feel();
        for _ in 0..7 {
            limit.learn(Pace::Quick);
        }
        assert_eq!(limit.get(false), 8);
        limit.learn(Pace::Quick);
        assert_eq!(limit.get(false), 9);
        for _ in 0..10_000 {
            limit.feel();
            limit.learn(Pace::Quick);
        }
        assert_eq!(limit.get(false), 64);
    }

    #[test]
    fn a_limit_halves_on_each_strain_and_never_ends() {
        let mut limit = AdaptiveLimit::new(64, 64);
        for expected in [32, 16, 8, 4, 2, 1, 1, 1] {
            limit.learn(Pace::Strained);
            assert_eq!(limit.get(false), expected);
        }
        limit.learn(Pace::Slow);
        limit.learn(Pace::Unknown);
        assert_eq!(limit.get(false), 1);
        limit.feel();
        limit.learn(Pace::Quick);
        assert_eq!(limit.get(false), 2);
    }

    #[test]
    fn under_pressure_only_those_that_answer_quickly_get_more_than_one() {
        let mut limit = AdaptiveLimit::new(8, 64);
        assert_eq!((limit.get(false), limit.get(true)), (8, 1));
        limit.learn(Pace::Quick);
        assert_eq!(limit.get(true), 8);
        limit.learn(Pace::Strained);
        assert_eq!(limit.get(true), 1);
    }
}
