//! Resolves names to addresses.
//!
//! An answer is cached for its time to live, within narrow bounds; concurrent requests for one name
//! cause one query. Nothing is vetted here: every user of an answer vets it, each time.
//!
//! If a name is not answered, its own servers may be down, or our resolver. The resolver is then
//! asked for the root's name servers, which every resolver knows: only if that is not answered
//! either, the fault is ours.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hickory_resolver::config::{
    ConnectionConfig, NameServerConfig, ResolveHosts, ResolverConfig, ResolverOpts,
};
use hickory_resolver::lookup::Lookup;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::proto::op::ResponseCode;
use hickory_resolver::proto::rr::{Name, RecordType};
use hickory_resolver::{Resolver as Hickory, TokioResolver};
use postrider_domain::attempt::{FailureClass, OwnFaultKind, Phase};
use tokio::sync::OnceCell;
use tokio::time::{Instant, timeout};

use crate::clock::instant_now;
use crate::fault::{self, Fault};
use crate::options::{DnsOptions, Nameservers};

/// A name with more addresses is refused: all of them would have to be vetted for each request.
const ADDRESSES_MAX: usize = 64;

/// Why the resolver cannot be set up.
#[derive(Debug, thiserror::Error)]
#[error("the resolver's configuration cannot be used: {0}")]
pub struct ResolverSetupError(#[from] NetError);

/// The result of a lookup.
type Outcome = Result<Arc<[IpAddr]>, Fault>;

#[derive(Debug)]
struct Known {
    outcome: Outcome,
    expires_at: Instant,
}

/// A resolver with a cache.
pub(crate) struct Resolver {
    hickory: TokioResolver,
    options: DnsOptions,
    names: Mutex<HashMap<Arc<str>, Arc<OnceCell<Known>>>>,
    alive: Mutex<Option<Arc<OnceCell<bool>>>>,
}

impl Resolver {
    pub(crate) fn new(options: DnsOptions) -> Result<Self, ResolverSetupError> {
        let provider = TokioRuntimeProvider::default();
        let mut builder = match &options.nameservers {
            Nameservers::System => TokioResolver::builder(provider)?,
            Nameservers::Only(addresses) => {
                let servers = addresses.iter().map(|address| {
                    let at_port = |mut connection: ConnectionConfig| {
                        connection.port = address.port();
                        connection
                    };
                    let connections =
                        vec![at_port(ConnectionConfig::udp()), at_port(ConnectionConfig::tcp())];
                    NameServerConfig::new(address.ip(), true, connections)
                });
                let config = ResolverConfig::from_name_servers(servers.collect());
                let mut builder = Hickory::builder_with_config(config, provider);
                builder.options_mut().use_hosts_file = ResolveHosts::Never;
                builder
            }
        };
        configure(builder.options_mut(), &options);
        let (names, alive) = (Mutex::default(), Mutex::default());
        Ok(Resolver { hickory: builder.build()?, options, names, alive })
    }

    /// The addresses of a name, at least one, each once.
    pub(crate) async fn resolve(&self, name: &Arc<str>) -> Outcome {
        let cell = self.cell(name);
        match cell.get() {
            Some(known) => known.outcome.clone(),
            // If the request that runs the query is dropped, the next waiting one runs it.
            None => cell.get_or_init(|| Box::pin(self.ask(name))).await.outcome.clone(),
        }
    }

    /// The cache entry of a name.
    fn cell(&self, name: &Arc<str>) -> Arc<OnceCell<Known>> {
        let now = instant_now();
        let is_fresh = |cell: &OnceCell<Known>| match cell.get() {
            Some(known) => now < known.expires_at,
            None => true,
        };
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(cell) = names.get(name).filter(|cell| is_fresh(cell)) {
            return Arc::clone(cell);
        }
        if names.len() >= self.options.cache_names_max && !names.contains_key(name) {
            names.retain(|_, cell| is_fresh(cell));
            if names.len() >= self.options.cache_names_max {
                // All entries are still valid: clear everything rather than search for the oldest
                // each time.
                names.clear();
            }
        }
        let cell = Arc::new(OnceCell::new());
        names.insert(Arc::clone(name), Arc::clone(&cell));
        cell
    }

    async fn ask(&self, name: &str) -> Known {
        let (outcome, ttl) = match self.look_up(name).await {
            Ok((addresses, ttl)) => {
                (Ok(addresses), ttl.clamp(self.options.ttl_min, self.options.ttl_max))
            }
            Err(fault) => (Err(fault), self.options.ttl_min),
        };
        Known { outcome, expires_at: instant_now() + ttl }
    }

    async fn look_up(&self, name: &str) -> Result<(Arc<[IpAddr]>, Duration), Fault> {
        let mut fqdn = Name::from_ascii(name)
            .map_err(|error| Fault::theirs(FailureClass::Dns, error.to_string()))?;
        // Search domains must not be appended to the name.
        fqdn.set_fqdn(true);
        let lookup = |record_type| {
            let query = self.hickory.lookup(fqdn.clone(), record_type);
            async move { timeout(self.options.timeout, query).await.unwrap_or(Err(NetError::Timeout)) }
        };
        let (v6, v4) =
            futures_util::future::join(lookup(RecordType::AAAA), lookup(RecordType::A)).await;
        match (v6, v4) {
            (Err(v6), Err(v4)) => Err(self.blame([v6, v4]).await),
            (v6, v4) => addresses_of(v6.iter().chain(v4.iter())),
        }
    }

    /// Decides whose fault it is that there is no address.
    async fn blame(&self, errors: [NetError; 2]) -> Fault {
        // An answer about the name says more than a timeout.
        let (silent, worst) = match errors {
            [v6, v4] if is_answer(&v4) && is_answer(&v6) => (false, v4),
            [v6, v4] if is_answer(&v4) => (true, v6),
            [_, v4] => (true, v4),
        };
        if !silent {
            return Fault::theirs(FailureClass::Dns, describe(&worst));
        }
        if let NetError::Io(error) = &worst
            && fault::is_resources(error)
        {
            return Fault::ours(OwnFaultKind::Resources, error.to_string());
        }
        // If we could not even send a query, there is no need to check the resolver.
        let is_asked = !matches!(worst, NetError::Io(_) | NetError::NoConnections | NetError::Busy);
        if is_asked && self.is_alive().await {
            let is_timeout = matches!(worst, NetError::Timeout);
            let class =
                if is_timeout { FailureClass::Timeout(Phase::Dns) } else { FailureClass::Dns };
            return Fault::theirs(class, worst.to_string());
        }
        Fault::ours(OwnFaultKind::Resolver, worst.to_string())
    }

    /// Whether the resolver answers at all: every resolver knows the root's servers. One query for
    /// all concurrent callers.
    async fn is_alive(&self) -> bool {
        let cell = {
            let mut alive = self.alive.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(alive.get_or_insert_default())
        };
        let is_alive = *cell
            .get_or_init(|| async {
                let query = self.hickory.lookup(Name::root(), RecordType::NS);
                match timeout(self.options.liveness_timeout, query).await {
                    Ok(Ok(_)) => true,
                    Ok(Err(error)) => is_answer(&error),
                    Err(_) => false,
                }
            })
            .await;
        let mut alive = self.alive.lock().unwrap_or_else(PoisonError::into_inner);
        if alive.as_ref().is_some_and(|current| Arc::ptr_eq(current, &cell)) {
            *alive = None;
        }
        is_alive
    }
}

/// Whether the resolver with these options answers at all.
pub async fn resolver_answers(options: &DnsOptions) -> Result<bool, ResolverSetupError> {
    Ok(Resolver::new(options.clone())?.is_alive().await)
}

fn configure(opts: &mut ResolverOpts, options: &DnsOptions) {
    // Two tries within the time limit of a name.
    opts.timeout = options.timeout / 2;
    opts.attempts = 1;
    // Our own cache is used: hickory's would keep answers too long.
    opts.cache_size = 0;
    opts.max_active_requests = 1024;
    opts.preserve_intermediates = true;
}

fn addresses_of<'a>(
    lookups: impl Iterator<Item = &'a Lookup>,
) -> Result<(Arc<[IpAddr]>, Duration), Fault> {
    let mut addresses = Vec::new();
    let mut ttl_s = u32::MAX;
    for record in lookups.flat_map(Lookup::answers) {
        ttl_s = ttl_s.min(record.ttl);
        if let Some(address) = record.data.ip_addr()
            && !addresses.contains(&address)
        {
            addresses.push(address);
        }
    }
    if addresses.is_empty() {
        return Err(Fault::theirs(FailureClass::Dns, "the name has no address"));
    }
    if addresses.len() > ADDRESSES_MAX {
        return Err(Fault::theirs(FailureClass::Dns, "the name has too many addresses"));
    }
    Ok((addresses.into(), Duration::from_secs(ttl_s.into())))
}

/// Whether the resolver worked, although there is no address.
fn is_answer(error: &NetError) -> bool {
    const OURS: [ResponseCode; 3] =
        [ResponseCode::Refused, ResponseCode::NotImp, ResponseCode::FormErr];
    let is_ours =
        matches!(error, NetError::Dns(DnsError::ResponseCode(code)) if OURS.contains(code));
    matches!(error, NetError::Dns(_)) && !is_ours
}

fn describe(error: &NetError) -> String {
    if let NetError::Dns(DnsError::NoRecordsFound(none)) = error {
        return format!("no address: {}", none.response_code);
    }
    error.to_string()
}
