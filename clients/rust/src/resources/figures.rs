//! Ledger, statistics, limits, audit log, filters and simulations: what the client itself has.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{get, post_json};
use crate::call::{Call, path};
use crate::client::Client;
use crate::error::Error;
use crate::list::List;
use crate::types::{
    AuditEntry, Filter, FilterVerdict, Ledger, Limit, NewEvent, Simulation, SimulationAnswer, Stats,
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

#[derive(Deserialize)]
struct Data<T> {
    data: Vec<T>,
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

    /// What policies would do in an outage. Nothing is stored and nothing is sent.
    ///
    /// # Errors
    /// As every call.
    pub async fn simulate(&self, simulation: &Simulation) -> Result<SimulationAnswer, Error> {
        post_json(self, &["simulate"], simulation).await
    }
}
