//! Bulk replay jobs: each delivery once, also after a restart.

use std::collections::BTreeSet;

use postrider_domain::delivery::{CancelReason, StateName};
use postrider_domain::ids::DeliveryId;
use postrider_store::{Commit, DeliveryFilter, Pruned, ReplayJob, ReplayState};

use super::Ground;
use super::ground::{ALL, commit_of, numbers};
use crate::samples::{
    acme, answered, at, delivery_id, destination, kind, refused, replay, replay_id,
    subscription_id, umbrella,
};

/// A time after the last slot.
const LATE: u64 = 200_000_000;

/// Deliveries 1 to 6 are dead since `LATE + n`, 7 waits, 8 succeeded, 9 was cancelled.
async fn fill(ground: &Ground) {
    ground.put(&acme(), 1, 1).await;
    for n in 1..=9 {
        ground.accept(&format!("e{n}"), at(100 - n), &[(n, 1)]).await;
    }
    for n in 1..=7 {
        ground.attempt(n, 1, refused(), at(100)).await;
    }
    for n in 1..=6 {
        ground.attempt(n, 1, refused(), at(LATE + n)).await;
    }
    ground.attempt(8, 1, answered(200), at(100)).await;
    ground.change(ground.delivery(9).await.cancelled(CancelReason::Asked, at(100)).unwrap()).await;
}

async fn candidates(ground: &Ground, job: &ReplayJob) -> Vec<u64> {
    numbers(&ground.store.replay_candidates(job, 100).await.unwrap())
}

async fn a_job_is_read_back_as_it_was(mut ground: Ground) {
    let full = ReplayJob {
        filter: DeliveryFilter {
            state: Some(StateName::Cancelled),
            destination: Some(destination(&acme(), 1).id),
            subscription: Some(subscription_id(1)),
            event: Some("e".parse().unwrap()),
            kind: Some(kind("task.updated")),
            since: Some(at(1)),
            until: Some(at(2)),
            ended_since: Some(at(3)),
        },
        per_second: Some(7),
        total: 1 << 40,
        done: 12,
        position: Some(delivery_id(4)),
        finished_at: Some(at(5)),
        ..replay(&acme(), 1, at(3))
    };
    let no_end = DeliveryFilter { until: None, ..full.filter.clone() };
    let open_end = ReplayJob { filter: no_end, ..full.clone() };
    ground.store.put_replay(&open_end).await.unwrap();
    ground.reopen().await;
    assert_eq!(ground.store.replay(&acme(), replay_id(1)).await.unwrap(), Some(open_end));
    let states =
        [ReplayState::Running, ReplayState::Paused, ReplayState::Finished, ReplayState::Cancelled];
    for state in states {
        let job = ReplayJob { state, ..full.clone() };
        ground.store.put_replay(&job).await.unwrap();
        ground.reopen().await;
        assert_eq!(ground.store.replay(&acme(), replay_id(1)).await.unwrap(), Some(job));
    }
    assert_eq!(ground.store.replays(&acme(), &ALL).await.unwrap().items.len(), 1, "one, replaced");
    assert_eq!(ground.store.replay(&acme(), replay_id(2)).await.unwrap(), None);
    let bare = replay(&acme(), 2, at(4));
    ground.store.put_replay(&bare).await.unwrap();
    assert_eq!(ground.store.replay(&acme(), replay_id(2)).await.unwrap(), Some(bare));
}

async fn running_jobs_of_every_tenant_go_on_after_a_start(mut ground: Ground) {
    let states = [
        (1, ReplayState::Running),
        (2, ReplayState::Paused),
        (3, ReplayState::Finished),
        (4, ReplayState::Cancelled),
    ];
    for (n, state) in states {
        ground.store.put_replay(&ReplayJob { state, ..replay(&acme(), n, at(n)) }).await.unwrap();
    }
    ground.store.put_replay(&replay(&umbrella(), 9, at(9))).await.unwrap();
    ground.reopen().await;
    let running = ground.store.running_replays().await.unwrap();
    let ids: BTreeSet<_> = running.iter().map(|job| job.id).collect();
    assert_eq!(ids, BTreeSet::from([replay_id(1), replay_id(9)]));
}

