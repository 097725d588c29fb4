//! The catalogue of event types: what is stored of a type, and whether events fit.
//!
//! A type belongs to a tenant, or to the server, which has it for all tenants; a tenant's own type holds over the
//! server's of the same name. What is known of a tenant is cached for a few seconds, and forgotten at once when this
//! node changes it. **Nothing is read or parsed for a tenant that accepts everything.**

mod schema;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use postrider_domain::catalogue::{Conduct, Conducts, Misfit, MisfitReason, OwnConducts};
use postrider_domain::ids::TenantId;
use postrider_domain::limits::{BATCH_SCHEMA_STEPS_MAX, SCHEMA_STEPS_MAX};
use postrider_domain::time::Timestamp;
use postrider_engine::NewEvent;
use postrider_store::{DocumentKind, DocumentOrder, PageRequest};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

pub(crate) use self::schema::Schema;
use crate::problem::{Code, Problem};
use crate::routes::busy;
use crate::state::ApiState;

/// How long the catalogue of a tenant is used before it is read again: changes of other nodes hold after it.
const TTL: Duration = Duration::from_secs(5);
/// Tenants whose catalogue is in memory.
const TENANTS_MAX: usize = 10_000;
/// Bytes of schemas in memory, as they are stored.
const BYTES_MAX: usize = 64 * 1024 * 1024;
/// The name of the document with a tenant's choices.
pub(crate) const CONDUCTS: &str = "conducts";
/// Bytes of events that are parsed on this thread; more on the threads for large work.
const LIGHT_BYTES: usize = 16 * 1024;
/// Steps that are taken on this thread.
const LIGHT_STEPS: u64 = 20_000;

/// A type, as it is stored.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct StoredType {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) description: Option<String>,
    /// The schema of `data`, as it was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) schema: Option<Box<RawValue>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) example: Option<Box<RawValue>>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) deprecated: bool,
    pub(crate) created_at: Timestamp,
    pub(crate) updated_at: Timestamp,
}

/// A type of the catalogue, in memory. Its schema is compiled when an event needs it for the first time.
#[derive(Debug)]
struct KnownType {
    schema: Option<Box<RawValue>>,
    compiled: OnceLock<Option<Arc<Schema>>>,
}

impl KnownType {
    /// The compiled schema; `None` where there is none, or where it cannot be compiled any more.
    fn compiled(&self) -> Option<Arc<Schema>> {
        let compile = || {
            let text = self.schema.as_ref()?;
            let value: Value = serde_json::from_str(text.get()).ok()?;
            Schema::compile(&value).ok().map(Arc::new)
        };
        self.compiled.get_or_init(compile).clone()
    }
}

/// What is known of a tenant.
#[derive(Debug)]
struct Known {
    conducts: Conducts,
    types: HashMap<String, Arc<KnownType>>,
    bytes: usize,
    read_at: Timestamp,
}

/// The catalogues of tenants, in memory.
#[derive(Debug, Default)]
pub(crate) struct Catalogue {
    tenants: Mutex<HashMap<TenantId, Arc<Known>>>,
}

