//! Settings that are valid alone but not together.

use std::num::NonZeroU32;
use std::time::Duration;

use postrider_api::Quota;
use postrider_domain::egress::is_nat64_length;
use postrider_domain::limits::BATCH_BODY_BYTES_MAX;
use postrider_store::postgres::PostgresOptions;

use super::alerts::{is_mail_server, is_sender};
use super::fault::{Fault, Origin};
use super::{Config, Loaded, SmtpTls, StoreChoice};

const MINUTE: u64 = 60;
const DAY: u64 = 24 * 60 * MINUTE;

/// A rule about the whole configuration: the setting that is reported, the condition, and the error
/// text.
type Rule = (&'static str, fn(&Config) -> bool, &'static str);

const RULES: &[Rule] = &[
    (
        "time_scale",
        |c| c.dev || c.time_scale == NonZeroU32::MIN,
        "is for demonstrations and needs --dev: it would end real retries early",
    ),
    (
        "node",
        |c| c.node.as_deref().is_none_or(crate::serve::is_node_name),
        "must have 1 to 63 letters, digits, `-`, `_` or `.`",
    ),
    ("postgres.connections", |c| c.postgres.connections >= 2, "must be at least 2"),
    (
        "store",
        |c| !matches!(&c.store, StoreChoice::Postgres(url) if PostgresOptions::check(url).is_err()),
        "must be an address such as \"postgres://user:password@host:5432/database\"",
    ),
    (
        "admin_key",
        |c| c.admin_key.as_deref().is_none_or(is_admin_key),
        "must have 24 to 256 printable characters",
    ),
    ("dns.ttl_min", |c| c.dns.ttl_min <= c.dns.ttl_max, "must not be longer than dns.ttl_max"),
    (
        "dns.timeout",
        |c| c.dns.timeout < c.policy.attempt.deadline,
        "must be shorter than attempt.deadline, so that our resolver's fault is not the receiver's",
    ),
    (
        "tls.client_certificate",
        |c| c.tls.client_certificate.is_none() || c.tls.client_key.is_some(),
        "needs tls.client_key beside it",
    ),
    (
        "tls.client_key",
        |c| c.tls.client_key.is_none() || c.tls.client_certificate.is_some(),
        "needs tls.client_certificate beside it",
    ),
    (
        "server.tls_cert",
        |c| c.server.tls_cert.is_none() || c.server.tls_key.is_some(),
        "needs server.tls_key beside it",
    ),
    (
        "server.tls_key",
        |c| c.server.tls_key.is_none() || c.server.tls_cert.is_some(),
        "needs server.tls_cert beside it",
    ),
    (
        "egress.nat64_prefix",
        |c| c.egress.nat64_prefix.is_none_or(|prefix| is_nat64_length(prefix.prefix_len())),
        "must have a length of 32, 40, 48, 56, 64 or 96",
    ),
    ("proxy.url", |c| c.proxy_options().is_ok(), "must be http://host:port or socks5://host:port"),
    (
        "proxy.password",
        |c| c.proxy.password.is_none() || c.proxy.user.is_some(),
        "needs proxy.user beside it",
    ),
    (
        "engine.in_flight_max",
        |c| {
            let reserved = c.engine.first_lane_reserved.checked_add(c.engine.retry_lane_reserved);
            reserved.is_some_and(|reserved| reserved < c.engine.in_flight_max)
        },
        "must be more than engine.first_lane_reserved and engine.retry_lane_reserved together",
    ),
    (
        "engine.destination_in_flight_start",
        |c| c.engine.destination_in_flight_start >= 1,
        "must be at least 1",
    ),
    (
        "engine.destination_in_flight_max",
        |c| c.engine.destination_in_flight_max >= c.engine.destination_in_flight_start,
        "must not be less than engine.destination_in_flight_start",
    ),
    ("engine.resident_max", |c| c.engine.resident_max >= 1000, "must be at least 1000"),
    ("engine.lane_resident_max", |c| c.engine.lane_resident_max >= 1, "must be at least 1"),
    (
        "metrics.key",
        |c| c.metrics.key.as_deref().is_none_or(is_admin_key),
        "must have 24 to 256 printable characters",
    ),
    (
        "limits.tenant_requests_in_progress_max",
        |c| is_quota(c.api.in_progress, 1),
        "must be at least 1, and not more than limits.requests_in_progress_max",
    ),
    (
        "limits.tenant_request_bytes_max",
        |c| is_quota(c.api.request_bytes, BATCH_BODY_BYTES_MAX),
        "must be at least 16777216, the size of a batch, and not more than limits.request_bytes_max",
    ),
    (
        "limits.tenant_answer_bytes_max",
        |c| is_quota(c.api.answer_bytes, BATCH_BODY_BYTES_MAX),
        "must be at least 16777216, and not more than limits.answer_bytes_max",
    ),
    (
        "limits.tenant_streams_max",
        |c| is_quota(c.api.streams, 1),
        "must be at least 1, and not more than limits.streams_max",
    ),
    (
        "session.lifetime",
        |c| (MINUTE..=30 * DAY).contains(&c.api.session_lifetime.as_secs()),
        "must be one minute to 30 days",
    ),
    ("limits.key_sessions", |c| c.api.key_sessions_max >= 1, "must be at least 1"),
    ("limits.tenant_portal_links", |c| c.api.tenant_portal_links_max >= 1, "must be at least 1"),
    ("http.headers_max", |c| (10..=1000).contains(&c.http.headers_max), "must be 10 to 1000"),
    (
        "http.header_bytes_max",
        |c| (8 * 1024..=1024 * 1024).contains(&c.http.header_bytes_max),
        "must be 8192 to 1048576",
    ),
    ("http.connections_max", |c| c.http.connections_max >= 1, "must be at least 1"),
    (
        "http.connections_per_address_max",
        |c| c.http.connections_per_address_max >= 1,
        "must be at least 1",
    ),
    ("http.idle_timeout", |c| !c.http.idle_timeout.is_zero(), "must be longer than nothing"),
    ("http.write_timeout", |c| !c.http.write_timeout.is_zero(), "must be longer than nothing"),
    (
        "alerts.smtp_server",
        |c| !c.alerts.has_email() || c.alerts.smtp.server.is_some(),
        "is needed for targets with `email`",
    ),
    (
        "alerts.smtp_server",
        |c| c.alerts.smtp.server.as_deref().is_none_or(is_mail_server),
        "must be a host, or a host with a port, such as smtp.example.com:587",
    ),
    (
        "alerts.email_from",
        |c| !c.alerts.has_email() || c.alerts.smtp.from.is_some(),
        "is needed for targets with `email`",
    ),
    (
        "alerts.email_from",
        |c| c.alerts.smtp.from.as_deref().is_none_or(is_sender),
        "must be an address such as \"Postrider <postrider@example.com>\"",
    ),
    (
        "alerts.smtp_password",
        |c| c.alerts.smtp.password.is_some() == c.alerts.smtp.user.is_some(),
        "and alerts.smtp_user go together",
    ),
    (
        "alerts.smtp_password",
        |c| c.alerts.smtp.password.is_none() || c.alerts.smtp.tls != SmtpTls::Off,
        "would be sent in the clear: alerts.smtp_tls must not be \"off\"",
    ),
    ("alerts.hourly_max", |c| c.alerts.policy.hourly_max >= 1, "must be at least 1"),
    (
        "alerts.repeat_every",
        |c| c.alerts.policy.repeat_every >= c.alerts.policy.interval_min,
        "must not be shorter than alerts.interval_min",
    ),
    (
        "telemetry.otlp_endpoint",
        |c| c.telemetry.otlp_endpoint.as_deref().is_none_or(is_collector),
        "must be a URL such as http://127.0.0.1:4318, without a user name",
    ),
    (
        "telemetry.otlp_metrics",
        |c| !c.telemetry.otlp_metrics || c.telemetry.otlp_endpoint.is_some(),
        "needs telemetry.otlp_endpoint beside it",
    ),
    (
        "telemetry.otlp_metrics_interval",
        |c| c.telemetry.otlp_metrics_interval >= Duration::from_secs(1),
        "must be at least 1s",
    ),
    (
        "telemetry.log",
        |c| crate::telemetry::filter(&c.telemetry.log).is_ok(),
        "must be error, warn, info, debug, trace, or a filter such as \"info,postrider=debug\"",
    ),
];

