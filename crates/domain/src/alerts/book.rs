//! The book: what the nodes report, and what each target was sent of it.
//!
//! It is one small record of the store. **Its size is bounded**: counts, a few examples, and one
//! entry for each node and target. A target that fails is later sent one message about
//! everything that happened meanwhile, so there is no queue of messages that could grow.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{
    AlertKind, AlertLine, AlertMessage, AlertPolicy, AlertStatus, EXAMPLES_MAX, Example, Report,
    Seen, Severity, Wanted,
};
use crate::time::Timestamp;

const HOUR: Duration = Duration::from_secs(60 * 60);
/// The pause after a first failure of a target; it doubles.
const BACKOFF: Duration = Duration::from_secs(10);
/// The longest pause of a failing target.
const BACKOFF_MAX: Duration = Duration::from_secs(15 * 60);
/// A node that did not report the end of a message within this time has died meanwhile.
const SENDING_MAX: Duration = Duration::from_secs(90);
/// A target that is no longer configured is forgotten after this time.
const FORGET_AFTER: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// What the nodes reported, and what was sent to the targets.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Book {
    /// The conditions that each node reported last.
    #[serde(default)]
    nodes: BTreeMap<String, Vec<Seen>>,
    #[serde(default)]
    targets: BTreeMap<String, TargetBook>,
}

/// What one target was sent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct TargetBook {
    #[serde(default)]
    kinds: BTreeMap<AlertKind, KindBook>,
    /// The number of messages so far.
    #[serde(default)]
    messages: u64,
    /// When the messages of the last hour were sent.
    #[serde(default)]
    sent: Vec<Timestamp>,
    #[serde(default)]
    last_message_at: Option<Timestamp>,
    /// The time between two messages, if it is longer than the shortest one.
    #[serde(default)]
    pace_ms: u64,
    /// Until when a node may be sending a message.
    #[serde(default)]
    sending_until: Option<Timestamp>,
    /// Consecutive failures.
    #[serde(default)]
    failures: u32,
    #[serde(default)]
    next_try_at: Option<Timestamp>,
    #[serde(default)]
    changed_at: Option<Timestamp>,
}

/// What one target was sent of one kind.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct KindBook {
    /// When the condition began.
    #[serde(default)]
    since: Option<Timestamp>,
    /// When the first occurrence that is not reported yet happened.
    #[serde(default)]
    news_since: Option<Timestamp>,
    /// Occurrences that are not reported yet.
    #[serde(default)]
    new: u64,
    /// The worst of those occurrences, for kinds that are not conditions.
    #[serde(default)]
    worst: Vec<Example>,
    /// When the condition was reported last, and how many things were affected then.
    #[serde(default)]
    told: Option<(Timestamp, u64)>,
    /// Since when the condition is gone, if it was reported.
    #[serde(default)]
    clear_since: Option<Timestamp>,
}

/// How sending to a target works, for the API.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TargetState {
    /// Messages that were sent.
    pub messages: u64,
    /// When the last one was sent.
    pub last_message_at: Option<Timestamp>,
    /// Consecutive failures.
    pub failures: u32,
    /// When the next try is made, after a failure.
    pub next_try_at: Option<Timestamp>,
    /// The conditions that were reported and are not resolved, each with the count that was reported.
    pub firing: Vec<(AlertKind, u64)>,
}

/// For each condition, how many things are affected now, and the worst of them.
type Levels<'a> = BTreeMap<AlertKind, (u64, Vec<&'a Example>)>;

/// Why a message is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reason {
    News,
    Reminder,
    AllClear,
}

