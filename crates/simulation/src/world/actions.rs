//! The actions of people and applications: send events, change subscriptions, enable, freeze,
//! cancel and replay. The model is informed before each action.

use std::convert::Infallible;
use std::future::pending;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use postrider_domain::delivery::StateName;
use postrider_domain::event::RawJson;
use postrider_domain::ids::{DeliveryId, DestinationId, EventId, SubscriptionId, TenantId};
use postrider_domain::payload::Format;
use postrider_domain::policy::SubscriptionPolicy;
use postrider_domain::subscription::{About, RateLimit, Subscription};
use postrider_domain::time::Timestamp;
use postrider_engine::{CommandError, EngineHandle, IngestError, NewEvent, NewReplay};
use postrider_store::{Configuration, DeliveryFilter, SubscriptionRecord};
use postrider_store_testing::memory::Fault;

use super::{Crashed, World};
use crate::clock::pause;
use crate::coverage::Cover;
use crate::oracle::circuit::State;
use crate::oracle::rules::Rules;
use crate::oracle::{Dest, Oracle, Stand};
use crate::random::Random;

/// How long an action waits for its answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// The types of the events.
pub const KINDS: [&str; 3] = ["task.created", "task.updated", "note.added"];

impl World {
    /// A subscription to these types at this URL.
    pub fn wish(&mut self, tenant: &TenantId, url: &str, types: &str) -> SubscriptionRecord {
        let (number, now) = (self.number(), Timestamp::from_unix_ms(self.now));
        let mut bytes = [0; 10];
        bytes[2..].copy_from_slice(&number.to_be_bytes());
        let types = serde_json::from_value(serde_json::json!([types])).unwrap_or_else(|_| {
            unreachable!("the types of the simulation are types");
        });
        SubscriptionRecord {
            subscription: Subscription {
                id: SubscriptionId::new(now, bytes),
                tenant: tenant.clone(),
                destination: DestinationId::of(tenant, url),
                url: url.to_owned(),
                types,
                object: None,
                filter: None,
                format: Format::Raw,
                workfront: None,
                headers: Vec::new(),
                rate_limit: None,
                policy: SubscriptionPolicy::default(),
                about: About::default(),
                enabled: true,
                created_at: now,
                updated_at: now,
            },
            credentials: Vec::new(),
            deleted_at: None,
        }
    }

    /// Creates or changes a subscription.
    pub fn subscribe(&mut self, record: SubscriptionRecord) -> Result<(), Crashed> {
        let destination = record.subscription.destination;
        let stream = format!("receiver {destination}");
        self.receivers.add(destination, Random::new(self.nature.seed, &stream));
        let now = self.now;
        {
            let mut oracle = self.oracle();
            let dest = oracle.destinations.entry(destination).or_insert_with(|| Dest::new(now));
            dest.paced |= record.subscription.rate_limit.is_some();
            oracle.policy_begins(&record.subscription);
            oracle.note("subscribe", None, Some(destination), 0);
        }
        let put = record.clone();
        let done = self.inside(|engine| async move {
            tokio::time::timeout(PATIENCE, engine.put_subscription(put)).await
        })?;
        let tenant = record.subscription.tenant.clone();
        if let Ok(Ok(postrider_store::SubscriptionPut::Stored)) = done {
            let id = record.subscription.id;
            self.subscriptions.retain(|known| known.subscription.id != id);
            self.settle_policy(&record.subscription)?;
            self.subscriptions.push(record);
        } else {
            self.look_up_subscriptions()?;
        }
        self.look_up_destination(tenant, destination)
    }

    fn look_up_destination(&mut self, tenant: TenantId, id: DestinationId) -> Result<(), Crashed> {
        let store = self.store.clone();
        let stored = self.inside(|_| async move { store.destination(&tenant, id).await })?;
        if let Ok(Some(stored)) = stored
            && let Some(dest) = self.oracle().destinations.get_mut(&id)
        {
            dest.created(stored.created_at.as_unix_ms());
        }
        Ok(())
    }

