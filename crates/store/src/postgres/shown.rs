//! The form of a database's address that may be shown in the configuration, in logs and in errors.
//!
//! **No part of a password is ever shown**, even if the address cannot be parsed, because mistyped
//! addresses are the ones that appear in error messages. A setting is shown if libpq or Postrider
//! knows its name and it holds no secret. All other settings are masked, name and value, because an
//! unescaped `&` in a password makes the rest of it look like settings.

/// Replaces everything that is not shown.
const MASK: &str = "***";

/// Settings of an address whose values are not secret.
const HARMLESS: &[&str] = &[
    "application_name",
    "channel_binding",
    "connect_timeout",
    "dbname",
    "host",
    "hostaddr",
    "keepalives",
    "keepalives_idle",
    "keepalives_interval",
    "keepalives_retries",
    "load_balance_hosts",
    "pgbouncer",
    "port",
    "sslmode",
    "sslnegotiation",
    "sslrootcert",
    "target_session_attrs",
    "tcp_user_timeout",
    "user",
];

/// The parts of an address.
struct Parts<'a> {
    scheme: &'a str,
    user: Option<&'a str>,
    has_password: bool,
    /// Hosts, ports and the database.
    place: &'a str,
    query: Option<&'a str>,
}

/// An address without its password and without its settings, for messages.
pub fn shown(url: &str) -> String {
    match parts(url) {
        Ok(Parts { scheme, user: Some(user), place, .. }) => format!("{scheme}://{user}@{place}"),
        Ok(Parts { scheme, user: None, place, .. }) => format!("{scheme}://{place}"),
        Err(shown) => shown,
    }
}

/// An address with all its parts, but with its password masked.
pub fn masked(url: &str) -> String {
    let Parts { scheme, user, has_password, place, query } = match parts(url) {
        Ok(parts) => parts,
        Err(shown) => return shown,
    };
    let password = if has_password { ":***" } else { "" };
    let user = user.map(|user| format!("{user}{password}@")).unwrap_or_default();
    let Some(query) = query else { return format!("{scheme}://{user}{place}") };
    let settings: Vec<String> = query.split('&').map(setting).collect();
    format!("{scheme}://{user}{place}?{}", settings.join("&"))
}

fn setting(pair: &str) -> String {
    match pair.split_once('=') {
        Some((name, _)) if HARMLESS.contains(&name) => pair.to_owned(),
        Some(("password", _)) => format!("password={MASK}"),
        Some(_) | None => MASK.to_owned(),
    }
}

/// Splits an address; the error is the text to show instead of an address that cannot be split.
fn parts(url: &str) -> Result<Parts<'_>, String> {
    let Some((scheme, rest)) = url.split_once("://") else { return Err("a database".to_owned()) };
    if scheme.is_empty() || !scheme.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return Err("a database".to_owned());
    }
    let hidden = || format!("{scheme}://{MASK}");
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, tail) = rest.split_at(end);
    let (who, hosts) = match authority.rsplit_once('@') {
        Some((who, hosts)) => (Some(who), hosts),
        None => (None, authority),
    };
    let (path, query) = match tail.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (tail, None),
    };
    // A `/`, `?` or `#` that is not escaped ends the password early, so its rest may be here,
    // before an `@`. A port that is not a number may be a password whose `@` is missing.
    let is_port = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit());
    let are_hosts = hosts.split(',').all(|host| match host.strip_prefix('[') {
        Some(v6) => v6.split_once(']').is_some_and(|(_, port)| {
            port.is_empty() || port.strip_prefix(':').is_some_and(is_port)
        }),
        None => host.split_once(':').is_none_or(|(_, port)| is_port(port)),
    });
    if tail.contains(['@', '#']) || !are_hosts {
        return Err(hidden());
    }
    let (user, password) = match who {
        Some(who) => match who.split_once(':') {
            Some((user, password)) => (Some(user), Some(password)),
            None => (Some(who), None),
        },
        None => (None, None),
    };
    let place = rest.get(authority.len() - hosts.len()..end + path.len()).unwrap_or_default();
    Ok(Parts { scheme, user, has_password: password.is_some(), place, query })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An address, how it is shown in messages, and how in the configuration.
    const CASES: &[(&str, &str, &str)] = &[
        ("postgres://db/hooks", "postgres://db/hooks", "postgres://db/hooks"),
        ("postgres://me@db/hooks", "postgres://me@db/hooks", "postgres://me@db/hooks"),
        ("postgres://me:canary@db/hooks", "postgres://me@db/hooks", "postgres://me:***@db/hooks"),
        ("postgres://me:c%40canary@db/x", "postgres://me@db/x", "postgres://me:***@db/x"),
        (
            "postgres://me:c@canary@a:1,b:2/x",
            "postgres://me@a:1,b:2/x",
            "postgres://me:***@a:1,b:2/x",
        ),
        ("postgres://:canary@db", "postgres://@db", "postgres://:***@db"),
        (
            "postgresql://me:canary@[::1]:5432/x?sslmode=require",
            "postgresql://me@[::1]:5432/x",
            "postgresql://me:***@[::1]:5432/x?sslmode=require",
        ),
        (
            "postgres://db/x?user=me&password=canary&sslmode=disable",
            "postgres://db/x",
            "postgres://db/x?user=me&password=***&sslmode=disable",
        ),
        ("postgres://db/x?p%61ssword=canary", "postgres://db/x", "postgres://db/x?***"),
        ("postgres://db/x?PASSWORD=canary", "postgres://db/x", "postgres://db/x?***"),
        ("postgres://db/x?sslpassword=canary", "postgres://db/x", "postgres://db/x?***"),
        // A password with characters that should have been escaped.
        (
            "postgres://db/x?password=a&canary",
            "postgres://db/x",
            "postgres://db/x?password=***&***",
        ),
        (
            "postgres://db/x?password=a&b=canary",
            "postgres://db/x",
            "postgres://db/x?password=***&***",
        ),
        ("postgres://me:a/canary@db/x", "postgres://***", "postgres://***"),
        ("postgres://me:1/canary@db/x", "postgres://***", "postgres://***"),
        ("postgres://me:a?canary@db/x", "postgres://***", "postgres://***"),
        ("postgres://me:1?canary@db/x", "postgres://***", "postgres://***"),
        ("postgres://me:a#canary@db/x", "postgres://***", "postgres://***"),
        // Mistyped.
        ("postgres://me:canary", "postgres://***", "postgres://***"),
        ("postgres://me:canary/db/x", "postgres://***", "postgres://***"),
        ("postgres://me:canary@db:port/x", "postgres://***", "postgres://***"),
        ("postgres://me:canary@[::1/x", "postgres://***", "postgres://***"),
        ("postgre://me:canary@db/x", "postgre://me@db/x", "postgre://me:***@db/x"),
        ("canary://me@db", "canary://me@db", "canary://me@db"),
        ("me:canary@db/x", "a database", "a database"),
        ("postgres:/me:canary@db", "a database", "a database"),
        ("me:canary://db", "a database", "a database"),
        ("host=db user=me password=canary", "a database", "a database"),
        ("host=db password='can ary canary'", "a database", "a database"),
        ("", "a database", "a database"),
    ];

    #[test]
    fn address_is_shown_without_anything_that_may_be_a_password() {
        for (url, message, configuration) in CASES {
            assert_eq!((shown(url).as_str(), masked(url).as_str()), (*message, *configuration));
            let is_scheme = url.starts_with("canary");
            assert!(is_scheme || !(shown(url) + &masked(url)).contains("canary"), "{url}");
        }
    }
}
