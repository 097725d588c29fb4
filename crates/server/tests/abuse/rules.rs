//! Rules of the contract that an attacker could exploit.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value as Json, json};

use crate::flows::capturing;
use crate::kit::{ATTACKER, Client, Verdict, now};
use crate::scene::Scene;
use crate::support::{Receiver, Start, text};

const DAYS: [&str; 7] =
    ["Thursday", "Friday", "Saturday", "Sunday", "Monday", "Tuesday", "Wednesday"];
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// A time of day in UTC.
pub(crate) struct Civil {
    year: u64,
    month: u64,
    day: u64,
    seconds: u64,
    weekday: &'static str,
}

impl Civil {
    /// From seconds since 1970, by the usual algorithm with 400-year eras that begin in March.
    pub(crate) fn of(unix: u64) -> Civil {
        let (days, seconds) = (unix / 86_400, unix % 86_400);
        let z = days + 719_468;
        let (era, doe) = (z / 146_097, z % 146_097);
        let yoe = (doe - doe / 1_460 + doe / 36_524 - doe / 146_096) / 365;
        let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
        let mp = (5 * doy + 2) / 153;
        let month = if mp < 10 { mp + 3 } else { mp - 9 };
        Civil {
            year: yoe + era * 400 + u64::from(month <= 2),
            month,
            day: doy - (153 * mp + 2) / 5 + 1,
            seconds,
            weekday: DAYS[usize::try_from(days % 7).unwrap()],
        }
    }

    fn clock(&self) -> String {
        let seconds = self.seconds;
        format!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
    }

    pub(crate) fn rfc_3339(&self) -> String {
        format!("{:04}-{:02}-{:02}T{}Z", self.year, self.month, self.day, self.clock())
    }

    fn month_name(&self) -> &'static str {
        MONTHS[usize::try_from(self.month - 1).unwrap()]
    }

    fn rfc_850(&self) -> String {
        let (month, year) = (self.month_name(), self.year % 100);
        format!("{}, {:02}-{month}-{year:02} {} GMT", self.weekday, self.day, self.clock())
    }

    fn asctime(&self) -> String {
        let (weekday, month) = (&self.weekday[..3], self.month_name());
        format!("{weekday} {month} {:>2} {} {}", self.day, self.clock(), self.year)
    }
}

/// The current time plus `later`, in seconds since 1970.
#[expect(clippy::disallowed_methods, reason = "dates in headers and keys need a time of day")]
pub(crate) fn unix_in(later: Duration) -> u64 {
    (SystemTime::now() + later).duration_since(UNIX_EPOCH).unwrap().as_secs()
}

/// The hours from one RFC 3339 time to another, within a few days.
fn hours_between(from: &str, to: &str) -> f64 {
    let start = unix_in(Duration::ZERO) - 86_400 * 2;
    let of = |text: &str| {
        let day = (0..8).find(|day| Civil::of(start + day * 86_400).rfc_3339()[..10] == text[..10]);
        let midnight = (start / 86_400 + day.unwrap_or(8)) * 86_400;
        let part = |range: std::ops::Range<usize>| text[range].parse::<u64>().unwrap();
        (midnight + part(11..13) * 3600 + part(14..16) * 60 + part(17..19)) as f64
    };
    (of(to) - of(from)) / 3600.0
}

/// A server with one failed attempt that got this answer; returns the delivery.
fn after_answer(answer: &str) -> Json {
    let (address, _) = capturing(answer, Duration::ZERO);
    let mut server = Start::dev().fresh();
    server.subscribe(&format!("http://{address}/"));
    server.send(1);
    server.wait("the first attempt", |server| {
        let delivery = server.delivery();
        (delivery["attempts"] == 1 && delivery["state"] == "waiting").then_some(delivery)
    })
}

#[test]
fn retry_after_is_understood_in_every_form() {
    let mut verdict = Verdict::of("Retry-After in every form");
    let later = Civil::of(unix_in(Duration::from_secs(7_200)));
    for (form, value, hours) in [
        ("seconds", "7200".to_owned(), 2.0),
        ("RFC 850", later.rfc_850(), 2.0),
        ("asctime", later.asctime(), 2.0),
        ("the year 9999", "Fri, 31 Dec 9999 23:59:59 GMT".to_owned(), 48.2),
    ] {
        let answer = format!("HTTP/1.1 503 x\r\nretry-after: {value}\r\ncontent-length: 0\r\n\r\n");
        let delivery = after_answer(&answer);
        let found =
            hours_between(&text(&delivery, "created_at"), &text(&delivery, "next_attempt_at"));
        verdict.figure(format!("{form}: {found:.1} h"));
        verdict
            .must((found - hours).abs() < 0.3, format!("{form} moved the retry to {found:.2} h"));
    }
    verdict.end();
}