impl Catalogue {
    /// Forgets a tenant whose catalogue changed; `None` for all of them.
    pub(crate) fn forget(&self, tenant: Option<&TenantId>) {
        match tenant {
            Some(tenant) => drop(self.lock().remove(tenant)),
            None => self.lock().clear(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<TenantId, Arc<Known>>> {
        self.tenants.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn known(&self, state: &ApiState, tenant: &TenantId) -> Result<Arc<Known>, Problem> {
        let now = state.now();
        let is_fresh = |known: &Known| now >= known.read_at && now.since(known.read_at) < TTL;
        if let Some(known) = self.lock().get(tenant)
            && is_fresh(known)
        {
            return Ok(Arc::clone(known));
        }
        let known = Arc::new(read(state, tenant, now).await?);
        let mut tenants = self.lock();
        let bytes: usize = tenants.values().map(|known| known.bytes).sum();
        if tenants.len() >= TENANTS_MAX || bytes.saturating_add(known.bytes) > BYTES_MAX {
            tenants.retain(|_, known| is_fresh(known));
            if tenants.len() >= TENANTS_MAX / 10 * 9 || bytes > BYTES_MAX / 10 * 9 {
                tenants.clear();
            }
        }
        tenants.insert(tenant.clone(), Arc::clone(&known));
        Ok(known)
    }

    /// Flags events that do not fit; refuses them where the tenant wants that. `place` names an event of the request.
    pub(crate) async fn judge(
        &self,
        state: &ApiState,
        tenant: &TenantId,
        events: &mut [NewEvent],
        place: impl Fn(usize, &str) -> String,
    ) -> Result<(), Problem> {
        let known = self.known(state, tenant).await?;
        if known.conducts.accept_all() {
            return Ok(());
        }
        let faults = faults(state, tenant, &known, events).await?;
        for (n, (event, fault)) in events.iter_mut().zip(faults).enumerate() {
            let Some(misfit) = fault else { continue };
            let conduct = match misfit.reason {
                MisfitReason::UnknownType => known.conducts.unknown_types,
                MisfitReason::Payload | MisfitReason::TooMuchWork => known.conducts.misfits,
            };
            match conduct {
                Conduct::Accept => {}
                Conduct::Flag => {
                    state.engine().count_flagged();
                    event.flagged = Some(misfit);
                }
                Conduct::Refuse if is_repeat(state, tenant, event).await? => {}
                Conduct::Refuse => {
                    state.engine().count_misfit_refused();
                    return Err(refusal(event, &misfit, |field| place(n, field)));
                }
            }
        }
        Ok(())
    }
}

/// Whether the event was accepted before: then its repeat is answered as ever, whatever the catalogue says by now.
async fn is_repeat(state: &ApiState, tenant: &TenantId, event: &NewEvent) -> Result<bool, Problem> {
    match &event.id {
        Some(id) => Ok(state.store().event(tenant, id).await?.is_some()),
        None => Ok(false),
    }
}

fn refusal(event: &NewEvent, misfit: &Misfit, place: impl Fn(&str) -> String) -> Problem {
    let kind = event.kind.as_str();
    let field = |pointer: &str| {
        let keys = pointer.split('/').skip(1).map(|key| key.replace("~1", "/").replace("~0", "~"));
        keys.fold("data".to_owned(), |path, key| {
            let is_index = !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_digit());
            if is_index { format!("{path}[{key}]") } else { format!("{path}.{key}") }
        })
    };
    match misfit.reason {
        MisfitReason::UnknownType => {
            let detail = format!(
                "the type {kind} is not in the catalogue: add it by POST /v1/event-types, or \
                 correct the name"
            );
            Problem::new(Code::UnknownEventType, detail).at(place("type"))
        }
        MisfitReason::Payload | MisfitReason::TooMuchWork => {
            let pointer = misfit.pointer.clone().unwrap_or_default();
            let detail = format!("data does not fit the schema of {kind}: {}", misfit.detail);
            let problem = Problem::new(Code::PayloadMisfit, detail);
            problem.at(place(&field(&pointer))).pointer(pointer)
        }
    }
}

/// The fault of each event. More than a little is done on the threads for large work.
async fn faults(
    state: &ApiState,
    tenant: &TenantId,
    known: &Arc<Known>,
    events: &[NewEvent],
) -> Result<Vec<Option<Misfit>>, Problem> {
    let checks_data = known.conducts.misfits != Conduct::Accept;
    let wanted: Vec<Wanted> = events.iter().map(|event| Wanted::of(known, event)).collect();
    let bytes: usize = wanted.iter().map(Wanted::bytes).sum();
    if !checks_data || bytes == 0 {
        return Ok(wanted.iter().map(Wanted::unknown).collect());
    }
    if bytes <= LIGHT_BYTES
        && wanted.iter().all(Wanted::is_compiled)
        && let Some(faults) = judged(&wanted, LIGHT_STEPS)
    {
        return Ok(faults);
    }
    let work = move || judged(&wanted, u64::MAX).unwrap_or_default();
    state.engine().compute(tenant, work).await.map_err(busy)
}

/// An event that is to be judged.
enum Wanted {
    Unknown,
    Plain,
    Data(Arc<KnownType>, bytes::Bytes),
}

impl Wanted {
    fn of(known: &Known, event: &NewEvent) -> Wanted {
        match known.types.get(event.kind.as_str()) {
            None => Wanted::Unknown,
            Some(found) if found.schema.is_none() => Wanted::Plain,
            Some(found) => Wanted::Data(Arc::clone(found), event.data.as_bytes().clone()),
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Wanted::Unknown | Wanted::Plain => 0,
            Wanted::Data(_, data) => data.len(),
        }
    }

    /// Whether no schema has to be compiled first.
    fn is_compiled(&self) -> bool {
        match self {
            Wanted::Unknown | Wanted::Plain => true,
            Wanted::Data(known, _) => known.compiled.get().is_some(),
        }
    }

    fn unknown(&self) -> Option<Misfit> {
        let is_unknown = matches!(self, Wanted::Unknown);
        let detail = "the type is not in the catalogue".to_owned();
        is_unknown.then_some(Misfit { reason: MisfitReason::UnknownType, pointer: None, detail })
    }
}

/// The fault of each event; `None` if that takes more than `steps_max` steps in all.
fn judged(wanted: &[Wanted], steps_max: u64) -> Option<Vec<Option<Misfit>>> {
    let mut steps = 0u64;
    let mut faults = Vec::with_capacity(wanted.len());
    for one in wanted {
        let Wanted::Data(known, data) = one else {
            faults.push(one.unknown());
            continue;
        };
        let Some(schema) = known.compiled() else {
            faults.push(None);
            continue;
        };
        // It was checked to be JSON when it was received.
        let Ok(value) = serde_json::from_slice::<Value>(data) else {
            faults.push(None);
            continue;
        };
        let needed = schema.steps(&value);
        steps = steps.saturating_add(needed);
        if steps > steps_max {
            return None;
        }
        faults.push(match needed > SCHEMA_STEPS_MAX || steps > BATCH_SCHEMA_STEPS_MAX {
            true => {
                let detail = "it is too large to be checked with this schema".to_owned();
                Some(Misfit { reason: MisfitReason::TooMuchWork, pointer: None, detail })
            }
            false => schema.fault(&value),
        });
    }
    Some(faults)
}

/// Reads the catalogue of a tenant: its own types and the server's, and what it does with events that do not fit.
async fn read(state: &ApiState, tenant: &TenantId, now: Timestamp) -> Result<Known, Problem> {
    let own = own_conducts(state, tenant).await?;
    let conducts = own.over(state.settings().conducts);
    let mut known = Known { conducts, types: HashMap::new(), bytes: 0, read_at: now };
    if conducts.accept_all() {
        return Ok(known);
    }
    // The server's first: a tenant's own type holds over it.
    for scope in [None, Some(tenant)] {
        let mut page = PageRequest { limit: postrider_domain::limits::PAGE_MAX, cursor: None };
        loop {
            let (kind, order) = (DocumentKind::EventType, DocumentOrder::Ascending);
            let found = state.store().documents(kind, scope, order, &page).await?;
            for document in found.items {
                let stored: StoredType =
                    serde_json::from_str(&document.body).map_err(|_| Problem::internal())?;
                known.bytes += document.body.len();
                let known_type = KnownType { schema: stored.schema, compiled: OnceLock::new() };
                known.types.insert(document.name, Arc::new(known_type));
            }
            page.cursor = found.next;
            if page.cursor.is_none() {
                break;
            }
        }
    }
    Ok(known)
}

/// A tenant's own choices.
pub(crate) async fn own_conducts(
    state: &ApiState,
    tenant: &TenantId,
) -> Result<OwnConducts, Problem> {
    let kind = DocumentKind::EventConducts;
    let stored = state.store().document(kind, Some(tenant), CONDUCTS).await?;
    let Some(stored) = stored else { return Ok(OwnConducts::default()) };
    serde_json::from_str(&stored.body).map_err(|_| Problem::internal())
}
