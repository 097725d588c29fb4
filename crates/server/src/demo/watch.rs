//! Looks at the server through its public API: follows the live stream, and asks for destinations and the ledger.

use std::sync::Arc;
use std::time::Duration;

use http_body_util::BodyExt as _;
use hyper::Method;
use postrider_domain::time::Timestamp;
use postrider_transport::Clock;
use serde_json::{Value as Json, json};
use tokio::sync::mpsc;

use super::receivers::CAST;
use super::scene::{Change, Ledger, Seen, Standing, State};
use crate::client::Client;
use crate::commands::stream::Events;
use crate::exit::Failure;
use crate::output::{entries, escaped};

/// How often destinations and the ledger are asked for.
const SURVEY_EVERY: Duration = Duration::from_millis(500);
/// The states of a delivery, the most interesting to explain first.
const WORTH_EXPLAINING: [&str; 4] = ["dead", "waiting", "queued", "delivered"];

/// Asks the server, and knows which destination belongs to which row.
#[derive(Clone)]
pub(super) struct Watcher {
    client: Client,
    clock: Arc<dyn Clock>,
    seen: mpsc::Sender<Seen>,
    destinations: Arc<[String; CAST.len()]>,
}

impl Watcher {
    /// Finds the destinations of the receivers at this address.
    pub(super) async fn new(
        client: Client,
        clock: Arc<dyn Clock>,
        seen: mpsc::Sender<Seen>,
    ) -> Result<Watcher, Failure> {
        let listed = client.ask(Method::GET, "/v1/destinations", &[], None).await?;
        let id = |name: &str| {
            let is_it = |one: &&Json| text(one, "url").ends_with(&format!("/{name}"));
            entries(&listed)
                .iter()
                .find(is_it)
                .map_or_else(String::new, |one| text(one, "id").to_owned())
        };
        let destinations = Arc::new(CAST.map(|role| id(role.name)));
        Ok(Watcher { client, clock, seen, destinations })
    }

    /// Where observations go.
    pub(super) fn reports(&self) -> mpsc::Sender<Seen> {
        self.seen.clone()
    }

    fn row(&self, destination: &str) -> Option<usize> {
        self.destinations.iter().position(|id| id == destination)
    }

    /// Follows the live stream until the server ends.
    pub(super) async fn follow(self) {
        loop {
            let query = [("body", "no".to_owned())];
            let Ok(mut body) = self.client.follow("/v1/stream", &query).await else { return };
            let mut events = Events::default();
            while let Some(Ok(frame)) = body.frame().await {
                let Some(bytes) = frame.data_ref() else { continue };
                let Ok(complete) = events.take(bytes) else { break };
                for (name, data) in complete {
                    let Ok(data) = serde_json::from_str::<Json>(&data) else { continue };
                    let Some(seen) = self.read(&name, &data) else { continue };
                    if self.seen.send(seen).await.is_err() {
                        return;
                    }
                }
            }
            if self.seen.send(Seen::Missed).await.is_err() {
                return;
            }
        }
    }

    /// An event of the live stream as an observation.
    fn read(&self, name: &str, data: &Json) -> Option<Seen> {
        match name {
            "attempt" => {
                let (delivery, attempt) = (&data["delivery"], &data["attempt"]);
                Some(Seen::Attempt {
                    row: self.row(text(delivery, "destination_id"))?,
                    delivery: text(delivery, "id").to_owned(),
                    latency: latency(delivery, attempt),
                    is_delivered: attempt["outcome"] == "delivered",
                })
            }
            "transition" => {
                let transition = &data["transition"];
                let counters = &transition["counters"];
                let change = Change {
                    to: State::parse(text(transition, "to"))?,
                    why: text(&transition["evidence"], "why").to_owned(),
                    failures: count(counters, "failures"),
                    attempts: count(counters, "attempts"),
                };
                Some(Seen::Transition { row: self.row(text(data, "destination_id"))?, change })
            }
            "dead" => {
                let delivery = &data["delivery"];
                Some(Seen::Died {
                    row: self.row(text(delivery, "destination_id"))?,
                    delivery: text(delivery, "id").to_owned(),
                    attempts: count(delivery, "attempts"),
                })
            }
            "lagged" => Some(Seen::Missed),
            _ => None,
        }
    }