    /// Changes a subscription: its URL, its rate limit, or whether it is enabled.
    pub fn change_subscription(&mut self, chance: &mut Random) -> Result<(), Crashed> {
        let Some(place) = chance.place(self.subscriptions.len()) else { return Ok(()) };
        let mut record = self.subscriptions[place].clone();
        match chance.below(3) {
            0 => record.subscription.enabled = !record.subscription.enabled,
            1 => {
                let others: Vec<_> = self
                    .subscriptions
                    .iter()
                    .filter(|one| one.subscription.tenant == record.subscription.tenant)
                    .map(|one| (one.subscription.url.clone(), one.subscription.destination))
                    .collect();
                let Some(place) = chance.place(others.len()) else { return Ok(()) };
                let (url, destination) = others[place].clone();
                (record.subscription.url, record.subscription.destination) = (url, destination);
            }
            _ => {
                let pace = RateLimit::per_second(5.0).ok();
                let is_on = record.subscription.rate_limit.is_some();
                record.subscription.rate_limit = pace.filter(|_| !is_on);
            }
        }
        self.oracle().coverage.hit(Cover::SubscriptionChanged);
        self.subscribe(record)
    }

    /// Deletes a subscription.
    pub fn unsubscribe(&mut self, place: usize) -> Result<(), Crashed> {
        let subscription = self.subscriptions.remove(place).subscription;
        {
            let mut oracle = self.oracle();
            oracle.deleted.insert(subscription.id);
            oracle.note("unsubscribe", None, Some(subscription.destination), 0);
            oracle.coverage.hit(Cover::SubscriptionDeleted);
        }
        let (tenant, id) = (subscription.tenant, subscription.id);
        let done = self.inside(|engine| async move {
            tokio::time::timeout(PATIENCE, engine.delete_subscription(&tenant, id)).await
        })?;
        if matches!(done, Ok(Ok(true))) { Ok(()) } else { self.look_up_subscriptions() }
    }

    /// Reads the subscriptions from the store, after an answer was lost.
    pub fn look_up_subscriptions(&mut self) -> Result<(), Crashed> {
        let store = self.store.clone();
        let all = self.inside(|_| async move {
            for _ in 0..100 {
                if let Ok(all) = store.all_subscriptions().await {
                    return Some(all);
                }
            }
            None
        })?;
        // A store that has stopped for good tells nothing: the policies stay as they are, and nothing
        // is sent until the next process has asked.
        self.subscriptions.clear();
        let Some(all) = all else { return Ok(()) };
        self.subscriptions = all.into_iter().filter(|one| one.deleted_at.is_none()).collect();
        self.subscriptions.sort_by_key(|one| one.subscription.id);
        let mut oracle = self.oracle();
        oracle.policies_are(self.subscriptions.iter().map(|record| &record.subscription));
        Ok(())
    }

    /// Sends events. Acknowledged ones must be durable.
    pub fn send(&mut self, tenant: &TenantId, kind: &str, count: usize) -> Result<(), Crashed> {
        let events = (0..count).map(|_| self.event(kind, None)).collect();
        self.ingest(tenant, events)
    }

    /// Sends batches of events concurrently.
    pub fn send_together(
        &mut self,
        tenant: &TenantId,
        kind: &str,
        batches: usize,
        each: usize,
    ) -> Result<(), Crashed> {
        self.oracle().coverage.hit(Cover::Overflow);
        self.send_beside(tenant, kind, (batches, each), |_| pending())
    }

    /// Sends batches of events concurrently, and cancels every delivery as soon as it is durable,
    /// even before it is in the lanes.
    pub fn send_and_cancel(
        &mut self,
        tenant: &TenantId,
        kind: &str,
        batches: usize,
        each: usize,
    ) -> Result<(), Crashed> {
        let (oracle, owner) = (Arc::clone(&self.oracle), tenant.clone());
        self.send_beside(tenant, kind, (batches, each), |engine| {
            cancel_durable(engine, oracle, owner)
        })
    }

