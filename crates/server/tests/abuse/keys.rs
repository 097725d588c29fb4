//! Keys that do not exist: finding that out takes a read of the store each time.

use std::collections::BTreeMap;
use std::io::{BufReader, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::Value as Json;

use crate::kit::{ATTACKER, Verdict, connect, count, now, read_answer, request_head};
use crate::scene::Scene;

/// How often each status was answered; `0` for a connection that was closed.
type Statuses = BTreeMap<u16, u64>;

/// Sends unknown keys from this address on one connection, as fast as they are answered.
fn try_keys(server: SocketAddr, source: Ipv4Addr, next: &AtomicU64, end: &AtomicBool) -> Statuses {
    let mut seen = Statuses::new();
    let mut stream = BufReader::new(connect(server, source).unwrap());
    while !end.load(Ordering::Relaxed) {
        let n = next.fetch_add(1, Ordering::Relaxed);
        let key = format!("pr_{n:016x}_{}", "A".repeat(43));
        let head = request_head(&key, "GET", "/v1/subscriptions", "", 0);
        let written = stream.get_mut().write_all(head.as_bytes());
        let answer = written.and_then(|()| read_answer(&mut stream));
        let status = answer.map_or(0, |answer| {
            // A refusal without a time at which to try again counts as another status.
            let may_wait = answer.status < 429 || answer.header("retry-after").is_some();
            if may_wait { answer.status } else { 1 }
        });
        *seen.entry(status).or_default() += 1;
        if status == 0 {
            return seen;
        }
    }
    seen
}

/// Has every address try unknown keys on some connections; returns what was answered, and how many
/// seconds it took.
fn attack(scene: &Scene, sources: &[Ipv4Addr], between: impl FnOnce()) -> (Statuses, u64) {
    let (next, end, begun) = (AtomicU64::new(0), AtomicBool::new(false), now());
    let server = scene.address();
    let seen = thread::scope(|scope| {
        let tries: Vec<_> = sources
            .iter()
            .flat_map(|source| [source; 4])
            .map(|source| scope.spawn(|| try_keys(server, *source, &next, &end)))
            .collect();
        between();
        end.store(true, Ordering::Relaxed);
        tries.into_iter().map(|tries| tries.join().unwrap()).fold(
            Statuses::new(),
            |mut all, seen| {
                seen.into_iter()
                    .for_each(|(status, count)| *all.entry(status).or_default() += count);
                all
            },
        )
    });
    (seen, begun.elapsed().as_secs() + 1)
}

#[test]
fn unknown_keys_are_looked_up_within_a_budget_of_their_address_and_of_all() {
    let mut verdict = Verdict::of("keys that do not exist");
    let seconds = count(3, 15) as u64;
    for (name, addresses, at_once, per_second) in
        [("one address", 1, 300, 20), ("20 addresses", 20, 3_200, 520)]
    {
        let scene = Scene::start();
        let quiet = scene.quiet();
        // Its key is looked up once before the attack.
        let mut client = scene.attacker();
        client.get("/v1/subscriptions").unwrap();
        let watch = scene.watch();
        let sources: Vec<_> = match addresses {
            1 => vec![ATTACKER],
            _ => (1..=addresses).map(|n| Ipv4Addr::new(127, 0, 1, n)).collect(),
        };
        let mut neighbour = Vec::new();
        let (seen, took) = attack(&scene, &sources, || {
            // A client with a key that exists, behind the address of the attacker.
            for _ in 0..seconds * 4 {
                neighbour.push(client.status("GET", "/v1/subscriptions", &Json::Null));
                thread::park_timeout(Duration::from_millis(250));
            }
        });
        let told = watch.end();
        let looked_up = seen.get(&401).copied().unwrap_or(0);
        let refused: u64 =
            seen.iter().filter(|(status, _)| matches!(status, 429 | 503)).map(|(_, n)| n).sum();
        verdict.figure(format!("{name}: {looked_up} looked up, {refused} refused in {took} s"));
        let most = at_once + per_second * took;
        verdict.must(looked_up <= most, format!("{name}: {looked_up} look-ups, not {most}"));
        verdict.must(refused > 0, format!("{name}: nothing was refused"));
        let others: Vec<_> =
            seen.keys().filter(|status| !matches!(status, 401 | 429 | 503)).collect();
        verdict.must(others.is_empty(), format!("{name}: answered {others:?}"));
        verdict.must(
            neighbour.iter().all(|status| *status == 200),
            format!("{name}: a known key of the same address was answered {neighbour:?}"),
        );
        verdict.victim(&quiet, &told);
        verdict.must(scene.is_sound(), "the server is not sound afterwards");
    }
    verdict.end();
}