impl Book {
    /// Takes in the report of a node.
    pub fn report(
        &mut self,
        node: &str,
        report: Report,
        targets: &[(&str, &Wanted)],
        policy: &AlertPolicy,
        now: Timestamp,
    ) {
        if report.now.is_empty() {
            self.nodes.remove(node);
        } else {
            self.nodes.insert(node.to_owned(), report.now);
        }
        self.targets.retain(|name, target| {
            targets.iter().any(|(known, _)| known == name)
                || target.changed_at.is_some_and(|at| now.since(at) < FORGET_AFTER)
        });
        for (name, wanted) in targets {
            let target = self.targets.entry((*name).to_owned()).or_default();
            let is_wanted =
                |seen: &&Seen| wanted.has_kind(seen.kind) && wanted.has_scope(seen.scope.as_ref());
            for seen in report.happened.iter().filter(is_wanted) {
                target.happened(seen, now);
            }
            target.refresh(&levels(&self.nodes, wanted), policy, now);
        }
    }

    /// Forgets the reports of nodes that have left the cluster.
    pub fn keep_nodes(&mut self, is_living: impl Fn(&str) -> bool) {
        self.nodes.retain(|node, _| is_living(node));
    }

    /// The message that this target is sent now, if there is one. It is sent no other one until
    /// [`Book::sent`] or [`Book::failed`] is called, or `SENDING_MAX` has passed.
    pub fn due(
        &mut self,
        name: &str,
        wanted: &Wanted,
        policy: &AlertPolicy,
        now: Timestamp,
    ) -> Option<AlertMessage> {
        let levels = levels(&self.nodes, wanted);
        let target = self.targets.get_mut(name)?;
        target.refresh(&levels, policy, now);
        if !target.may_send(policy, now) {
            return None;
        }
        let reason = target.reason(&levels, policy, now)?;
        let message = target.message(reason, &levels, policy, now);
        target.sending_until = Some(now.saturating_add(SENDING_MAX));
        Some(message)
    }

    /// The target has accepted the message.
    pub fn sent(
        &mut self,
        name: &str,
        message: &AlertMessage,
        policy: &AlertPolicy,
        now: Timestamp,
    ) {
        let Some(target) = self.targets.get_mut(name) else { return };
        target.told(message, policy, now);
    }

    /// The target did not accept the message. Returns the pause until the next try.
    pub fn failed(&mut self, name: &str, now: Timestamp) -> Duration {
        let Some(target) = self.targets.get_mut(name) else { return BACKOFF_MAX };
        target.failures = target.failures.saturating_add(1);
        let doubled = BACKOFF.saturating_mul(1 << target.failures.saturating_sub(1).min(16));
        let pause = doubled.min(BACKOFF_MAX);
        target.sending_until = None;
        target.next_try_at = Some(now.saturating_add(pause));
        target.changed_at = Some(now);
        pause
    }

    /// Whether no condition lasts, nothing is pending, and everything that was reported is resolved.
    pub fn is_quiet(&self) -> bool {
        self.nodes.is_empty() && self.targets.values().all(|target| target.kinds.is_empty())
    }

    /// How sending to a target works.
    pub fn state(&self, name: &str) -> TargetState {
        let Some(target) = self.targets.get(name) else { return TargetState::default() };
        let told = |(kind, book): (&AlertKind, &KindBook)| Some((*kind, book.told?.1));
        TargetState {
            messages: target.messages,
            last_message_at: target.last_message_at,
            failures: target.failures,
            next_try_at: target.next_try_at,
            firing: target.kinds.iter().filter_map(told).collect(),
        }
    }
}

fn levels<'a>(nodes: &'a BTreeMap<String, Vec<Seen>>, wanted: &Wanted) -> Levels<'a> {
    let mut levels = Levels::new();
    for seen in nodes.values().flatten() {
        if wanted.has_kind(seen.kind) && wanted.has_scope(seen.scope.as_ref()) && seen.count > 0 {
            let (count, worst) = levels.entry(seen.kind).or_default();
            *count = count.saturating_add(seen.count);
            worst.extend(&seen.worst);
        }
    }
    for (_, worst) in levels.values_mut() {
        worst.sort_by_key(|example| std::cmp::Reverse(example.weight));
        worst.truncate(EXAMPLES_MAX);
    }
    levels
}

