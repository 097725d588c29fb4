//! Summaries: when waiting deliveries fall due, and dead deliveries by destination and reason.

use postrider_domain::delivery::{DeadReason, Delivery, DeliveryState};
use postrider_domain::ids::TenantId;
use postrider_domain::retry::{ScheduleClock, Slot};
use postrider_domain::time::Timestamp;
use postrider_store::{Counted, DUE_HOURS, DeadLetters, DueCounts};

use super::Ground;
use crate::samples::{acme, at, delivery_id, destination, umbrella};

const SECOND: u64 = 1_000;
const HOUR: u64 = 3_600_000;
/// More than any check makes.
const MANY: u64 = 1_000;

/// Puts a delivery of a tenant into another state.
async fn set(ground: &Ground, tenant: &TenantId, n: u64, state: DeliveryState) {
    let found = ground.store.delivery(tenant, delivery_id(n)).await.unwrap().unwrap();
    ground.change(Delivery { state, ..found }).await;
}

fn due(at: Timestamp) -> DeliveryState {
    DeliveryState::Waiting(Slot::new(3, at, ScheduleClock::starting_at(at)))
}

fn whole(count: u64) -> Counted {
    Counted { count, is_whole: true }
}

/// Accepts deliveries of a tenant in one event, which wait until these times.
async fn wait(ground: &Ground, tenant: &TenantId, first: u64, to: u64, times: &[Timestamp]) {
    let numbers: Vec<u64> = (first..).take(times.len()).collect();
    let deliveries: Vec<(u64, u64)> = numbers.iter().map(|n| (*n, to)).collect();
    ground.accept_for(tenant, &format!("e{first}"), at(first), &deliveries).await;
    for (n, due_at) in numbers.into_iter().zip(times) {
        set(ground, tenant, n, due(*due_at)).await;
    }
}

/// The spans that have something: 0 is overdue, then the hours, and then later.
fn filled(counts: &DueCounts) -> Vec<(usize, Counted)> {
    assert_eq!(counts.hours.len(), DUE_HOURS);
    let all = [counts.overdue].into_iter().chain(counts.hours.clone()).chain([counts.later]);
    all.enumerate().filter(|(_, counted)| *counted != whole(0)).collect()
}

async fn waiting_deliveries_are_counted_by_the_hour_in_which_they_fall_due(ground: Ground) {
    for (tenant, n) in [(acme(), 1), (acme(), 2), (umbrella(), 3)] {
        ground.put(&tenant, n, n).await;
    }
    let now = at(100 * HOUR);
    let none = ground.store.due_counts(None, now, MANY).await.unwrap();
    assert_eq!(filled(&none), []);
    let after = |ms| at(100 * HOUR + ms);
    let times = [at(0), at(100 * HOUR - 1), now, after(HOUR - 1), after(HOUR)];
    wait(&ground, &acme(), 10, 1, &times).await;
    wait(&ground, &acme(), 20, 2, &[after(0), after(48 * HOUR - 1), after(48 * HOUR)]).await;
    wait(&ground, &umbrella(), 30, 3, &[after(HOUR), after(90 * HOUR)]).await;
    // These do not wait.
    ground.accept("queued", at(1), &[(40, 1), (41, 1)]).await;
    set(&ground, &acme(), 41, DeliveryState::Delivered { at: now }).await;

    let store = &ground.store;
    let of_acme = store.due_counts(Some(&acme()), now, MANY).await.unwrap();
    let expected = [(0, whole(2)), (1, whole(3)), (2, whole(1)), (48, whole(1)), (49, whole(1))];
    assert_eq!(filled(&of_acme), expected);
    let of_umbrella = store.due_counts(Some(&umbrella()), now, MANY).await.unwrap();
    assert_eq!(filled(&of_umbrella), [(2, whole(1)), (49, whole(1))]);
    let of_all = store.due_counts(None, now, MANY).await.unwrap();
    let expected = [(0, whole(2)), (1, whole(3)), (2, whole(2)), (48, whole(1)), (49, whole(2))];
    assert_eq!(filled(&of_all), expected);
    // What ends or moves is counted where it is then.
    set(&ground, &acme(), 10, due(after(HOUR))).await;
    set(&ground, &acme(), 11, DeliveryState::Delivered { at: now }).await;
    let of_acme = ground.store.due_counts(Some(&acme()), now, MANY).await.unwrap();
    let expected = [(1, whole(3)), (2, whole(2)), (48, whole(1)), (49, whole(1))];
    assert_eq!(filled(&of_acme), expected);
}

async fn count_of_due_deliveries_stops_at_the_limit_of_each_span_and_says_so(ground: Ground) {
    for (tenant, n) in [(acme(), 1), (acme(), 2), (umbrella(), 3)] {
        ground.put(&tenant, n, n).await;
    }
    let now = at(100 * HOUR);
    let after = |hours: u64, ms| at((100 + hours) * HOUR + ms);
    let early = [at(0), at(1), at(2), after(0, 0), after(0, 1), after(60, 0)];
    wait(&ground, &acme(), 10, 1, &early).await;
    let late = [after(0, 2), after(5, 0), after(5, 1), after(61, 0), after(62, 0)];
    wait(&ground, &acme(), 20, 2, &late).await;
    wait(&ground, &umbrella(), 30, 3, &[after(5, 0), after(7, 3)]).await;
    let full = Counted { count: 2, is_whole: false };
    let of_acme = ground.store.due_counts(Some(&acme()), now, 2).await.unwrap();
    assert_eq!(filled(&of_acme), [(0, full), (1, full), (6, whole(2)), (49, full)]);
    let of_all = ground.store.due_counts(None, now, 2).await.unwrap();
    assert_eq!(filled(&of_all), [(0, full), (1, full), (6, full), (8, whole(1)), (49, full)]);
}