#[test]
fn successes_never_disable_a_destination() {
    let mut verdict = Verdict::of("destination repaired after 90 failures");
    let receiver = Receiver::start(500);
    let mut server = Start::dev().with(&["--set", "telemetry.attempts=false"]).fresh();
    server.subscribe(&receiver.url());
    server.send(90);
    server.wait("90 failures", |server| (server.destination()["failures"] == 90).then_some(()));
    receiver.answer(200);
    let mut states = Vec::new();
    for n in 1..=30 {
        server.send(1);
        let destination = server.wait("one more attempt", |server| {
            let destination = server.destination();
            let attempts = destination["attempts"].as_u64().unwrap();
            (attempts >= 90 + n || destination["state"] != "enabled").then_some(destination)
        });
        states.push(text(&destination, "state"));
        if states.last().is_some_and(|state| state != "enabled") {
            break;
        }
    }
    let state = states.last().cloned().unwrap_or_default();
    verdict.figure(format!("{} after {} successes", state, states.len()));
    verdict.must(state == "enabled", format!("{state} by success number {}", states.len()));
    verdict.end();
}

#[test]
fn explain_says_what_a_queued_delivery_waits_for() {
    let mut verdict = Verdict::of("explain of a delivery held by its rate");
    let scene = Scene::start();
    let receiver = Receiver::start(200);
    let mut client = scene.attacker();
    let wish = json!({"url": receiver.url(), "types": ["a.b"], "rate_limit": 0.01});
    assert_eq!(client.post("/v1/subscriptions", &wish).unwrap().status, 201);
    client.post("/v1/events/batch", &json!(vec![json!({"type": "a.b", "data": 1}); 5])).unwrap();
    receiver.wait_until(1);
    let list = client.get("/v1/deliveries?state=queued").unwrap().json();
    let queued = list["data"].as_array().cloned().unwrap_or_default();
    let mut vague = Vec::new();
    for delivery in &queued {
        let path = format!("/v1/deliveries/{}/explain", text(delivery, "id"));
        let explained = client.get(&path).unwrap().json();
        let because = explained["because"].as_array().map_or(0, Vec::len);
        let past = explained["next"]["at"].as_str().is_some_and(|at| {
            // Its acceptance is in the past; the next attempt must not be.
            at <= text(delivery, "created_at").as_str()
        });
        if because == 0 || past {
            vague.push(explained["next"].to_string());
        }
    }
    verdict.figure(format!("{} queued, {} without a reason or a time", queued.len(), vague.len()));
    verdict.must(!queued.is_empty(), "nothing was queued");
    verdict.must(vague.is_empty(), format!("vague: {:?}", vague.first()));
    verdict.end();
}

#[test]
fn rotation_keeps_an_overlap_that_was_promised() {
    let mut verdict = Verdict::of("rotation with a shorter overlap after a longer one");
    let scene = Scene::start();
    let (address, captured) =
        capturing("HTTP/1.1 200 x\r\ncontent-length: 0\r\n\r\n", Duration::ZERO);
    let path = {
        let made = scene.subscribe(&format!("http://{address}/"), "a.b");
        format!("/v1/subscriptions/{}/secret/rotate", text(&made, "id"))
    };
    let mut client = scene.attacker();
    for overlap in [3_600, 1] {
        let status = client.status("POST", &path, &json!({ "overlap_seconds": overlap }));
        verdict.must(status == 200, format!("a rotation was answered {status}"));
    }
    // When the signature of the second secret is no longer sent, its overlap of a second has
    // passed.
    let until = now() + Duration::from_secs(20);
    let mut signatures = 3;
    while signatures >= 3 && now() < until {
        let before = captured.heads.lock().unwrap().len();
        client.post("/v1/events", &json!({"type": "a.b", "data": 1})).unwrap();
        while captured.heads.lock().unwrap().len() == before && now() < until {
            std::thread::park_timeout(Duration::from_millis(50));
        }
        let head = captured.heads.lock().unwrap().last().cloned().unwrap_or_default();
        signatures = head.matches("v1,").count();
    }
    verdict.figure(format!("{signatures} signatures after the shorter overlap"));
    verdict.must(signatures == 2, format!("{signatures} signatures: the first promise was cut"));
    verdict.end();
}

#[test]
fn meaningless_parameters_are_refused() {
    let mut verdict = Verdict::of("stats backwards, dry run of what cannot be replayed");
    let scene = Scene::start();
    let receiver = Receiver::start(200);
    let made = scene.subscribe(&receiver.url(), "a.b");
    let mut client = Client::new(scene.address(), &scene.mallory, ATTACKER);
    client.post("/v1/events", &json!({"type": "a.b", "data": 1})).unwrap();
    receiver.wait_until(1);
    let path = "/v1/stats?since=2030-01-02T00:00:00Z&until=2030-01-01T00:00:00Z";
    let stats = client.status("GET", path, &Json::Null);
    client.status("DELETE", &format!("/v1/subscriptions/{}", text(&made, "id")), &Json::Null);
    let wish = json!({"state": "delivered", "dry_run": true});
    let counted = client.post("/v1/replays", &wish).unwrap().json()["total"].clone();
    verdict.figure(format!("stats {stats}, dry run counts {counted}"));
    verdict.must(stats == 422, format!("stats backwards answered {stats}"));
    verdict.must(counted == 0, format!("{counted} counted that a replay refuses"));
    verdict.end();
}