impl TargetBook {
    fn happened(&mut self, seen: &Seen, now: Timestamp) {
        let book = self.kinds.entry(seen.kind).or_default();
        book.new = book.new.saturating_add(seen.count);
        book.news_since.get_or_insert(now);
        self.changed_at = Some(now);
        if !seen.kind.is_condition() {
            book.since.get_or_insert(now);
            book.worst.extend(seen.worst.iter().cloned());
            book.worst.sort_by_key(|example| std::cmp::Reverse(example.weight));
            book.worst.truncate(EXAMPLES_MAX);
        }
    }

    /// Compares the conditions that last with those that were reported.
    fn refresh(&mut self, levels: &Levels<'_>, policy: &AlertPolicy, now: Timestamp) {
        for kind in levels.keys() {
            self.kinds.entry(*kind).or_default();
        }
        for (kind, book) in self.kinds.iter_mut().filter(|(kind, _)| kind.is_condition()) {
            let count = levels.get(kind).map_or(0, |(count, _)| *count);
            book.refresh(count, policy, now);
        }
        self.kinds.retain(|_, book| *book != KindBook::default());
    }

    fn may_send(&self, policy: &AlertPolicy, now: Timestamp) -> bool {
        let is_over = |at: Option<Timestamp>| at.is_none_or(|at| at <= now);
        let recent = self.sent.iter().filter(|at| now.since(**at) < HOUR).count();
        let is_below = u32::try_from(recent).is_ok_and(|recent| recent < policy.hourly_max);
        is_over(self.sending_until) && is_over(self.next_try_at) && is_below
    }

    fn has_passed(&self, interval: Duration, now: Timestamp) -> bool {
        self.last_message_at.is_none_or(|at| now.since(at) >= interval)
    }

    fn interval(&self, policy: &AlertPolicy) -> Duration {
        policy.interval_min.max(Duration::from_millis(self.pace_ms))
    }

    fn reason(&self, levels: &Levels<'_>, policy: &AlertPolicy, now: Timestamp) -> Option<Reason> {
        let news = || {
            let is_reportable = |(kind, _): &(&AlertKind, &KindBook)| {
                !kind.is_condition() || levels.contains_key(*kind)
            };
            let is_due = |book: &KindBook| {
                book.news_since.is_some_and(|since| now.since(since) >= policy.group_window)
            };
            self.kinds.iter().filter(is_reportable).filter(move |(_, book)| is_due(book))
        };
        // A new critical alert does not wait for the pace of less urgent ones.
        let is_urgent = |(kind, book): (&AlertKind, &KindBook)| {
            kind.severity() == Severity::Critical && book.told.is_none()
        };
        let is_paced = self.has_passed(self.interval(policy), now);
        if news().any(is_urgent) || (is_paced && news().next().is_some()) {
            return Some(Reason::News);
        }
        let told = || self.kinds.iter().filter(|(_, book)| book.told.is_some());
        let has_news = self.kinds.values().any(|book| book.news_since.is_some());
        if told().next().is_some() && !has_news && told().all(|(_, book)| book.is_over(policy, now))
        {
            let is_paced = self.has_passed(policy.interval_min, now);
            return is_paced.then_some(Reason::AllClear);
        }
        let is_old = |(kind, book): (&AlertKind, &KindBook)| {
            let told = book.told.is_some_and(|(at, _)| now.since(at) >= policy.repeat_every);
            told && levels.contains_key(kind)
        };
        (told().any(is_old) && is_paced).then_some(Reason::Reminder)
    }

