//! Random sequences: the same operations on a backend and on the model give the same answers.
//!
//! Everything is computed from the seed. A failure prints its seed and every operation.

mod draw;
mod operation;

use std::sync::Arc;

use postrider_domain::ledger::Ledger;
use postrider_domain::time::Timestamp;
use postrider_store::{AuditFilter, Pruned, Store};

use self::draw::Dice;
use self::operation::{Operation, perform};
use super::Ground;
use super::dump::dump;
use super::ground::ALL;
use crate::memory::MemoryStore;
use crate::samples::{self, START, acme, umbrella};

/// An empty ledger.
pub const NOTHING: Ledger = Ledger {
    accepted: 0,
    queued: 0,
    in_flight: 0,
    waiting: 0,
    delivered: 0,
    dead: 0,
    cancelled: 0,
};

/// Runs `steps` operations on the backend and on the model, and compares every answer and, at
/// intervals and at the end, the whole contents. Returns the final ledger, to check that enough
/// happened.
///
/// # Panics
///
/// If they differ, with the seed and the operations.
pub async fn compare(seed: u64, steps: usize, mut ground: Ground) -> Ledger {
    let model: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let mut dice = Dice::new(seed);
    let mut trace: Vec<String> = Vec::new();
    for step in 0..steps {
        let operation = dice.operation(&*model).await;
        trace.push(format!("{step}: {operation:?}"));
        if let Operation::Reopen = operation {
            ground.reopen().await;
            continue;
        }
        let expected = perform(&operation, &*model).await;
        let found = perform(&operation, &*ground.store).await;
        assert_same(seed, &trace, &expected, &found);
        if step % 50 == 49 {
            compare_all(seed, &trace, &*model, &ground).await;
        }
    }
    compare_all(seed, &trace, &*model, &ground).await;
    ground.reopen().await;
    compare_all(seed, &trace, &*model, &ground).await;
    compare_pruned(seed, &trace, &*model, &ground, dice.now()).await;
    model.ledger(None).await.unwrap()
}

/// Fills an empty store by this many random operations, and adds records of kinds that these do not
/// create. The same seed gives the same contents.
pub async fn fill(seed: u64, steps: usize, store: &dyn Store) {
    let model: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let mut dice = Dice::new(seed);
    for _ in 0..steps {
        let operation = dice.operation(&*model).await;
        if let Operation::Reopen = operation {
            continue;
        }
        perform(&operation, &*model).await;
        perform(&operation, store).await;
    }
    for (n, tenant) in [acme(), umbrella()].iter().cycle().take(12).enumerate() {
        let (key, n) = (format!("key with spaces {n}"), u8::try_from(n).unwrap());
        let answer = samples::answer(n, samples::at(u64::from(n)));
        store.keep_idempotent_answer(tenant, &key, &answer, Timestamp::EPOCH).await.unwrap();
    }
    for n in 0..6u8 {
        let tenant = (n > 0).then(|| if n % 2 == 0 { acme() } else { umbrella() });
        let entry = samples::audit(u64::from(n), tenant, "key.create", 201);
        store.put_audit(&entry).await.unwrap();
    }
    for (n, name) in ["first", "second"].into_iter().enumerate() {
        let at = samples::at(u64::try_from(n).unwrap());
        assert!(store.create_key(&samples::key(name, None, at)).await.unwrap());
    }
    store.touch_keys(&[("second".into(), samples::at(77))]).await.unwrap();
}

/// Dumps the contents that [`fill`] made, as lines.
pub async fn everything(store: &dyn Store) -> Vec<String> {
    let tenants = [acme(), umbrella()];
    let mut lines = dump(store, &tenants, START).await;
    for (n, tenant) in tenants.iter().cycle().take(12).enumerate() {
        let answer = store.idempotent_answer(tenant, &format!("key with spaces {n}")).await;
        lines.push(format!("{:?}", answer.unwrap()));
    }
    let entries = store.audit(&AuditFilter::default(), &ALL).await.unwrap();
    lines.extend(entries.items.iter().map(|entry| format!("{entry:?}")));
    lines
}

