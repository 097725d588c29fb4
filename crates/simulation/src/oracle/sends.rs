//! Checks sent requests against the contract: the right bytes, never to a frozen destination,
//! no unexplained repeats, one probe at a time.

use bytes::Bytes;
use postrider_domain::circuit::Evidence;
use postrider_domain::ids::{DeliveryId, DestinationId, TenantId};
use postrider_engine::Ingested;
use postrider_store::DestinationChange;

use super::circuit::State;
use super::{Oracle, Owed, Stand};
use crate::coverage::Cover;

/// How a request ended, from the receiver's view.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It was received and answered.
    Taken,
    /// It was received, and the response was lost.
    TakenUnheard,
    /// It was not received.
    NotTaken,
}

impl Oracle {
    /// Checks a request that was sent. `id` is its `webhook-id`.
    pub fn sent(
        &mut self,
        id: Option<DeliveryId>,
        (tenant, destination): (&TenantId, DestinationId),
        body: &Bytes,
        deadline_ms: i64,
        now: i64,
    ) {
        self.tick(now);
        self.attempts += 1;
        self.in_flight += 1;
        self.note("sent", id, Some(destination), 0);
        let Some(dest) = self.destinations.get_mut(&destination) else {
            return self.violate("sent to an unknown destination".into(), id, None);
        };
        // While the store cannot be read, a destination may get no attempts.
        let is_disturbed = now <= self.disturbed_until;
        let is_busy = dest.in_flight > 0 || dest.idle_from + self.slack >= now || is_disturbed;
        let busy_from = is_busy.then_some(dest.busy_from);
        dest.in_flight += 1;
        let at_once = dest.in_flight;
        if busy_from.is_none() {
            dest.busy_from = now;
        }
        let is_over = dest.rate.is_some_and(|rate| {
            dest.recent.retain(|at| *at > now - 1_000);
            dest.recent.push_back(now);
            dest.recent.len() > rate
        });
        let is_frozen = dest.model.state == State::Frozen
            && !dest.enable_asked
            && !dest.was_closed(now - self.slack, now)
            && now > self.disturbed_until;
        if is_over {
            self.violate("sent faster than its rate".into(), id, Some(destination));
        }
        if is_frozen {
            self.violate("sent to a frozen destination".into(), id, Some(destination));
        }
        self.check_in_flight(tenant, destination, at_once);
        if id.is_none_or(|id| !self.owed.contains_key(&id)) && self.limits.tests_asked > 0 {
            self.limits.tests_asked -= 1;
            return self.coverage.hit(Cover::TestSend);
        }
        let may_replay = id.is_some_and(|id| self.may_replay(id));
        let Some((id, owed)) = id.and_then(|id| Some((id, self.owed.get_mut(&id)?))) else {
            let what = "sent with a webhook-id that is no delivery that was accepted";
            return self.violate(what.into(), id, Some(destination));
        };
        owed.in_flight += 1;
        owed.sent = (now, busy_from);
        let twice = owed.in_flight > 1;
        let ended = matches!(owed.stand, Stand::Delivered | Stand::Dead | Stand::Cancelled);
        let is_replay = owed.replay_asked || self.bulk_replay || may_replay;
        let elsewhere = owed.destination != destination;
        let key = (owed.tenant.clone(), owed.event.clone());
        let is_own_event = owed.raw.kind.is_reserved();
        if !self.is_deadline(id, deadline_ms) {
            let what = format!("sent with a deadline of {deadline_ms} ms, which is not its own");
            self.violate(what, Some(id), None);
        }
        if twice {
            self.violate("in flight twice at once".into(), Some(id), None);
        }
        if ended && !is_replay {
            self.violate("sent although it had ended".into(), Some(id), None);
        }
        if elsewhere {
            self.violate("sent to another destination".into(), Some(id), None);
        }
        let same = self.events.get(&key).is_some_and(|(bytes, _)| bytes == body);
        if !same && !is_own_event {
            self.violate("sent other bytes than were accepted".into(), Some(id), None);
        }
    }

    /// Applies the end of a request. `heard` is false if its process had ended before.
    pub fn landed(
        &mut self,
        id: Option<DeliveryId>,
        (tenant, destination): (&TenantId, DestinationId),
        fate: Fate,
        heard: bool,
        now: i64,
    ) {
        self.tick(now);
        self.in_flight = self.in_flight.saturating_sub(1);
        self.left(tenant);
        if heard {
            self.note("landed", id, Some(destination), 0);
        } else {
            // The order in which a process drops its tasks is not fixed: only count them.
            self.lost += 1;
        }
        if let Some(dest) = self.destinations.get_mut(&destination) {
            dest.in_flight = dest.in_flight.saturating_sub(1);
            if dest.in_flight == 0 {
                dest.idle_from = now;
            }
        }
        let Some(id) = id else { return };
        let may_replay = self.may_replay(id);
        let Some(owed) = self.owed.get_mut(&id) else { return };
        owed.in_flight = owed.in_flight.saturating_sub(1);
        owed.landed_at = now;
        if fate == Fate::NotTaken {
            return;
        }
        let ended = matches!(owed.stand, Stand::Delivered | Stand::Dead | Stand::Cancelled);
        if ended && (owed.replay_asked || self.bulk_replay || may_replay) {
            // A replay that is not durable yet begins a new schedule.
            owed.taken = 0;
        }
        owed.taken += 1;
        let (crashes, answers) = (owed.unheard_crash, owed.unheard_answer);
        let repeats = owed.taken - 1;
        if fate == Fate::TakenUnheard && heard {
            owed.unheard_answer += 1;
        } else if !heard {
            owed.unheard_crash += 1;
        }
        if repeats == 0 {
            return;
        }
        if repeats > crashes + answers {
            self.violate("arrived again without a cause".into(), Some(id), None);
        } else if answers > 0 {
            self.coverage.hit(Cover::DuplicateByLostAnswer);
        } else {
            self.coverage.hit(Cover::DuplicateByCrash);
        }
    }