    fn message(
        &self,
        reason: Reason,
        levels: &Levels<'_>,
        policy: &AlertPolicy,
        now: Timestamp,
    ) -> AlertMessage {
        let line = |(kind, book): (&AlertKind, &KindBook)| {
            let since = book.since.unwrap_or(now);
            let (kind, status, new) = (*kind, AlertStatus::Firing, book.new);
            if let Some((count, worst)) = levels.get(&kind) {
                let worst = worst.iter().map(|example| (*example).clone()).collect();
                return Some(AlertLine { kind, status, count: *count, new, since, worst });
            }
            if !kind.is_condition() {
                let worst = book.worst.clone();
                return (new > 0).then_some(AlertLine {
                    kind,
                    status,
                    count: new,
                    new,
                    since,
                    worst,
                });
            }
            let (_, count) = book.told.filter(|_| book.is_over(policy, now))?;
            let (status, worst) = (AlertStatus::Resolved, Vec::new());
            Some(AlertLine { kind, status, count, new: 0, since, worst })
        };
        AlertMessage {
            number: self.messages,
            at: now,
            status: match reason {
                Reason::News | Reason::Reminder => AlertStatus::Firing,
                Reason::AllClear => AlertStatus::Resolved,
            },
            is_reminder: reason == Reason::Reminder,
            lines: self.kinds.iter().filter_map(line).collect(),
        }
    }

    fn told(&mut self, message: &AlertMessage, policy: &AlertPolicy, now: Timestamp) {
        for line in &message.lines {
            let Some(book) = self.kinds.get_mut(&line.kind) else { continue };
            book.told(line, message.at);
        }
        self.kinds.retain(|_, book| *book != KindBook::default());
        let interval = self.interval(policy);
        if message.status == AlertStatus::Firing {
            // While new occurrences go on, double the time until the next message.
            let goes_on = !self.has_passed(interval.saturating_mul(2), now);
            let next = if goes_on { interval.saturating_mul(2).min(HOUR) } else { Duration::ZERO };
            self.pace_ms = u64::try_from(next.as_millis()).unwrap_or(u64::MAX);
        }
        self.messages = self.messages.saturating_add(1);
        self.sent.retain(|at| now.since(*at) < HOUR);
        self.sent.push(now);
        (self.last_message_at, self.changed_at) = (Some(now), Some(now));
        (self.sending_until, self.next_try_at, self.failures) = (None, None, 0);
    }
}

impl KindBook {
    /// Compares the present count with the one that was reported.
    fn refresh(&mut self, count: u64, policy: &AlertPolicy, now: Timestamp) {
        if count > 0 {
            self.since.get_or_insert(now);
            self.clear_since = None;
            if self.new > 0 || self.told.is_none_or(|(_, told)| count > told) {
                self.news_since.get_or_insert(now);
            } else {
                self.news_since = None;
            }
            return;
        }
        if self.told.is_some() {
            self.clear_since.get_or_insert(now);
        }
        // Drop a condition that ended before it was reported. Keep it for `group_window`, because a
        // transition arrives shortly before the count that includes it.
        let is_old = self.news_since.is_none_or(|since| now.since(since) >= policy.group_window);
        if self.new == 0 || is_old {
            (self.new, self.news_since) = (0, None);
            self.since = self.since.filter(|_| self.told.is_some());
        }
    }

    /// Whether the condition was reported, and has been gone for `resolve_after`.
    fn is_over(&self, policy: &AlertPolicy, now: Timestamp) -> bool {
        self.clear_since.is_some_and(|since| now.since(since) >= policy.resolve_after)
    }

    /// Notes that a message with this line was sent.
    fn told(&mut self, line: &AlertLine, at: Timestamp) {
        self.new = self.new.saturating_sub(line.new);
        if self.new == 0 {
            self.news_since = None;
        }
        if !line.kind.is_condition() {
            self.since = self.news_since;
            self.worst.clear();
            return;
        }
        match line.status {
            AlertStatus::Firing => self.told = Some((at, line.count)),
            AlertStatus::Resolved | AlertStatus::Test => {
                (self.told, self.clear_since, self.since) = (None, None, self.news_since);
            }
        }
    }
}