/// The ledger at the end of one or several sequences.
pub type Total = Ledger;

/// How many sequences run concurrently. A sequence mostly waits for the disk; a PostgreSQL server
/// has connections for about ten stores.
const SEQUENCES_AT_ONCE: usize = 5;

/// Compares the sequences of these seeds, some of them concurrently, and adds up their ledgers.
///
/// # Panics
///
/// If one of them does.
pub async fn total<F>(seeds: std::ops::Range<u64>, compare: impl Fn(u64) -> F) -> Total
where
    F: Future<Output = Total> + 'static,
{
    let mut total = NOTHING;
    let (mut seeds, mut running) = (seeds, tokio::task::JoinSet::new());
    let tasks = tokio::task::LocalSet::new();
    loop {
        while running.len() < SEQUENCES_AT_ONCE
            && let Some(seed) = seeds.next()
        {
            running.spawn_local_on(compare(seed), &tasks);
        }
        match tasks.run_until(running.join_next()).await {
            Some(Ok(ledger)) => total = total + ledger,
            Some(Err(failed)) => std::panic::resume_unwind(failed.into_panic()),
            None => return total,
        }
    }
}

async fn compare_all(seed: u64, trace: &[String], model: &dyn Store, ground: &Ground) {
    let tenants = [acme(), umbrella()];
    let expected = dump(model, &tenants, START).await;
    let found = dump(&*ground.store, &tenants, START).await;
    assert_same(seed, trace, &expected, &found);
}

/// Compares pruned stores: a backend that prunes by days may keep records longer than the model,
/// but must not remove others.
async fn compare_pruned(
    seed: u64,
    trace: &[String],
    model: &dyn Store,
    ground: &Ground,
    before: Timestamp,
) {
    model.prune(before).await.unwrap();
    while ground.store.prune(before).await.unwrap() != Pruned::default() {}
    let tenants = [acme(), umbrella()];
    let kept = dump(model, &tenants, before).await;
    let found = dump(&*ground.store, &tenants, before).await;
    let lost: Vec<&String> = kept.iter().filter(|line| !found.contains(line)).collect();
    assert!(lost.is_empty(), "seed {seed}: pruning lost {lost:#?} after\n{}", trace.join("\n"));
}

fn assert_same(seed: u64, trace: &[String], expected: &[String], found: &[String]) {
    if expected == found {
        return;
    }
    let longest = expected.len().max(found.len());
    let first = (0..longest).find(|n| expected.get(*n) != found.get(*n)).unwrap_or(0);
    panic!(
        "seed {seed}, after these operations:\n{}\nline {first} of the answer differs:\n  \
         the model: {:?}\n  the store: {:?}",
        trace.join("\n"),
        expected.get(first),
        found.get(first),
    );
}

#[doc(hidden)]
#[macro_export]
macro_rules! conformance_sequences {
    ($backend:expr) => {
        mod sequences {
            use super::*;

            async fn compare_one(seed: u64) -> $crate::conformance::sequences::Total {
                let ground = $crate::conformance::Ground::new($backend).await;
                $crate::conformance::sequences::compare(seed, 200, ground).await
            }

            async fn compare(seeds: std::ops::Range<u64>) {
                let total =
                    $crate::conformance::sequences::total(seeds, |seed| compare_one(seed)).await;
                assert!(total.balances(), "{total:?}");
                let ends =
                    [total.queued, total.waiting, total.delivered, total.dead, total.cancelled];
                assert!(ends.iter().all(|n| *n >= 10), "each end is met often: {total:?}");
            }

            #[tokio::test]
            async fn random_sequences_agree_with_the_model() {
                compare(0..10).await;
            }

            #[tokio::test]
            #[ignore = "takes minutes; run by --run-ignored"]
            async fn a_thousand_random_sequences_agree_with_the_model() {
                compare(1_000..2_000).await;
            }
        }
    };
}
