//! Draws the number of waiting deliveries over time with block characters on the terminal.

use std::time::Duration;

use postrider_domain::forecast::Sample;

use super::given::grouped;
use super::{Plan, Question};
use crate::output::{Colour, Output};

const WIDTH: u32 = 72;
const HEIGHT: u64 = 8;
/// Eighths of a character cell, from empty to full.
const BLOCKS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// The duration and the highest value, common to all charts.
pub(super) fn extent(plans: &[Plan]) -> (Duration, u64) {
    let length = plans.iter().map(|plan| plan.forecast.ends_at).max().unwrap_or_default();
    let highest = plans.iter().map(|plan| plan.forecast.peak_backlog).max().unwrap_or(0);
    (length.max(Duration::from_secs(1)), highest.max(1))
}

/// The largest number of waiting deliveries in each column.
fn columns(samples: &[Sample], length: Duration) -> Vec<u64> {
    let column = length / WIDTH;
    (0..WIDTH)
        .map(|n| {
            let (from, to) = (column * n, column * (n + 1));
            let within = samples.iter().filter(|sample| sample.at >= from && sample.at < to);
            let before = samples.iter().rev().find(|sample| sample.at <= from);
            within.chain(before).map(|sample| sample.backlog).max().unwrap_or(0)
        })
        .collect()
}

/// The chart of one plan, on the common scale.
pub(super) fn draw(question: &Question, plan: &Plan, plans: &[Plan], output: Output) -> String {
    let (length, highest) = extent(plans);
    let columns = columns(&plan.forecast.samples, length);
    let label = grouped(highest);
    let margin = label.len();
    let title = format!("{}: deliveries that wait", plan.name);
    let mut lines = vec![output.paint(Colour::Bold, &title)];
    for row in (0..HEIGHT).rev() {
        let axis = match row {
            row if row == HEIGHT - 1 => label.clone(),
            0 => "0".to_owned(),
            _ => String::new(),
        };
        let cells: String = columns
            .iter()
            .map(|backlog| {
                let eighths = u128::from(*backlog) * u128::from(HEIGHT) * 8;
                let eighths = eighths.div_ceil(u128::from(highest));
                let here = eighths.saturating_sub(u128::from(row) * 8).min(8);
                BLOCKS[usize::try_from(here).unwrap_or(8)]
            })
            .collect();
        lines.push(format!("{axis:>margin$} │{}", cells.trim_end()));
    }
    lines.push(axis(question, length, margin));
    lines.join("\n")
}

/// The time axis with the end of the outage marked, and the legend.
fn axis(question: &Question, length: Duration, margin: usize) -> String {
    let share = question.outage.length.as_secs_f64() / length.as_secs_f64();
    let wanted = share * f64::from(WIDTH);
    let mark = (0..WIDTH).filter(|n| f64::from(*n) < wanted).count().saturating_sub(1);
    let width = usize::try_from(WIDTH).unwrap_or(0);
    let mut line = vec!['─'; width];
    line[mark.min(width - 1)] = '┴';
    let line: String = line.into_iter().collect();
    let (from, to) = (question.outage.shown(Duration::ZERO), question.outage.shown(length));
    let end = format!("{} up again", question.outage.shown(question.outage.length));
    let (from_width, end_width, to_width) =
        (from.chars().count(), end.chars().count(), to.chars().count());
    let start = mark.saturating_sub(end_width / 2).max(from_width + 2);
    let start = start.min(width.saturating_sub(end_width + to_width + 2).max(from_width + 2));
    let gap = start.saturating_sub(from_width);
    let rest = width.saturating_sub(from_width + gap + end_width + to_width).max(2);
    let labels = format!("{from}{}{end}{}{to}", " ".repeat(gap), " ".repeat(rest));
    format!("{:margin$} └{line}\n{:margin$}  {labels}", "", "")
}
