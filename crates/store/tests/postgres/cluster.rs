//! Several nodes on one database.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use postrider_domain::delivery::Delivery;
use postrider_domain::ids::Shard;
use postrider_domain::policy::RetryPolicy;
use postrider_domain::time::Timestamp;
use postrider_store::postgres::{PostgresOptions, PostgresStore};
use postrider_store::{
    Acceptance, Accepted, Commit, DeliveryChange, DeliveryFilter, Epoch, FORMAT, Hint, History,
    Intake, Nodes, PROGRAM, Pruned, ReplayJob, ReplayState, Replays, ShardLeases, ShardSet,
    StoreError, Upkeep, Usages, Work,
};
use postrider_store_testing::samples::{self, acme, answered, at, digest, umbrella};

use crate::nodes::{attempted, delivery, node, options, owed, put_destinations};
use crate::server::Server;

/// Checks that no shard is held twice; returns how many are held.
fn held(all: &[&ShardLeases]) -> usize {
    let mut seen: BTreeMap<Shard, Epoch> = BTreeMap::new();
    for (shard, epoch) in all.iter().flat_map(|leases| &leases.shards) {
        assert_eq!(seen.insert(*shard, *epoch), None, "{shard:?} is held twice");
    }
    seen.len()
}

/// Ends a node's lease, as if its time had passed.
fn expire(server: &Server, database: &str, node: &str) {
    let sql = format!(
        "UPDATE postrider.nodes SET expires_at = clock_timestamp() - interval '1 ms' \
         WHERE name = '{node}'"
    );
    server.sql(database, &sql);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn four_nodes_that_start_at_once_migrate_once() {
    let server = Server::start();
    let url = server.database("started");
    let starts = ["a", "b", "c", "d"].map(|name| {
        let url = url.clone();
        tokio::spawn(async move { node(&url, name).await })
    });
    let mut nodes = Vec::new();
    for start in starts {
        nodes.push(start.await.unwrap());
    }
    for node in &nodes {
        node.check().await.unwrap();
    }
    let each_once = "SELECT count(*) = max(version) FROM postrider.migrations";
    let applied = server.sql("started", each_once);
    let days = server.sql("started", "SELECT count(*) FROM postrider.days");
    assert_eq!((applied.as_str(), days.as_str()), ("t", "3"));
    println!("start: 4 nodes at once, each migration applied once, {days} days made ahead");
}

#[tokio::test]
async fn a_database_of_a_newer_version_is_refused() {
    let server = Server::start();
    let url = server.database("newer");
    node(&url, "a").await;
    server.sql("newer", "INSERT INTO postrider.migrations VALUES (99)");
    let refused = PostgresStore::connect(&url, options("b")).await.err().unwrap();
    assert!(matches!(refused, StoreError::NewerVersion { found: 99, .. }), "{refused}");
}

/// Writes the row of a node as version 0.1.0 at commit 414a721 does, without a version and a level.
const OLD_NODE: &str = "SET postrider.scope = 'all'; \
     INSERT INTO postrider.nodes (name, instance, expires_at, renewed_at) VALUES \
     ('old', gen_random_uuid(), clock_timestamp() + interval '10 minutes', clock_timestamp()) \
     ON CONFLICT (name) DO UPDATE SET expires_at = excluded.expires_at";

#[tokio::test]
async fn format_level_rises_when_the_last_older_node_has_left_and_never_falls() {
    let server = Server::start();
    let url = server.database("format");
    let new = node(&url, "new").await;
    server.sql("format", OLD_NODE);
    new.hold_shards().await.unwrap();
    assert_eq!(new.format().await.unwrap(), 0, "an older node runs");
    server.sql("format", OLD_NODE);
    let mut members = new.members().await.unwrap();
    members.sort_by(|a, b| a.name.cmp(&b.name));
    let said: Vec<_> = members.iter().map(|one| (one.program.as_deref(), one.format)).collect();
    assert_eq!(said, [(Some(PROGRAM), FORMAT), (None, 0)]);
    // The lease has ended, but until the row is removed the node may come back.
    expire(&server, "format", "old");
    assert_eq!(new.format().await.unwrap(), 0);
    new.hold_shards().await.unwrap();
    assert_eq!(new.format().await.unwrap(), FORMAT);
    let refused = server.try_sql("format", OLD_NODE).unwrap_err();
    assert!(refused.contains("node old reads format level 0"), "{refused}");
    let again = node(&url, "again").await;
    again.hold_shards().await.unwrap();
    assert_eq!(again.format().await.unwrap(), FORMAT);
    println!(
        "format: 0 beside an older node, {FORMAT} after it, an older node refused from then on"
    );
}

/// Has job 1 request an attempt of this waiting delivery; returns it as it is stored then.
async fn send_by_job(store: &PostgresStore, leases: &ShardLeases, n: u64, now: u64) -> Delivery {
    let before = delivery(store, n).await;
    let after = before.asked_for(at(now)).unwrap().sent_by(samples::replay_id(1));
    let change = DeliveryChange::of(&before, after, None);
    let commit = Commit { deliveries: vec![change], ..Commit::default() };
    store.settle(leases, commit).await.unwrap();
    delivery(store, n).await
}

/// Accepts these deliveries, which wait then, and stores job 1.
async fn waiting_with_a_job(store: &PostgresStore, leases: &ShardLeases, fan_out: u64) {
    let owed = owed(0, fan_out);
    put_destinations(store, fan_out).await;
    store.accept(vec![owed.clone()]).await.unwrap();
    let policy = RetryPolicy::default();
    let waits =
        |before: &Delivery| DeliveryChange::of(before, before.not_admitted(at(1), &policy), None);
    let deliveries = owed.deliveries.iter().map(waits).collect();
    store.settle(leases, Commit { deliveries, ..Commit::default() }).await.unwrap();
    store.put_replay(&samples::replay(&acme(), 1, at(2))).await.unwrap();
}

async fn outcomes(store: &PostgresStore) -> [u64; 5] {
    store.replay(&acme(), samples::replay_id(1)).await.unwrap().unwrap().outcomes.0
}

#[tokio::test]
async fn deliveries_name_the_job_that_sent_them_when_no_older_node_is_left() {
    let server = Server::start();
    let url = server.database("by_job");
    let new = node(&url, "new").await;
    let leases = new.hold_shards().await.unwrap();
    server.sql("by_job", OLD_NODE);
    waiting_with_a_job(&new, &leases, 2).await;
    let sent = send_by_job(&new, &leases, 0, 3).await;
    assert!(sent.is_asked_for() && sent.by_job().is_none(), "an older node runs: {sent:?}");
    assert_eq!(outcomes(&new).await, [0; 5]);
    expire(&server, "by_job", "old");
    let leases = new.hold_shards().await.unwrap();
    assert!(send_by_job(&new, &leases, 1, 3).await.by_job().is_some());
    assert_eq!(outcomes(&new).await, [1, 0, 0, 0, 0]);
    // The engine still has the first one as it sent it.
    let sent = delivery(&new, 0).await.sent_by(samples::replay_id(1));
    new.settle(&leases, attempted(&new, &sent, answered(500), at(4)).await).await.unwrap();
    assert_eq!(outcomes(&new).await, [1, 1, 0, 0, 0]);
    new.settle(&leases, attempted(&new, &delivery(&new, 0).await, answered(200), at(5)).await)
        .await
        .unwrap();
    assert_eq!(outcomes(&new).await, [1, 0, 1, 0, 0]);
}

#[tokio::test]
async fn outcomes_of_a_job_are_what_all_nodes_settled_and_go_with_the_job() {
    const DELIVERIES: u64 = 12;
    let server = Server::start();
    let url = server.database("outcomes");
    let (a, b) = (node(&url, "a").await, node(&url, "b").await);
    let leases = a.hold_shards().await.unwrap();
    waiting_with_a_job(&a, &leases, DELIVERIES).await;
    for n in 0..DELIVERIES {
        send_by_job(&a, &leases, n, 3).await;
    }
    assert_eq!(outcomes(&b).await, [DELIVERIES, 0, 0, 0, 0]);
    a.release_shards().await.unwrap();
    let leases = b.hold_shards().await.unwrap();
    for n in 0..DELIVERIES {
        let ending = answered(if n < 9 { 200 } else { 500 });
        b.settle(&leases, attempted(&b, &delivery(&b, n).await, ending, at(4)).await)
            .await
            .unwrap();
    }
    assert_eq!(outcomes(&a).await, [0, 3, 9, 0, 0]);
    let rows = "SELECT string_agg(node || ' ' || pending || ' ' || delivered, ', ' ORDER BY node) \
                FROM postrider.replay_outcomes";
    assert_eq!(server.sql("outcomes", rows), "a 12 0, b -12 9");
    let ended = ReplayJob { state: ReplayState::Cancelled, ..samples::replay(&acme(), 1, at(2)) };
    a.put_replay(&ended).await.unwrap();
    assert_eq!(a.forget_replays(&acme(), 0).await.unwrap(), 1);
    assert_eq!(server.sql("outcomes", "SELECT count(*) FROM postrider.replay_outcomes"), "0");
    println!("outcomes: {DELIVERIES} deliveries of a job, sent by one node and settled by another");
}

#[tokio::test]
async fn node_refuses_to_join_a_cluster_that_writes_a_newer_format() {
    let server = Server::start();
    let url = server.database("newer_format");
    let a = node(&url, "a").await;
    a.hold_shards().await.unwrap();
    let newer = FORMAT + 1;
    server.sql("newer_format", &format!("UPDATE postrider.format SET level = {newer}"));
    let late = node(&url, "late").await.hold_shards().await.unwrap_err();
    let expected = format!("format level {newer}, and this version reads {FORMAT}");
    assert!(matches!(&late, StoreError::Stopped(why) if why.contains(&expected)), "{late}");
}

#[tokio::test]
async fn shards_are_shared_among_live_nodes() {
    let server = Server::start();
    let url = server.database("shared");
    let (a, b, c) = (node(&url, "a").await, node(&url, "b").await, node(&url, "c").await);
    let alone = a.hold_shards().await.unwrap();
    assert_eq!(alone.shards.len(), 256);
    assert!(alone.shards.iter().all(|(_, epoch)| *epoch == Epoch(1)));
    assert_eq!(b.hold_shards().await.unwrap().shards.len(), 0, "a has to let go first");
    let of_a = a.hold_shards().await.unwrap();
    let of_b = b.hold_shards().await.unwrap();
    assert_eq!((of_a.shards.len(), of_b.shards.len(), held(&[&of_a, &of_b])), (128, 128, 256));
    assert!(of_a.shards.iter().all(|(_, epoch)| *epoch == Epoch(1)), "what stays, stays");
    assert!(of_b.shards.iter().all(|(_, epoch)| *epoch == Epoch(2)));
    c.hold_shards().await.unwrap();
    let (of_a, of_b) = (a.hold_shards().await.unwrap(), b.hold_shards().await.unwrap());
    let of_c = c.hold_shards().await.unwrap();
    let sizes = [&of_a, &of_b, &of_c].map(|leases| leases.shards.len());
    assert_eq!((sizes, held(&[&of_a, &of_b, &of_c])), ([86, 85, 85], 256));
    b.release_shards().await.unwrap();
    let (of_a, of_c) = (a.hold_shards().await.unwrap(), c.hold_shards().await.unwrap());
    assert_eq!((of_a.shards.len(), of_c.shards.len(), held(&[&of_a, &of_c])), (128, 128, 256));
    println!("shares: 256, 128+128, {sizes:?}, 128+128 after one left; no shard held twice");
}

#[tokio::test]
async fn shards_to_hand_over_stay_until_they_are_given_back() {
    let server = Server::start();
    let url = server.database("giving_back");
    let (a, b) = (node(&url, "a").await, node(&url, "b").await);
    put_destinations(&a, 8).await;
    a.accept(vec![owed(0, 8)]).await.unwrap();
    let (alone, to_give_back) = a.hold_and_keep().await.unwrap();
    assert_eq!((alone.shards.len(), to_give_back), (256, ShardSet::default()));
    b.hold_and_keep().await.unwrap();
    let (kept, to_give_back) = a.hold_and_keep().await.unwrap();
    assert_eq!((&kept, to_give_back.iter().count()), (&alone, 128), "nothing has left yet");
    assert_eq!(b.hold_and_keep().await.unwrap().0.shards.len(), 0);
    assert_eq!(a.hold_and_keep().await.unwrap().1, to_give_back, "as it was decided, it stays");
    // Attempts in flight in these shards can still be settled until the shards are given back.
    let mut in_given_back = Vec::new();
    for n in 0..8 {
        let delivery = delivery(&a, n).await;
        if to_give_back.has(delivery.destination.shard()) {
            in_given_back.push(attempted(&a, &delivery, answered(200), at(5)).await);
        }
    }
    let late = in_given_back.pop().unwrap();
    a.settle(&kept, in_given_back.pop().unwrap()).await.unwrap();
    let mut hints = b.hints().unwrap();
    a.give_back(&to_give_back).await.unwrap();
    while hints.recv().await.unwrap() != Hint::Shards {}
    let refused = a.settle(&kept, late.clone()).await;
    assert!(matches!(refused, Err(StoreError::Fenced { .. })), "{refused:?}");
    let (of_b, _) = b.hold_and_keep().await.unwrap();
    let (of_a, none) = a.hold_and_keep().await.unwrap();
    assert_eq!((held(&[&of_a, &of_b]), none), (256, ShardSet::default()));
    assert_eq!(of_b.shards.iter().map(|(shard, _)| *shard).collect::<ShardSet>(), to_give_back);
    b.settle(&of_b, late).await.unwrap();
    // The node that was to get some of the shards has left again: they stay.
    let c = node(&url, "c").await;
    c.hold_and_keep().await.unwrap();
    assert_eq!(a.hold_and_keep().await.unwrap().1.iter().count(), 42);
    c.release_shards().await.unwrap();
    assert_eq!(a.hold_and_keep().await.unwrap(), (of_a, ShardSet::default()));
    // A process that was replaced has nothing to give back.
    let newer = node(&url, "a").await;
    let (of_newer, _) = newer.hold_and_keep().await.unwrap();
    a.give_back(&ShardSet::ALL).await.unwrap();
    assert_eq!(newer.hold_and_keep().await.unwrap().0, of_newer);
}

#[tokio::test]
async fn shards_of_a_dead_node_are_taken_and_its_late_settlement_is_refused() {
    let server = Server::start();
    let url = server.database("dead");
    let (a, b) = (node(&url, "a").await, node(&url, "b").await);
    put_destinations(&a, 3).await;
    a.accept(vec![owed(0, 3)]).await.unwrap();
    let old = a.hold_shards().await.unwrap();
    let late = attempted(&a, &delivery(&a, 0).await, answered(200), at(5)).await;
    expire(&server, "dead", "a");
    let refused = a.settle(&old, late.clone()).await;
    assert!(matches!(refused, Err(StoreError::Fenced { .. })), "its time is over: {refused:?}");
    let new = b.hold_shards().await.unwrap();
    assert_eq!(new.shards.len(), 256);
    assert!(new.shards.iter().zip(&old.shards).all(|((_, new), (_, old))| new > old));
    let refused = a.settle(&old, late.clone()).await;
    assert!(matches!(refused, Err(StoreError::Fenced { .. })), "another has it: {refused:?}");
    let refused = a.settle(&new, late.clone()).await;
    assert!(matches!(refused, Err(StoreError::Fenced { .. })), "nor by the other's epochs");
    assert_eq!(b.queued(&new, None, 10).await.unwrap().len(), 3, "nothing was applied");
    b.settle(&new, late).await.unwrap();
    assert_eq!(b.ledger(None).await.unwrap().delivered, 1);
    a.hold_shards().await.unwrap();
    let (of_b, of_a) = (b.hold_shards().await.unwrap(), a.hold_shards().await.unwrap());
    assert_eq!(held(&[&of_a, &of_b]), 256, "it comes back as a new one");
    println!("takeover: 256 shards in 1 call after the lease ended; 3 stale settlements refused");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_delivery_is_settled_once_whichever_node_settles() {
    let server = Arc::new(Server::start());
    let url = server.database("raced");
    let nodes = [node(&url, "a").await, node(&url, "b").await];
    put_destinations(&nodes[0], 4).await;
    for n in 0..25 {
        nodes[0].accept(vec![owed(n, 4)]).await.unwrap();
    }
    let racers = nodes.clone().map(|store| {
        tokio::spawn(async move {
            let (mut settled, mut fenced, mut late) = (0u64, 0u64, 0u64);
            for n in 0..100 {
                let leases = store.hold_shards().await.unwrap();
                let before = delivery(&store, n).await;
                if before.turn().is_none() {
                    continue;
                }
                let commit = attempted(&store, &before, answered(200), at(1_000 + n)).await;
                tokio::task::yield_now().await;
                match store.settle(&leases, commit).await {
                    Ok(()) => settled += 1,
                    Err(StoreError::Fenced { .. }) => fenced += 1,
                    Err(StoreError::Internal(_)) => late += 1,
                    Err(other) => panic!("{other}"),
                }
            }
            (settled, fenced, late)
        })
    });
    let killer = {
        let server = Arc::clone(&server);
        tokio::task::spawn_blocking(move || {
            for n in 0..40 {
                expire(&server, "raced", if n % 2 == 0 { "a" } else { "b" });
            }
        })
    };
    let (mut settled, mut fenced, mut late) = (0, 0, 0);
    for racer in racers {
        let (ok, stale, after) = racer.await.unwrap();
        (settled, fenced, late) = (settled + ok, fenced + stale, late + after);
    }
    killer.await.unwrap();
    let ledger = nodes[0].ledger(None).await.unwrap();
    assert!(ledger.balances(), "{ledger:?}");
    assert_eq!((ledger.accepted, ledger.delivered), (100, settled));
    let logged = server.sql("raced", "SELECT count(*) FROM postrider.attempts");
    assert_eq!(logged, settled.to_string(), "one attempt is logged for each");
    println!(
        "race of 2 nodes, 40 leases cut short: {settled} settled once, {fenced} fenced, {late} \
         found done"
    );
}

#[tokio::test]
async fn second_process_with_the_same_node_name_stops_the_first() {
    let server = Server::start();
    let url = server.database("named");
    let (first, second) = (node(&url, "a").await, node(&url, "a").await);
    put_destinations(&first, 1).await;
    first.accept(vec![owed(0, 1)]).await.unwrap();
    let old = first.hold_shards().await.unwrap();
    let commit = attempted(&first, &delivery(&first, 0).await, answered(200), at(5)).await;
    let new = second.hold_shards().await.unwrap();
    assert_eq!(new.shards.len(), 256);
    let refused = first.settle(&old, commit.clone()).await;
    assert!(matches!(refused, Err(StoreError::Fenced { .. })), "{refused:?}");
    assert!(matches!(first.hold_shards().await, Err(StoreError::Stopped(_))));
    second.settle(&new, commit).await.unwrap();
}

#[tokio::test]
async fn clocks_an_hour_apart_change_no_lease_and_the_difference_is_known() {
    let server = Server::start();
    let url = server.database("clocks");
    let (a, b) = (node(&url, "a").await, node(&url, "b").await);
    put_destinations(&a, 2).await;
    let hour_ms = 3_600_000;
    let (ahead, behind) = (at(2 * 3_600_000), at(0));
    for (n, now) in [(0, ahead), (1, behind)] {
        let mut new = Acceptance { accepted_at: now, ..owed(n, 2) };
        new.deliveries.iter_mut().for_each(|delivery| delivery.created_at = now);
        assert_eq!(a.accept(vec![new]).await.unwrap(), [Accepted::New]);
    }
    a.hold_shards().await.unwrap();
    b.hold_shards().await.unwrap();
    let (of_a, of_b) = (a.hold_shards().await.unwrap(), b.hold_shards().await.unwrap());
    assert_eq!((of_a.shards.len(), held(&[&of_a, &of_b])), (128, 256));
    let offset = |off: i64| {
        let store = Arc::clone(&a);
        async move {
            let there = store.database_now().await.unwrap();
            let clock = || Timestamp::from_unix_ms(there.as_unix_ms() + off);
            store.clock_offset(clock).await.unwrap().offset_ms
        }
    };
    let (fast, slow) = (offset(hour_ms).await, offset(-hour_ms).await);
    // The clock of this test stands still, so the database is ahead by the duration of the query.
    assert!((-hour_ms..-hour_ms / 2).contains(&fast), "{fast}");
    assert!((hour_ms..hour_ms * 3 / 2).contains(&slow), "{slow}");
    println!(
        "clocks: an hour fast is seen as {fast} ms, an hour slow as {slow} ms; leases as ever"
    );
}

#[tokio::test]
async fn owner_of_a_shard_gets_a_hint_of_work_that_another_node_accepted() {
    let server = Server::start();
    let url = server.database("heard");
    let (a, b) = (node(&url, "a").await, node(&url, "b").await);
    let mut hints = b.hints().unwrap();
    let everywhere = Hint::Work { shards: ShardSet::ALL, since: Timestamp::EPOCH };
    assert_eq!(hints.recv().await.unwrap(), everywhere, "who begins to listen looks everywhere");
    b.hold_shards().await.unwrap();
    a.accept(vec![owed(0, 3)]).await.unwrap();
    let mut expected: Vec<Shard> = Vec::new();
    for n in 0..3 {
        expected.push(delivery(&a, n).await.destination.shard());
    }
    while !expected.is_empty() {
        if let Hint::Work { shards, since } = hints.recv().await.unwrap() {
            assert!(since <= samples::at(0));
            expected.retain(|shard| !shards.has(*shard));
        }
    }
    println!("wake-ups: 3 shards of another node heard");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_accept_the_same_identifiers_accept_each_once() {
    let server = Server::start();
    let url = server.database("same");
    let nodes = [node(&url, "a").await, node(&url, "b").await, node(&url, "c").await];
    let callers: Vec<_> = (0..12u64)
        .map(|caller| {
            let store = Arc::clone(&nodes[usize::try_from(caller % 3).unwrap()]);
            tokio::spawn(async move {
                let mut new = 0u64;
                for n in 0..20 {
                    // Every second caller begins at the other end; all send batches of two.
                    let n = if caller % 2 == 0 { n } else { 19 - n };
                    let batch = vec![owed(2 * n, 2), owed(2 * n + 1, 2)];
                    let answers = store.accept(batch).await.unwrap();
                    assert!(!answers.contains(&Accepted::Conflict));
                    new += u64::from(answers[0] == Accepted::New);
                    new += u64::from(answers[1] == Accepted::New);
                }
                new
            })
        })
        .collect();
    let mut new = 0;
    for caller in callers {
        new += caller.await.unwrap();
    }
    assert_eq!(new, 40);
    assert_eq!(nodes[0].ledger(None).await.unwrap().accepted, 80);
    println!("the same 40 events from 12 callers on 3 nodes: 40 accepted, 440 duplicates");
}

#[tokio::test]
async fn delivery_of_another_day_than_its_event_is_refused() {
    let server = Server::start();
    let store = node(&server.database("stray"), "a").await;
    let stray = Acceptance { accepted_at: at(86_400_000), ..owed(0, 1) };
    assert!(matches!(store.accept(vec![stray]).await, Err(StoreError::Internal(_))));
    assert_eq!(store.accept(vec![owed(0, 1)]).await.unwrap(), [Accepted::New]);
}

#[tokio::test]
async fn a_conflict_refuses_one_caller_among_many() {
    let server = Server::start();
    let url = server.database("conflict");
    let store = node(&url, "a").await;
    store.accept(vec![owed(0, 1)]).await.unwrap();
    let callers: Vec<_> = (1..=30u64)
        .map(|n| {
            let store = Arc::clone(&store);
            let conflict = Acceptance { fingerprint: digest(9), ..owed(0, 1) };
            let batch = if n % 3 == 0 { vec![owed(n, 1), conflict] } else { vec![owed(n, 1)] };
            tokio::spawn(async move { (n, store.accept(batch).await.unwrap()) })
        })
        .collect();
    for caller in callers {
        let (n, answers) = caller.await.unwrap();
        assert_eq!(answers[0], Accepted::New);
        assert_eq!(answers.get(1), (n % 3 == 0).then_some(&Accepted::Conflict));
    }
    assert_eq!(store.ledger(None).await.unwrap().accepted, 21);
}

#[tokio::test]
async fn partition_that_another_node_removed_is_created_again_when_needed() {
    let server = Server::start();
    let url = server.database("days");
    let (a, b) = (node(&url, "a").await, node(&url, "b").await);
    a.accept(vec![owed(0, 0)]).await.unwrap();
    let pruned = b.prune(at(86_400_000)).await.unwrap();
    assert_eq!(pruned, Pruned { events: 1, deliveries: 0, attempts: 0 });
    assert_eq!(a.accept(vec![owed(0, 2)]).await.unwrap(), [Accepted::New]);
    let all = a.count_deliveries(&acme(), &DeliveryFilter::default()).await.unwrap();
    assert_eq!(all, 2);
}

#[tokio::test]
async fn statement_that_times_out_can_be_repeated() {
    let server = Server::start();
    let url = server.database("slow");
    node(&url, "b").await.accept(vec![owed(0, 1)]).await.unwrap();
    let impatient = PostgresOptions { statement_timeout: Duration::from_secs(2), ..options("a") };
    let store = PostgresStore::connect(&url, impatient).await.unwrap();
    let (other, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    other.batch_execute("BEGIN; LOCK TABLE postrider.deliveries_open").await.unwrap();
    let lost = store.accept(vec![owed(1, 1)]).await;
    assert!(matches!(lost, Err(StoreError::Unavailable(_))), "{lost:?}");
    other.batch_execute("ROLLBACK").await.unwrap();
    while let Err(error) = store.accept(vec![owed(1, 1)]).await {
        assert!(matches!(error, StoreError::Unavailable(_)), "{error}");
    }
    assert_eq!(store.ledger(None).await.unwrap().accepted, 2);
}

#[tokio::test]
async fn transaction_without_a_tenant_sees_no_rows() {
    let server = Server::start();
    let url = server.database("walled");
    let store = node(&url, "a").await;
    put_destinations(&store, 1).await;
    store.accept(vec![owed(0, 1)]).await.unwrap();
    let (raw, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    let count = async |setting: String, table: &str| {
        raw.batch_execute(&format!("BEGIN; {setting}")).await.unwrap();
        let sql = format!("SELECT count(*) FROM postrider.{table}");
        let n: i64 = raw.query_one(&sql, &[]).await.unwrap().get(0);
        raw.batch_execute("ROLLBACK").await.unwrap();
        n
    };
    let theirs = |tenant: &str| format!("SET LOCAL postrider.tenant = '{tenant}'");
    let tables = ["events", "event_ids", "deliveries_open", "subscriptions", "destinations"];
    for table in tables {
        assert_eq!(count(String::new(), table).await, 0, "{table}");
        assert_eq!(count(theirs(umbrella().as_str()), table).await, 0, "{table}");
        assert_eq!(count(theirs(acme().as_str()), table).await, 1, "{table}");
        let all = "SET LOCAL postrider.scope = 'all'".to_owned();
        assert_eq!(count(all, table).await, 1, "{table}");
    }
    let day = at(0).as_unix_ms() / 86_400_000;
    let part = format!("\"events_{day}\"");
    assert_eq!(count(theirs("acme"), &part).await, 0, "nor by the back door");
    raw.batch_execute("BEGIN; SET LOCAL postrider.tenant = 'umbrella'").await.unwrap();
    let write = "INSERT INTO postrider.tallies VALUES ('acme', 1, 1, 1, 1, 1)";
    assert!(raw.batch_execute(write).await.is_err(), "nor can it write for another");
    println!("row-level security: {} tables, 0 foreign rows seen or written", tables.len());
}

#[tokio::test]
async fn backups_are_made_by_the_databases_own_tools() {
    let server = Server::start();
    let store = node(&server.database("kept"), "a").await;
    let refused = store.backup(server.folder()).await.err().unwrap().to_string();
    assert!(refused.contains("pg_dump") && refused.contains("pg_basebackup"), "{refused}");
}
