//! Requests and answers between nodes.
//!
//! A request names what is to be done. Its answer has only what the store does not: the node that
//! requested a change reads the result from the store, after the owner has made it durable.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use postrider_domain::delivery::{StateName, WrongState};
use postrider_domain::ids::{DeliveryId, DestinationId, ReplayId, TenantId};
use postrider_domain::time::Timestamp;
use postrider_store::{PeerMessage, Store};
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use crate::core::{Reopening, ReplayChange};
use crate::entropy::Entropy;
use crate::handle::{CommandError, EngineHandle};

/// A request of one node to another.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum PeerRequest {
    Enable {
        tenant: TenantId,
        destination: DestinationId,
        reason: Option<String>,
        /// A node of an earlier version does not say it.
        #[serde(default)]
        how: Reopening,
    },
    Freeze {
        tenant: TenantId,
        destination: DestinationId,
        reason: Option<String>,
    },
    Cancel {
        tenant: TenantId,
        delivery: DeliveryId,
    },
    Replay {
        tenant: TenantId,
        delivery: DeliveryId,
    },
    Retry {
        tenant: TenantId,
        delivery: DeliveryId,
    },
    /// Replay the given deliveries that had ended by `by`, for a job.
    ReplayEnded {
        tenant: TenantId,
        /// An earlier version does not say which.
        #[serde(default)]
        job: Option<ReplayId>,
        by: Timestamp,
        deliveries: Vec<DeliveryId>,
    },
    /// Retry what waits and was not attempted since then, for a job.
    RetryWaiting {
        tenant: TenantId,
        #[serde(default)]
        job: Option<ReplayId>,
        since: Timestamp,
        deliveries: Vec<DeliveryId>,
    },
    RunJob {
        tenant: TenantId,
        id: ReplayId,
    },
    ChangeJob {
        tenant: TenantId,
        id: ReplayId,
        change: ReplayChange,
    },
    InFlight {
        deliveries: Vec<DeliveryId>,
    },
    Overlay {
        tenant: Option<TenantId>,
    },
    /// List a tenant's deliveries in flight, newest first.
    #[serde(rename = "Flying")]
    ListInFlight {
        tenant: TenantId,
        below: Option<DeliveryId>,
        limit: usize,
    },
}

/// The answer to a request.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum PeerAnswer {
    Done,
    Flags(Vec<bool>),
    #[serde(rename = "Flying")]
    InFlight(Vec<DeliveryId>),
    Overlay {
        queued: u64,
        waiting: u64,
    },
    Replayed {
        count: u64,
        moved: Vec<DeliveryId>,
    },
    Refused(Refusal),
}

/// Why the other node did not do it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Refusal {
    NotFound,
    Unfinished,
    Finished(String),
    OnItsWay(String),
    ToBeReplayed(String),
    Frozen {
        since: Timestamp,
        why: String,
    },
    SubscriptionGone,
    JobEnded,
    /// The other node does not own the shard, or cannot act on it now.
    Moved,
}

impl Refusal {
    fn of(error: &CommandError) -> Refusal {
        match error {
            CommandError::NotFound => Refusal::NotFound,
            CommandError::WrongState(WrongState::Unfinished(StateName::Waiting)) => {
                Refusal::Unfinished
            }
            // The message has no place for the state, which nodes of the previous version could not
            // read; both refusals say that the delivery is attempted anyway.
            CommandError::WrongState(WrongState::Unfinished(state)) => {
                Refusal::OnItsWay(state.as_str().to_owned())
            }
            CommandError::WrongState(WrongState::Finished(state)) => {
                Refusal::Finished(state.as_str().to_owned())
            }
            CommandError::WrongState(WrongState::OnItsWay(state)) => {
                Refusal::OnItsWay(state.as_str().to_owned())
            }
            CommandError::WrongState(WrongState::ToBeReplayed(state)) => {
                Refusal::ToBeReplayed(state.as_str().to_owned())
            }
            CommandError::Frozen { since, why } => {
                Refusal::Frozen { since: *since, why: why.clone() }
            }
            CommandError::SubscriptionGone => Refusal::SubscriptionGone,
            CommandError::JobEnded => Refusal::JobEnded,
            // The node that got the API request checks the quotas, before it asks another node.
            CommandError::Quota(_)
            | CommandError::NotReplayable
            | CommandError::Full { .. }
            | CommandError::Moved
            | CommandError::Stopping
            | CommandError::Store(_) => Refusal::Moved,
        }
    }