async fn candidates_come_by_identifier_after_the_position(mut ground: Ground) {
    fill(&ground).await;
    ground.reopen().await;
    let job = replay(&acme(), 1, at(LATE + 100));
    assert_eq!(candidates(&ground, &job).await, [1, 2, 3, 4, 5, 6]);
    let found = ground.store.replay_candidates(&job, 2).await.unwrap();
    assert_eq!(numbers(&found), [1, 2]);
    let on = ReplayJob { position: Some(delivery_id(2)), ..job.clone() };
    assert_eq!(candidates(&ground, &on).await, [3, 4, 5, 6]);
    let end = ReplayJob { position: Some(delivery_id(6)), ..job };
    assert_eq!(candidates(&ground, &end).await, [0u64; 0]);
}

async fn candidates_had_ended_when_the_job_was_created(ground: Ground) {
    fill(&ground).await;
    let job = replay(&acme(), 1, at(LATE + 4));
    assert_eq!(candidates(&ground, &job).await, [1, 2, 3, 4], "at that time, or before");
    ground.change(ground.delivery(2).await.replayed(at(LATE + 10)).unwrap()).await;
    assert_eq!(candidates(&ground, &job).await, [1, 3, 4], "it is on its way");
    ground.attempt(2, 1, refused(), at(3 * LATE)).await;
    ground.attempt(2, 1, refused(), at(6 * LATE)).await;
    assert_eq!(ground.delivery(2).await.state.name(), StateName::Dead);
    assert_eq!(candidates(&ground, &job).await, [1, 3, 4], "it ended again, but later");
}

async fn candidates_pass_the_filter_of_the_job(ground: Ground) {
    fill(&ground).await;
    let job = replay(&acme(), 1, at(LATE + 100));
    let with = |filter| ReplayJob { filter, ..job.clone() };
    let any = DeliveryFilter::default;
    let state = |state| with(DeliveryFilter { state: Some(state), ..any() });
    let ended_since = |n| Some(at(n));
    let cases: [(ReplayJob, &[u64]); 9] = [
        (with(DeliveryFilter { ended_since: ended_since(LATE + 4), ..any() }), &[4, 5, 6]),
        (
            with(DeliveryFilter { ended_since: ended_since(100), ..any() }),
            &[1, 2, 3, 4, 5, 6, 8, 9],
        ),
        (state(StateName::Delivered), &[8]),
        (state(StateName::Cancelled), &[9]),
        (with(any()), &[1, 2, 3, 4, 5, 6, 8, 9]),
        (with(DeliveryFilter { since: Some(at(95)), ..any() }), &[1, 2, 3, 4, 5]),
        (with(DeliveryFilter { until: Some(at(92)), ..any() }), &[9]),
        (with(DeliveryFilter { event: Some("e3".parse().unwrap()), ..any() }), &[3]),
        (with(DeliveryFilter { subscription: Some(subscription_id(2)), ..any() }), &[]),
    ];
    for (job, expected) in cases {
        assert_eq!(candidates(&ground, &job).await, expected, "{:?}", job.filter);
    }
}

async fn candidates_of_a_retry_wait_and_were_not_attempted_since(mut ground: Ground) {
    ground.put(&acme(), 1, 1).await;
    for n in 1..=6 {
        ground.accept(&format!("e{n}"), at(10 * n), &[(n, 1)]).await;
    }
    // 1 to 4 wait after a failure, 5 waits without an attempt, 6 is queued.
    for n in 1..=4 {
        ground.attempt(n, 1, refused(), at(100 + n)).await;
    }
    let policy = postrider_domain::policy::RetryPolicy::default();
    ground.change(ground.delivery(5).await.not_admitted(at(100), &policy)).await;
    ground.reopen().await;
    let waiting = DeliveryFilter { state: Some(StateName::Waiting), ..DeliveryFilter::default() };
    let job =
        |created_at| ReplayJob { filter: waiting.clone(), ..replay(&acme(), 1, at(created_at)) };
    assert_eq!(candidates(&ground, &job(200)).await, [1, 2, 3, 4, 5]);
    assert_eq!(candidates(&ground, &job(102)).await, [1, 2, 5], "attempted then, or before");
    assert_eq!(candidates(&ground, &job(40)).await, [0u64; 0], "attempted or accepted later");
    let on = ReplayJob { position: Some(delivery_id(2)), ..job(200) };
    assert_eq!(candidates(&ground, &on).await, [3, 4, 5]);
    let some = DeliveryFilter { since: Some(at(20)), until: Some(at(40)), ..waiting.clone() };
    let some = ReplayJob { filter: some, ..job(200) };
    assert_eq!(candidates(&ground, &some).await, [2, 3]);
    let ended = DeliveryFilter { ended_since: Some(at(0)), ..waiting.clone() };
    let ended = ReplayJob { filter: ended, ..job(200) };
    assert_eq!(candidates(&ground, &ended).await, [0u64; 0], "what waits has not ended");
    // One that is asked for still waits; when it has been attempted, it is not sent again.
    ground.change(ground.delivery(1).await.asked_for(at(200)).unwrap()).await;
    ground.reopen().await;
    assert_eq!(candidates(&ground, &job(200)).await, [1, 2, 3, 4, 5]);
    ground.attempt(1, 1, refused(), at(201)).await;
    ground.attempt(2, 1, answered(200), at(201)).await;
    assert_eq!(candidates(&ground, &job(200)).await, [3, 4, 5]);
    let count = ground.store.count_replayable(&acme(), &waiting).await.unwrap();
    assert_eq!(count, 4, "the job's own count looks at no attempt");
}

