//! Ledger, statistics, limits, audit log, filters and simulations: what the client itself has.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::operations::Data;
use super::{get, post_json};
use crate::call::{Call, path};
use crate::client::Client;
use crate::error::Error;
use crate::list::List;
use crate::types::{
    AuditEntry, Filter, FilterTrialAnswer, FilterVerdict, Ledger, Limit, NewEvent, Policy,
    RateLimit, Simulation, SimulationAnswer, Stats,
};

/// Which time.
#[derive(Debug, Clone, Default, Serialize)]
pub struct StatsQuery {
    /// From this time on.
    pub since: Option<Timestamp>,
    /// Before this time.
    pub until: Option<Timestamp>,
    /// The length of a span.
    pub step_minutes: Option<u32>,
    /// `all` for all tenants together, with an admin key.
    pub scope: Option<String>,
}

/// Which entries.
#[derive(Debug, Clone, Default, Serialize)]
pub struct AuditQuery {
    /// Of this tenant.
    pub tenant: Option<String>,
    /// By this key.
    pub key: Option<String>,
    /// Of this action.
    pub action: Option<String>,
    /// About this record.
    pub target: Option<String>,
    /// From this time on.
    pub since: Option<Timestamp>,
    /// Before this time.
    pub until: Option<Timestamp>,
}

/// A filter, and which events to try it on: those that are named, or the newest ones.
#[derive(Debug, Clone, Serialize)]
pub struct FilterTrial {
    /// The filter.
    pub filter: Filter,
    /// Events by their identifiers, at most 50; not together with `recent` or `kind`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event_ids: Option<Vec<String>>,
    /// So many of the newest events, 1 to 50; 20 where it is left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recent: Option<u32>,
    /// Of the newest events only those of this type.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
}

impl FilterTrial {
    /// A trial on the newest events.
    pub fn new(filter: Filter) -> FilterTrial {
        FilterTrial { filter, event_ids: None, recent: None, kind: None }
    }
}

/// The rates of a tenant; older servers have none in the answer.
#[derive(Deserialize)]
struct Rates {
    #[serde(default)]
    rates: Vec<RateLimit>,
}

impl Client {
    /// `accepted = queued + in_flight + waiting + delivered + dead + cancelled`, of the tenant.
    ///
    /// # Errors
    /// As every call.
    pub async fn ledger(&self) -> Result<Ledger, Error> {
        get(self, &["ledger"]).await
    }

    /// The ledger of all tenants together, with an admin key.
    ///
    /// # Errors
    /// As every call.
    pub async fn ledger_of_all(&self) -> Result<Ledger, Error> {
        self.call(&Call::get(path(&["ledger"])?).query("scope", "all")).await
    }

    /// What happened over time, in spans of equal length.
    ///
    /// # Errors
    /// As every call.
    pub async fn stats(&self, query: &StatsQuery) -> Result<Stats, Error> {
        self.call(&Call::get(path(&["stats"])?).fields(query)).await
    }

    /// The limits of the tenant, and how near it is to each.
    ///
    /// # Errors
    /// As every call.
    pub async fn limits(&self) -> Result<Vec<Limit>, Error> {
        Ok(get::<Data<Limit>>(self, &["limits"]).await?.data)
    }

    /// The rates of the tenant: requests and events per second.
    ///
    /// # Errors
    /// As every call.
    pub async fn rates(&self) -> Result<Vec<RateLimit>, Error> {
        Ok(get::<Rates>(self, &["limits"]).await?.rates)
    }

    /// The server's policy, and how far the policy of a subscription may go.
    ///
    /// # Errors
    /// As every call.
    pub async fn policy(&self) -> Result<Policy, Error> {
        get(self, &["policy"]).await
    }

    /// Who changed what.
    pub fn audit(&self, query: &AuditQuery) -> List<AuditEntry> {
        List::new(self, path(&["audit"]).map(|path| Call::get(path).fields(query)))
    }

    /// Tries a filter on an event. Nothing is stored and nothing is sent.
    ///
    /// # Errors
    /// As every call.
    pub async fn test_filter(
        &self,
        filter: &Filter,
        event: &NewEvent,
    ) -> Result<FilterVerdict, Error> {
        post_json(self, &["filters", "test"], &json!({ "filter": filter, "event": event })).await
    }

    /// Tries a filter on events that were accepted: those that are named, or the newest ones.
    ///
    /// # Errors
    /// As every call.
    pub async fn try_filter(&self, trial: &FilterTrial) -> Result<FilterTrialAnswer, Error> {
        post_json(self, &["filters", "test", "events"], trial).await
    }

    /// What policies would do in an outage. Nothing is stored and nothing is sent.
    ///
    /// # Errors
    /// As every call.
    pub async fn simulate(&self, simulation: &Simulation) -> Result<SimulationAnswer, Error> {
        post_json(self, &["simulate"], simulation).await
    }
}
