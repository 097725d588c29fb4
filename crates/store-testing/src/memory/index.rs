//! Grouped ordered sets, for the orders of the queues.

use std::collections::{BTreeMap, BTreeSet};

/// The sorted entries of each group. Empty groups are removed.
#[derive(Debug)]
pub(super) struct Index<G, K>(BTreeMap<G, BTreeSet<K>>);

impl<G, K> Default for Index<G, K> {
    fn default() -> Self {
        Index(BTreeMap::new())
    }
}

impl<G: Ord, K: Ord> Index<G, K> {
    pub(super) fn insert(&mut self, group: G, key: K) {
        self.0.entry(group).or_default().insert(key);
    }

    pub(super) fn remove(&mut self, group: &G, key: &K) {
        if let Some(keys) = self.0.get_mut(group) {
            keys.remove(key);
            if keys.is_empty() {
                self.0.remove(group);
            }
        }
    }

    /// The entries of a group, in order.
    pub(super) fn of(&self, group: &G) -> impl DoubleEndedIterator<Item = &K> {
        self.0.get(group).into_iter().flatten()
    }

    /// The entries of a group after the given one, in order.
    pub(super) fn after(&self, group: &G, mark: Option<K>) -> impl Iterator<Item = &K> {
        use std::ops::Bound::{Excluded, Unbounded};
        let from = mark.map_or(Unbounded, Excluded);
        self.0.get(group).into_iter().flat_map(move |keys| keys.range((from.as_ref(), Unbounded)))
    }

    pub(super) fn count(&self, group: &G) -> usize {
        self.0.get(group).map_or(0, BTreeSet::len)
    }
}
