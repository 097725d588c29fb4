//! The limit of attempts in flight at a destination.
//!
//! The limit grows by one for each round of quick answers in which it was reached, and is halved on
//! each timeout or refusal.

/// The adaptive limit of attempts in flight at a destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AdaptiveLimit {
    limit: u32,
    max: u32,
    /// Quick answers since the last change, while the limit was reached.
    quick: u32,
    /// Whether the limit was reached: more would have been sent without it.
    was_reached: bool,
    /// Whether the last answer was quick.
    proven: bool,
}

/// What an attempt tells about the capacity of a destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pace {
    /// It answered quickly.
    Quick,
    /// It answered, but slowly.
    Slow,
    /// It timed out, refused, or asked for fewer requests.
    Strained,
    /// Nothing.
    Unknown,
}

impl AdaptiveLimit {
    pub(crate) fn new(start: u32, max: u32) -> Self {
        let max = max.max(1);
        AdaptiveLimit {
            limit: start.clamp(1, max),
            max,
            quick: 0,
            was_reached: false,
            proven: false,
        }
    }

    /// The current limit. Under `pressure`, when the server's limit is nearly reached, a
    /// destination that has not just answered quickly gets one.
    pub(crate) fn get(&self, pressure: bool) -> u32 {
        if pressure && !self.proven { 1 } else { self.limit }
    }

    /// Records that the limit was reached.
    pub(crate) fn reached(&mut self) {
        self.was_reached = true;
    }

    /// Records the outcome of an attempt.
    pub(crate) fn learn(&mut self, pace: Pace) {
        match pace {
            Pace::Quick => {
                self.proven = true;
                // The limit grows only if it was reached.
                self.quick += u32::from(self.was_reached);
                if self.quick >= self.limit && self.limit < self.max {
                    self.limit += 1;
                    (self.quick, self.was_reached) = (0, false);
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
    fn limit_grows_while_it_is_reached_and_answers_are_quick() {
        let mut limit = AdaptiveLimit::new(8, 64);
        for _ in 0..1000 {
            limit.learn(Pace::Quick);
        }
        assert_eq!(limit.get(false), 8, "a limit that is not reached does not grow");
        limit.reached();
        for _ in 0..7 {
            limit.learn(Pace::Quick);
        }
        assert_eq!(limit.get(false), 8);
        limit.learn(Pace::Quick);
        assert_eq!(limit.get(false), 9);
        for _ in 0..10_000 {
            limit.reached();
            limit.learn(Pace::Quick);
        }
        assert_eq!(limit.get(false), 64);
    }

    #[test]
    fn limit_halves_on_each_failure_and_stays_above_zero() {
        let mut limit = AdaptiveLimit::new(64, 64);
        for expected in [32, 16, 8, 4, 2, 1, 1, 1] {
            limit.learn(Pace::Strained);
            assert_eq!(limit.get(false), expected);
        }
        limit.learn(Pace::Slow);
        limit.learn(Pace::Unknown);
        assert_eq!(limit.get(false), 1);
        limit.reached();
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
