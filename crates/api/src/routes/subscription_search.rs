//! Lists of some of a tenant's subscriptions: to one destination, with a `uid`, with a text, or with a pair of metadata.
//!
//! All subscriptions are in memory. They are looked through there, and those of the page are read from the store.

use std::sync::Arc;

use postrider_domain::ids::{DestinationId, SubscriptionId, SubscriptionUid, TenantId};
use postrider_domain::subscription::Subscription;
use postrider_store::{Cursor, Page, PageRequest, SubscriptionRecord};

use super::subscriptions::SubscriptionQuery;
use crate::paging::{bad_cursor, parameter};
use crate::problem::Problem;
use crate::state::ApiState;
use crate::wire::check_text;

/// Entries on a page: each is read by itself.
const ENTRIES_MAX: usize = 100;
/// Characters of a text that is searched for.
const TEXT_CHARS_MAX: usize = 200;

/// Which subscriptions are wanted; all conditions must hold.
struct Wanted {
    destination: Option<DestinationId>,
    uid: Option<SubscriptionUid>,
    /// In lower case.
    text: Option<String>,
    pair: Option<(String, String)>,
}

impl Wanted {
    fn of(query: &SubscriptionQuery) -> Result<Self, Problem> {
        let text = check_text("q", query.q.clone(), TEXT_CHARS_MAX)?;
        let pair = query.metadata.as_deref().map(|pair| {
            let (key, value) = pair.split_once(':')?;
            Some((key.to_owned(), value.to_owned()))
        });
        let malformed = || Problem::field("metadata", "a key and its value, as key:value");
        Ok(Wanted {
            destination: parameter("destination", query.destination.as_deref())?,
            uid: parameter("uid", query.uid.as_deref())?,
            text: text.map(|text| text.to_lowercase()),
            pair: pair.map(|pair| pair.ok_or_else(malformed)).transpose()?,
        })
    }

    fn has(&self, subscription: &Subscription) -> bool {
        let about = &subscription.about;
        let mentions = |text: &String| {
            about.mentions(text) || subscription.url.to_lowercase().contains(text.as_str())
        };
        self.destination.is_none_or(|id| subscription.destination == id)
            && (self.uid.is_none() || self.uid == about.uid)
            && self.text.as_ref().is_none_or(mentions)
            && self
                .pair
                .as_ref()
                .is_none_or(|(key, value)| about.metadata.pairs().get(key) == Some(value))
    }
}

/// One page, newest first.
pub(super) async fn find(
    state: &ApiState,
    tenant: &TenantId,
    query: &SubscriptionQuery,
    asked: &PageRequest,
) -> Result<Page<SubscriptionRecord>, Problem> {
    let wanted = Wanted::of(query)?;
    // Another node may have created the one that is asked for a moment ago.
    if let Some(uid) = &wanted.uid {
        let found = state.store().subscription_by_uid(tenant, uid).await?;
        let items = found.into_iter().filter(|record| wanted.has(&record.subscription)).collect();
        return Ok(Page { items, next: None });
    }
    let before: Option<SubscriptionId> = match &asked.cursor {
        Some(cursor) => Some(cursor.0.parse().map_err(|_| bad_cursor())?),
        None => None,
    };
    let index = state.engine().subscriptions_of(tenant);
    let newest_first = index.iter().flat_map(|index| index.newest_first(before));
    let limit = asked.limit.min(ENTRIES_MAX);
    let found = newest_first.filter(|one: &&Arc<Subscription>| wanted.has(one)).take(limit + 1);
    let mut ids: Vec<SubscriptionId> = found.map(|subscription| subscription.id).collect();
    let has_more = ids.len() > limit;
    ids.truncate(limit);
    let next = ids.last().filter(|_| has_more).map(|last| Cursor(last.to_string()));
    let mut items = Vec::new();
    for id in ids {
        items.extend(state.store().subscription(tenant, id).await?);
    }
    Ok(Page { items, next })
}
