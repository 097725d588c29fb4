//! Statistics of destinations: hours of attempts, their sums, and the last attempts.

use std::time::Duration;

use postrider_domain::attempt::{Attempt, Ending, Timings, Turn};
use postrider_domain::attempt_tally::{AttemptHour, AttemptTally, OutcomeClass};
use postrider_domain::delivery::{Delivery, StateName};
use postrider_domain::ids::TenantId;
use postrider_domain::policy::Policy;
use postrider_domain::time::Timestamp;
use postrider_store::{AttemptSums, Commit, DeliveryChange};

use super::Ground;
use super::ground::commit_of;
use crate::samples::{
    START, acme, answered, at, destination, refused, subscription, tenant, umbrella,
};

const HOUR: u64 = 3_600_000;
/// [`START`] is half past an hour: the next hour begins so many milliseconds later.
const NEXT: u64 = HOUR / 2;
/// Before the hour of [`START`].
const EARLY: Timestamp = Timestamp::from_unix_ms(START.as_unix_ms() - 3_600_000);

async fn sums(ground: &Ground, whose: Option<&TenantId>, to: &[u64]) -> Vec<AttemptSums> {
    let ids: Vec<_> = to.iter().map(|to| destination(&acme(), *to).id).collect();
    ground.store.attempt_sums(whose, &ids, [at(NEXT), EARLY]).await.unwrap()
}

async fn hours(ground: &Ground, to: u64) -> Vec<(Timestamp, AttemptTally)> {
    let id = destination(&acme(), to).id;
    ground.store.attempt_hours(&acme(), id, EARLY).await.unwrap()
}

/// What attempts with these endings come to; each began at the time beside it.
fn tally_of(attempts: &[(Ending, Timestamp)]) -> AttemptHour {
    let mut hour = AttemptHour::default();
    for (ending, started_at) in attempts {
        let (started_at, ending) = (*started_at, ending.clone());
        let timings = Timings { total: Duration::from_millis(7), ..Timings::default() };
        hour.count(&Attempt { number: 1, turn: Turn::First, started_at, timings, ending });
    }
    hour.trim();
    hour
}

/// Two destinations: three attempts at the first one in two hours, one at the other.
async fn two_hours(ground: &Ground) {
    for to in [1, 2] {
        ground.put(&acme(), to, to).await;
    }
    ground.accept("e", at(0), &[(1, 1), (2, 1), (3, 2)]).await;
    settle(ground, 1, 1, answered(503), at(10)).await;
    settle(ground, 2, 1, answered(200), at(20)).await;
    settle(ground, 1, 1, refused(), at(NEXT)).await;
    settle(ground, 3, 2, answered(204), at(NEXT + HOUR)).await;
}

/// Settles an attempt that took 7 ms.
async fn settle(ground: &Ground, n: u64, to: u64, ending: Ending, started_at: Timestamp) {
    let (mut settled, before) = ground.settlement(n, to, ending, started_at).await;
    settled.attempt.timings.total = Duration::from_millis(7);
    ground.settle(commit_of(settled, &before)).await;
}

async fn attempts_are_counted_by_destination_and_hour(mut ground: Ground) {
    two_hours(&ground).await;
    let first = tally_of(&[(answered(503), at(10)), (answered(200), at(20))]);
    let second = tally_of(&[(refused(), at(NEXT))]);
    let other = tally_of(&[(answered(204), at(NEXT + HOUR))]);
    let begin = START.moved_ms(-1_800_000);
    for _ in 0..2 {
        assert_eq!(hours(&ground, 1).await, [(begin, first.tally), (at(NEXT), second.tally)]);
        assert_eq!(hours(&ground, 2).await, [(at(NEXT + HOUR), other.tally)]);
        let id = destination(&acme(), 1).id;
        let later = ground.store.attempt_hours(&acme(), id, at(0)).await.unwrap();
        assert_eq!(later, [(at(NEXT), second.tally)], "only whole hours");
        ground.reopen().await;
    }
    let second_class = second.tally.of(OutcomeClass::Refused);
    assert_eq!((second_class, second.tally.attempts(), second.tally.failures()), (1, 1, 1));
}

