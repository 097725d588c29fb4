//! What a destination has once, although several subscriptions may share it: its rate, how what waits
//! there is sent when it recovers, and which of its dead are replayed.
//!
//! A receiver does not know subscriptions: it sees one stream of requests. So its rate and its recovery
//! are one. **Among subscriptions that want something, the gentlest to the receiver holds**: the
//! smallest rate, and `slots` before `drain`. A subscription that wants nothing has no voice; where none
//! wants anything, the server's policy holds. The dead are replayed by subscription: nobody's wish to
//! keep them is overruled.

use std::time::Duration;

use super::{DeadRecovery, Policy, RecoveryMode};
use crate::ids::SubscriptionId;
use crate::subscription::{RateLimit, Subscription};

/// What holds at a destination, and where it comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DestinationPolicy {
    /// The most requests per second.
    pub rate_limit: Option<(RateLimit, PolicySource)>,
    /// How what waits is sent when it recovers.
    pub recovery_mode: (RecoveryMode, PolicySource),
    /// Which dead are replayed when it recovers; none where it is empty.
    pub dead: Vec<DeadReplay>,
}

/// Where a value comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PolicySource {
    /// The server's policy.
    Server,
    /// This subscription.
    Subscription(SubscriptionId),
}

/// Dead deliveries that are replayed when their destination recovers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeadReplay {
    /// Those of this subscription; all of the destination where it is `None`.
    pub subscription: Option<SubscriptionId>,
    /// Those that were accepted longer ago are kept.
    pub max_age: Duration,
}

impl DestinationPolicy {
    /// What holds at a destination with these subscriptions.
    pub fn of<'a>(subscriptions: impl Iterator<Item = &'a Subscription>, policy: &Policy) -> Self {
        let subscriptions: Vec<&Subscription> = subscriptions.collect();
        DestinationPolicy {
            rate_limit: rate_limit(&subscriptions, policy),
            recovery_mode: recovery_mode(&subscriptions, policy),
            dead: dead(&subscriptions, policy),
        }
    }

    /// Whether something that died there is replayed when it recovers.
    pub fn dead_recovery(&self) -> DeadRecovery {
        if self.dead.is_empty() { DeadRecovery::Keep } else { DeadRecovery::Replay }
    }
}

fn rate_limit(
    subscriptions: &[&Subscription],
    policy: &Policy,
) -> Option<(RateLimit, PolicySource)> {
    let of_server = policy.limits.rate_limit();
    let wishes = subscriptions.iter().filter_map(|subscription| {
        Some((subscription.rate_limit?, PolicySource::Subscription(subscription.id)))
    });
    // Of equal ones the subscription's is shown: it is the first.
    wishes.chain(of_server.map(|rate| (rate, PolicySource::Server))).min_by_key(|(rate, _)| *rate)
}

fn recovery_mode(subscriptions: &[&Subscription], policy: &Policy) -> (RecoveryMode, PolicySource) {
    let wish = |mode: RecoveryMode| {
        let mut all = subscriptions.iter();
        let first = all.find(|subscription| subscription.policy.recovery_mode == Some(mode))?;
        Some((mode, PolicySource::Subscription(first.id)))
    };
    wish(RecoveryMode::Slots)
        .or_else(|| wish(RecoveryMode::Drain))
        .unwrap_or((policy.recovery.mode, PolicySource::Server))
}