    /// Sends batches of events concurrently, while another future runs.
    fn send_beside<F: Future<Output = Infallible>>(
        &mut self,
        tenant: &TenantId,
        kind: &str,
        (batches, each): (usize, usize),
        beside: impl FnOnce(EngineHandle) -> F,
    ) -> Result<(), Crashed> {
        let all: Vec<Vec<NewEvent>> =
            (0..batches).map(|_| (0..each).map(|_| self.event(kind, None)).collect()).collect();
        let owner = tenant.clone();
        let answers = self.inside(|engine| async move {
            let mut under_way = tokio::task::JoinSet::new();
            for events in all {
                let (engine, owner) = (engine.clone(), owner.clone());
                under_way.spawn(async move { engine.ingest(&owner, events).await });
            }
            let beside = beside(engine);
            tokio::select! {
                biased;
                answers = tokio::time::timeout(PATIENCE, under_way.join_all()) => answers,
                never = beside => match never {},
            }
        })?;
        let mut oracle = self.oracle();
        let disturbed = oracle.is_disturbed();
        let Ok(answers) = answers else {
            if !disturbed {
                oracle.violate("an application never got an answer".into(), None, None);
            }
            return Ok(());
        };
        for answer in answers {
            match answer {
                Ok(answers) => {
                    for answer in answers {
                        oracle.acknowledged(tenant, &answer);
                    }
                }
                Err(IngestError::TooFast { .. }) => oracle.coverage.hit(Cover::TooFast),
                Err(IngestError::Store(_)) if disturbed => {}
                Err(error) => oracle.violate(format!("refused: {error}"), None, None),
            }
        }
        Ok(())
    }

    /// Sends the same event twice.
    pub fn send_twice(&mut self, tenant: &TenantId, kind: &str) -> Result<(), Crashed> {
        let number = self.number();
        let event = self.event(kind, Some(&format!("given-{number}")));
        self.ingest(tenant, vec![event.clone()])?;
        self.oracle().coverage.hit(Cover::DuplicateEvent);
        self.ingest(tenant, vec![event])
    }

    fn event(&mut self, kind: &str, id: Option<&str>) -> NewEvent {
        let data = format!("{{\"n\":{}}}", self.number());
        NewEvent {
            id: id.and_then(|id| id.parse::<EventId>().ok()),
            kind: kind.parse().unwrap_or_else(|_| unreachable!("{kind} is a type")),
            object: None,
            data: RawJson::from_trusted(Bytes::from(data)),
            old: None,
            time: None,
            trace: None,
            flagged: None,
        }
    }

    fn ingest(&mut self, tenant: &TenantId, events: Vec<NewEvent>) -> Result<(), Crashed> {
        let wanted: Vec<usize> = events
            .iter()
            .map(|event| {
                let wants = |one: &&SubscriptionRecord| {
                    let one = &one.subscription;
                    one.tenant == *tenant && one.enabled && one.types.matches(&event.kind)
                };
                self.subscriptions.iter().filter(wants).count()
            })
            .collect();
        let owner = tenant.clone();
        let answer = self.inside(|engine| async move {
            tokio::time::timeout(PATIENCE, engine.ingest(&owner, events)).await
        })?;
        let disturbed = self.oracle().is_disturbed();
        let answers = match answer {
            Ok(Ok(answers)) => answers,
            Ok(Err(IngestError::Store(_))) | Err(_) if disturbed => return Ok(()),
            Ok(Err(IngestError::TooFast { .. })) if self.nature.options.tenant_ingest.is_some() => {
                self.oracle().coverage.hit(Cover::TooFast);
                return Ok(());
            }
            Ok(Err(error)) => {
                self.oracle().violate(format!("refused: {error}"), None, None);
                return Ok(());
            }
            Err(_) => {
                self.oracle().violate("an application never got an answer".into(), None, None);
                return Ok(());
            }
        };
        let mut oracle = self.oracle();
        for (answer, wanted) in answers.into_iter().zip(wanted) {
            let said = oracle.acknowledged(tenant, &answer);
            if said != wanted && !answer.duplicate {
                let what = format!("{} is owed {said} times, wanted by {wanted}", answer.id);
                oracle.violate(what, None, None);
            }
        }
        Ok(())
    }