/// The groups as tenant, destination, reason, count and the seconds of the first and the last death.
fn groups(found: &DeadLetters) -> Vec<(String, u64, DeadReason, u64, [u64; 2])> {
    let number = |tenant: &TenantId, id| (1..9).find(|n| destination(tenant, *n).id == id).unwrap();
    let seconds = |time: Timestamp| time.since(at(0)).as_secs();
    let groups = found.groups.iter().map(|group| {
        let to = number(&group.tenant, group.destination);
        let times = [group.first_at, group.last_at].map(seconds);
        (group.tenant.to_string(), to, group.reason, group.count, times)
    });
    groups.collect()
}

/// Deliveries of two tenants and two days that died; and others that did not.
async fn fill_dead(ground: &Ground) {
    use DeadReason::{Exhausted, NotAdmitted};
    for (tenant, n) in [(acme(), 1), (acme(), 2), (umbrella(), 3)] {
        ground.put(&tenant, n, n).await;
    }
    let day = 24 * HOUR;
    let all = [
        (acme(), 10, 1, SECOND, Exhausted),
        (acme(), 11, 1, 2 * SECOND, Exhausted),
        (acme(), 12, 1, 3 * SECOND, NotAdmitted),
        (acme(), 13, 2, 4 * SECOND, NotAdmitted),
        (acme(), 14, 1, day, Exhausted),
        (umbrella(), 15, 3, day + SECOND, NotAdmitted),
        (umbrella(), 16, 3, day + 2 * SECOND, NotAdmitted),
    ];
    for (tenant, n, to, ms, reason) in all {
        ground.accept_for(&tenant, &format!("e{n}"), at(ms), &[(n, to)]).await;
        let at = at(ms + n * SECOND);
        set(ground, &tenant, n, DeliveryState::Dead { at, reason }).await;
    }
    ground.accept("queued", at(5), &[(40, 1), (41, 1), (42, 2)]).await;
    set(ground, &acme(), 41, DeliveryState::Delivered { at: at(6) }).await;
    set(ground, &acme(), 42, due(at(HOUR))).await;
}

async fn dead_letters_are_grouped_by_destination_and_reason(ground: Ground) {
    use DeadReason::{Exhausted, NotAdmitted};
    let none = ground.store.dead_letters(None, 9).await.unwrap();
    assert_eq!(none, DeadLetters { groups: Vec::new(), is_whole: true });
    fill_dead(&ground).await;
    let day = 86_400;
    let name = |tenant: &TenantId| tenant.to_string();
    let of_acme = ground.store.dead_letters(Some(&acme()), 5).await.unwrap();
    assert!(of_acme.is_whole, "exactly as many as the limit");
    let mut expected = vec![
        (name(&acme()), 1, Exhausted, 3, [11, day + 14]),
        (name(&acme()), 1, NotAdmitted, 1, [15, 15]),
        (name(&acme()), 2, NotAdmitted, 1, [17, 17]),
    ];
    let sorted = |found: &DeadLetters| {
        let mut all = groups(found);
        all.sort_by_key(|(tenant, to, _, count, _)| (9 - count, tenant.clone(), *to));
        all
    };
    assert_eq!(sorted(&of_acme), expected);
    let sizes = |found: &DeadLetters| found.groups.iter().map(|one| one.count).collect::<Vec<_>>();
    assert_eq!(sizes(&of_acme), [3, 1, 1], "the largest first");
    let of_all = ground.store.dead_letters(None, 100).await.unwrap();
    assert!(of_all.is_whole);
    expected.insert(1, (name(&umbrella()), 3, NotAdmitted, 2, [day + 16, day + 18]));
    assert_eq!(sorted(&of_all), expected);
    // Replayed: it is no dead letter any more.
    set(&ground, &acme(), 13, DeliveryState::Queued).await;
    let of_acme = ground.store.dead_letters(Some(&acme()), 100).await.unwrap();
    assert_eq!(sizes(&of_acme), [3, 1]);
}

async fn only_the_newest_dead_letters_are_read_and_the_answer_says_so(ground: Ground) {
    use DeadReason::{Exhausted, NotAdmitted};
    fill_dead(&ground).await;
    let day = 86_400;
    let newest = ground.store.dead_letters(Some(&acme()), 2).await.unwrap();
    assert!(!newest.is_whole);
    let mut found = groups(&newest);
    found.sort_by_key(|(_, to, _, _, _)| *to);
    let name = acme().to_string();
    let expected = [
        (name.clone(), 1, Exhausted, 1, [day + 14, day + 14]),
        (name, 2, NotAdmitted, 1, [17, 17]),
    ];
    assert_eq!(found, expected);
    // All of the newer day, and one of the day before it.
    let of_all = ground.store.dead_letters(None, 4).await.unwrap();
    assert!(!of_all.is_whole);
    assert_eq!(of_all.groups.iter().map(|one| one.count).sum::<u64>(), 4);
    let of_umbrella = of_all.groups.iter().find(|one| one.tenant == umbrella()).unwrap();
    assert_eq!(of_umbrella.count, 2);
}

suite! { $ summaries, conformance_summaries:
    waiting_deliveries_are_counted_by_the_hour_in_which_they_fall_due,
    count_of_due_deliveries_stops_at_the_limit_of_each_span_and_says_so,
    dead_letters_are_grouped_by_destination_and_reason,
    only_the_newest_dead_letters_are_read_and_the_answer_says_so,
}
