//! What goes on beside the lanes: removing what is too old, holding the shards, telling tenants of
//! what happened to their destinations. And the one place that waits for time to pass.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use postrider_domain::event::Event;
use postrider_domain::ids::{EventId, TenantId};
use postrider_domain::policy::Policy;
use postrider_domain::time::Timestamp;
use postrider_store::{Holding, Store, StoreError};
use postrider_transport::Clock;
use tokio::sync::{mpsc, watch};

use crate::core::{Command, Input};
use crate::ingest::{Ingest, NewEvent};
use crate::live::{EngineEvent, operational};
use crate::options::Options;

/// Waits for time to pass.
#[expect(clippy::disallowed_methods, reason = "the one place of the engine that waits for time")]
pub(crate) async fn pause(duration: Duration) {
    tokio::time::sleep(duration).await;
}

/// Removes what has been finished for longer than it is kept, now and then.
pub(crate) async fn prune(
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    policy: watch::Receiver<Arc<Policy>>,
    every: Duration,
) {
    loop {
        pause(every).await;
        let keep = policy.borrow().retention.finished;
        let before = clock.now().saturating_sub(keep);
        // What fails now is done the next time.
        while let Ok(pruned) = store.prune(before).await {
            if pruned.events == 0 && pruned.deliveries == 0 && pruned.attempts == 0 {
                break;
            }
            tokio::task::yield_now().await;
        }
    }
}

/// Holds the shards, again and again, and tells the core when something about it changes.
pub(crate) async fn hold(
    store: Arc<dyn Store>,
    inputs: mpsc::UnboundedSender<Input>,
    mut held: Holding,
    every: Duration,
) {
    loop {
        pause(every).await;
        let holding = match store.hold_shards().await {
            Ok(holding) => holding,
            Err(StoreError::Stopped(why)) => {
                drop(inputs.send(Input::Command(Command::Stop { why })));
                return;
            }
            Err(_) => continue,
        };
        if holding == held {
            continue;
        }
        let is_new = |entry: &&(_, _)| !held.shards.contains(entry);
        let new = Holding { shards: holding.shards.iter().filter(is_new).copied().collect() };
        let gained = if new.shards.is_empty() {
            Vec::new()
        } else {
            match store.held_destinations(&new).await {
                Ok(gained) => gained,
                Err(_) => continue,
            }
        };
        held.clone_from(&holding);
        let command = Command::Held { holding, gained };
        if inputs.send(Input::Command(command)).is_err() {
            return;
        }
    }
}

/// Tells tenants, and the operator, of what happened, as ordinary events, where a subscription wants
/// them.
pub(crate) async fn tell_tenants(
    mut happened: mpsc::Receiver<EngineEvent>,
    ingest: Arc<Ingest>,
    clock: Arc<dyn Clock>,
    options: Options,
) {
    let mut events = Vec::new();
    while happened.recv_many(&mut events, options.page.clamp(1, 1000)).await > 0 {
        let now = clock.now();
        let mut by_tenant: BTreeMap<TenantId, Vec<NewEvent>> = BTreeMap::new();
        for event in events.drain(..) {
            let Some((owner, event)) = operational(&event, now) else { continue };
            let operator =
                options.operator_tenant.clone().filter(|one| owner.as_ref() != Some(one));
            for tenant in owner.into_iter().chain(operator) {
                if is_wanted(&ingest, &tenant, &event, now) {
                    by_tenant.entry(tenant).or_default().push(event.clone());
                }
            }
        }
        for (tenant, events) in by_tenant {
            // A store that does not take it now: the timeline and the log have it all the same.
            drop(ingest.accept(&tenant, events).await);
        }
    }
}

/// Whether some subscription wants this; what nobody wants is not kept.
fn is_wanted(ingest: &Ingest, tenant: &TenantId, event: &NewEvent, now: Timestamp) -> bool {
    let event = Event {
        id: EventId::new(now, [0; 10]),
        tenant: tenant.clone(),
        kind: event.kind.clone(),
        object: None,
        data: event.data.clone(),
        old: None,
        time: now,
        trace: None,
    };
    !ingest.directory.matches(&event).is_empty()
}
