//! `postrider replay start --follow`: the progress of a job, with what became of the deliveries that it
//! sent, as the server counts it.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value as Json, json};

use super::super::Context;
use super::{Start, body, path, words};
use crate::exit::Failure;
use crate::output::{Output, line, part};

/// How often the job is asked for.
const ASK_EVERY: Duration = Duration::from_millis(250);
/// After a job has ended, so many looks without an attempt end the wait: those that are left wait for
/// something else, such as their destination.
const LOOKS_MAX: u32 = 40;

pub(super) async fn start(context: &Context, start: Start) -> Result<(), Failure> {
    let job = context.post("/v1/replays", Some(&body(start))).await?;
    let path = path(&part(&job, "id"), "")?;
    let mut progress = Progress::new(context.output, &job);
    let mut ticks = tokio::time::interval(ASK_EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let (mut quiet_looks, mut pending) = (0, None);
    let job = loop {
        ticks.tick().await;
        let job = context.get(&path, &[]).await?;
        let counts = Counts::of(&job);
        progress.tell(&job, &counts);
        let has_ended = job["state"] != "running";
        let is_quiet = pending.replace(counts.pending) == Some(counts.pending);
        quiet_looks = if has_ended && is_quiet { quiet_looks + 1 } else { 0 };
        if has_ended && (counts.pending == 0 || quiet_looks > LOOKS_MAX) {
            break job;
        }
    };
    progress.end();
    finish(context, &job)
}

/// Prints the result; fails if a delivery failed, or the job did not finish.
fn finish(context: &Context, job: &Json) -> Result<(), Failure> {
    let Counts { delivered, failed, dead, pending } = Counts::of(job);
    let mut answer = job.clone();
    answer["delivered"] = json!(delivered);
    answer["failed"] = json!(failed + dead);
    answer["not_attempted"] = json!(pending);
    context.output.value(&answer, |job| {
        let mut text = words::one(&context.show(), job);
        if pending > 0 {
            text += &format!(
                "\n{pending} were not attempted yet: their destination is disabled, or at its limit. \
                 See: postrider deliveries list --state waiting"
            );
        }
        text
    })?;
    match job["state"].as_str() {
        Some("finished") if failed + dead == 0 => Ok(()),
        Some("finished") if dead == 0 => {
            Err(Failure::failed(format!("{failed} failed: they are retried by their schedule")))
        }
        Some("finished") => Err(Failure::failed(format!(
            "{failed} failed and are retried by their schedule, {dead} are dead"
        ))),
        Some(_) | None => Err(Failure::failed(format!("the job is {}", part(job, "state")))),
    }
}

/// What became of the deliveries that a job sent. All are 0 where an earlier version of the server does
/// not say it.
struct Counts {
    delivered: u64,
    /// Those that failed and wait for their next slots.
    failed: u64,
    dead: u64,
    /// Those that were not attempted since.
    pending: u64,
}

impl Counts {
    fn of(job: &Json) -> Counts {
        let count = |name: &str| job["outcomes"][name].as_u64().unwrap_or(0);
        Counts {
            delivered: count("delivered"),
            failed: count("failed"),
            dead: count("dead"),
            pending: count("pending"),
        }
    }
}

/// Shows the progress: a bar on a terminal, otherwise a line when something has changed.
struct Progress {
    output: Output,
    bar: Option<ProgressBar>,
    last: String,
}

impl Progress {
    fn new(output: Output, job: &Json) -> Progress {
        let bar = output.redraws().then(|| {
            let style =
                ProgressStyle::with_template("{bar:30} {human_pos}/{human_len} sent, {msg}");
            let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
            ProgressBar::new(job["total"].as_u64().unwrap_or(0)).with_style(style)
        });
        Progress { output, bar, last: String::new() }
    }

    fn tell(&mut self, job: &Json, counts: &Counts) {
        let (delivered, failed) = (counts.delivered, counts.failed + counts.dead);
        if let Some(bar) = &self.bar {
            bar.set_position(job["done"].as_u64().unwrap_or(0));
            bar.set_message(format!("delivered {delivered}, failed {failed}"));
            return;
        }
        let text = if self.output.json {
            json!({
                "state": job["state"], "done": job["done"], "total": job["total"],
                "delivered": delivered, "failed": failed,
            })
            .to_string()
        } else {
            let (done, total) = (part(job, "done"), part(job, "total"));
            format!("sent {done} of {total}, delivered {delivered}, failed {failed}")
        };
        if text != self.last {
            // If the output was closed, the job goes on.
            line(&text).ok();
            self.last = text;
        }
    }

    fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
