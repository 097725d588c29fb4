//! Connections, and transactions on them.
//!
//! A connection returns to the pool only after its transaction has ended. Otherwise (after an
//! error, a timeout, or when the caller went away) it is closed, and the server rolls back.
//! **Nothing outlives a transaction**: every setting is local to it and every lock ends with it, so
//! a pooler in transaction mode can be used.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use postrider_domain::ids::TenantId;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Error, Row};

use super::address::Target;
use super::error::failed;
use super::session::{Connection, Ready, Types, is_spoilt};
use crate::error::StoreError;
use crate::fair_semaphore::FairSemaphore;

/// The parameters of a statement.
pub(super) type Params<'a> = &'a [&'a (dyn ToSql + Sync)];

/// Settings of every transaction of the engine. A queue that was empty at the last ANALYZE may have
/// millions of rows now, so the statistics mislead the planner. Every query of the engine has an
/// index and must use it. For the same reason a batch passes its keys by `= ANY` or in a `LATERAL`,
/// and not only in a join, which the planner could start from the wrong side.
const BY_INDEX: &str = "SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off; \
     SET LOCAL enable_sort = off";

/// Settings of lists: they are read by an index in its order, and the server stops a statement soon
/// after its client has gone away.
const FOR_LISTS: &str = "; SET LOCAL client_connection_check_interval = 1000; \
     SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off; SET LOCAL enable_sort = off";

/// How long a list may take.
const LIST_TIME_MAX: Duration = Duration::from_secs(20);

/// How many lists of a tenant may wait.
const LINE_MAX: usize = 64;

/// The start of a transaction without further settings.
const BEGIN: &str = "BEGIN";

/// How long a transaction may wait for its client between two steps.
const IDLE_MAX: Duration = Duration::from_secs(4);

/// On whose behalf a transaction acts.
#[derive(Debug, Clone, Copy)]
pub(super) enum Scope<'a> {
    /// One tenant: rows of other tenants are invisible.
    Tenant(&'a TenantId),
    /// All tenants: for the engine and for administrators.
    All,
}

pub(super) struct Pool {
    target: Target,
    idle: Mutex<Vec<Connection>>,
    slots: Semaphore,
    statement_timeout: Duration,
    types: Types,
    /// Settings that are sent once per session, if the session is not shared through a pooler and
    /// acts for all tenants: then transactions need not send them.
    settings: Option<String>,
    /// Additional settings of every transaction.
    besides: &'static str,
}

impl Pool {
    pub(super) fn new(target: Target, size: usize, statement_timeout: Duration) -> Self {
        Pool {
            target,
            idle: Mutex::default(),
            slots: Semaphore::new(size.max(1)),
            statement_timeout,
            types: Types::default(),
            settings: None,
            besides: "",
        }
    }

    /// A pool for the engine, which always acts for all tenants.
    pub(super) fn for_all(target: Target, size: usize, statement_timeout: Duration) -> Self {
        let settings = (!target.is_pooled).then(|| {
            let (timeout, idle) = (statement_timeout.as_millis(), IDLE_MAX.as_millis());
            format!(
                "SET statement_timeout = {timeout}; \
                 SET idle_in_transaction_session_timeout = {idle}; SET jit = off; \
                 SET postrider.scope = 'all'; {}",
                BY_INDEX.replace("SET LOCAL", "SET")
            )
        });
        Pool { settings, ..Pool::new(target, size, statement_timeout) }
    }

    /// Runs one statement as a transaction of its own, in one round trip.
    pub(super) async fn query(
        &self,
        scope: Scope<'_>,
        sql: &str,
        params: Params<'_>,
    ) -> Result<Vec<Row>, StoreError> {
        let within = self.patience();
        let work = async {
            let mut session = self.session().await?;
            let begin = self.begin_with(scope, session.sync());
            let statement = session.statement(sql, false).await?;
            let client = session.client()?;
            if begin == BEGIN {
                // A single statement is a transaction by itself.
                let found = statement.query(client, params).await;
                if !client.is_closed() && found.as_ref().err().is_none_or(|e| !is_spoilt(e)) {
                    session.ended();
                }
                return found.map_err(|e| failed(&e));
            }
            let (begun, found, ended) = in_order3(
                client.batch_execute(&begin),
                statement.query(client, params),
                client.batch_execute("COMMIT"),
            )
            .await;
            begun.map_err(|e| failed(&e))?;
            let is_usable = found.as_ref().err().is_none_or(|error| !is_spoilt(error));
            let found = found.map_err(|e| failed(&e));
            if found.is_ok() || ended.is_ok() {
                ended.map_err(|e| failed(&e))?;
                if is_usable {
                    session.ended();
                }
            }
            found
        };
        patiently(within, work).await
    }

    /// Runs one statement that returns at most one row.
    pub(super) async fn query_opt(
        &self,
        scope: Scope<'_>,
        sql: &str,
        params: Params<'_>,
    ) -> Result<Option<Row>, StoreError> {
        Ok(self.query(scope, sql, params).await?.into_iter().next())
    }

    /// Begins a transaction of several steps. BEGIN is sent with the first step.
    pub(super) async fn begin(&self, scope: Scope<'_>) -> Result<Transaction<'_>, StoreError> {
        let within = self.patience();
        let session = patiently(within, self.session()).await?;
        let begin = Some(self.begin_with(scope, session.sync()));
        Ok(Transaction { session, within, begin })
    }

    /// Closes idle connections. A connection in use is closed when it is returned.
    pub(super) fn close(&self) {
        self.slots.close();
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// How long the client waits for an answer: longer than the server's own timeout, so that a
    /// live server gives up first.
    fn patience(&self) -> Duration {
        self.statement_timeout.saturating_add(Duration::from_secs(5))
    }

    fn begin_with(&self, scope: Scope<'_>, sync: &str) -> String {
        if self.settings.is_some() {
            return match scope {
                Scope::All => BEGIN.to_owned(),
                Scope::Tenant(id) => format!(
                    "{BEGIN}; SET LOCAL postrider.scope = ''; SET LOCAL postrider.tenant = '{id}'"
                ),
            };
        }
        let timeout = self.statement_timeout.as_millis();
        let who = match scope {
            // A tenant's identifier has letters, digits, `-` and `_` only.
            Scope::Tenant(id) => format!("SET LOCAL postrider.tenant = '{id}'"),
            Scope::All => format!("SET LOCAL postrider.scope = 'all'; {BY_INDEX}"),
        };
        // A process that is suspended in a transaction must not hold its locks: other nodes wait
        // for them.
        let idle = IDLE_MAX.as_millis();
        // JIT compilation takes longer than any of these statements.
        format!(
            "BEGIN; SET LOCAL statement_timeout = {timeout}{sync}; \
             SET LOCAL idle_in_transaction_session_timeout = {idle}; SET LOCAL jit = off; {who}{}",
            self.besides
        )
    }

    async fn session(&self) -> Result<Session<'_>, StoreError> {
        let permit = self.slots.acquire().await;
        let permit = permit.map_err(|_| StoreError::Stopped("it was closed".into()))?;
        loop {
            let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
            match idle {
                Some(connection) if connection.client.is_closed() => {}
                Some(connection) => {
                    return Ok(Session {
                        pool: self,
                        connection: Some(connection),
                        _permit: permit,
                    });
                }
                None => break,
            }
        }
        let connection = Connection::open(&self.target, self.settings.as_deref()).await?;
        Ok(Session { pool: self, connection: Some(connection), _permit: permit })
    }
}

/// Connections for lists alone: nothing else waits for them, and tenants take turns.
pub(super) struct Lists {
    pool: Pool,
    turns: Arc<FairSemaphore>,
}

impl Lists {
    pub(super) fn new(target: Target, size: usize, statement_timeout: Duration) -> Self {
        let size = size.max(1);
        let pool = Pool::new(target, size, statement_timeout.min(LIST_TIME_MAX));
        Lists {
            pool: Pool { besides: FOR_LISTS, ..pool },
            turns: FairSemaphore::new(size, LINE_MAX),
        }
    }

    /// Runs one statement when it is the tenant's turn.
    pub(super) async fn query(
        &self,
        scope: Scope<'_>,
        sql: &str,
        params: Params<'_>,
    ) -> Result<Vec<Row>, StoreError> {
        let whose = match scope {
            Scope::Tenant(id) => Some(id.clone()),
            Scope::All => None,
        };
        let _turn = self.turns.take(whose).await?;
        self.pool.query(scope, sql, params).await
    }

    /// Runs one statement that returns at most one row.
    pub(super) async fn query_opt(
        &self,
        scope: Scope<'_>,
        sql: &str,
        params: Params<'_>,
    ) -> Result<Option<Row>, StoreError> {
        Ok(self.query(scope, sql, params).await?.into_iter().next())
    }

    /// Closes idle connections.
    pub(super) fn close(&self) {
        self.pool.close();
    }
}

/// A connection in use.
struct Session<'a> {
    pool: &'a Pool,
    connection: Option<Connection>,
    _permit: SemaphorePermit<'a>,
}

impl Session<'_> {
    fn client(&self) -> Result<&Client, StoreError> {
        let connection = self.connection.as_ref();
        connection
            .map(|connection| &connection.client)
            .ok_or_else(|| StoreError::Internal("a transaction was used after its end".into()))
    }

    fn sync(&self) -> &'static str {
        self.connection.as_ref().map_or("", |connection| connection.sync)
    }

    async fn statement(&mut self, sql: &str, has_begun: bool) -> Result<Ready, StoreError> {
        let Some(connection) = &mut self.connection else {
            return Err(StoreError::Internal("a transaction was used after its end".into()));
        };
        connection.statement(sql, &self.pool.types, has_begun).await
    }

    /// Marks the transaction as ended: the connection can be reused.
    fn ended(&mut self) {
        if let Some(connection) = self.connection.take()
            && !self.pool.slots.is_closed()
        {
            self.pool.idle.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
        }
    }
}

