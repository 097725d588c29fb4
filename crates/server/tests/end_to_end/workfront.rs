//! The story of Workfront's documents, told by way of its own API: a URL fails, is retried for 48
//! hours, is disabled, probed and enabled again, freezes, and is enabled by a request.
//!
//! The test asserts only that an attempt is never early. How late it is depends on the machine.

use std::time::{Duration, Instant};

use postrider_domain::time::Timestamp;
use serde_json::{Value as Json, json};

use crate::support::receiver::Arrived;
use crate::support::server::Server;
use crate::support::{Receiver, Start, http};

const SUBSCRIPTIONS: &str = "/attask/eventsubscription/api/v1/subscriptions";
/// 48 hours are 17.4 seconds on this clock, ten minutes 60 ms, and 72 hours 26 seconds.
const SCALE: u32 = 10_000;
/// So many successes keep 2,000 failures below the share of 70 %.
const SUCCESSES: usize = 900;

/// A client of Workfront: it has a session and knows no other API, but for sending events.
struct Integrator {
    server: Server,
    subscription: String,
}

fn scaled(duration: Duration) -> Duration {
    duration / SCALE
}

/// When a retry is due after the first attempt.
fn offset(retry: u32) -> Duration {
    scaled(Duration::from_millis(84_800)) * ((1 << retry) - 1)
}

#[expect(clippy::disallowed_methods, reason = "no attempt may come before its time")]
fn now() -> Instant {
    Instant::now()
}

impl Integrator {
    fn ask(server: &Server, method: &str, path: &str, body: Option<&Json>, status: u16) -> Json {
        let session = format!("sessionID: {}\r\n", server.key);
        let (found, answer) =
            http::request_without_key(server.address, method, path, &session, body).unwrap();
        assert_eq!(found, status, "{method} {path}: {answer}");
        serde_json::from_str(&answer).unwrap_or(Json::Null)
    }

    fn subscribe(server: Server, url: &str) -> Integrator {
        let body = json!({
            "objCode": "TASK", "eventType": "UPDATE", "url": url, "authToken": "EauthToken1234",
        });
        let created = Integrator::ask(&server, "POST", SUBSCRIPTIONS, Some(&body), 201);
        let subscription = created["id"].as_str().unwrap().to_owned();
        Integrator { server, subscription }
    }

    fn path(&self) -> String {
        format!("{SUBSCRIPTIONS}/{}", self.subscription)
    }

    /// Lets this many tasks be updated.
    fn update(&self, count: usize) {
        let event = |n| json!({"type": "TASK.UPDATE", "data": {"n": n}, "old": {"n": null}});
        let events: Vec<Json> = (0..count).map(event).collect();
        self.server.ask("POST", "/v1/events/batch", Some(&json!(events)), 202);
    }

    /// Waits until the subscription's URL looks like this.
    fn wait(&mut self, what: &str, is_it: impl Fn(&Json) -> bool) -> Json {
        let path = self.path();
        self.server.wait(what, |server| {
            let shown = Integrator::ask(server, "GET", &path, None, 200);
            let url = shown["subscription_url"].clone();
            is_it(&url).then_some(url)
        })
    }

    /// Lets the URL fail 2,000 times in a row, after so many successes that only this disables it.
    fn disable(&mut self, receiver: &Receiver) {
        receiver.answer(200);
        self.update(SUCCESSES);
        self.wait("the successes", |url| url["successes"].as_u64() >= Some(SUCCESSES as u64));
        receiver.answer(500);
        self.update(500);
        let url = self.wait("2,000 failures in a row", |url| url["disabled_at"].is_string());
        assert!(url["failures"].as_u64() >= Some(2000), "{url}");
        assert_eq!(url["frozen_at"], Json::Null);
    }
}

/// The requests of a single delivery: each in its slot or later, the last one after 48 hours.
fn check_retries(arrived: &[Arrived], sent: Instant) {
    assert!(arrived.len() <= 12, "{} attempts", arrived.len());
    for (n, request) in arrived.iter().enumerate() {
        let due = offset(u32::try_from(n).unwrap());
        assert!(request.at - sent >= due, "attempt {n} came after {:?}", request.at - sent);
        assert_eq!(request.webhook_id, arrived[0].webhook_id);
        assert_eq!(request.body, arrived[0].body);
    }
}

/// Attempts in flight, by the metrics.
fn in_flight(metrics: &str) -> u64 {
    let values = metrics.lines().filter(|line| line.starts_with("postrider_lane_in_flight{"));
    values.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
}