    pub(super) fn tenant_of(&self, destination: DestinationId) -> Option<TenantId> {
        let known = self.subscriptions.iter().map(|one| &one.subscription);
        let mut of = known.filter(|one| one.destination == destination);
        of.next().map(|one| one.tenant.clone())
    }

    /// Enables a destination.
    pub fn enable(&mut self, id: DestinationId) -> Result<(), Crashed> {
        let Some(tenant) = self.tenant_of(id) else { return Ok(()) };
        self.ask_by_hand(id, true);
        let done = self.inside(|engine| async move {
            tokio::time::timeout(PATIENCE, engine.enable(&tenant, id, None)).await
        })?;
        if matches!(done, Ok(Ok(_)))
            && let Some(dest) = self.oracle().destinations.get_mut(&id)
        {
            dest.enable_asked = false;
        }
        Ok(())
    }

    /// Freezes a destination.
    pub fn freeze(&mut self, id: DestinationId) -> Result<(), Crashed> {
        let Some(tenant) = self.tenant_of(id) else { return Ok(()) };
        self.ask_by_hand(id, false);
        let done = self.inside(|engine| async move {
            tokio::time::timeout(PATIENCE, engine.freeze(&tenant, id, None)).await
        })?;
        let frozen = self.oracle().destinations.get(&id).map(|dest| dest.model.state);
        if matches!(done, Ok(Ok(_))) && frozen != Some(State::Frozen) {
            self.oracle().violate("freezing was answered, not durable".into(), None, Some(id));
        }
        if let Some(dest) = self.oracle().destinations.get_mut(&id) {
            dest.freeze_asked &= !matches!(done, Ok(Ok(_)));
        }
        Ok(())
    }

    pub(super) fn ask_by_hand(&mut self, id: DestinationId, enable: bool) {
        let mut oracle = self.oracle();
        oracle.note(if enable { "enable" } else { "freeze" }, None, Some(id), 0);
        if let Some(dest) = oracle.destinations.get_mut(&id) {
            dest.enable_asked |= enable;
            dest.freeze_asked |= !enable;
        }
    }

    /// A random delivery that has ended, or one that has not.
    pub fn some_delivery(&self, chance: &mut Random, ended: bool) -> Option<DeliveryId> {
        let oracle = self.oracle();
        let fits = |stand: Stand| {
            ended == matches!(stand, Stand::Delivered | Stand::Dead | Stand::Cancelled)
        };
        let all: Vec<_> =
            oracle.owed.iter().filter(|(_, one)| fits(one.stand)).map(|(id, _)| *id).collect();
        chance.place(all.len()).map(|place| all[place])
    }

    /// Cancels a delivery.
    pub fn cancel(&mut self, id: DeliveryId) -> Result<(), Crashed> {
        let tenant = {
            let mut oracle = self.oracle();
            oracle.note("cancel", Some(id), None, 0);
            let Some(owed) = oracle.owed.get_mut(&id) else { return Ok(()) };
            owed.cancel_asked = true;
            owed.tenant.clone()
        };
        let done = self.inside(|engine| async move {
            tokio::time::timeout(PATIENCE, engine.cancel(&tenant, id)).await
        })?;
        let stand = self.oracle().owed.get(&id).map(|owed| owed.stand);
        if matches!(done, Ok(Ok(_))) && stand != Some(Stand::Cancelled) {
            self.oracle().violate("cancelling was answered, not durable".into(), Some(id), None);
        }
        Ok(())
    }

