//! Rows of the configuration, of timelines and of replay jobs.

use std::path::Path;

use postrider_domain::access::Scope;
use postrider_domain::circuit::Transition;
use postrider_domain::ids::{DestinationId, ReplayId, SubscriptionId, TenantId};
use postrider_domain::subscription::Subscription;
use rusqlite::{Connection, params};

use super::{Reading, sum};
use crate::embedded::files::codec::{self, Decoder, Encoder};
use crate::error::StoreError;
use crate::passes::Pass;
use crate::records::{
    DestinationRecord, IdempotentAnswer, Key, ReplayJob, ReplayState, SubscriptionRecord, Tenant,
};

fn number(number: i64) -> [u8; 8] {
    number.to_le_bytes()
}

/// The bytes of an optional number; `None` differs from every number.
fn optional(number: Option<i64>) -> Vec<u8> {
    number.map_or_else(Vec::new, |number| number.to_le_bytes().to_vec())
}

/// The bytes of an optional text; `None` differs from the empty text.
fn optional_text(text: Option<&str>) -> Vec<u8> {
    text.map_or_else(Vec::new, |text| [b"=", text.as_bytes()].concat())
}

/// The checksum of a tenant. One without details has the checksum that versions without them wrote.
pub(in crate::embedded) fn tenant_sum(tenant: &Tenant, details: Option<&str>) -> u32 {
    let name = optional_text(tenant.name.as_deref());
    let (id, at) = (tenant.id.as_str().as_bytes(), number(tenant.created_at.as_unix_ms()));
    match details {
        Some(details) => sum(&[id, &name, &at, details.as_bytes()]),
        None => sum(&[id, &name, &at]),
    }
}

/// A tenant, of the columns `id, name, created_at, crc, details`.
pub(in crate::embedded) fn tenant_of(reading: &Reading<'_>) -> Result<Tenant, StoreError> {
    let details: Option<String> = reading.get(4)?;
    let parsed = details.as_deref().map(|details| reading.json(details)).transpose()?;
    let tenant = Tenant {
        id: reading.parse(0)?,
        name: reading.get(1)?,
        created_at: reading.time(2)?,
        details: parsed.unwrap_or_default(),
    };
    reading.check(3, tenant_sum(&tenant, details.as_deref()))?;
    Ok(tenant)
}

/// The checksum of a key without `last_used_at`, which is updated without touching the checksum.
pub(in crate::embedded) fn key_sum(key: &Key) -> u32 {
    sum(&[
        key.id.as_bytes(),
        &optional_text(key.tenant.as_ref().map(TenantId::as_str)),
        &optional_text(key.name.as_deref()),
        scopes_text(&key.scopes).as_bytes(),
        &key.hash,
        &number(key.created_at.as_unix_ms()),
        &optional(key.expires_at.map(|at| at.as_unix_ms())),
    ])
}

/// The checksum of a pass.
pub(in crate::embedded) fn pass_sum(pass: &Pass) -> u32 {
    sum(&[
        pass.id.as_bytes(),
        &pass.kind.number().to_le_bytes(),
        pass.owner.as_bytes(),
        &optional_text(pass.tenant.as_ref().map(TenantId::as_str)),
        &number(pass.created_at.as_unix_ms()),
        &number(pass.expires_at.as_unix_ms()),
        &optional(pass.used_at.map(|at| at.as_unix_ms())),
        &pass.body,
    ])
}

/// Scopes as one text.
pub(in crate::embedded) fn scopes_text(scopes: &[Scope]) -> String {
    scopes.iter().map(|scope| scope.as_str()).collect::<Vec<_>>().join(" ")
}

/// A key, of the columns `id, tenant, name, scopes, hash, created_at, expires_at, last_used_at,
/// crc`.
pub(in crate::embedded) fn key_of(reading: &Reading<'_>) -> Result<Key, StoreError> {
    let damaged = || reading.damaged("a text is not what it should be");
    let tenant: Option<String> = reading.get(1)?;
    let scopes: String = reading.get(3)?;
    let scopes = scopes.split_whitespace().map(|scope| scope.parse().map_err(|_| damaged()));
    let key = Key {
        id: reading.get(0)?,
        tenant: tenant.map(|tenant| tenant.parse().map_err(|_| damaged())).transpose()?,
        name: reading.get(2)?,
        scopes: scopes.collect::<Result<_, _>>()?,
        hash: reading.get(4)?,
        created_at: reading.time(5)?,
        expires_at: reading.time_or_none(6)?,
        last_used_at: reading.time_or_none(7)?,
    };
    reading.check(8, key_sum(&key))?;
    Ok(key)
}

pub(in crate::embedded) fn subscription_sum(
    id: SubscriptionId,
    body: &str,
    credentials: &[u8],
    deleted_at: Option<i64>,
) -> u32 {
    sum(&[id.as_bytes(), body.as_bytes(), credentials, &optional(deleted_at)])
}