/// One replay for the whole destination where all want the same, else one for each subscription that
/// wants it.
fn dead(subscriptions: &[&Subscription], policy: &Policy) -> Vec<DeadReplay> {
    let wishes = subscriptions.iter().map(|subscription| {
        let recovery = policy.recovery_for(&subscription.policy);
        (Some(subscription.id), recovery.dead, recovery.dead_max_age)
    });
    let wishes: Vec<_> = wishes.collect();
    let of_server = (None, policy.recovery.dead, policy.recovery.dead_max_age);
    let (_, wanted, max_age) = wishes.first().copied().unwrap_or(of_server);
    let is_one = wishes.iter().all(|(_, dead, age)| (*dead, *age) == (wanted, max_age));
    let wishes = if is_one { vec![(None, wanted, max_age)] } else { wishes };
    let replayed = wishes.into_iter().filter(|(_, dead, _)| *dead == DeadRecovery::Replay);
    replayed.map(|(subscription, _, max_age)| DeadReplay { subscription, max_age }).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const DAY: Duration = Duration::from_secs(86_400);

    fn subscription(n: u8, bend: impl FnOnce(&mut Subscription)) -> Subscription {
        let mut subscription: Subscription = serde_json::from_value(json!({
            "id": SubscriptionId::from_bytes([n; 16]),
            "tenant": "default",
            "destination": "dst_019a86d99e3877078707070707070707",
            "url": "https://hooks.example.com/in",
            "types": ["task.*"],
            "enabled": true,
            "created_at": "2026-11-15T09:30:00.000Z",
            "updated_at": "2026-11-15T09:30:00.000Z",
        }))
        .unwrap();
        bend(&mut subscription);
        subscription
    }

    fn of(subscriptions: &[Subscription], policy: &Policy) -> DestinationPolicy {
        DestinationPolicy::of(subscriptions.iter(), policy)
    }

    fn from(n: u8) -> PolicySource {
        PolicySource::Subscription(SubscriptionId::from_bytes([n; 16]))
    }

    #[test]
    fn the_servers_policy_holds_where_no_subscription_wants_anything() {
        let mut server = Policy::default();
        let plain = [subscription(1, |_| ()), subscription(2, |_| ())];
        let found = of(&plain, &server);
        assert_eq!(found.rate_limit, None);
        assert_eq!(found.recovery_mode, (RecoveryMode::Slots, PolicySource::Server));
        assert_eq!(found.dead_recovery(), DeadRecovery::Keep);
        server.recovery.dead = DeadRecovery::Replay;
        server.recovery.mode = RecoveryMode::Drain;
        server.limits.rate_limit_max = Some(7);
        for subscriptions in [&plain[..], &[]] {
            let found = of(subscriptions, &server);
            let rate = found.rate_limit.unwrap();
            assert_eq!((rate.0.as_per_second(), rate.1), (7.0, PolicySource::Server));
            assert_eq!(found.recovery_mode, (RecoveryMode::Drain, PolicySource::Server));
            let all = DeadReplay { subscription: None, max_age: server.recovery.dead_max_age };
            assert_eq!(found.dead, [all]);
        }
    }

    #[test]
    fn the_smallest_rate_holds_and_names_its_subscription() {
        let rate = |n, per_second| {
            subscription(n, |s| s.rate_limit = RateLimit::per_second(per_second).ok())
        };
        let mut server = Policy::default();
        let all = [rate(1, 9.0), subscription(2, |_| ()), rate(3, 2.5)];
        assert_eq!(of(&all, &server).rate_limit.unwrap().1, from(3));
        server.limits.rate_limit_max = Some(2);
        assert_eq!(of(&all, &server).rate_limit.unwrap().1, PolicySource::Server);
        server.limits.rate_limit_max = Some(9);
        assert_eq!(of(&all[..2], &server).rate_limit.unwrap().1, from(1));
    }

    #[test]
    fn slots_go_before_drain_and_any_wish_before_the_servers() {
        let mode = |n, mode| subscription(n, |s| s.policy.recovery_mode = Some(mode));
        let (slots, drain) = (RecoveryMode::Slots, RecoveryMode::Drain);
        let server = Policy::default();
        let silent = subscription(1, |_| ());
        let all = [silent.clone(), mode(2, drain)];
        assert_eq!(of(&all, &server).recovery_mode, (drain, from(2)));
        let all = [mode(1, drain), silent, mode(3, slots)];
        assert_eq!(of(&all, &server).recovery_mode, (slots, from(3)));
    }

    #[test]
    fn the_dead_of_one_subscription_are_replayed_and_those_of_another_kept() {
        let replay = |n, age| {
            subscription(n, |s| {
                s.policy.dead = Some(DeadRecovery::Replay);
                s.policy.dead_max_age = Some(age);
            })
        };
        let server = Policy::default();
        let of_one = |n, max_age| DeadReplay {
            subscription: Some(SubscriptionId::from_bytes([n; 16])),
            max_age,
        };
        let differing = [replay(1, DAY), subscription(2, |_| ()), replay(3, DAY * 2)];
        assert_eq!(of(&differing, &server).dead, [of_one(1, DAY), of_one(3, DAY * 2)]);
        let alike = [replay(1, DAY), replay(2, DAY)];
        let all = DeadReplay { subscription: None, max_age: DAY };
        assert_eq!(of(&alike, &server).dead, [all]);
    }
}
