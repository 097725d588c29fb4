//! Draws waiting and dead deliveries over time as an SVG.
//!
//! All text in it is our own or escaped: it contains no script and loads nothing.

use std::fmt::Write as _;
use std::time::Duration;

use postrider_domain::forecast::Sample;

use super::given::{grouped, short};
use super::words::{headline, verdict};
use super::{Plan, Question, chart};

const WIDTH: f64 = 960.0;
const LEFT: f64 = 110.0;
const RIGHT: f64 = 30.0;
const TOP: f64 = 70.0;
const PLOT_HEIGHT: f64 = 300.0;
/// Colours that people with colour blindness can distinguish.
const COLOURS: [&str; 6] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"];

/// Converts values and times to coordinates.
struct Scale {
    length: Duration,
    highest: u64,
}

impl Scale {
    fn x(&self, at: Duration) -> f64 {
        LEFT + at.as_secs_f64() / self.length.as_secs_f64() * (WIDTH - LEFT - RIGHT)
    }

    #[expect(clippy::cast_precision_loss, reason = "a drawing has fewer points than that")]
    fn y(&self, count: u64) -> f64 {
        TOP + PLOT_HEIGHT * (1.0 - count as f64 / self.highest as f64)
    }

    fn line(&self, samples: &[Sample], value: fn(&Sample) -> u64) -> String {
        let points = samples
            .iter()
            .map(|sample| format!("{:.1},{:.1}", self.x(sample.at), self.y(value(sample))));
        points.collect::<Vec<_>>().join(" ")
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// The distance of the grid lines: 1, 2 or 5 times a power of ten, for about four lines.
fn step(highest: u64) -> u64 {
    let mut step = 1u64;
    loop {
        for factor in [1, 2, 5] {
            if step.saturating_mul(factor).saturating_mul(5) >= highest {
                return step.saturating_mul(factor);
            }
        }
        step = step.saturating_mul(10);
    }
}

/// The distance of the time marks: at most twelve.
fn tick(length: Duration) -> Duration {
    let minutes = [1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720, 1_440, 2_880, 10_080, 40_320];
    let fits = |minutes: &&u64| Duration::from_secs(**minutes * 60) * 9 >= length;
    let minutes = minutes.iter().find(fits).copied().unwrap_or(525_600);
    Duration::from_secs(minutes * 60)
}

/// The whole drawing.
pub(super) fn draw(question: &Question, plans: &[Plan]) -> String {
    let (length, backlog) = chart::extent(plans);
    let dead = plans.iter().map(|plan| plan.forecast.dead).max().unwrap_or(0);
    let scale = Scale { length, highest: backlog.max(dead) };
    let bottom = TOP + PLOT_HEIGHT;
    let height = bottom + 60.0 + 22.0 * f64::from(u32::try_from(plans.len()).unwrap_or(0)) + 20.0;
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         width=\"{WIDTH}\" height=\"{height}\" font-family=\"system-ui, sans-serif\" \
         font-size=\"13\">\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n"
    );
    let title = escaped(&headline(question));
    text += &format!("<text x=\"20\" y=\"30\" font-size=\"17\" fill=\"#222\">{title}</text>\n");
    text += "<text x=\"20\" y=\"52\" fill=\"#666\">lines: deliveries that wait; dashed: deliveries \
             that are dead; grey: the outage</text>\n";
    grid(&mut text, question, &scale);
    for (plan, colour) in plans.iter().zip(COLOURS.iter().cycle()) {
        let samples = &plan.forecast.samples;
        let waits = scale.line(samples, |sample| sample.backlog);
        let stroke = format!("fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"");
        let _infallible = writeln!(text, "<polyline points=\"{waits}\" {stroke}/>");
        if plan.forecast.dead > 0 {
            let dead = scale.line(samples, |sample| sample.dead);
            let dash = "stroke-dasharray=\"6 4\"";
            let _infallible = writeln!(text, "<polyline points=\"{dead}\" {stroke} {dash}/>");
        }
    }
    let mut y = bottom + 62.0;
    for (plan, colour) in plans.iter().zip(COLOURS.iter().cycle()) {
        let words = escaped(&format!("{}: {}", plan.name, verdict(question, &plan.forecast)));
        text += &format!(
            "<rect x=\"20\" y=\"{}\" width=\"18\" height=\"4\" fill=\"{colour}\"/>",
            y - 6.0
        );
        text += &format!("<text x=\"46\" y=\"{y}\" fill=\"#222\">{words}</text>\n");
        y += 22.0;
    }
    text + "</svg>\n"
}

/// The outage, the grid lines with their values, and the times.
fn grid(text: &mut String, question: &Question, scale: &Scale) {
    let bottom = TOP + PLOT_HEIGHT;
    let end = scale.x(question.outage.length);
    *text += &format!(
        "<rect x=\"{LEFT}\" y=\"{TOP}\" width=\"{:.1}\" height=\"{PLOT_HEIGHT}\" fill=\"#eeeeee\"/>\n",
        end - LEFT
    );
    let step = step(scale.highest);
    for count in (0..=scale.highest / step).map(|n| n * step) {
        let y = scale.y(count);
        let right = WIDTH - RIGHT;
        *text += &format!(
            "<line x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{right}\" y2=\"{y:.1}\" stroke=\"#cccccc\"/>\
             <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\" fill=\"#666\">{}</text>\n",
            LEFT - 8.0,
            y + 4.0,
            grouped(count)
        );
    }
    let tick = tick(scale.length);
    let mut at = Duration::ZERO;
    while at <= scale.length {
        let x = scale.x(at);
        let label = match question.outage.begins {
            Some(_) => question.outage.shown(at),
            None if at.is_zero() => "0".to_owned(),
            None => format!("+{}", short(at)),
        };
        *text += &format!(
            "<line x1=\"{x:.1}\" y1=\"{bottom}\" x2=\"{x:.1}\" y2=\"{}\" stroke=\"#888\"/>\
             <text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\" fill=\"#666\">{label}</text>\n",
            bottom + 5.0,
            bottom + 22.0
        );
        at += tick;
    }
}
