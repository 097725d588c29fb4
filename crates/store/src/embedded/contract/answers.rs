//! Stored answers for repeated requests (idempotency keys), and notes of requests that have begun.
//!
//! A request with an idempotency key waits for two writes here, so requests that wait at the same
//! time share a transaction. **A failure of one does not fail the others**, unless the transaction
//! itself fails.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use postrider_domain::ids::TenantId;
use postrider_domain::time::Timestamp;
use rusqlite::{Connection, Transaction, params};
use tokio::sync::oneshot;

use crate::embedded::EmbeddedStore;
use crate::embedded::apply::Applier;
use crate::embedded::files::At;
use crate::embedded::files::rows;
use crate::error::StoreError;
use crate::records::IdempotentAnswer;

/// Answers that are removed in one transaction.
const CHUNK: usize = 5_000;

/// An answer that is to be stored.
#[derive(Debug)]
struct Keep {
    tenant: TenantId,
    key: String,
    answer: IdempotentAnswer,
    since: Timestamp,
    reply: oneshot::Sender<Result<IdempotentAnswer, StoreError>>,
}

/// The answers that wait for the next transaction.
#[derive(Debug, Clone, Default)]
pub(in crate::embedded) struct Keeping(Arc<Mutex<Vec<Keep>>>);

impl Keeping {
    /// Adds an answer. Returns whether it is the first one: then its caller starts the transaction.
    fn add(&self, keep: Keep) -> bool {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.push(keep);
        waiting.len() == 1
    }

    fn take(&self) -> Vec<Keep> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Writes all waiting answers in one transaction. An error means that the store has stopped.
    fn write(&self, applier: &mut Applier) -> Result<(), StoreError> {
        let all = self.take();
        let written = applier.main().change(|transaction, path| {
            Ok(all.iter().map(|keep| keep.write(transaction, path)).collect::<Vec<_>>())
        });
        match written {
            Ok(answers) => {
                // A caller that has gone away gets no reply.
                all.into_iter().zip(answers).for_each(|(keep, kept)| drop(keep.reply.send(kept)));
                Ok(())
            }
            Err(error) => {
                all.into_iter().for_each(|keep| drop(keep.reply.send(Err(same(&error)))));
                if matches!(error, StoreError::Stopped(_)) { Err(error) } else { Ok(()) }
            }
        }
    }
}

/// The task that writes the gathered answers. If it is dropped instead, because the disk is full or the
/// store stops, the answers are dropped too: their callers get an error, and the next answer has a
/// task of its own.
struct Writing(Option<Keeping>);

impl Drop for Writing {
    fn drop(&mut self) {
        if let Some(keeping) = self.0.take() {
            drop(keeping.take());
        }
    }
}

impl Keep {
    fn write(
        &self,
        transaction: &Transaction<'_>,
        path: &Path,
    ) -> Result<IdempotentAnswer, StoreError> {
        match find(transaction, path, &self.tenant, &self.key)? {
            Some(earlier) if !earlier.gives_way(&self.answer, self.since) => Ok(earlier),
            Some(_) | None => {
                put(transaction, path, &self.tenant, &self.key, &self.answer)?;
                Ok(self.answer.clone())
            }
        }
    }
}

/// A copy of the error, for another caller.
fn same(error: &StoreError) -> StoreError {
    match error {
        StoreError::DiskFull { place } => StoreError::DiskFull { place: place.clone() },
        StoreError::Stopped(why) => StoreError::Stopped(why.clone()),
        other @ (StoreError::NotWritable { .. }
        | StoreError::Locked { .. }
        | StoreError::NewerVersion { .. }
        | StoreError::Corrupt { .. }
        | StoreError::Fenced { .. }
        | StoreError::UnknownCursor
        | StoreError::Busy
        | StoreError::TooSlow(_)
        | StoreError::Unavailable(_)
        | StoreError::Internal(_)) => StoreError::Unavailable(other.to_string()),
    }
}

impl EmbeddedStore {
    pub(in crate::embedded) async fn keep_answer(
        &self,
        tenant: &TenantId,
        key: &str,
        answer: &IdempotentAnswer,
        since: Timestamp,
    ) -> Result<IdempotentAnswer, StoreError> {
        let (tenant, key, answer) = (tenant.clone(), key.to_owned(), answer.clone());
        let (reply, kept) = oneshot::channel();
        if self.keeping.add(Keep { tenant, key, answer, since, reply }) {
            let mut writing = Writing(Some(self.keeping.clone()));
            let job = Box::new(move |applier: &mut Applier| match writing.0.take() {
                Some(keeping) => keeping.write(applier),
                None => Ok(()),
            });
            self.queue.push_first(job)?;
        }
        match kept.await {
            Ok(kept) => kept,
            Err(_) => Err(self.why_dropped()),
        }
    }