async fn what_ended_since_is_counted(mut ground: Ground) {
    fill(&ground).await;
    ground.reopen().await;
    let ended = |state, since| DeliveryFilter {
        state,
        ended_since: Some(at(since)),
        ..DeliveryFilter::default()
    };
    let cases = [
        (ended(Some(StateName::Dead), LATE + 3), 4),
        (ended(Some(StateName::Dead), LATE + 7), 0),
        (ended(Some(StateName::Delivered), 100), 1),
        (ended(Some(StateName::Waiting), 0), 0),
        (ended(None, 100), 8),
        (DeliveryFilter { destination: Some(destination(&acme(), 1).id), ..ended(None, LATE) }, 6),
        (DeliveryFilter { kind: Some(kind("task.updated")), ..ended(None, LATE + 6) }, 1),
    ];
    for (filter, expected) in cases {
        let count = ground.store.count_replayable(&acme(), &filter).await.unwrap();
        assert_eq!(count, expected, "{filter:?}");
        let listed = ground.store.list_deliveries(&acme(), &filter, &ALL).await.unwrap();
        assert_eq!(u64::try_from(listed.items.len()).unwrap(), expected, "{filter:?}");
    }
}

async fn candidates_are_of_the_jobs_tenant(ground: Ground) {
    fill(&ground).await;
    let job = replay(&umbrella(), 1, at(LATE + 100));
    assert_eq!(candidates(&ground, &job).await, [0u64; 0]);
}

async fn a_job_replays_each_delivery_once_across_restarts(mut ground: Ground) {
    fill(&ground).await;
    let now = LATE + 100;
    ground.store.put_replay(&replay(&acme(), 1, at(now))).await.unwrap();
    let mut replayed: Vec<DeliveryId> = Vec::new();
    loop {
        ground.reopen().await;
        let mut job = ground.store.running_replays().await.unwrap().remove(0);
        let next = ground.store.replay_candidates(&job, 2).await.unwrap();
        let Some(last) = next.last() else { break };
        job.position = Some(last.id);
        job.done += u64::try_from(next.len()).unwrap();
        let mut commit = Commit { replay: Some(job), ..Commit::default() };
        for delivery in next {
            replayed.push(delivery.id);
            let after = delivery.replayed(at(now)).unwrap();
            commit.deliveries.push(ground.change_to(after, None).await);
        }
        ground.settle(commit).await;
        // A replayed delivery succeeds at once, in the millisecond in which the job was created.
        let id = *replayed.last().unwrap();
        let n = (1..=9).find(|n| delivery_id(*n) == id).unwrap();
        ground.attempt(n, 1, answered(200), at(now)).await;
    }
    assert_eq!(replayed, (1..=6).map(delivery_id).collect::<Vec<_>>());
    let job = ground.store.replay(&acme(), replay_id(1)).await.unwrap().unwrap();
    assert_eq!((job.done, job.position), (6, Some(delivery_id(6))));
}

/// What became of the deliveries of job `n`: pending, failed, delivered, dead, withdrawn.
async fn outcomes(ground: &Ground, n: u64) -> [u64; 5] {
    ground.store.replay(&acme(), replay_id(n)).await.unwrap().unwrap().outcomes.0
}

