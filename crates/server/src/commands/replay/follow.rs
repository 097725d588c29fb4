//! `postrider replay start --follow`: the progress of a job, with how many were delivered and failed.
//!
//! The job knows how many deliveries it has sent; what became of them is counted from the live stream,
//! which is opened before the job is started.

use std::collections::HashSet;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use postrider_domain::time::Timestamp;
use serde_json::{Value as Json, json};

use super::super::stream::{Happening, Stream};
use super::super::{Context, query};
use super::{Start, body, path, words};
use crate::exit::Failure;
use crate::output::{Output, line, part, time};

/// How often the job is asked for.
const ASK_EVERY: Duration = Duration::from_millis(250);
/// After a job has finished, so many looks without an attempt end the wait: those that are left wait
/// for something else, such as their destination.
const LOOKS_MAX: u32 = 40;

pub(super) async fn start(context: &Context, start: Start) -> Result<(), Failure> {
    let only = start.destination.clone();
    let query = query(vec![("destination", only), ("body", Some("no".to_owned()))]);
    let mut stream = Stream::open(context, &query).await?;
    let job = context.post("/v1/replays", Some(&body(start))).await?;
    let (path, mut tally) = (path(&part(&job, "id"), "")?, Tally::of(&job));
    let mut progress = Progress::new(context.output, &job);
    let mut ticks = tokio::time::interval(ASK_EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut quiet_looks = 0;
    let job = loop {
        tokio::select! {
            happening = stream.next() => match happening? {
                Happening { name, data } if name == "attempt" => {
                    if tally.count(&data["delivery"], &data["attempt"]) {
                        quiet_looks = 0;
                    }
                }
                Happening { name, data } if name == "lagged" => {
                    tally.missed += data["missed"].as_u64().unwrap_or(0);
                    stream = Stream::open(context, &query).await?;
                }
                Happening { .. } => {}
            },
            _ = ticks.tick() => {
                let job = context.get(&path, &[]).await?;
                progress.tell(&job, &tally);
                let sent = job["done"].as_u64().unwrap_or(0);
                let has_ended = job["state"] != "running";
                quiet_looks += u32::from(has_ended);
                if has_ended && (tally.attempted() >= sent || quiet_looks > LOOKS_MAX) {
                    break job;
                }
            }
        }
    };
    progress.end();
    finish(context, &job, &tally)
}

/// Prints the result; fails if a delivery failed, or the job did not finish.
fn finish(context: &Context, job: &Json, tally: &Tally) -> Result<(), Failure> {
    let (delivered, failed) = (tally.delivered, tally.failed());
    let mut answer = job.clone();
    answer["delivered"] = json!(delivered);
    answer["failed"] = json!(failed);
    answer["not_attempted"] = json!(tally.open(job));
    context.output.value(&answer, |job| {
        let mut text = words::one(&context.show(), job);
        text += &format!("\ndelivered {delivered}, failed {failed}");
        let open = tally.open(job);
        if tally.missed > 0 {
            text += &format!("\nAt least: {} events of the stream were missed.", tally.missed);
        } else if open > 0 {
            text += &format!(
                "\n{open} were not attempted yet: their destination is disabled, at its limit, or on \
                 another node. See: postrider deliveries list --state waiting"
            );
        }
        text
    })?;
    match job["state"].as_str() {
        Some("finished") if failed == 0 => Ok(()),
        Some("finished") => {
            Err(Failure::failed(format!("{failed} failed: they are retried by their schedule")))
        }
        Some(_) | None => Err(Failure::failed(format!("the job is {}", part(job, "state")))),
    }
}

/// What became of the deliveries of a job.
struct Tally {
    filter: Json,
    began: Option<Timestamp>,
    delivered: u64,
    /// Those whose last attempt failed.
    failed: HashSet<String>,
    /// Events of the stream that did not arrive.
    missed: u64,
}

impl Tally {
    fn of(job: &Json) -> Tally {
        let (filter, began) = (job["filter"].clone(), time(job, "created_at"));
        Tally { filter, began, delivered: 0, failed: HashSet::new(), missed: 0 }
    }

    fn failed(&self) -> u64 {
        u64::try_from(self.failed.len()).unwrap_or(u64::MAX)
    }

    fn attempted(&self) -> u64 {
        self.delivered + self.failed()
    }

    /// How many of those that were sent were not seen to be attempted.
    fn open(&self, job: &Json) -> u64 {
        job["done"].as_u64().unwrap_or(0).saturating_sub(self.attempted())
    }

    /// Counts an attempt, if it was made for a delivery of the job.
    fn count(&mut self, delivery: &Json, attempt: &Json) -> bool {
        let id = part(delivery, "id");
        let was_failed = self.failed.contains(&id);
        if !was_failed && !self.is_ours(delivery, attempt) {
            return false;
        }
        if attempt["outcome"] == "delivered" {
            self.failed.remove(&id);
            self.delivered += 1;
        } else {
            self.failed.insert(id);
        }
        true
    }

    /// Whether this is the first attempt that the job caused. A replay begins a new schedule, so it is
    /// a first attempt of a delivery that is older than the job; of one that waits it is `manual`.
    fn is_ours(&self, delivery: &Json, attempt: &Json) -> bool {
        let is = |wanted: &str, field: &str| {
            self.filter[wanted].is_null() || self.filter[wanted] == delivery[field]
        };
        let created = time(delivery, "created_at");
        let after =
            |name: &str| time(&self.filter, name).is_none_or(|since| created >= Some(since));
        let before = |until: Option<Timestamp>| until.is_none_or(|until| created < Some(until));
        let turn = if self.filter["state"] == "waiting" { "manual" } else { "first" };
        (attempt["turn"] == turn || attempt["turn"] == "probe")
            && is("destination", "destination_id")
            && is("subscription", "subscription_id")
            && is("type", "type")
            && after("since")
            && before(time(&self.filter, "until"))
            && before(self.began)
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

    fn tell(&mut self, job: &Json, tally: &Tally) {
        let (delivered, failed) = (tally.delivered, tally.failed());
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_of_the_job_are_counted_once_for_each_delivery() {
        let job = json!({
            "created_at": "2026-11-18T02:00:00.000Z", "done": 4,
            "filter": {"state": "dead", "destination": "dst_1", "subscription": null, "type": null,
                       "since": "2026-11-17T00:00:00.000Z", "until": null},
        });
        let mut tally = Tally::of(&job);
        let mut count = |id: &str, created: &str, turn: &str, outcome: &str| {
            let delivery = json!({"id": id, "destination_id": "dst_1", "created_at": created});
            tally.count(&delivery, &json!({"turn": turn, "outcome": outcome}))
        };
        let (old, older) = ("2026-11-17T12:00:00.000Z", "2026-11-16T12:00:00.000Z");
        assert!(count("a", old, "first", "delivered"));
        assert!(count("b", old, "first", "failed"));
        assert!(count("b", old, "retry", "failed"), "again, and still one failure");
        assert!(count("c", old, "first", "failed"));
        assert!(count("c", old, "retry", "delivered"), "a failure that recovered");
        assert!(
            !count("d", "2026-11-18T02:00:01.000Z", "first", "delivered"),
            "newer than the job"
        );
        assert!(!count("e", old, "retry", "failed"), "it waited without the job");
        assert!(!count("f", older, "first", "failed"), "accepted before `since`");
        assert_eq!((tally.delivered, tally.failed(), tally.open(&job)), (2, 1, 1));
    }
}
