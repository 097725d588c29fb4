//! A connection and its prepared statements.
//!
//! A statement is prepared once for each connection, under a name. Behind a transaction-mode pooler
//! the next transaction may be on another session that does not have that name: there statements
//! are unnamed and are sent with their parameter types, which are looked up once, inside a
//! transaction.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Error, Row, SimpleQueryMessage, Statement};

use super::address::Target;
use super::error::failed;
use super::pool::Params;
use crate::error::StoreError;

/// Sent at the start of each transaction if the server would otherwise acknowledge before it has
/// synced.
const SYNC: &str = "; SET LOCAL synchronous_commit = on";
/// The variant for a pooler, where the session of the transaction is not known in advance.
const SYNC_WHEREVER: &str = "; SELECT set_config('synchronous_commit', 'on', true) \
     WHERE current_setting('synchronous_commit') = 'off'";

/// The parameter types of statements, which are the same on every connection.
pub(super) type Types = Mutex<HashMap<String, Arc<[Type]>>>;

/// One connection.
pub(super) struct Connection {
    pub(super) client: Client,
    /// What a transaction must send first, so that its commit is on stable storage.
    pub(super) sync: &'static str,
    statements: HashMap<String, Statement>,
    is_pooled: bool,
}

/// A statement that is ready to run.
#[derive(Clone)]
pub(super) enum Ready {
    /// The statement is prepared under a name on this connection.
    Named(Statement),
    /// The statement is sent with its parameter types each time.
    Unnamed(String, Arc<[Type]>),
}

impl Ready {
    pub(super) async fn query(
        &self,
        client: &Client,
        params: Params<'_>,
    ) -> Result<Vec<Row>, Error> {
        match self {
            Ready::Named(statement) => client.query(statement, params).await,
            Ready::Unnamed(sql, types) => {
                let typed: Vec<_> = params.iter().copied().zip(types.iter().cloned()).collect();
                client.query_typed(sql, &typed).await
            }
        }
    }

    pub(super) async fn execute(&self, client: &Client, params: Params<'_>) -> Result<u64, Error> {
        match self {
            Ready::Named(statement) => client.execute(statement, params).await,
            Ready::Unnamed(sql, types) => {
                let typed: Vec<_> = params.iter().copied().zip(types.iter().cloned()).collect();
                client.execute_typed(sql, &typed).await
            }
        }
    }
}

impl Connection {
    /// Connects to the first host that accepts, and sets up the session.
    pub(super) async fn open(
        target: &Target,
        settings: Option<&str>,
    ) -> Result<Connection, StoreError> {
        let Target { config, connector, is_pooled } = target;
        let (client, driver) = config.connect(connector.clone()).await.map_err(|e| failed(&e))?;
        // The driver ends when the client is dropped or the connection is lost; the client reports
        // its error.
        tokio::spawn(async move { drop(driver.await) });
        let sync = if *is_pooled { SYNC_WHEREVER } else { needed_sync(&client).await? };
        if let Some(settings) = settings {
            let all = format!("{settings}{}", sync.replace("SET LOCAL", "SET"));
            client.batch_execute(&all).await.map_err(|e| failed(&e))?;
        }
        Ok(Connection { client, sync, statements: HashMap::new(), is_pooled: *is_pooled })
    }

    /// Prepares a statement; `has_begun` says whether a transaction is open.
    pub(super) async fn statement(
        &mut self,
        sql: &str,
        types: &Types,
        has_begun: bool,
    ) -> Result<Ready, StoreError> {
        if self.is_pooled {
            return self.unnamed(sql, types, has_begun).await;
        }
        if let Some(known) = self.statements.get(sql) {
            return Ok(Ready::Named(known.clone()));
        }
        let statement = self.client.prepare(sql).await.map_err(|e| failed(&e))?;
        self.statements.insert(sql.to_owned(), statement.clone());
        Ok(Ready::Named(statement))
    }

    async fn unnamed(
        &self,
        sql: &str,
        types: &Types,
        has_begun: bool,
    ) -> Result<Ready, StoreError> {
        let known = types.lock().unwrap_or_else(PoisonError::into_inner).get(sql).cloned();
        if let Some(known) = known {
            return Ok(Ready::Unnamed(sql.to_owned(), known));
        }
        // Looking up the types prepares a named statement, so it needs a transaction: outside one,
        // the pooler may use another session for the next message.
        if !has_begun {
            self.client.batch_execute("BEGIN").await.map_err(|e| failed(&e))?;
        }
        let statement = self.client.prepare(sql).await.map_err(|e| failed(&e))?;
        let learnt: Arc<[Type]> = statement.params().into();
        drop(statement);
        if !has_begun {
            self.client.batch_execute("COMMIT").await.map_err(|e| failed(&e))?;
        }
        let mut types = types.lock().unwrap_or_else(PoisonError::into_inner);
        types.insert(sql.to_owned(), Arc::clone(&learnt));
        Ok(Ready::Unnamed(sql.to_owned(), learnt))
    }
}

/// What transactions on this connection must send first. It is determined for each connection,
/// because after a failover the server may be another one.
async fn needed_sync(client: &Client) -> Result<&'static str, StoreError> {
    let said = client.simple_query("SHOW synchronous_commit").await.map_err(|e| failed(&e))?;
    let is_off = said.iter().any(
        |message| matches!(message, SimpleQueryMessage::Row(row) if row.get(0) == Some("off")),
    );
    Ok(if is_off { SYNC } else { "" })
}

/// Whether the error would recur on this connection: its server is read-only now, or a prepared
/// statement does not fit the changed tables.
pub(super) fn is_spoilt(error: &Error) -> bool {
    let spoilt = [
        SqlState::READ_ONLY_SQL_TRANSACTION,
        SqlState::FEATURE_NOT_SUPPORTED,
        SqlState::INVALID_SQL_STATEMENT_NAME,
        SqlState::DUPLICATE_PSTATEMENT,
    ];
    error.code().is_some_and(|code| spoilt.contains(code))
}
