//! The table of all settings.
//!
//! One line for each setting: its key, the field that it sets, and its help text. `(secret)` marks
//! a value that is never shown, `(sensitive)` one with secrets in it, `(live)` one that a running server applies at a reload. The syntax
//! of a value follows from the field's type (see [`super::value`]).

use serde_json::Value as Json;

use super::Config;
use super::value::{Raw, Value};

/// One setting.
pub(super) struct Setting {
    /// The key in the file.
    pub(super) key: &'static str,
    /// The help text.
    pub(super) help: &'static str,
    /// Whether its value must never be shown.
    pub(super) secret: bool,
    /// Whether there are secrets in its value, which are hidden where it is shown.
    pub(super) sensitive: bool,
    /// Whether a running server applies a change (SIGHUP); otherwise it needs a restart.
    pub(super) live: bool,
    /// Parses and sets a value; the error says which values are valid.
    pub(super) set: fn(&mut Config, &Raw) -> Result<(), String>,
    /// The value as JSON; `null` if it is not set.
    pub(super) show: fn(&Config) -> Json,
    /// The same with its secrets hidden.
    pub(super) masked: fn(&Config) -> Json,
    /// Copies the value from another configuration.
    pub(super) copy: fn(&mut Config, &Config),
}

macro_rules! is {
    ($mark:ident,) => {
        false
    };
    (secret, secret) => {
        true
    };
    (live, live) => {
        true
    };
    (sensitive, sensitive) => {
        true
    };
    ($mark:ident, $other:ident) => {
        false
    };
}

macro_rules! settings {
    ($($key:literal $(($mark:ident))? = $($field:ident).+, $help:literal;)*) => {
        &[$(Setting {
            key: $key,
            help: $help,
            secret: is!(secret, $($mark)?),
            sensitive: is!(sensitive, $($mark)?),
            live: is!(live, $($mark)?),
            set: |config, raw| {
                Value::take(&mut config.$($field).+, raw)
            },
            show: |config| Value::show(&config.$($field).+),
            masked: |config| Value::masked(&config.$($field).+),
            copy: |config, from| config.$($field).+.clone_from(&from.$($field).+),
        }),*]
    };
}