/// The slots of the only delivery: eleven after the first attempt, at the formula's times. Each has had
/// its attempt, or passed while another attempt was in flight.
fn check_slots(server: &mut Server, attempts: usize) {
    let list = server.ask("GET", "/v1/deliveries", None, 200);
    let path = format!("/v1/deliveries/{}", list["data"][0]["id"].as_str().unwrap());
    let schedule = server.wait("the last attempt to be recorded", |server| {
        let delivery = server.ask("GET", &path, None, 200);
        (delivery["state"] == "dead").then(|| delivery["schedule"].clone())
    });
    let slots = schedule["slots"].as_array().unwrap();
    assert_eq!(slots.len(), 12, "{schedule}");
    let of_state = |state: &str| slots.iter().filter(|slot| slot["state"] == state).count();
    assert_eq!(of_state("failed"), attempts, "{schedule}");
    assert_eq!(of_state("spent"), slots.len() - attempts, "{schedule}");
    assert_eq!(slots[11]["state"], "failed", "{schedule}");
    let at = |slot: &Json| slot["due_at"].as_str().unwrap().parse::<Timestamp>().unwrap();
    let started = at(&slots[0]);
    for (n, slot) in slots.iter().enumerate() {
        let (found, formula) = (at(slot).since(started), offset(u32::try_from(n).unwrap()));
        assert!(
            found.abs_diff(formula) < Duration::from_millis(2),
            "slot {n}: {found:?}, {formula:?}"
        );
    }
}

/// Checks that a frozen URL gets no request while an hour passes; returns how many came before. Before the
/// hour begins, all attempts that were in flight have ended.
fn check_silence(integrator: &mut Integrator, receiver: &Receiver, frozen_at: &Json) -> usize {
    let wait = |server: &mut Server, what: &str, accepted: u64| {
        server.wait(what, |server| {
            let ledger = server.ask("GET", "/v1/ledger", None, 200);
            (ledger["accepted"] == accepted && in_flight(&server.metrics()) == 0).then_some(())
        });
    };
    let accepted = integrator.server.ask("GET", "/v1/ledger", None, 200)["accepted"].clone();
    let accepted = accepted.as_u64().unwrap();
    wait(&mut integrator.server, "what was in flight to end", accepted);
    let (before, begun) = (receiver.count(), now());
    integrator.update(1);
    wait(&mut integrator.server, "the event to be accepted", accepted + 1);
    let still = integrator
        .wait("an hour of the frozen URL", |_| now() - begun >= scaled(Duration::from_hours(1)));
    assert_eq!(&still["frozen_at"], frozen_at);
    assert_eq!(receiver.count(), before, "a frozen URL gets no request");
    before
}

#[test]
fn a_url_fails_is_disabled_recovers_freezes_and_is_enabled() {
    let receiver = Receiver::start(500);
    let server = Start::dev().with(&["--time-scale", &SCALE.to_string()]).fresh();
    let mut integrator = Integrator::subscribe(server, &receiver.url());

    // A message fails for 48 hours. On this clock the first slots are milliseconds apart, and some
    // may be spent by the attempt before; the last ones are seconds apart.
    let sent = now();
    integrator.update(1);
    while receiver.arrived().last().is_none_or(|last| last.at - sent < offset(11)) {
        receiver.wait_until(receiver.count() + 1);
    }
    check_retries(&receiver.arrived(), sent);
    check_slots(&mut integrator.server, receiver.count());
    let body: Json = serde_json::from_slice(&receiver.arrived()[0].body).unwrap();
    assert_eq!(body["subscriptionId"], integrator.subscription);
    let failed = receiver.count();
    let url = integrator.wait("the failures", |url| url["failures"] == failed);
    assert_eq!((&url["successes"], &url["disabled_at"]), (&json!(0), &Json::Null));

    // 2,000 failures in a row disable the URL. From then on one message in ten minutes is tried.
    integrator.disable(&receiver);
    integrator.server.wait("what was in flight to end", |server| {
        (in_flight(&server.metrics()) <= 1).then_some(())
    });
    let probes = 6;
    // The first one may have been on its way already.
    let all = receiver.wait_for(receiver.count() + 1 + probes);
    let probed = all.iter().rev().take(probes).collect::<Vec<_>>();
    for pair in probed.windows(2) {
        let pause = pair[0].at - pair[1].at;
        assert!(pause >= scaled(Duration::from_mins(10)), "a probe after {pause:?}");
    }
    receiver.answer(200);
    let url = integrator.wait("a probe to succeed", |url| url["disabled_at"].is_null());
    assert!(url["failures"].as_u64() < Some(2000), "the counters begin anew: {url}");

    // The same again, and no success for 72 hours: frozen.
    integrator.disable(&receiver);
    let url = integrator.wait("72 hours without success", |url| url["frozen_at"].is_string());
    assert_eq!(url["disabled_at"], Json::Null, "{url}");
    receiver.answer(200);
    let path = integrator.path();
    let before = check_silence(&mut integrator, &receiver, &url["frozen_at"]);
    let enable = format!("{path}/enable");
    let enabled = Integrator::ask(&integrator.server, "POST", &enable, None, 200);
    assert_eq!(enabled["subscription_url"]["frozen_at"], Json::Null);
    receiver.wait_until(before + 1);
    integrator.wait("a success", |url| url["successes"].as_u64() > Some(0));
    Integrator::ask(&integrator.server, "DELETE", &path, None, 200);
    Integrator::ask(&integrator.server, "GET", &path, None, 404);
}