/// Job `job` sends these deliveries in one commit with its progress.
async fn send(ground: &Ground, job: u64, numbers: &[u64], now: u64) {
    let stored = ground.store.replay(&acme(), replay_id(job)).await.unwrap().unwrap();
    let done = stored.done + u64::try_from(numbers.len()).unwrap();
    let mut commit =
        Commit { replay: Some(ReplayJob { done, ..stored.clone() }), ..Commit::default() };
    for n in numbers {
        let before = ground.delivery(*n).await;
        let asked = before.asked_for(at(now));
        let after = asked.or_else(|_| before.replayed(at(now))).unwrap().sent_by(stored.id);
        commit.deliveries.push(ground.change_to(after, None).await);
    }
    ground.settle(commit).await;
}

async fn a_job_counts_what_became_of_the_deliveries_that_it_sent(mut ground: Ground) {
    fill(&ground).await;
    let now = LATE + 100;
    ground.store.put_replay(&replay(&acme(), 1, at(now))).await.unwrap();
    assert_eq!(outcomes(&ground, 1).await, [0; 5]);
    send(&ground, 1, &[1, 2, 3, 4, 5], now).await;
    assert_eq!(outcomes(&ground, 1).await, [5, 0, 0, 0, 0]);
    assert_eq!(outcomes(&ground, 1).await, [5, 0, 0, 0, 0], "a read changes nothing");
    ground.reopen().await;
    let policy = postrider_domain::policy::RetryPolicy::default();
    ground.attempt(1, 1, answered(200), at(now + 1)).await;
    ground.attempt(2, 1, refused(), at(now + 1)).await;
    ground.attempt(3, 1, refused(), at(now + 1)).await;
    ground.change(ground.delivery(4).await.not_admitted(at(now + 1), &policy)).await;
    assert_eq!(outcomes(&ground, 1).await, [2, 2, 1, 0, 0]);
    ground.reopen().await;
    // 2 fails again and arrives, 3 dies, 4 is cancelled while it was never attempted.
    ground.attempt(2, 1, refused(), at(now + 100_000)).await;
    ground.attempt(2, 1, answered(200), at(now + 400_000)).await;
    ground.attempt(3, 1, refused(), at(now + LATE)).await;
    ground.change(ground.delivery(4).await.cancelled(CancelReason::Asked, at(now)).unwrap()).await;
    assert_eq!(outcomes(&ground, 1).await, [1, 0, 2, 1, 1]);
    // What has ended is counted. A replay by hand and its outcome count for no job.
    ground.change(ground.delivery(3).await.replayed(at(now + LATE)).unwrap()).await;
    ground.attempt(3, 1, answered(200), at(now + LATE)).await;
    // The one that waited before the job is not its.
    ground.attempt(7, 1, answered(200), at(now + LATE)).await;
    ground.reopen().await;
    assert_eq!(outcomes(&ground, 1).await, [1, 0, 2, 1, 1]);
    let job = ground.store.replay(&acme(), replay_id(1)).await.unwrap().unwrap();
    assert_eq!((job.done, job.outcomes.sum()), (5, 5));
    let jobs = [job];
    assert_eq!(ground.store.replays(&acme(), &ALL).await.unwrap().items, jobs);
    assert_eq!(ground.store.running_replays().await.unwrap(), jobs);
}

async fn a_delivery_counts_for_the_job_that_sent_it_last(mut ground: Ground) {
    fill(&ground).await;
    let now = LATE + 100;
    for n in [1, 2] {
        ground.store.put_replay(&replay(&acme(), n, at(now))).await.unwrap();
    }
    send(&ground, 1, &[1, 2], now).await;
    for n in [1, 2] {
        ground.attempt(n, 1, refused(), at(now + 1)).await;
    }
    assert_eq!(outcomes(&ground, 1).await, [0, 2, 0, 0, 0]);
    ground.reopen().await;
    send(&ground, 2, &[1], now + 2).await;
    assert_eq!(outcomes(&ground, 1).await, [0, 1, 0, 0, 1]);
    assert_eq!(outcomes(&ground, 2).await, [1, 0, 0, 0, 0]);
    ground.attempt(1, 1, answered(200), at(now + 3)).await;
    ground.attempt(2, 1, refused(), at(now + LATE)).await;
    assert_eq!(outcomes(&ground, 2).await, [0, 0, 1, 0, 0]);
    send(&ground, 2, &[2], now + LATE).await;
    assert_eq!(outcomes(&ground, 1).await, [0, 0, 0, 1, 1], "it had died before");
    assert_eq!(outcomes(&ground, 2).await, [1, 0, 1, 0, 0]);
}