/// A subscription, of the columns `id, body, credentials, deleted_at, crc`.
pub(in crate::embedded) fn subscription_of(
    reading: &Reading<'_>,
) -> Result<SubscriptionRecord, StoreError> {
    let id = reading.id(0, SubscriptionId::from_bytes)?;
    let (body, credentials): (String, Vec<u8>) = (reading.get(1)?, reading.get(2)?);
    let deleted_at = reading.time_or_none(3)?;
    let deleted_ms = deleted_at.map(|at| at.as_unix_ms());
    reading.check(4, subscription_sum(id, &body, &credentials, deleted_ms))?;
    let subscription: Subscription = reading.json(&body)?;
    Ok(SubscriptionRecord { subscription, credentials, deleted_at })
}

pub(in crate::embedded) fn destination_sum(destination: &DestinationRecord) -> u32 {
    sum(&[
        destination.id.as_bytes(),
        destination.tenant.as_str().as_bytes(),
        destination.url.as_bytes(),
        &number(destination.created_at.as_unix_ms()),
    ])
}

/// A destination, of the columns `id, tenant, url, created_at, circuit, crc, circuit_crc`.
pub(in crate::embedded) fn destination_of(
    reading: &Reading<'_>,
) -> Result<DestinationRecord, StoreError> {
    let circuit: String = reading.get(4)?;
    reading.check(6, crc32fast::hash(circuit.as_bytes()))?;
    let destination = DestinationRecord {
        id: reading.id(0, DestinationId::from_bytes)?,
        tenant: reading.parse(1)?,
        url: reading.get(2)?,
        created_at: reading.time(3)?,
        circuit: reading.json(&circuit)?,
    };
    reading.check(5, destination_sum(&destination))?;
    Ok(destination)
}

pub(in crate::embedded) fn transition_sum(tenant: &TenantId, id: DestinationId, body: &str) -> u32 {
    sum(&[tenant.as_str().as_bytes(), id.as_bytes(), body.as_bytes()])
}

/// Transitions before the given number, newest first, each with its number.
pub(in crate::embedded) fn transitions(
    connection: &Connection,
    path: &Path,
    tenant: &TenantId,
    id: DestinationId,
    before: Option<i64>,
    limit: usize,
) -> Result<Vec<(i64, Transition)>, StoreError> {
    let find = "SELECT n, body, crc FROM transitions
        WHERE destination = ?1 AND n < ?2 AND tenant = ?3 ORDER BY n DESC LIMIT ?4";
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let before = before.unwrap_or(i64::MAX);
    let values = params![id.as_bytes().as_slice(), before, tenant.as_str(), limit];
    super::all(connection, path, "transitions", find, values, |reading| {
        let body: String = reading.get(1)?;
        reading.check(2, transition_sum(tenant, id, &body))?;
        Ok((reading.get(0)?, reading.json(&body)?))
    })
}

pub(in crate::embedded) fn answer_sum(
    tenant: &TenantId,
    key: &str,
    answer: &IdempotentAnswer,
) -> u32 {
    sum(&[
        tenant.as_str().as_bytes(),
        key.as_bytes(),
        &answer.request,
        &answer.status.to_le_bytes(),
        &answer.body,
        &number(answer.created_at.as_unix_ms()),
    ])
}

/// An answer, of the columns `key, request, status, body, created_at, crc`.
pub(in crate::embedded) fn answer_of(
    reading: &Reading<'_>,
    tenant: &TenantId,
    key: &str,
) -> Result<IdempotentAnswer, StoreError> {
    let answer = IdempotentAnswer {
        request: reading.get(1)?,
        status: reading.get(2)?,
        body: reading.get(3)?,
        created_at: reading.time(4)?,
    };
    reading.check(5, answer_sum(tenant, key, &answer))?;
    Ok(answer)
}

/// A replay job, of the columns `id, body, crc`.
pub(in crate::embedded) fn replay_of(reading: &Reading<'_>) -> Result<ReplayJob, StoreError> {
    let body = reading.bytes(1)?;
    reading.check(2, crc32fast::hash(&body))?;
    reading.decoded(codec::get_whole_replay(&mut Decoder::new(body)))
}

pub(in crate::embedded) fn replay(
    connection: &Connection,
    path: &Path,
    tenant: &TenantId,
    id: ReplayId,
) -> Result<Option<ReplayJob>, StoreError> {
    let find = "SELECT id, body, crc FROM replays WHERE id = ?1 AND tenant = ?2";
    let values = params![id.as_bytes().as_slice(), tenant.as_str()];
    super::one(connection, path, "replays", find, values, replay_of)
}

/// Creates or replaces a job, with its outcomes.
pub(in crate::embedded) fn put_replay(
    connection: &Connection,
    job: &ReplayJob,
) -> rusqlite::Result<()> {
    let mut body = Encoder::default();
    codec::put_whole_replay(&mut body, job);
    let mut upsert = connection.prepare_cached(
        "INSERT INTO replays VALUES (?1, ?2, ?3, ?4, ?5, ?6)
         ON CONFLICT (id) DO UPDATE SET created_at = ?3, running = ?4, body = ?5, crc = ?6",
    )?;
    upsert.execute(params![
        job.id.as_bytes().as_slice(),
        job.tenant.as_str(),
        job.created_at.as_unix_ms(),
        job.state == ReplayState::Running,
        body.as_slice(),
        crc32fast::hash(body.as_slice()),
    ])?;
    Ok(())
}