/// Finds all violated rules.
pub(super) fn whole(loaded: &mut Loaded, faults: &mut Vec<Fault>) {
    loaded.config.egress.dev = loaded.config.dev;
    if loaded.config.dev && loaded.origin("workfront.enabled") == Origin::Default {
        loaded.config.api.workfront = true;
    }
    for (key, holds, problem) in RULES {
        if !holds(&loaded.config) {
            faults.push(Fault::new(loaded.origin(key), format!("`{key}` {problem}")));
        }
    }
    if let Err(error) = loaded.config.policy.validate() {
        let problem = format!("`{}` {}", error.setting, error.problem);
        faults.push(Fault::new(loaded.origin(error.setting), problem));
    }
}

/// Whether a tenant's quota is at least `least` and not more than the server's.
fn is_quota(quota: Quota, least: usize) -> bool {
    (least..=quota.in_total).contains(&quota.per_tenant)
}

/// Whether a text is the URL of a collector.
fn is_collector(text: &str) -> bool {
    url::Url::parse(text).is_ok_and(|url| {
        matches!(url.scheme(), "http" | "https") && url.has_host() && url.username().is_empty()
    })
}

/// Whether a text can be an admin key.
fn is_admin_key(key: &str) -> bool {
    (24..=256).contains(&key.chars().count()) && !key.chars().any(char::is_control)
}