async fn sums_add_up_hours_and_name_the_last_attempts(mut ground: Ground) {
    two_hours(&ground).await;
    for _ in 0..2 {
        for whose in [Some(&acme()), None] {
            let [one, none, two]: [AttemptSums; 3] =
                sums(&ground, whose, &[1, 9, 2]).await.try_into().unwrap();
            let all = [(answered(503), at(10)), (answered(200), at(20)), (refused(), at(NEXT))];
            let whole = tally_of(&all);
            assert_eq!(one.sums, [tally_of(&all[2..]).tally, whole.tally]);
            assert_eq!(one.recent, whole.recent);
            assert_eq!(none, AttemptSums::default());
            assert_eq!((two.sums[1].attempts(), two.recent.len()), (1, 1));
            assert_eq!(two.recent[0].status, Some(204));
        }
        ground.reopen().await;
    }
}

async fn only_the_last_thirty_attempts_are_named_across_hours(mut ground: Ground) {
    ground.put(&acme(), 1, 1).await;
    let owed: Vec<(u64, u64)> = (0..40).map(|n| (n, 1)).collect();
    ground.accept("e", at(0), &owed).await;
    for n in 0..40 {
        let started_at = if n < 25 { at(n) } else { at(NEXT + n) };
        settle(&ground, n, 1, answered(200), started_at).await;
    }
    for _ in 0..2 {
        let found = sums(&ground, Some(&acme()), &[1]).await.remove(0);
        let times: Vec<Timestamp> = found.recent.iter().map(|one| one.started_at).collect();
        let expected = (10..25).map(at).chain((25..40).map(|n| at(NEXT + n)));
        assert_eq!(times, expected.collect::<Vec<_>>());
        assert_eq!((found.sums[0].attempts(), found.sums[1].attempts()), (15, 40));
        ground.reopen().await;
    }
}

async fn a_commit_of_many_attempts_counts_each_of_them(ground: Ground) {
    ground.put(&acme(), 1, 1).await;
    let owed: Vec<(u64, u64)> = (0..70).map(|n| (n, 1)).collect();
    ground.accept("e", at(0), &owed).await;
    let mut commit = Commit::default();
    for n in 0..70 {
        let (settled, before) = ground.settlement(n, 1, answered(200), at(n)).await;
        assert_eq!(before.state.name(), StateName::Queued);
        let (delivery, attempt) = (settled.delivery, Some(settled.attempt));
        commit.deliveries.push(DeliveryChange {
            before: StateName::Queued,
            by_job: None,
            delivery,
            attempt,
        });
    }
    ground.settle(commit).await;
    let found = sums(&ground, Some(&acme()), &[1]).await.remove(0);
    assert_eq!(found.sums[1].of(OutcomeClass::Delivered), 70);
    let times: Vec<Timestamp> = found.recent.iter().map(|one| one.started_at).collect();
    assert_eq!(times, (40..70).map(at).collect::<Vec<_>>());
}

async fn statistics_of_other_tenants_are_not_shown(ground: Ground) {
    two_hours(&ground).await;
    let theirs = sums(&ground, Some(&umbrella()), &[1, 2]).await;
    assert_eq!(theirs, [AttemptSums::default(), AttemptSums::default()]);
    let id = destination(&acme(), 1).id;
    assert_eq!(ground.store.attempt_hours(&umbrella(), id, EARLY).await.unwrap(), []);
}

