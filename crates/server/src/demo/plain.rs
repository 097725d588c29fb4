//! The demonstration as lines, for a pipe, a log or `--plain`; as JSON with `--json`.
//!
//! **A closed pipe ends the demonstration in order**, so that its directory is removed.

use std::io::{self, Write as _};
use std::time::Duration;

use serde_json::{Value as Json, json};

use super::receivers::CAST;
use super::scene::{Kind, Row, Scene, Told};
use super::traffic::ORDERS_PER_SECOND;
use super::words::{latency, number, span, stopwatch};
use super::{RETRIES, retries_last};
use crate::output::{Colour, Output, part};

/// How often the numbers are printed between the sentences.
const NUMBERS_EVERY: Duration = Duration::from_secs(10);

/// Prints what is new.
pub(super) struct Lines {
    output: Output,
    told: usize,
    numbers_at: Duration,
}

impl Lines {
    pub(super) const fn new(output: Output) -> Lines {
        Lines { output, told: 0, numbers_at: NUMBERS_EVERY }
    }

    /// Prints the addresses and what is going to happen.
    pub(super) fn introduce(&self, scene: &Scene, server: &str, key: &str) -> io::Result<()> {
        if self.output.json {
            let begin = json!({
                "server": server, "key": key, "dashboard": scene.link, "time_scale": scene.time_scale(),
            });
            return print(&begin.to_string());
        }
        let bold = |text: &str| self.output.paint(Colour::Bold, text);
        let scale = scene.time_scale().max(1);
        let receivers: Vec<String> = (CAST.iter())
            .map(|role| format!("    {:<9} {}", format!("/{}", role.name), role.mood.words()))
            .collect();
        let connection = format!("--server {server} --key {key}");
        print(&format!(
            "\n  {}  time × {scale}: ten minutes pass in {}\n\n  Dashboard  {}\n  API        {server}  (described at \
             {server}/docs)\n\n  {ORDERS_PER_SECOND} orders a second go to five receivers, and a few invoices to \
             two:\n\n{}\n\n  A delivery dies after {RETRIES} retries here, {}; by default after 11, 48 h.\n\n  Look at it \
             from another terminal:\n\n    postrider tail {connection}\n    postrider destinations list \
             {connection}\n    postrider deliveries list --state waiting {connection}\n\n  {}\n",
            bold("postrider demo"),
            span(scene.probe_interval()),
            bold(&scene.link),
            receivers.join("\n"),
            span(retries_last() / scale),
            bold("Ctrl-C ends it and removes everything."),
        ))
    }

    /// Prints the sentences that are new, and at intervals the numbers.
    pub(super) fn show(&mut self, scene: &Scene) -> io::Result<()> {
        let (fresh, told) = scene.told_after(self.told);
        self.told = told;
        for told in fresh {
            print(&self.sentence(told))?;
        }
        if scene.elapsed() >= self.numbers_at {
            self.numbers_at = scene.elapsed() + NUMBERS_EVERY;
            print(&self.numbers(scene))?;
        }
        Ok(())
    }

    fn sentence(&self, told: &Told) -> String {
        if self.output.json {
            let receiver = told.row.and_then(|row| CAST.get(row)).map(|role| role.name);
            let at_ms = u64::try_from(told.at.as_millis()).unwrap_or(u64::MAX);
            let line = json!({
                "at_ms": at_ms, "kind": told.kind.as_str(), "receiver": receiver, "told": told.text,
            });
            return line.to_string();
        }
        let text = match told.kind {
            Kind::Note => told.text.clone(),
            Kind::Broken | Kind::Died => self.output.paint(Colour::Red, &told.text),
            Kind::Disabled | Kind::Frozen => self.output.paint(Colour::Yellow, &told.text),
            Kind::Repaired | Kind::Recovered | Kind::Replayed => {
                self.output.paint(Colour::Green, &told.text)
            }
        };
        format!("{:>6}  {text}", stopwatch(told.at))
    }

    fn numbers(&self, scene: &Scene) -> String {
        let ledger = scene.ledger();
        if self.output.json {
            let receivers: Vec<Json> = scene.rows().iter().map(row_json).collect();
            return json!({
                "ledger": {
                    "accepted": ledger.accepted, "queued": ledger.queued, "in_flight": ledger.in_flight,
                    "waiting": ledger.waiting, "delivered": ledger.delivered, "dead": ledger.dead,
                    "cancelled": ledger.cancelled,
                },
                "receivers": receivers,
            })
            .to_string();
        }
        let text = format!(
            "accepted {} = delivered {} + moving {} + waiting {} + dead {}; {}",
            number(ledger.accepted),
            number(ledger.delivered),
            number(ledger.queued + ledger.in_flight),
            number(ledger.waiting),
            number(ledger.dead),
            scene.verdict(),
        );
        self.output.paint(Colour::Dim, &format!("{:>6}  {text}", stopwatch(scene.elapsed())))
    }

    /// Prints the result at the end.
    pub(super) fn conclude(&self, scene: &Scene, summary: &Json) -> io::Result<()> {
        if self.output.json {
            return print(&json!({ "end": summary }).to_string());
        }
        let mut text = format!(
            "\n{:<10}{:<10}{:>10}{:>10}{:>9}{:>9}\n",
            "RECEIVER", "STATE", "ATTEMPTS", "FAILURES", "WAITING", "P99"
        );
        for (row, one) in
            scene.rows().iter().zip(summary["destinations"].as_array().into_iter().flatten())
        {
            let [state, attempts, failures] =
                ["state", "attempts", "failures"].map(|name| part(one, name));
            let p99 = row.p99().map_or_else(|| "-".to_owned(), latency);
            let (name, waiting) = (format!("/{}", row.name), number(row.waiting()));
            text.push_str(&format!(
                "{name:<10}{state:<10}{attempts:>10}{failures:>10}{waiting:>9}{p99:>9}\n"
            ));
        }
        let ledger = &summary["ledger"];
        let counts = ["delivered", "in_flight", "queued", "waiting", "dead"];
        let counts =
            counts.map(|name| format!("{} {}", name.replace('_', " "), part(ledger, name)));
        text.push_str(&format!(
            "\naccepted {}\n  = {}\nThe server, its data and the receivers are gone.",
            part(ledger, "accepted"),
            counts.join(" + "),
        ));
        print(&text)
    }
}

fn row_json(row: &Row) -> Json {
    let p99 = row.p99().map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
    json!({
        "receiver": row.name, "mood": row.mood.words(), "state": row.state.as_str(), "in_flight": row.open,
        "waiting": row.waiting(), "p99_ms": p99,
    })
}

/// Prints a line.
fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{text}")?;
    out.flush()
}