    /// Replays a delivery.
    pub fn replay(&mut self, id: DeliveryId) -> Result<(), Crashed> {
        let tenant = {
            let mut oracle = self.oracle();
            oracle.note("replay", Some(id), None, 0);
            let Some(owed) = oracle.owed.get_mut(&id) else { return Ok(()) };
            owed.replay_asked = true;
            owed.tenant.clone()
        };
        let done = self.inside(|engine| async move {
            tokio::time::timeout(PATIENCE, engine.replay(&tenant, id)).await
        })?;
        let mut oracle = self.oracle();
        if matches!(done, Ok(Ok(_))) {
            oracle.coverage.hit(Cover::ReplayOne);
        } else if matches!(done, Ok(Err(CommandError::WrongState(_)))) {
            oracle.coverage.hit(Cover::ReplayRefused);
            if let Some(owed) = oracle.owed.get_mut(&id) {
                owed.replay_asked = false;
            }
        }
        Ok(())
    }

    /// Requests an attempt of a delivery now.
    pub fn retry(&mut self, id: DeliveryId) -> Result<(), Crashed> {
        let tenant = {
            let mut oracle = self.oracle();
            oracle.note("retry", Some(id), None, 0);
            let Some(owed) = oracle.owed.get_mut(&id) else { return Ok(()) };
            owed.retries_asked += 1;
            let (tenant, destination) = (owed.tenant.clone(), owed.destination);
            // Until there is an answer, either of two may be the next probe.
            if let Some(dest) = oracle.destinations.get_mut(&destination) {
                dest.probe_asked = None;
            }
            tenant
        };
        let done = self.inside(|engine| async move {
            tokio::time::timeout(PATIENCE, engine.retry(&tenant, id)).await
        })?;
        let now = self.now;
        let mut oracle = self.oracle();
        match done {
            Ok(Ok(delivery)) => {
                if delivery.is_asked_for()
                    && delivery.next_attempt_at().is_some_and(|at| at.as_unix_ms() > now)
                {
                    oracle.coverage.hit(Cover::RetryPutOff);
                }
                oracle.probe_is_asked_for(id);
            }
            Ok(Err(CommandError::WrongState(_) | CommandError::Frozen { .. })) => {
                oracle.coverage.hit(Cover::RetryRefused);
                if let Some(owed) = oracle.owed.get_mut(&id) {
                    owed.retries_asked = owed.retries_asked.saturating_sub(1);
                }
            }
            Ok(Err(_)) | Err(_) => {}
        }
        Ok(())
    }

    /// Makes test sends to the first subscription, all at once, and waits for none.
    pub fn test_sends(&mut self, count: u32) -> Result<(), Crashed> {
        let Some(record) = self.subscriptions.first() else { return Ok(()) };
        let (tenant, id) = (record.subscription.tenant.clone(), record.subscription.id);
        self.oracle().limits.tests_asked += count;
        let events: Vec<_> = (0..count).map(|_| self.event("task.created", None)).collect();
        self.inside(|engine| async move {
            for event in events {
                let (engine, tenant) = (engine.clone(), tenant.clone());
                tokio::spawn(async move { engine.test_send(&tenant, id, event).await });
            }
        })
    }

    /// Cancels, replays or unsubscribes while attempts are in flight.
    pub fn meddle(&mut self, chance: &mut Random) -> Result<(), Crashed> {
        self.pass(chance.below(60))?;
        let in_flight: Vec<_> = {
            let oracle = self.oracle();
            let in_flight = oracle.owed.iter().filter(|(_, owed)| owed.in_flight > 0);
            in_flight.map(|(id, owed)| (*id, owed.subscription)).collect()
        };
        let Some(place) = chance.place(in_flight.len()) else { return Ok(()) };
        let (id, subscription) = in_flight[place];
        match chance.below(5) {
            0..3 => self.cancel(id),
            3 if chance.below(2) == 0 => self.retry(id),
            3 => self.replay(id),
            _ => {
                let known = &self.subscriptions;
                let place = known.iter().position(|one| one.subscription.id == subscription);
                place.map_or(Ok(()), |place| self.unsubscribe(place))
            }
        }
    }