/// All settings, in the order in which they are shown.
#[rustfmt::skip]
pub(super) const ALL: &[Setting] = settings! {
    "listen" = listen, "address of the API and the dashboard";
    "data_dir" = data_dir, "directory for all data on this machine";
    "store" = store, "the store: \"embedded\", or postgres://user:password@host/database";
    "node" = node, "name of this node in a cluster; by default generated at the first start and kept in data_dir";
    "admin_key" (secret) = admin_key, "admin key to use instead of a generated one";
    "keyring" = keyring, "file with the keys that seal secrets at rest; by default `keyring` in data_dir";
    "operator_tenant" = engine.operator_tenant, "tenant whose subscriptions to postrider.* events get those about every tenant's destinations";
    "dev" = dev, "for development: allows receivers on loopback, and plain http";
    "time_scale" = time_scale, "divides the policy's durations, for demonstrations; with dev only";

    "postgres.connections" = postgres.connections, "connections to the database, beside the one that listens";
    "postgres.listen_url" (secret) = postgres.listen_url, "address to listen for notifications of other nodes, past a pooler; by default that of `store`";
    "attempt.deadline" (live) = policy.attempt.deadline, "time limit of one attempt: DNS, connect, TLS, request, response";
    "attempt.response_body_bytes_max" (live) = policy.attempt.response_body_bytes_max, "how much of a response's body is kept";
    "retry.unit" (live) = policy.retry.unit, "retry n falls due (2^n - 1) units after the first attempt";
    "retry.max" (live) = policy.retry.max, "how many retries there are";
    "retry.measured_from" (live) = policy.retry.measured_from, "from which attempt the offsets count: the first or the previous one";
    "retry.jitter" (live) = policy.retry.jitter, "share of its delay by which a retry may be moved later";
    "circuit.disable_share" (live) = policy.circuit.disable_share, "disabled when more than this share of the attempts failed ...";
    "circuit.disable_grace" (live) = policy.circuit.disable_grace, "... and there were more attempts than this";
    "circuit.disable_consecutive" (live) = policy.circuit.disable_consecutive, "disabled at this many consecutive failures";
    "circuit.probe_interval" (live) = policy.circuit.probe_interval, "time between two probes of a disabled destination";
    "circuit.freeze_over_consecutive" (live) = policy.circuit.freeze_over_consecutive, "frozen with more consecutive failures than this ...";
    "circuit.freeze_after" (live) = policy.circuit.freeze_after, "... when the last success is longer ago than this";
    "circuit.freeze_consecutive" (live) = policy.circuit.freeze_consecutive, "frozen at this many consecutive failures, whatever the time";
    "recovery.mode" (live) = policy.recovery.mode, "whether waiting deliveries follow their slots, or drain at once by a ramp";
    "recovery.ramp_step" (live) = policy.recovery.ramp_step, "how long a step of the ramp lasts";
    "recovery.dead" (live) = policy.recovery.dead, "what died of an outage is kept, or replayed when the destination is enabled again";
    "recovery.dead_max_age" (live) = policy.recovery.dead_max_age, "what was accepted longer ago than this is not replayed by itself";
    "recovery.dead_per_second" (live) = policy.recovery.dead_per_second, "how many of the dead of one destination are replayed in a second";
    "mass_failure.window" (live) = policy.mass_failure.window, "when so many fail within this time, the fault is probably ours";
    "mass_failure.destinations_min" (live) = policy.mass_failure.destinations_min, "it takes at least so many destinations";
    "mass_failure.share" (live) = policy.mass_failure.share, "it takes more than this share of them";
    "mass_failure.hold_max" (live) = policy.mass_failure.hold_max, "transitions are held no longer than this";
    "retention.finished" (live) = policy.retention.finished, "how long finished deliveries are kept";
    "policy_limits.retry_unit_min" (live) = policy.limits.retry_unit_min, "shortest retry unit that a subscription may have";
    "policy_limits.retry_max" (live) = policy.limits.retry_max, "most retries that a subscription may have";
    "policy_limits.retry_span_max" (live) = policy.limits.retry_span_max, "longest time from the first attempt to the last retry that a subscription may have";
    "policy_limits.attempt_deadline_max" (live) = policy.limits.attempt_deadline_max, "longest time limit of an attempt that a subscription may have";
    "policy_limits.dead_max_age_max" (live) = policy.limits.dead_max_age_max, "longest recovery.dead_max_age that a subscription may have";
    "policy_limits.rate_limit_max" (live) = policy.limits.rate_limit_max, "most requests a second to one destination, also where no subscription limits them; no limit unless set";

    "egress.allow_http" = egress.allow_http, "plain http to public addresses";
    "egress.allow" = egress.allow, "networks that are trusted although they are not public";
    "egress.own_addresses" = egress.own_addresses, "further addresses of this server, never contacted";
    "egress.nat64_prefix" = egress.nat64_prefix, "prefix of this network's NAT64";
    "proxy.url" = proxy.url, "proxy for all deliveries: http://host:port or socks5://host:port";
    "proxy.user" = proxy.user, "user name for the proxy";
    "proxy.password" (secret) = proxy.password, "password for the proxy";
    "dns.nameservers" = dns.nameservers, "name servers to ask";
    "dns.timeout" = dns.timeout, "time limit for resolving a name";
    "dns.liveness_timeout" = dns.liveness_timeout, "how long the resolver may take to show that it is alive";
    "dns.cache_names_max" = dns.cache_names_max, "names in the cache";
    "dns.ttl_min" = dns.ttl_min, "shortest time for which an answer is cached";
    "dns.ttl_max" = dns.ttl_max, "longest time for which an answer is cached";
    "tls.extra_roots" = tls.extra_roots, "file with root certificates that are trusted in addition to the platform's";
    "tls.client_certificate" = tls.client_certificate, "file with the client certificate for receivers";
    "tls.client_key" = tls.client_key, "file with the key of the client certificate";
    "transport.http2" = transport.http2, "whether HTTP/2 is offered to receivers";
    "transport.connect_stagger" = transport.connect_stagger, "how long to wait for one address before the next is tried in parallel";
    "transport.idle_timeout" = transport.pool.idle_timeout, "HTTP/1.1 connections are closed after this time without a request";
    "transport.http2_idle_timeout" = transport.pool.http2_idle_timeout, "HTTP/2 connections are closed after this time without a request";
    "transport.opening_per_host_max" = transport.pool.opening_per_host_max, "connections that are being opened at the same time to one host of one tenant";
    "transport.idle_per_host_max" = transport.pool.idle_per_host_max, "idle connections to one host of one tenant";
    "transport.idle_max" = transport.pool.idle_max, "idle connections in total";

    "engine.in_flight_max" = engine.in_flight_max, "attempts at the same time";
    "engine.first_lane_reserved" = engine.first_lane_reserved, "how many of them are reserved for first attempts";
    "engine.retry_lane_reserved" = engine.retry_lane_reserved, "how many of them are reserved for retries";
    "engine.destination_in_flight_start" = engine.destination_in_flight_start, "initial limit of attempts at the same time to one destination";
    "engine.destination_in_flight_max" = engine.destination_in_flight_max, "highest limit of attempts at the same time to one destination that answers quickly";
    "engine.quick_answer" = engine.quick_answer, "an answer within this time counts as quick";
    "engine.tenant_in_flight_max" = engine.tenant_in_flight_max, "attempts at the same time for one tenant; by default up to seven times the free ones";
    "engine.in_flight_bytes_max" = engine.in_flight_bytes_max, "bytes of payloads that are being sent at the same time";
    "engine.tenant_in_flight_bytes_max" = engine.tenant_in_flight_bytes_max, "bytes of one tenant's payloads that are being sent at the same time; by default up to seven times the free ones";
    "engine.matching_threads" = engine.matching_threads, "threads that match large events against filters; by default one fewer than the cores";
    "engine.resident_max" = engine.resident_max, "deliveries that are held in memory";
    "engine.lane_resident_max" = engine.lane_resident_max, "deliveries that are held in memory for each lane of a destination";
    "engine.payload_bytes_max" = engine.payload_bytes_max, "bytes of payloads that are held in memory";
    "engine.destination_idle" = engine.destination_idle, "a destination is evicted from memory when it was not used for this time";
    "engine.due_window" = engine.due_window, "how far ahead waiting deliveries are read into memory";
    "limits.tenant_events_per_second" = limits.tenant_events, "events that one tenant may send, and as many at once";
    "limits.tenant_requests_per_second" = limits.tenant_requests, "requests that one tenant may make, and as many at once";
    "limits.key_requests_per_second" = limits.key_requests, "requests that one key may make, and as many at once";
    "limits.tenant_requests_in_progress_max" = api.in_progress.per_tenant, "requests of one tenant that are executed at the same time";
    "limits.requests_in_progress_max" = api.in_progress.in_total, "requests of all tenants that are executed at the same time";
    "limits.tenant_request_bytes_max" = api.request_bytes.per_tenant, "bytes of one tenant's request bodies that are in memory";
    "limits.request_bytes_max" = api.request_bytes.in_total, "bytes of all request bodies that are in memory";
    "limits.tenant_answer_bytes_max" = api.answer_bytes.per_tenant, "bytes of answers that one tenant's clients have not read yet";
    "limits.answer_bytes_max" = api.answer_bytes.in_total, "bytes of answers that all clients have not read yet";
    "limits.tenant_streams_max" = api.streams.per_tenant, "streams (GET /v1/stream) of one tenant";
    "limits.streams_max" = api.streams.in_total, "streams of all tenants";
    "limits.tenant_changes_at_once" = api.tenant_mutations_max, "changes of one tenant that are carried out at the same time";
    "limits.changes_at_once" = api.mutations_max, "changes of all tenants together that are carried out at the same time";
    "limits.tenant_idempotent_answers" = api.tenant_answers_max, "answers for idempotency keys that are kept for one tenant; the oldest are removed";
    "limits.tenant_idempotent_answer_bytes" = api.tenant_answer_bytes_max, "bytes of these answers; the oldest are removed";
    "limits.tenant_audit_entries" = api.tenant_audit_max, "entries of the audit log that are kept for one tenant; the oldest are removed";
    "limits.tenant_audit_refused_entries" = api.tenant_audit_refused_max, "entries of changes that were refused; the oldest are removed";
    "limits.tenant_subscriptions" = engine.quotas.tenant_subscriptions, "subscriptions of one tenant";
    "limits.tenant_subscription_bytes" = engine.quotas.tenant_subscription_bytes, "bytes of one tenant's subscriptions, as they are stored";
    "limits.subscriptions" = engine.quotas.subscriptions, "subscriptions of all tenants";
    "limits.subscription_bytes" = engine.quotas.subscription_bytes, "bytes of all tenants' subscriptions, as they are stored; memory is a few times that";
    "limits.tenant_destinations" = engine.quotas.tenant_destinations, "destinations of one tenant";
    "limits.tenant_keys" = engine.quotas.tenant_keys, "keys of one tenant, and admin keys";
    "limits.tenants" = engine.quotas.tenants, "tenants";
    "limits.tenant_replays_running" = engine.quotas.tenant_replays_running, "bulk replays of one tenant that run at the same time";
    "limits.replays_running" = engine.quotas.replays_running, "bulk replays of all tenants that run at the same time";
    "limits.tenant_replays" = engine.quotas.tenant_replays, "bulk replays of one tenant that are kept; the oldest ended ones are removed";
    "limits.tenant_event_types" = engine.quotas.tenant_event_types, "event types of one tenant; those of the server have the same limit";
    "limits.tenant_event_type_bytes" = engine.quotas.tenant_event_type_bytes, "bytes of one tenant's event types, as they are stored";
    "limits.event_types" = engine.quotas.event_types, "event types of all tenants";
    "limits.tenant_erasures_open" = engine.quotas.tenant_erasures_open, "erasures of one tenant that are not finished";
    "limits.erasures_open" = engine.quotas.erasures_open, "erasures of all tenants that are not finished";
    "limits.tenant_queued" = engine.quotas.tenant_queued, "deliveries of one tenant that wait for their first attempt";
    "limits.tenant_unfinished" = engine.quotas.tenant_unfinished, "deliveries of one tenant that have not ended";
    "limits.tenant_unfinished_bytes" = engine.quotas.tenant_unfinished_bytes, "bytes of the events of these deliveries, once for each delivery (an estimate)";
    "limits.queued" = engine.quotas.queued, "deliveries of all tenants that wait for their first attempt";
    "limits.unfinished" = engine.quotas.unfinished, "deliveries of all tenants that have not ended";
    "limits.unfinished_bytes" = engine.quotas.unfinished_bytes, "bytes of the events of these deliveries, once for each delivery (an estimate)";
    "limits.key_sessions" = api.key_sessions_max, "sessions that one key may have; the oldest give way";
    "limits.sessions" = api.sessions_max, "sessions of all keys and portals";
    "limits.tenant_portal_links" = api.tenant_portal_links_max, "portal links of one tenant, until they and their sessions end; the oldest give way";
    "limits.portal_links" = api.portal_links_max, "portal links of all tenants";
    "session.lifetime" = api.session_lifetime, "how long somebody who signed in stays signed in";
    "portal.frame_ancestors" = api.frame_ancestors, "origins whose pages may frame the portal, such as [\"https://app.example.com\"]; none unless set";
    "catalogue.unknown_types" = api.conducts.unknown_types, "what is done with events of a type that is not in the catalogue, where a tenant has made no choice";
    "catalogue.misfits" = api.conducts.misfits, "what is done with events whose data does not fit the schema of their type, where a tenant has made no choice";
    "erasure.scrub_interval" = api.scrub_interval, "shortest time between two rewrites of the store's files after payloads were erased";
    "idempotency.memory" = api.idempotency_memory, "how long the answer for an idempotency key is kept";
    "http.header_read_timeout" = http.header_read_timeout, "time limit for the head of a request; for the first one including TLS and protocol detection";
    "http.idle_timeout" = http.idle_timeout, "a connection to the API is closed after this time without a request";
    "http.write_timeout" = http.write_timeout, "a client must read the next 64 KiB of its answer within this time";
    "http.discard_bytes_max" = http.discard_bytes_max, "bytes of a refused request's body that are read and discarded, so that the client can read the answer";
    "http.discard_timeout" = http.discard_timeout, "how long discarding may take";
    "http.headers_max" = http.headers_max, "headers of a request to the API";
    "http.header_bytes_max" = http.header_bytes_max, "bytes of a request's head";
    "http.connections_max" = http.connections_max, "connections to the API at the same time";
    "http.connections_per_address_max" = http.connections_per_address_max, "connections of one address at the same time; behind a trusted proxy, requests of one forwarded address";
    "server.health_listen" = server.health_listen, "address of /healthz, /readyz and /metrics alone, or \"off\"; on 127.0.0.1, 10000 above the port of `listen`, unless set";
    "server.public_url" = api.public_url, "where browsers reach this server, for portal links; what the request for a link names unless set";
    "server.tls_cert" = server.tls_cert, "file with the certificate chain of the API, in PEM; read again when it changes";
    "server.tls_key" = server.tls_key, "file with its private key, in PEM";
    "server.trusted_proxies" = server.trusted_proxies, "networks of proxies whose x-forwarded-for, x-forwarded-proto and forwarded headers are used";
    "workfront.enabled" = api.workfront, "the API of Adobe Workfront's event subscriptions, under /attask/; with dev it is on unless set";
    "metrics.listen" = metrics.listen, "address of /metrics alone, which is then served nowhere else";
    "metrics.key" (secret) = metrics.key, "key for /metrics, as a bearer token; by default none is needed";
    "alerts.targets" (sensitive) = alerts.targets, "who is told when something is wrong: a list of targets, each with `name` and one of `url` (with `secret`), `slack` and `email`; and, if it wants less, `severity`, `kinds`, `tenants`";
    "alerts.group_window" = alerts.policy.group_window, "what happens within this time is told in one message";
    "alerts.interval_min" = alerts.policy.interval_min, "shortest time between two messages to a target; doubles up to an hour while there is news";
    "alerts.resolve_after" = alerts.policy.resolve_after, "how long everything must be well before that is told";
    "alerts.repeat_every" = alerts.policy.repeat_every, "how often a target is reminded of what lasts";
    "alerts.hourly_max" = alerts.policy.hourly_max, "messages to a target in an hour";
    "alerts.disk_free_min" = alerts.disk_free_min, "share of the data directory's disk that must be free";
    "alerts.smtp_server" = alerts.smtp.server, "mail server for e-mails, such as smtp.example.com or smtp.example.com:587";
    "alerts.smtp_tls" = alerts.smtp.tls, "whether the connection to it switches to TLS, begins with it, or is not encrypted";
    "alerts.smtp_user" = alerts.smtp.user, "user name for the mail server";
    "alerts.smtp_password" (secret) = alerts.smtp.password, "password for the mail server";
    "alerts.email_from" = alerts.smtp.from, "sender of e-mails";
    "shutdown.deadline" = shutdown.deadline, "how long the shutdown waits for attempts in flight";
    "telemetry.log" (live) = telemetry.log, "what is logged: error, warn, info, debug, trace, or a filter such as info,postrider=debug";
    "telemetry.format" = telemetry.format, "format of log lines";
    "telemetry.attempts" = telemetry.attempts, "one log line for each attempt";
    "telemetry.access" = telemetry.access, "one log line for each request to the API: method, path without query, status, time";
    "telemetry.otlp_endpoint" = telemetry.otlp_endpoint, "collector of traces and metrics (OTLP over HTTP), such as http://127.0.0.1:4318";
    "telemetry.otlp_token" (secret) = telemetry.otlp_token, "bearer token for the collector";
    "telemetry.otlp_sample" = telemetry.otlp_sample, "share of the traces that begin here that is recorded";
    "telemetry.otlp_metrics" = telemetry.otlp_metrics, "whether the collector is sent the metrics too";
    "telemetry.otlp_metrics_interval" = telemetry.otlp_metrics_interval, "time between two requests with metrics";
};

/// The setting with this key. `recovery` alone means `recovery.mode`.
pub(super) fn find(key: &str) -> Option<&'static Setting> {
    let key = if key == "recovery" { "recovery.mode" } else { key };
    ALL.iter().find(|setting| setting.key == key)
}

/// Whether the key is a group of settings.
pub(super) fn is_group(key: &str) -> bool {
    ALL.iter()
        .any(|setting| setting.key.strip_prefix(key).is_some_and(|rest| rest.starts_with('.')))
}

/// The most similar key or group, for a typing error.
pub(super) fn nearest(key: &str) -> Option<&'static str> {
    let groups = ALL.iter().filter_map(|setting| Some(setting.key.split_once('.')?.0));
    (ALL.iter().map(|setting| setting.key).chain(groups))
        .map(|known| (strsim::jaro_winkler(key, known), known))
        .filter(|(likeness, _)| *likeness > 0.85)
        .max_by(|(a, _), (b, _)| a.total_cmp(b))
        .map(|(_, key)| key)
}

/// The environment variable of this key.
pub(super) fn variable(key: &str) -> String {
    format!("POSTRIDER_{}", key.replace('.', "__").to_ascii_uppercase())
}
