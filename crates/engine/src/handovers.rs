//! Accepted deliveries enter the lanes in portions, tenants taking turns.
//!
//! A batch can have a million deliveries. In one step they would block everything else: **the batch
//! of one tenant delays its own deliveries and nobody else's.**

use std::collections::{HashMap, VecDeque};

use postrider_domain::ids::TenantId;

use crate::inbox::Handover;

/// Deliveries of one tenant that enter the lanes before it is another tenant's turn.
const PIECE: usize = 64;
/// Deliveries that enter the lanes in one step.
const STEP: usize = 256;

/// Handovers that have not entered the lanes yet, in order for each tenant.
#[derive(Default)]
pub(crate) struct Handovers {
    of: HashMap<TenantId, VecDeque<Handover>>,
    /// The tenants with handovers, the next one first.
    ring: VecDeque<TenantId>,
}

impl Handovers {
    pub(crate) fn is_empty(&self) -> bool {
        self.ring.is_empty()
    }

    pub(crate) fn add(&mut self, handover: Handover) {
        let queue = self.of.entry(handover.tenant.clone()).or_default();
        if queue.is_empty() {
            self.ring.push_back(handover.tenant.clone());
        }
        queue.push_back(handover);
    }

    /// The deliveries that enter the lanes in this step.
    pub(crate) fn take_step(&mut self) -> Vec<Handover> {
        let (mut pieces, mut left) = (Vec::new(), STEP);
        while left > 0
            && let Some(tenant) = self.ring.pop_front()
        {
            let Some(queue) = self.of.get_mut(&tenant) else { continue };
            let mut turn = PIECE.min(left);
            while turn > 0
                && let Some(mut handover) = queue.pop_front()
            {
                let piece = handover.cut(turn);
                turn -= piece.items.len();
                left -= piece.items.len();
                if !handover.items.is_empty() {
                    queue.push_front(handover);
                }
                pieces.push(piece);
            }
            if queue.is_empty() {
                self.of.remove(&tenant);
            } else {
                self.ring.push_back(tenant);
            }
        }
        pieces
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use postrider_domain::delivery::Delivery;
    use postrider_domain::event::{Event, RawJson};
    use postrider_domain::ids::{DeliveryId, DestinationId, EventId, SubscriptionId};
    use postrider_domain::time::Timestamp;

    use super::*;
    use crate::inbox::Inbox;

    fn tenant(name: &str) -> TenantId {
        name.parse().unwrap()
    }

    fn items(tenant: &TenantId, count: usize) -> Vec<(Arc<Event>, Delivery)> {
        let now = Timestamp::EPOCH;
        let event = Arc::new(Event {
            id: EventId::new(now, [1; 10]),
            tenant: tenant.clone(),
            kind: "task.updated".parse().unwrap(),
            object: None,
            data: RawJson::from_trusted("1".into()),
            old: None,
            time: now,
            trace: None,
        });
        let to = DestinationId::of(tenant, "x");
        let delivery = |n: usize| {
            let mut id = [0; 10];
            id[..8].copy_from_slice(&n.to_be_bytes());
            let whom = SubscriptionId::from_bytes([1; 16]);
            Delivery::accepted(DeliveryId::new(now, id), &event, whom, to, now)
        };
        (0..count).map(|n| (Arc::clone(&event), delivery(n))).collect()
    }

    /// Handovers of these tenants with this many deliveries each, as an inbox returns them.
    fn handed_over(of: &[(&str, usize)]) -> (Arc<Inbox>, Handovers) {
        let (inbox, mut receiver) = Inbox::new(100, 1_000_000);
        let mut handovers = Handovers::default();
        for &(name, count) in of {
            let tenant = tenant(name);
            let to = DestinationId::of(&tenant, "x");
            inbox.begin(&tenant, vec![to]).hand_over(items(&tenant, count));
            handovers.add(receiver.try_recv().unwrap());
        }
        (inbox, handovers)
    }

    fn counts(pieces: &[Handover]) -> Vec<(&str, usize)> {
        pieces.iter().map(|piece| (piece.tenant.as_str(), piece.items.len())).collect()
    }

    #[test]
    fn large_batch_of_one_tenant_lets_the_others_pass() {
        let (_inbox, mut handovers) = handed_over(&[("loud", 10_000), ("a", 1), ("b", 2)]);
        assert_eq!(
            counts(&handovers.take_step()),
            [("loud", 64), ("a", 1), ("b", 2), ("loud", 64), ("loud", 64), ("loud", 61)]
        );
    }

    #[test]
    fn deliveries_enter_the_lanes_once_and_in_the_order_of_their_tenant() {
        let (inbox, mut handovers) = handed_over(&[("a", 300), ("b", 70), ("a", 5)]);
        let mut entered: HashMap<String, Vec<(u64, DeliveryId)>> = HashMap::new();
        while !handovers.is_empty() {
            for piece in handovers.take_step() {
                let of = entered.entry(piece.tenant.to_string()).or_default();
                let number = piece.ticket.number;
                of.extend(piece.items.iter().map(|(_, delivery)| (number, delivery.id)));
            }
        }
        for (name, expected) in [("a", 305), ("b", 70)] {
            let of = &entered[name];
            assert_eq!(of.len(), expected);
            assert!(of.is_sorted() && of.windows(2).all(|two| two[0] != two[1]), "{name}");
        }
        assert_eq!(inbox.oldest_ticket(), None);
    }

    #[test]
    fn ticket_is_open_until_its_last_piece_has_entered() {
        let (inbox, mut handovers) = handed_over(&[("a", STEP + 1)]);
        drop(handovers.take_step());
        assert_eq!(inbox.oldest_ticket(), Some(0));
        drop(handovers.take_step());
        assert_eq!(inbox.oldest_ticket(), None);
        assert!(handovers.is_empty());
    }
}