    /// Asks for destinations and the ledger, again and again, until the server ends.
    pub(super) async fn survey(self) {
        let mut ticks = tokio::time::interval(SURVEY_EVERY);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let Ok(all) = self.look().await else { return };
            for seen in all {
                if self.seen.send(seen).await.is_err() {
                    return;
                }
            }
        }
    }

    async fn look(&self) -> Result<Vec<Seen>, Failure> {
        let ledger = self.client.ask(Method::GET, "/v1/ledger", &[], None).await?;
        let listed = self.client.ask(Method::GET, "/v1/destinations", &[], None).await?;
        let now = self.clock.now();
        let mut all = vec![Seen::Ledger(read_ledger(&ledger))];
        for (row, id) in self.destinations.iter().enumerate() {
            let Some(one) = entries(&listed).iter().find(|one| text(one, "id") == id) else {
                continue;
            };
            let Some(state) = State::parse(text(one, "state")) else { continue };
            let probe_at: Option<Timestamp> = text(one, "next_probe_at").parse().ok();
            let probe_in = probe_at.map(|at| at.since(now));
            let standing = Standing { state, waiting: count(one, "waiting"), probe_in };
            all.push(Seen::Destination { row, standing });
        }
        Ok(all)
    }

    /// Ledger and destinations as they are now, as JSON.
    pub(super) async fn summary(&self) -> Result<Json, Failure> {
        let ledger = self.client.ask(Method::GET, "/v1/ledger", &[], None).await?;
        let listed = self.client.ask(Method::GET, "/v1/destinations", &[], None).await?;
        let destinations: Vec<Json> = (self.destinations.iter())
            .filter_map(|id| entries(&listed).iter().find(|one| text(one, "id") == id))
            .map(|one| {
                let fields = ["url", "state", "attempts", "failures", "waiting", "reason"];
                fields.iter().map(|name| ((*name).to_owned(), one[*name].clone())).collect()
            })
            .collect();
        Ok(json!({"ledger": ledger, "destinations": destinations}))
    }

    /// Enables the destination of a row.
    pub(super) async fn enable(self, row: usize) {
        let Some(id) = self.destinations.get(row) else { return };
        let body = json!({"reason": "repaired, in the demonstration", "waiting": "drain"});
        let path = format!("/v1/destinations/{id}/enable");
        if let Err(failure) =
            self.client.ask(Method::POST, &path, &[], Some(body.to_string().into())).await
        {
            // Sending fails only at the end of the demonstration.
            drop(self.seen.send(Seen::Refused(failure.to_string())).await);
        }
    }

    /// Explains a delivery of a row: one that died, else one that waits, else any.
    pub(super) async fn explain(self, row: usize) {
        let seen = match self.explanation(row).await {
            Ok(paragraphs) => Seen::Explained(paragraphs),
            Err(failure) => Seen::Refused(failure.to_string()),
        };
        drop(self.seen.send(seen).await);
    }

    async fn explanation(&self, row: usize) -> Result<Vec<String>, Failure> {
        let Some(id) = self.destinations.get(row) else { return Ok(Vec::new()) };
        for state in WORTH_EXPLAINING {
            let query = [
                ("destination", id.clone()),
                ("state", state.to_owned()),
                ("limit", "1".to_owned()),
            ];
            let found = self.client.ask(Method::GET, "/v1/deliveries", &query, None).await?;
            let Some(delivery) = entries(&found).first() else { continue };
            let path = format!("/v1/deliveries/{}/explain", text(delivery, "id"));
            let explained = self.client.ask(Method::GET, &path, &[], None).await?;
            return Ok(paragraphs(&explained));
        }
        Ok(vec!["No delivery goes there yet.".to_owned()])
    }
}

/// An explanation as paragraphs.
fn paragraphs(explained: &Json) -> Vec<String> {
    let delivery = &explained["delivery"];
    let mut all = vec![
        format!("{} ({})", text(delivery, "id"), text(delivery, "type")),
        text(explained, "summary").to_owned(),
    ];
    let sentences = |name: &str| explained[name].as_array().into_iter().flatten();
    all.extend(sentences("because").filter_map(Json::as_str).map(|line| format!("• {line}")));
    if let Some(next) = explained["next"]["what"].as_str() {
        all.push(format!("Next: {next}"));
    }
    let ways = sentences("unblock").filter_map(|way| way["what"].as_str());
    all.extend(ways.map(|way| format!("To unblock it: {way}")));
    all.iter().map(|line| escaped(line)).collect()
}

/// From acceptance to the answer; of a retry, a probe or a replay, from its start.
fn latency(delivery: &Json, attempt: &Json) -> Duration {
    let took = Duration::from_millis(count(attempt, "duration_ms"));
    if attempt["number"] != 1 {
        return took;
    }
    let accepted: Option<Timestamp> = text(delivery, "created_at").parse().ok();
    let started: Option<Timestamp> = text(attempt, "started_at").parse().ok();
    match (accepted, started) {
        (Some(accepted), Some(started)) => took + started.since(accepted),
        _ => took,
    }
}

fn read_ledger(ledger: &Json) -> Ledger {
    Ledger {
        accepted: count(ledger, "accepted"),
        queued: count(ledger, "queued"),
        in_flight: count(ledger, "in_flight"),
        waiting: count(ledger, "waiting"),
        delivered: count(ledger, "delivered"),
        dead: count(ledger, "dead"),
        cancelled: count(ledger, "cancelled"),
    }
}

fn text<'a>(value: &'a Json, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_default()
}

fn count(value: &Json, name: &str) -> u64 {
    value[name].as_u64().unwrap_or(0)
}