async fn attempts_at_a_destination_that_does_not_exist_are_not_counted(ground: Ground) {
    ground.accept("e", at(0), &[(1, 1)]).await;
    let after = ground.delivery(1).await.not_admitted(at(5), &Policy::default().retry);
    let attempt = Attempt {
        number: 1,
        turn: Turn::First,
        started_at: at(5),
        timings: Timings::default(),
        ending: refused(),
    };
    let delivery = Delivery { attempts: 1, ..after };
    let change = DeliveryChange {
        before: StateName::Queued,
        by_job: None,
        delivery,
        attempt: Some(attempt),
    };
    ground.settle(Commit { deliveries: vec![change], ..Commit::default() }).await;
    assert_eq!(sums(&ground, Some(&acme()), &[1]).await, [AttemptSums::default()]);
}

async fn old_hours_are_forgotten_whatever_pruning_removes(mut ground: Ground) {
    two_hours(&ground).await;
    ground.store.prune(at(1_000_000 * HOUR)).await.unwrap();
    assert_eq!(hours(&ground, 1).await.len(), 2, "the retention of deliveries is another one");
    assert_eq!(ground.store.forget_attempt_hours(EARLY).await.unwrap(), 0);
    assert_eq!(ground.store.forget_attempt_hours(at(NEXT)).await.unwrap(), 1);
    assert_eq!(ground.store.forget_attempt_hours(at(NEXT)).await.unwrap(), 0);
    ground.reopen().await;
    assert_eq!(hours(&ground, 1).await.len(), 1);
    let found = sums(&ground, Some(&acme()), &[1]).await.remove(0);
    assert_eq!((found.sums[1].attempts(), found.recent.len()), (1, 1));
    assert_eq!(hours(&ground, 2).await.len(), 1);
}

async fn statistics_go_with_their_destination(mut ground: Ground) {
    let (record, place) = (subscription(&acme(), 1, 1), destination(&acme(), 1));
    ground.store.put_subscription(&record, &place).await.unwrap();
    ground.accept("e", at(0), &[(1, 1)]).await;
    settle(&ground, 1, 1, answered(200), at(10)).await;
    let id = record.subscription.id;
    assert!(ground.store.mark_subscription_deleted(&acme(), id, at(20)).await.unwrap());
    ground.store.remove_subscription(&acme(), id).await.unwrap();
    assert_eq!(hours(&ground, 1).await.len(), 1, "still there with its circuit");
    assert!(ground.store.remove_destination(&acme(), place.id, at(30)).await.unwrap());
    ground.store.put_subscription(&record, &place).await.unwrap();
    ground.reopen().await;
    assert_eq!(hours(&ground, 1).await, []);
    assert_eq!(sums(&ground, None, &[1]).await, [AttemptSums::default()]);
}

async fn statistics_go_with_their_tenant(mut ground: Ground) {
    ground.store.create_tenant(&tenant("acme", at(0))).await.unwrap();
    let record = subscription(&acme(), 1, 1);
    ground.store.put_subscription(&record, &destination(&acme(), 1)).await.unwrap();
    ground.put(&umbrella(), 5, 1).await;
    ground.accept("e", at(0), &[(1, 1)]).await;
    settle(&ground, 1, 1, answered(200), at(10)).await;
    let id = record.subscription.id;
    ground.store.mark_subscription_deleted(&acme(), id, at(20)).await.unwrap();
    ground.store.remove_subscription(&acme(), id).await.unwrap();
    assert!(ground.store.delete_tenant(&acme()).await.unwrap());
    ground.reopen().await;
    assert_eq!(hours(&ground, 1).await, []);
}

suite! { $ statistics, conformance_statistics:
    attempts_are_counted_by_destination_and_hour,
    sums_add_up_hours_and_name_the_last_attempts,
    only_the_last_thirty_attempts_are_named_across_hours,
    a_commit_of_many_attempts_counts_each_of_them,
    statistics_of_other_tenants_are_not_shown,
    attempts_at_a_destination_that_does_not_exist_are_not_counted,
    old_hours_are_forgotten_whatever_pruning_removes,
    statistics_go_with_their_destination,
    statistics_go_with_their_tenant,
}
