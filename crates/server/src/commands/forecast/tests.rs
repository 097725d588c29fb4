//! Arguments are parsed, and the output does not change by accident.

use super::*;

const HOUR: Duration = Duration::from_secs(60 * 60);

#[test]
fn rates_and_outages_are_written_as_people_write_them() {
    let seconds = Duration::from_secs;
    for (text, deliveries, per) in [
        ("50/s", 50, 1),
        ("50", 50, 1),
        ("200/min", 200, 60),
        ("10/h", 10, 3_600),
        ("7 / d", 7, 86_400),
    ] {
        assert_eq!(given::traffic(text), Ok(Traffic { deliveries, per: seconds(per) }), "{text}");
    }
    for text in ["", "0/s", "-1/s", "5/week", "x/s", "1.5/s"] {
        assert!(given::traffic(text).is_err(), "{text}");
    }
    let friday = 4 * 1_440 + 18 * 60;
    for (text, begins, hours) in [
        ("6h", None, 6),
        ("2d12h", None, 60),
        ("fri 18:00..mon 08:00", Some(friday), 62),
        ("Friday 18:00 .. Monday 8:00", Some(friday), 62),
        ("mon..tue", Some(0), 24),
        ("mon..mon", Some(0), 168),
    ] {
        let length = HOUR * hours;
        assert_eq!(given::outage(text), Ok(Outage { begins, length }), "{text}");
    }
    for text in
        ["", "fri", "fri..", "fri 25:00..mon", "fri 18..mon", "someday..mon", "mon 1:00 x..tue"]
    {
        assert!(given::outage(text).is_err(), "{text}");
    }
}

#[test]
fn times_and_numbers_are_shown_short() {
    for (seconds, shown) in
        [(0, "0s"), (59, "59s"), (60, "1m"), (61, "1m 1s"), (3_660, "1h 1m"), (90_000, "1d 1h")]
    {
        assert_eq!(given::short(Duration::from_secs(seconds)), shown);
    }
    assert_eq!(given::short(Duration::from_millis(20)), "20ms");
    for (number, shown) in [(0, "0"), (999, "999"), (1_000, "1,000"), (11_160_000, "11,160,000")] {
        assert_eq!(given::grouped(number), shown);
    }
    let outage = given::outage("fri 18:00..mon 08:00").unwrap();
    assert_eq!(outage.shown(outage.length), "Mon 08:00");
    assert_eq!(outage.shown(HOUR * 6), "Sat 00:00");
}

fn weekend() -> (Question, Vec<Plan>) {
    let outage = given::outage("fri 18:00..mon 08:00").unwrap();
    let scenario = Scenario {
        traffic: given::traffic("6/min").unwrap(),
        outage: outage.length,
        healthy_before: HOUR * 24,
        enabled_after: None,
        answer_time: Duration::from_millis(100),
        in_flight_max: 64,
        samples: 600,
    };
    let presets = [Preset::Default, Preset::Replay, Preset::Svix, Preset::Stripe];
    let plans = presets.map(|preset| Plan {
        name: preset.name().to_owned(),
        forecast: preset.forecast(&scenario).unwrap(),
    });
    (Question { outage, scenario }, plans.into())
}

#[test]
fn forecast_of_a_weekend_outage_matches_the_snapshot() {
    let (question, mut plans) = weekend();
    plans.retain(|plan| plan.name != Preset::Replay.name());
    let output = Output::plain(80);
    let mut shown = words::table(&question, &plans, output);
    for plan in &plans {
        shown += &format!("\n\n{}", chart::draw(&question, plan, &plans, output));
    }
    insta::assert_snapshot!(shown);
}

#[test]
fn presets_die_when_their_schedules_end() {
    let (_, plans) = weekend();
    let [ours, replay, svix, stripe] = &plans[..] else { panic!() };
    // Six a minute: one every 10 s. Svix ends after 27 h 35 min 5 s, Stripe after 72 h.
    let svix_length: u64 = 27 * 3_600 + 35 * 60 + 5;
    assert_eq!(svix.forecast.dead, (62 * 3_600 - svix_length).div_ceil(10));
    assert_eq!(stripe.forecast.dead, 0);
    // Ours gives up after 173,585.6 s: deliveries accepted longer than that before the circuit
    // closed are dead, except the few that were sent as probes and failed.
    let back = ours.forecast.back_at.unwrap().as_secs();
    assert_eq!(ours.forecast.dead, (back - 173_585).div_ceil(10));
    assert_eq!((replay.forecast.dead, replay.forecast.replayed), (0, ours.forecast.dead));
    assert!(ours.forecast.failed_attempts < 3_000, "{}", ours.forecast.failed_attempts);
    assert!(svix.forecast.failed_attempts > 100_000, "{}", svix.forecast.failed_attempts);
}

/// One a day for five days: 60 attempts are too few to be disabled, so nothing recovers.
#[test]
fn receiver_of_few_deliveries_is_never_disabled_and_nothing_is_replayed_by_itself() {
    let scenario = Scenario {
        traffic: given::traffic("1/d").unwrap(),
        outage: HOUR * 24 * 5,
        healthy_before: Duration::ZERO,
        enabled_after: None,
        answer_time: Duration::from_millis(100),
        in_flight_max: 64,
        samples: 600,
    };
    let [ours, replay] =
        [Preset::Default, Preset::Replay].map(|preset| preset.forecast(&scenario).unwrap());
    assert!(ours.transitions.is_empty() && replay.transitions.is_empty());
    assert_eq!((ours.dead, ours.replayed), (3, 0));
    assert_eq!((replay.dead, replay.replayed), (3, 0), "recovery.dead needs an outage that ends");
}

#[test]
fn the_drawing_is_well_formed_and_carries_nothing_foreign() {
    let (question, mut plans) = weekend();
    plans[0].name = "<script>alert(1)</script> & \"co\"".to_owned();
    let drawing = svg::draw(&question, &plans);
    assert!(drawing.starts_with("<svg ") && drawing.ends_with("</svg>\n"));
    assert!(!drawing.contains("<script") && !drawing.contains("& "), "{drawing}");
    assert!(!drawing.contains("NaN") && !drawing.contains("inf"));
    // A line for waiting deliveries and, for the two plans with dead ones, a second line.
    assert_eq!(drawing.matches("<polyline").count(), 6);
}

#[test]
fn json_output_has_every_figure() {
    let (question, plans) = weekend();
    let json = words::json(&question, &plans);
    assert_eq!(json["outage_seconds"], 223_200.0);
    let ours = &json["plans"][0];
    assert_eq!(ours["timeline"][0]["state"], "disabled");
    assert_eq!(ours["timeline"][0]["why"], "consecutive_failures");
    assert_eq!(
        ours["accepted"].as_u64().unwrap(),
        ours["delivered"].as_u64().unwrap()
            + ours["dead"].as_u64().unwrap()
            + ours["waiting"].as_u64().unwrap()
    );
    assert!(ours["samples"].as_array().unwrap().len() > 100);
}
