//! Fairness in real time: how very many hanging destinations affect healthy ones.
//!
//! Two servers run side by side, one of them with the hanging receivers, and are measured in turns,
//! so that other load on the machine affects both.

use std::time::Duration;

use serde_json::json;

use super::neighbours::{Pulse, black_hole, in_order};
use super::{count, figure};
use crate::support::server::Server;
use crate::support::{Receiver, Start, balances};

#[test]
#[ignore = "takes a minute; run it by name"]
fn healthy_destinations_keep_their_pace_beside_a_thousand_black_holes() {
    let (holes, healthy) = (count("FAIR_HOLES", 1000), 20);
    let (rounds, pulses) = (count("FAIR_ROUNDS", 100), 20);
    rlimit::increase_nofile_limit(u64::MAX).unwrap();
    let hole = black_hole();
    let start = || Start::dev().with(&["--set", "telemetry.attempts=false"]).fresh();
    let (quiet, mut beside) = (start(), start());
    let (of_quiet, of_beside) = (Receiver::start(200), Receiver::start(200));
    for n in 0..healthy {
        let kind = format!("healthy.n{n}");
        quiet.subscribe_to(&of_quiet.url_of(&n.to_string()), &kind);
        beside.subscribe_to(&of_beside.url_of(&n.to_string()), &kind);
    }
    for n in 0..holes {
        beside.subscribe_to(&format!("http://{hole}/{n}"), "hole");
    }
    // Ten events for each hanging receiver: some attempts hang from now on, the others wait.
    let feed = |server: &Server| {
        server.ask("POST", "/v1/events", Some(&json!({"type": "hole", "data": 1})), 202);
    };
    for _ in 0..10 {
        feed(&beside);
    }
    let all = u64::try_from(holes).unwrap();
    beside.wait("all black holes to hold something", |server| {
        (server.ledger()["in_flight"].as_u64().unwrap() >= all).then_some(())
    });
    let kind = |n: usize| format!("healthy.n{}", n % healthy);
    let (mut alone, mut together) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        if round % 2 == 0 {
            feed(&beside);
        }
        alone.extend(Pulse::send(&quiet, &of_quiet, pulses, kind));
        together.extend(Pulse::send(&beside, &of_beside, pulses, kind));
    }
    let ledger = beside.ledger();
    assert!(balances(&ledger), "{ledger}");
    let (alone, together) = (in_order(&mut alone), in_order(&mut together));
    let ratio = together.p99.as_secs_f64() / alone.p99.as_secs_f64();
    figure(&format!(
        "fairness: {} events to {healthy} healthy destinations beside {holes} that hang ({} in \
         flight): {together}; without them {alone}; p99 {ratio:.2} times",
        rounds * pulses,
        ledger["in_flight"],
    ));
    assert!(together.p99 < alone.p99 * 2 + Duration::from_millis(50), "{together}, alone {alone}");
}