    pub(in crate::embedded) async fn forget_old_answers(
        &self,
        before: Timestamp,
        most: u64,
        bytes_most: u64,
    ) -> Result<u64, StoreError> {
        let before = before.as_unix_ms();
        let mut forgotten = 0;
        loop {
            let removed = self.change(move |transaction, path| {
                let delete = format!(
                    "DELETE FROM answers WHERE rowid IN
                    (SELECT rowid FROM answers WHERE created_at < ?1 LIMIT {CHUNK})"
                );
                transaction.execute(&delete, [before]).at(path)
            });
            let removed = removed.await?;
            forgotten += removed;
            if removed < CHUNK {
                break;
            }
        }
        let limits = [most, bytes_most].map(|most| i64::try_from(most).unwrap_or(i64::MAX));
        // Counting takes long, so it is done outside the applier.
        let excess = self.read_list_of_all(move |guard| {
            guard.main(|connection, path| excess(connection, path, limits))
        });
        for chunk in excess.await?.chunks(CHUNK) {
            let chunk = chunk.to_vec();
            forgotten +=
                self.change(move |transaction, path| remove(transaction, path, &chunk)).await?;
        }
        Ok(u64::try_from(forgotten).unwrap_or(u64::MAX))
    }
}

/// Identifies an answer: the tenant, the idempotency key, and when it was stored.
type Which = (String, String, i64);

/// The oldest answers of tenants that have too many, or too many bytes of them.
fn excess(
    connection: &Connection,
    path: &Path,
    [most, bytes_most]: [i64; 2],
) -> Result<Vec<Which>, StoreError> {
    let tenants = "SELECT tenant FROM answers GROUP BY tenant
        HAVING count(*) > ?1 OR sum(length(body)) > ?2";
    let limits = params![most, bytes_most];
    let tenants: Vec<String> =
        rows::all(connection, path, "answers", tenants, limits, |reading| reading.get(0))?;
    let mut found = Vec::new();
    for tenant in tenants {
        let oldest = "SELECT key, created_at FROM (SELECT key, created_at,
                row_number() OVER newest AS n, sum(length(body)) OVER newest AS bytes
            FROM answers WHERE tenant = ?3 WINDOW newest AS (ORDER BY created_at DESC, key DESC))
            WHERE n > ?1 OR bytes > ?2";
        let values = params![most, bytes_most, tenant];
        let keys: Vec<(String, i64)> =
            rows::all(connection, path, "answers", oldest, values, |reading| {
                Ok((reading.get(0)?, reading.get(1)?))
            })?;
        found.extend(keys.into_iter().map(|(key, at)| (tenant.clone(), key, at)));
    }
    Ok(found)
}

/// Removes these answers, unless they were replaced meanwhile. Returns how many were removed.
fn remove(
    transaction: &Transaction<'_>,
    path: &Path,
    answers: &[Which],
) -> Result<usize, StoreError> {
    let delete = "DELETE FROM answers WHERE tenant = ?1 AND key = ?2 AND created_at = ?3";
    let mut delete = transaction.prepare_cached(delete).at(path)?;
    let mut removed = 0;
    for (tenant, key, at) in answers {
        removed += delete.execute(params![tenant, key, at]).at(path)?;
    }
    Ok(removed)
}

pub(in crate::embedded) fn find(
    connection: &Connection,
    path: &Path,
    tenant: &TenantId,
    key: &str,
) -> Result<Option<IdempotentAnswer>, StoreError> {
    let sql = "SELECT key, request, status, body, created_at, crc FROM answers
        WHERE tenant = ?1 AND key = ?2";
    let values = params![tenant.as_str(), key];
    rows::one(connection, path, "answers", sql, values, |r| rows::answer_of(r, tenant, key))
}

/// Writes an answer; it replaces an existing one with the same key.
pub(in crate::embedded) fn put(
    transaction: &Transaction<'_>,
    path: &Path,
    tenant: &TenantId,
    key: &str,
    kept: &IdempotentAnswer,
) -> Result<(), StoreError> {
    let insert = "INSERT OR REPLACE INTO answers VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
    let values = params![
        tenant.as_str(),
        key,
        kept.request.as_slice(),
        kept.status,
        kept.body,
        kept.created_at.as_unix_ms(),
        rows::answer_sum(tenant, key, kept),
    ];
    let mut insert = transaction.prepare_cached(insert).at(path)?;
    insert.execute(values).at(path).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keep() -> (Keep, oneshot::Receiver<Result<IdempotentAnswer, StoreError>>) {
        let (reply, kept) = oneshot::channel();
        let answer = IdempotentAnswer {
            request: [0; 32],
            status: 200,
            body: Vec::new(),
            created_at: Timestamp::EPOCH,
        };
        let (tenant, key) = (TenantId::default_tenant(), "key".to_owned());
        (Keep { tenant, key, answer, since: Timestamp::EPOCH, reply }, kept)
    }

    #[test]
    fn dropped_task_refuses_its_answers_and_the_next_answer_has_a_task_of_its_own() {
        let keeping = Keeping::default();
        let (first, mut kept) = keep();
        assert!(keeping.add(first));
        drop(Writing(Some(keeping.clone())));
        assert!(matches!(kept.try_recv(), Err(oneshot::error::TryRecvError::Closed)));
        assert!(keeping.add(keep().0), "nobody would write it");
    }
}