    /// Replays all dead deliveries of a destination, perhaps with a pause.
    pub fn replay_many(&mut self, id: DestinationId, chance: &mut Random) -> Result<(), Crashed> {
        let Some(tenant) = self.tenant_of(id) else { return Ok(()) };
        {
            let mut oracle = self.oracle();
            oracle.bulk_replay = true;
            oracle.note("bulk replay", None, Some(id), 0);
        }
        let filter = DeliveryFilter {
            state: Some(if chance.chance(700) { StateName::Dead } else { StateName::Cancelled }),
            destination: Some(id),
            ..DeliveryFilter::default()
        };
        let per_second = chance.chance(500).then_some(5);
        let pauses = chance.chance(500);
        let job = Some(self.asked_job(id));
        let changed = self.inside(|engine| async move {
            let wish = NewReplay { filter, per_second, id: job };
            let job = engine.start_replay(&tenant, wish).await.ok()?;
            if pauses {
                crate::clock::pause(300).await;
                engine.pause_replay(&tenant, job.id).await.ok()?;
                crate::clock::pause(60_000).await;
                engine.resume_replay(&tenant, job.id).await.ok()?;
            }
            Some(pauses)
        })?;
        let mut oracle = self.oracle();
        if let Some(changed) = changed {
            oracle.coverage.hit(Cover::ReplayBulk);
            if changed {
                oracle.coverage.hit(Cover::ReplayChanged);
            }
        }
        Ok(())
    }

    /// Makes the store fail for a while; meanwhile events are sent.
    pub fn trouble(&mut self, chance: &mut Random) -> Result<(), Crashed> {
        let (fault, cover) = match chance.below(10) {
            0..3 => (Some(Fault::DiskFull), Cover::StoreFull),
            3..5 => (Some(Fault::UnavailableBefore), Cover::StoreUnknown),
            5..7 => (Some(Fault::UnavailableAfter), Cover::StoreUnknown),
            7 => (Some(Fault::Stopped), Cover::StoreStopped),
            _ => (None, Cover::StoreReads),
        };
        let n = chance.between(1, 5);
        {
            let mut oracle = self.oracle();
            oracle.disturbed_until = i64::MAX;
            oracle.note(cover.text(), None, None, i64::try_from(n).unwrap_or(0));
            if cover != Cover::StoreStopped {
                oracle.coverage.hit(cover);
            }
        }
        match fault {
            Some(fault) => self.store.fail_later(chance.below(4), fault, n),
            None => self.store.fail_next_reads(n),
        }
        for _ in 0..chance.between(1, 4) {
            if let Some(tenant) = self.tenants().first().cloned() {
                self.send(&tenant, KINDS[chance.place(3).unwrap_or(0)], 2)?;
            }
            self.pass(chance.skewed(20_000))?;
        }
        self.store.heal();
        let until = self.now + 20_000;
        self.oracle().disturbed_until = until;
        self.look_up_subscriptions()
    }

    /// Changes the policy.
    pub fn change_rules(&mut self, rules: Rules) -> Result<(), Crashed> {
        self.pass(1)?;
        let policy = rules.policy();
        {
            let mut oracle = self.oracle();
            oracle.rules = rules;
            oracle.note("policy", None, None, 0);
            oracle.coverage.hit(Cover::PolicyChanged);
        }
        self.inside(|engine| async move { drop(engine.reload_policy(policy)) })
    }
}

/// Cancels every delivery as soon as it is durable.
async fn cancel_durable(
    engine: EngineHandle,
    oracle: Arc<Mutex<Oracle>>,
    tenant: TenantId,
) -> Infallible {
    loop {
        let mut durable = Vec::new();
        for (id, owed) in &mut oracle.lock().unwrap_or_else(PoisonError::into_inner).owed {
            if owed.stand == Stand::Queued && !owed.cancel_asked {
                owed.cancel_asked = true;
                durable.push(*id);
            }
        }
        for id in durable {
            let (engine, tenant) = (engine.clone(), tenant.clone());
            tokio::spawn(async move { engine.cancel(&tenant, id).await });
        }
        pause(1).await;
    }
}