    /// The process ended: deliveries whose outcome was not committed will be sent again.
    pub fn crashed(&mut self, now: i64) {
        self.tick(now);
        let (in_flight, mut probes) = (std::mem::take(&mut self.lost), 0);
        self.note("process ended", None, None, i64::from(in_flight));
        for dest in self.destinations.values_mut() {
            probes += u32::from(matches!(dest.model.state, State::HalfOpen { .. }));
            dest.in_flight = 0;
        }
        for id in self.open.values().flatten() {
            let Some(owed) = self.owed.get_mut(id) else { continue };
            owed.in_flight = 0;
            if owed.taken > owed.unheard_crash + owed.unheard_answer {
                owed.unheard_crash += 1;
            }
        }
        self.in_flight = 0;
        self.limits.of_tenants.clear();
        self.limits.tests_asked = 0;
        self.coverage.hit(Cover::Crash);
        if in_flight > 0 {
            self.coverage.hit(Cover::CrashInFlight);
        }
        if probes > 0 {
            self.coverage.hit(Cover::CrashInProbe);
        }
    }

    /// Checks that an acknowledged event is durable. Returns how many deliveries it has.
    pub fn acknowledged(&mut self, tenant: &TenantId, answer: &Ingested) -> usize {
        let owed = self.events.get(&(tenant.clone(), answer.id.clone())).map(|(_, n)| *n);
        let said = usize::try_from(answer.deliveries).unwrap_or(usize::MAX);
        if owed != Some(said) {
            let what = format!("{} acknowledged with {said}, durable: {owed:?}", answer.id);
            self.violate(what, None, None);
        }
        said
    }

    /// The next process has started.
    pub fn started(&mut self, now: i64) {
        self.tick(now);
        self.up_at = now;
        self.note("process began", None, None, 0);
    }

    /// Checks the probes of a commit: the right delivery, at the right time.
    pub(super) fn probes_seen(&mut self, change: &DestinationChange) {
        for transition in &change.transitions {
            if let Evidence::ProbeSent { delivery } = &transition.evidence {
                let at = transition.at.as_unix_ms();
                if let Err(what) = self.probe_seen(change.id, *delivery, at) {
                    self.violate(what, Some(*delivery), Some(change.id));
                }
            }
        }
    }

    fn probe_seen(
        &mut self,
        destination: DestinationId,
        id: DeliveryId,
        at: i64,
    ) -> Result<(), String> {
        let Some(dest) = self.destinations.get(&destination) else { return Ok(()) };
        let State::Open { probe_at } = dest.model.state else { return Ok(()) };
        let chosen = self.owed.get(&id).ok_or("a probe that was never accepted")?;
        if chosen.destination != destination {
            return Err("a probe of another destination".into());
        }
        if self.is_disturbed() {
            return Ok(());
        }
        if at == probe_at {
            self.coverage.hit(Cover::ProbeOnTime);
        }
        // The deliveries that waited and were not in flight before this millisecond.
        let waited = |owed: &Owed, before: i64| {
            matches!(owed.stand, Stand::Waiting { .. })
                && owed.in_flight == 0
                && owed.since < before
                && owed.landed_at < before
        };
        let free_from = probe_at.max(self.up_at);
        let is_late = at > free_from + self.slack;
        if is_late && self.open_at(destination).any(|(_, owed)| waited(owed, free_from)) {
            return Err(format!("probed {} ms late", at - free_from));
        }
        if self.slack > 0 {
            // Changes that are not durable yet cannot be seen from outside.
            return Ok(());
        }
        let rank = |id: DeliveryId, owed: &Owed| (owed.last_attempt, id);
        let is_arrival = chosen.stand == Stand::Queued;
        if dest.probe_asked == Some(id) {
            self.coverage.hit(Cover::AskedProbe);
        }
        let asked = dest.probe_asked.filter(|asked| *asked != id);
        let asked = asked.and_then(|id| Some((id, self.owed.get(&id)?)));
        if let Some((asked, _)) = asked.filter(|(_, owed)| waited(owed, at)) {
            return Err(format!("probed out of turn: somebody had asked for {asked}"));
        }
        if chosen.retries_asked > 0 {
            // Somebody requested it: it goes before all others.
            return Ok(());
        }
        let best = self
            .open_at(destination)
            .filter(|(_, owed)| waited(owed, at - self.slack))
            .map(|(id, owed)| rank(id, owed))
            .min();
        let mine = rank(id, chosen);
        if best.is_some_and(|best| if is_arrival { true } else { best < mine }) {
            return Err(format!("probed out of turn: {best:?} was waiting"));
        }
        if is_arrival {
            self.coverage.hit(Cover::ProbeOfArrival);
        }
        Ok(())
    }
}