async fn outcomes_outlive_a_change_of_the_job_and_the_removal_of_its_deliveries(
    mut ground: Ground,
) {
    fill(&ground).await;
    let now = LATE + 100;
    ground.store.put_replay(&replay(&acme(), 1, at(now))).await.unwrap();
    send(&ground, 1, &[1, 2], now).await;
    let read = ground.store.replay(&acme(), replay_id(1)).await.unwrap().unwrap();
    ground.attempt(1, 1, answered(200), at(now + 1)).await;
    ground.attempt(2, 1, answered(200), at(now + 1)).await;
    // Whoever pauses a job has read it some time before.
    let paused = ReplayJob { state: ReplayState::Paused, ..read };
    ground.store.put_replay(&paused).await.unwrap();
    ground.reopen().await;
    assert_eq!(outcomes(&ground, 1).await, [0, 0, 2, 0, 0]);
    ground.attempt(7, 1, answered(200), at(now + 1)).await;
    while ground.store.prune(at(10 * LATE)).await.unwrap() != Pruned::default() {}
    assert_eq!(ground.store.delivery(&acme(), delivery_id(1)).await.unwrap(), None);
    assert_eq!(outcomes(&ground, 1).await, [0, 0, 2, 0, 0]);
}

async fn a_delivery_whose_job_was_removed_ends_as_any_other(ground: Ground) {
    fill(&ground).await;
    let now = LATE + 100;
    ground.store.put_replay(&replay(&acme(), 1, at(now))).await.unwrap();
    send(&ground, 1, &[1], now).await;
    let ended = ground.store.replay(&acme(), replay_id(1)).await.unwrap().unwrap();
    let ended = ReplayJob { state: ReplayState::Cancelled, ..ended };
    ground.store.put_replay(&ended).await.unwrap();
    assert_eq!(ground.store.forget_replays(&acme(), 0).await.unwrap(), 1);
    ground.attempt(1, 1, answered(200), at(now + 1)).await;
    assert_eq!(ground.delivery(1).await.state.name(), StateName::Delivered);
    // A job of the same identifier begins anew.
    ground.store.put_replay(&replay(&acme(), 1, at(now))).await.unwrap();
    assert_eq!(outcomes(&ground, 1).await, [0; 5]);
}

async fn a_repeated_commit_counts_its_outcomes_once(ground: Ground) {
    if !ground.backend.can_be_unavailable() {
        return;
    }
    fill(&ground).await;
    let now = LATE + 100;
    ground.store.put_replay(&replay(&acme(), 1, at(now))).await.unwrap();
    // 1 is dead and 7 waits: it is asked for, which changes neither its state nor its attempts.
    for (n, sent) in [(1, 1), (7, 2)] {
        let before = ground.delivery(n).await;
        let asked = before.asked_for(at(101));
        let after = asked.or_else(|_| before.replayed(at(now))).unwrap();
        let change = ground.change_to(after.sent_by(replay_id(1)), None).await;
        let commit = Commit { deliveries: vec![change], ..Commit::default() };
        for _ in 0..3 {
            ground.settle(commit.clone()).await;
            assert_eq!(outcomes(&ground, 1).await, [sent, 0, 0, 0, 0]);
        }
    }
    let (settled, before) = ground.settlement(1, 1, refused(), at(now + 1)).await;
    let commit = commit_of(settled, &before);
    for _ in 0..3 {
        ground.settle(commit.clone()).await;
        assert_eq!(outcomes(&ground, 1).await, [1, 1, 0, 0, 0]);
    }
}

suite! { $ replays, conformance_replays:
    a_job_is_read_back_as_it_was,
    running_jobs_of_every_tenant_go_on_after_a_start,
    candidates_come_by_identifier_after_the_position,
    candidates_had_ended_when_the_job_was_created,
    candidates_pass_the_filter_of_the_job,
    candidates_of_a_retry_wait_and_were_not_attempted_since,
    what_ended_since_is_counted,
    candidates_are_of_the_jobs_tenant,
    a_job_replays_each_delivery_once_across_restarts,
    a_job_counts_what_became_of_the_deliveries_that_it_sent,
    a_delivery_counts_for_the_job_that_sent_it_last,
    outcomes_outlive_a_change_of_the_job_and_the_removal_of_its_deliveries,
    a_delivery_whose_job_was_removed_ends_as_any_other,
    a_repeated_commit_counts_its_outcomes_once,
}