    pub(crate) fn error(self) -> CommandError {
        let state = |name: &str| {
            let state = StateName::ALL.into_iter().find(|state| state.as_str() == name);
            state.unwrap_or(StateName::Delivered)
        };
        match self {
            Refusal::NotFound => CommandError::NotFound,
            Refusal::Unfinished => WrongState::Unfinished(StateName::Waiting).into(),
            Refusal::Finished(name) => WrongState::Finished(state(&name)).into(),
            Refusal::OnItsWay(name) => WrongState::OnItsWay(state(&name)).into(),
            Refusal::ToBeReplayed(name) => WrongState::ToBeReplayed(state(&name)).into(),
            Refusal::Frozen { since, why } => CommandError::Frozen { since, why },
            Refusal::SubscriptionGone => CommandError::SubscriptionGone,
            Refusal::JobEnded => CommandError::JobEnded,
            Refusal::Moved => CommandError::Moved,
        }
    }
}

/// The contents of a message.
#[derive(Serialize, Deserialize)]
enum Body {
    #[serde(rename = "Question")]
    Request(PeerRequest),
    /// The answer to the request with this identifier.
    Answer([u8; 16], PeerAnswer),
}

/// Sends and receives messages.
pub(crate) struct Mailbox {
    store: Arc<dyn Store>,
    entropy: Arc<dyn Entropy>,
    me: String,
    waiting: Mutex<HashMap<[u8; 16], oneshot::Sender<PeerAnswer>>>,
}

impl Mailbox {
    /// The mailbox of this node; `None` if the store is for one node only.
    pub(crate) fn new(store: &Arc<dyn Store>, entropy: &Arc<dyn Entropy>) -> Option<Arc<Mailbox>> {
        let me = store.node()?.to_owned();
        let (store, entropy) = (Arc::clone(store), Arc::clone(entropy));
        Some(Arc::new(Mailbox { store, entropy, me, waiting: Mutex::default() }))
    }

    /// The name of this node.
    pub(crate) fn me(&self) -> &str {
        &self.me
    }

    /// Sends a request to a node; `None` if it does not answer in time.
    pub(crate) async fn ask(
        &self,
        to: &str,
        request: PeerRequest,
        within: Duration,
    ) -> Option<PeerAnswer> {
        let message = self.message(to, &Body::Request(request))?;
        let (reply, answer) = oneshot::channel();
        self.waiting().insert(message.id, reply);
        let id = message.id;
        let asked = async {
            self.store.send_messages(&[message]).await.ok()?;
            answer.await.ok()
        };
        let answer = tokio::time::timeout(within, asked).await.ok().flatten();
        self.waiting().remove(&id);
        answer
    }

    /// Takes the received messages: answers go to the waiting callers, requests are answered.
    pub(crate) async fn take(self: Arc<Self>, engine: &EngineHandle) {
        // After an error the messages are taken at the next poll.
        let Ok(messages) = self.store.take_messages().await else { return };
        for message in messages {
            match serde_json::from_str(&message.body) {
                Ok(Body::Answer(id, answer)) => {
                    let waiting = self.waiting().remove(&id);
                    // The caller may have gone away.
                    drop(waiting.map(|waiting| waiting.send(answer)));
                }
                Ok(Body::Request(request)) => {
                    let (mailbox, engine) = (Arc::clone(&self), engine.clone());
                    tokio::spawn(async move { mailbox.answer(&engine, message, request).await });
                }
                // A node of another version sent a request that is not known here.
                Err(_) => {}
            }
        }
    }

    async fn answer(&self, engine: &EngineHandle, asked: PeerMessage, request: PeerRequest) {
        let answer = match engine.answer(request).await {
            Ok(answer) => answer,
            Err(error) => PeerAnswer::Refused(Refusal::of(&error)),
        };
        if let Some(message) = self.message(&asked.from, &Body::Answer(asked.id, answer)) {
            // If the answer is lost, the other node asks again.
            drop(self.store.send_messages(&[message]).await);
        }
    }

    fn message(&self, to: &str, body: &Body) -> Option<PeerMessage> {
        let mut id = [0; 16];
        self.entropy.fill(&mut id);
        let body = serde_json::to_string(body).ok()?;
        Some(PeerMessage { id, from: self.me.clone(), to: to.to_owned(), body })
    }

    fn waiting(&self) -> MutexGuard<'_, HashMap<[u8; 16], oneshot::Sender<PeerAnswer>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_keep_the_names_that_nodes_of_earlier_versions_know() {
        let (tenant, delivery) = (TenantId::default_tenant(), DeliveryId::from_bytes([1; 16]));
        let request = PeerRequest::ListInFlight { tenant, below: None, limit: 7 };
        assert_eq!(
            serde_json::to_string(&Body::Request(request)).unwrap(),
            r#"{"Question":{"Flying":{"tenant":"default","below":null,"limit":7}}}"#
        );
        let answer = Body::Answer([0; 16], PeerAnswer::InFlight(vec![delivery]));
        let answer = serde_json::to_value(answer).unwrap();
        assert_eq!(answer["Answer"][1]["Flying"][0], serde_json::to_value(delivery).unwrap());
    }
}
