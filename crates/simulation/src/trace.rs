//! The trace of a simulated life: every line is hashed, so that two runs can be compared, and the last
//! lines are kept for a report.

use std::collections::VecDeque;
use std::fmt::Write as _;

use postrider_domain::ids::{DeliveryId, DestinationId};

const LINES_MAX: usize = 60_000;

/// One line of the trace.
#[derive(Debug, Clone, Copy)]
pub struct Line {
    /// When it happened, in milliseconds since the epoch.
    pub at: i64,
    /// What happened.
    pub what: &'static str,
    /// The delivery that is concerned.
    pub delivery: Option<DeliveryId>,
    /// The destination that is concerned.
    pub destination: Option<DestinationId>,
    /// A number that belongs to it: a slot, a count, a time.
    pub n: i64,
}

/// The trace of one life.
#[derive(Debug, Default)]
pub struct Trace {
    lines: VecDeque<Line>,
    hash: u64,
    is_broken: bool,
}

/// The text of the line that records a violation.
pub const VIOLATION: &str = "VIOLATION";

impl Trace {
    /// Adds a line.
    pub fn push(&mut self, line: Line) {
        self.mix(line.at.cast_unsigned());
        self.mix(line.n.cast_unsigned());
        for byte in line.what.bytes() {
            self.mix(u64::from(byte));
        }
        if let Some(id) = line.delivery {
            self.mix_bytes(id.as_bytes());
        }
        if let Some(id) = line.destination {
            self.mix_bytes(id.as_bytes());
        }
        // Lines after the first violation are its consequences: they are hashed, but not kept.
        if self.is_broken {
            return;
        }
        self.is_broken = line.what == VIOLATION;
        if self.lines.len() >= LINES_MAX {
            self.lines.pop_front();
        }
        self.lines.push_back(line);
    }

    /// The hash of all lines.
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// The last lines that concern this delivery, this destination, or the whole world.
    pub fn last_of(
        &self,
        delivery: Option<DeliveryId>,
        destination: Option<DestinationId>,
        count: usize,
    ) -> String {
        let (mut own, mut others) = (count / 2, count / 2);
        let mut wanted = |line: &&Line| {
            let is_own = line.delivery.is_some() && line.delivery == delivery;
            let is_near = line.destination.is_some() && line.destination == destination
                || line.delivery.is_none() && line.destination.is_none();
            let left = if is_own { &mut own } else { &mut others };
            let is_wanted = (is_own || is_near) && *left > 0;
            *left -= usize::from(is_wanted);
            is_wanted
        };
        let mut found: Vec<&Line> = self.lines.iter().rev().filter(|line| wanted(line)).collect();
        found.reverse();
        let mut text = String::new();
        for line in found {
            let delivery = line.delivery.map(|id| id.to_string()).unwrap_or_default();
            let destination = line.destination.map(|id| id.to_string()).unwrap_or_default();
            let (at, what, n) = (line.at - crate::clock::START_MS, line.what, line.n);
            writeln!(text, "  +{at:>12} ms  {what:<24} {n:>16}  {delivery} {destination}").ok();
        }
        text
    }

    fn mix(&mut self, value: u64) {
        self.hash = (self.hash ^ value).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23);
    }

    fn mix_bytes(&mut self, bytes: &[u8; 16]) {
        for half in bytes.chunks(8) {
            let mut eight = [0; 8];
            eight.copy_from_slice(half);
            self.mix(u64::from_le_bytes(eight));
        }
    }
}