/// A transaction. If it is dropped before its end, it is rolled back.
pub(super) struct Transaction<'a> {
    session: Session<'a>,
    within: Duration,
    /// The BEGIN and settings that are still to be sent with the first step.
    begin: Option<String>,
}

/// A future answer of the server.
type Reply<'a, T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send + 'a>>;

/// A step of a pipeline.
pub(super) struct Step<'a> {
    pub(super) sql: &'static str,
    pub(super) params: Vec<&'a (dyn ToSql + Sync)>,
}

impl Transaction<'_> {
    /// Sets a longer timeout for the next step: pruning counts millions of rows.
    pub(super) async fn take_time(&mut self, longest: Duration) -> Result<(), StoreError> {
        self.within = longest.saturating_add(Duration::from_secs(5));
        let ms = longest.as_millis();
        self.batch(&format!("SET LOCAL statement_timeout = {ms}")).await
    }

    pub(super) async fn query(
        &mut self,
        sql: &str,
        params: Params<'_>,
    ) -> Result<Vec<Row>, StoreError> {
        let statement = self.statement(sql).await?;
        let begin = self.begin.take();
        let client = self.session.client()?;
        let mut all = begun(client, begin.as_deref());
        all.push(Box::pin(statement.query(client, params)));
        let work = async { in_order(all).await.map_err(|e| failed(&e)) };
        Ok(patiently(self.within, work).await?.pop().unwrap_or_default())
    }

    pub(super) async fn execute(
        &mut self,
        sql: &str,
        params: Params<'_>,
    ) -> Result<u64, StoreError> {
        let statement = self.statement(sql).await?;
        let begin = self.begin.take();
        let client = self.session.client()?;
        let mut all = begun(client, begin.as_deref());
        all.push(Box::pin(statement.execute(client, params)));
        let work = async { in_order(all).await.map_err(|e| failed(&e)) };
        Ok(patiently(self.within, work).await?.pop().unwrap_or_default())
    }

    pub(super) async fn batch(&mut self, sql: &str) -> Result<(), StoreError> {
        let begin = self.begin.take();
        let client = self.session.client()?;
        let mut all = begun(client, begin.as_deref());
        all.push(Box::pin(client.batch_execute(sql)));
        let work = async { in_order(all).await.map_err(|e| failed(&e)) };
        patiently(self.within, work).await.map(drop)
    }

    /// Runs several reads in one round trip, in this order.
    pub(super) async fn query_all(
        &mut self,
        steps: &[Step<'_>],
    ) -> Result<Vec<Vec<Row>>, StoreError> {
        let statements = self.statements(steps).await?;
        let begin = self.begin.take();
        let client = self.session.client()?;
        let mut all = begun(client, begin.as_deref());
        let before = all.len();
        for (step, statement) in steps.iter().zip(&statements) {
            all.push(Box::pin(statement.query(client, &step.params)));
        }
        let work = async { in_order(all).await.map_err(|e| failed(&e)) };
        Ok(patiently(self.within, work).await?.split_off(before))
    }

    /// Runs all steps and the commit in one round trip. If one fails, nothing is written.
    pub(super) async fn finish(mut self, steps: &[Step<'_>]) -> Result<(), Refused> {
        let statements = self.statements(steps).await.map_err(Refused::Other)?;
        let begin = self.begin.take();
        let client = self.session.client().map_err(Refused::Other)?;
        let mut all: Vec<Reply<'_, u64>> = begun(client, begin.as_deref());
        for (step, statement) in steps.iter().zip(&statements) {
            all.push(Box::pin(statement.execute(client, &step.params)));
        }
        all.push(Box::pin(async { client.batch_execute("COMMIT").await.map(|()| 0) }));
        let work = async { Ok(in_order(all).await) };
        let outcome = patiently(self.within, work).await.map_err(Refused::Other)?;
        // Every step was answered, the commit too (after an error it is a rollback), so the
        // connection can be reused.
        let is_usable = outcome.as_ref().err().is_none_or(|error| !is_spoilt(error));
        if is_usable && !self.session.client().map_err(Refused::Other)?.is_closed() {
            self.session.ended();
        }
        match outcome {
            Ok(_) => Ok(()),
            Err(error) if super::error::is_taken(&error) => Err(Refused::Taken(failed(&error))),
            Err(error) if super::error::has_no_day(&error) => Err(Refused::NoDay),
            Err(error) if super::error::is_stale(&error) => Err(Refused::Stale),
            Err(error) => Err(Refused::Other(failed(&error))),
        }
    }

    async fn statements(&mut self, steps: &[Step<'_>]) -> Result<Vec<Ready>, StoreError> {
        let mut statements = Vec::with_capacity(steps.len());
        for step in steps {
            statements.push(self.statement(step.sql).await?);
        }
        Ok(statements)
    }

    /// Prepares a statement, with a timeout for a server that does not answer.
    async fn statement(&mut self, sql: &str) -> Result<Ready, StoreError> {
        let has_begun = self.begin.is_none();
        patiently(self.within, self.session.statement(sql, has_begun)).await
    }

    pub(super) async fn commit(mut self) -> Result<(), StoreError> {
        self.batch("COMMIT").await?;
        self.session.ended();
        Ok(())
    }

    pub(super) async fn rollback(mut self) -> Result<(), StoreError> {
        self.batch("ROLLBACK").await?;
        self.session.ended();
        Ok(())
    }
}

/// Sends BEGIN as the first of several requests, if it was not sent yet.
fn begun<'a, T: Default + 'a>(client: &'a Client, begin: Option<&'a str>) -> Vec<Reply<'a, T>> {
    let mut all: Vec<Reply<'a, T>> = Vec::new();
    if let Some(begin) = begin {
        all.push(Box::pin(async move { client.batch_execute(begin).await.map(|()| T::default()) }));
    }
    all
}

/// Why a pipeline failed.
#[derive(Debug)]
pub(super) enum Refused {
    /// A unique value exists already.
    Taken(StoreError),
    /// The partitions of a day are missing.
    NoDay,
    /// A subscription changed since the events were matched.
    Stale,
    /// Anything else.
    Other(StoreError),
}

impl From<Refused> for StoreError {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Taken(error) | Refused::Other(error) => error,
            Refused::NoDay => StoreError::Unavailable("a day's partitions are not there".into()),
            Refused::Stale => StoreError::Internal("something was divided by zero".into()),
        }
    }
}

async fn patiently<T>(
    within: Duration,
    work: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    match tokio::time::timeout(within, work).await {
        Ok(done) => done,
        Err(_) => Err(StoreError::Unavailable(format!("no answer within {within:?}"))),
    }
}

/// Sends all requests in the given order, then waits for the answers. Returns all answers, or the
/// first error.
async fn in_order<T>(
    futures: Vec<impl Future<Output = Result<T, Error>>>,
) -> Result<Vec<T>, Error> {
    let mut running: Vec<_> = futures.into_iter().map(|f| (Box::pin(f), None)).collect();
    poll_fn(move |context| {
        for (future, output) in &mut running {
            if output.is_none()
                && let Poll::Ready(ready) = future.as_mut().poll(context)
            {
                *output = Some(ready);
            }
        }
        if running.iter().any(|(_, output)| output.is_none()) {
            return Poll::Pending;
        }
        Poll::Ready(running.drain(..).filter_map(|(_, output)| output).collect())
    })
    .await
}

async fn in_order3<A, B, C>(
    a: impl Future<Output = A>,
    b: impl Future<Output = B>,
    c: impl Future<Output = C>,
) -> (A, B, C) {
    tokio::join!(biased; a, b, c)
}
