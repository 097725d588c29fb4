//! The text printed at the start: the address, the key, and what to try next.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

use serde_json::json;
use zeroize::Zeroizing;

use crate::config::Config;
use crate::output::{Colour, Output, line};

/// The state of the admin key at this start.
pub(super) enum AdminKey<'a> {
    /// Created at this start.
    Created {
        /// The key. It is shown only this once.
        key: &'a str,
        /// The file with the key.
        path: &'a Path,
        /// Whether the key is in the file. If not, it must be printed.
        is_written: bool,
    },
    /// Given by the operator.
    Given,
    /// Created at an earlier start.
    Exists {
        /// The file with the key.
        path: &'a Path,
    },
}

/// Where a server listens, and how to get in.
pub(super) struct Started<'a> {
    pub(super) address: SocketAddr,
    /// Whether somebody reads what is printed.
    pub(super) is_terminal: bool,
    /// Whether the dashboard is in this binary.
    pub(super) has_page: bool,
    /// The link that signs in, once.
    pub(super) link: Option<&'a str>,
}

/// Whether a link to sign in is printed: for somebody who reads it, and if there is a page that it
/// signs in to.
pub(super) fn prints_link(is_terminal: bool, is_dev: bool, has_page: bool) -> bool {
    has_page && (is_terminal || is_dev)
}

/// The link that a token belongs to. The token is in the fragment, which a browser does not send, so that it is in
/// no log of a proxy.
pub(super) fn link(address: SocketAddr, config: &Config, token: &str) -> Zeroizing<String> {
    let base = match &config.api.public_url {
        Some(url) => url.to_string(),
        None => format!("{}://{}", scheme(config), reachable(address)),
    };
    Zeroizing::new(format!("{base}/#/signin?token={token}"))
}

/// An address that a browser on this machine can open: loopback where the server listens on every address.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip @ (IpAddr::V4(_) | IpAddr::V6(_)) => ip,
    };
    SocketAddr::new(ip, address.port())
}

/// Prints the text. Without a terminal, where a key would end in a log, only the file with a new key is
/// named.
pub(super) fn print(
    output: Output,
    started: &Started<'_>,
    key: &AdminKey<'_>,
    config: &Config,
) -> io::Result<()> {
    let Started { address, is_terminal, has_page, link } = *started;
    if output.json || !is_terminal {
        match key {
            AdminKey::Created { path, is_written: true, .. } => {
                let shown = format!("admin key: written to {}", path.display());
                output.value(&json!({ "admin_key_file": path }), |_| shown)?;
            }
            AdminKey::Created { key, .. } => {
                output.value(&json!({ "admin_key": key }), |_| format!("admin key: {key}"))?;
            }
            AdminKey::Given | AdminKey::Exists { .. } => {}
        }
        return match link {
            Some(link) => output.value(&json!({ "sign_in": link }), |_| format!("sign in: {link}")),
            None => Ok(()),
        };
    }
    let bold = |text: &str| output.paint(Colour::Bold, text);
    let shown_key = match key {
        AdminKey::Created { key, path, is_written: true } => {
            format!("{}  (shown once; kept in {})", bold(key), path.display())
        }
        AdminKey::Created { key, .. } => format!("{}  (shown once; keep it)", bold(key)),
        AdminKey::Given => "yours, by POSTRIDER_ADMIN_KEY".to_owned(),
        AdminKey::Exists { path } if path.exists() => format!("in {}", path.display()),
        AdminKey::Exists { path } => {
            format!("no longer in {}; if it is lost: postrider keys reset-admin", path.display())
        }
    };
    let shown_link = match link {
        Some(link) => format!("  sign in    {}  (once, within ten minutes)\n", bold(link)),
        None if has_page => String::new(),
        None => {
            "  dashboard  not in this binary: `cargo xtask serve` builds one with it\n".to_owned()
        }
    };
    let next: Vec<_> = next(address, config).iter().map(|line| format!("    {line}")).collect();
    line(&format!(
        "\n  {} {}\n\n  API        {}\n  admin key  {shown_key}\n{shown_link}\n  Try next, in another \
         terminal:\n{}\n",
        bold("postrider"),
        env!("CARGO_PKG_VERSION"),
        bold(&format!("{}://{address}", scheme(config))),
        next.join("\n"),
    ))
}

fn scheme(config: &Config) -> &'static str {
    if config.server.tls_cert.is_some() { "https" } else { "http" }
}

/// Commands to copy, with the configured address and key.
fn next(address: SocketAddr, config: &Config) -> Vec<String> {
    let standard = Config::default();
    let mut where_to = String::new();
    if address != standard.listen || config.server.tls_cert.is_some() {
        where_to.push_str(&format!(" --server {}://{address}", scheme(config)));
    }
    if config.admin_key.is_some() {
        where_to.push_str(" --key \"$POSTRIDER_ADMIN_KEY\"");
    } else if config.data_dir != standard.data_dir {
        where_to.push_str(&format!(" --data-dir '{}'", config.data_dir.display()));
    }
    let (listen, url) = if config.dev {
        (Some("postrider listen".to_owned()), "http://127.0.0.1:9000/")
    } else {
        (None, "https://your.example.com/hook")
    };
    listen
        .into_iter()
        .chain([
            format!("postrider subscriptions create {url} 'task.*'{where_to}"),
            format!("postrider send task.updated '{{\"status\": \"CUR\"}}'{where_to}"),
        ])
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn link_leads_to_an_address_that_a_browser_can_open() {
        let mut config = Config::default();
        let of = |address: &str, config: &Config| {
            link(address.parse().unwrap(), config, "pt_x").to_string()
        };
        assert_eq!(of("127.0.0.1:8080", &config), "http://127.0.0.1:8080/#/signin?token=pt_x");
        assert_eq!(of("0.0.0.0:80", &config), "http://127.0.0.1:80/#/signin?token=pt_x");
        assert_eq!(of("[::]:80", &config), "http://[::1]:80/#/signin?token=pt_x");
        config.server.tls_cert = Some("cert.pem".into());
        assert_eq!(of("192.0.2.1:443", &config), "https://192.0.2.1:443/#/signin?token=pt_x");
        config.api.public_url = Some("https://hooks.example.com".parse().unwrap());
        assert_eq!(of("0.0.0.0:80", &config), "https://hooks.example.com/#/signin?token=pt_x");
    }

    #[test]
    fn link_is_printed_only_for_a_reader_and_with_a_page() {
        for (is_terminal, is_dev, has_page, expected) in [
            (true, false, true, true),
            (false, true, true, true),
            (false, false, true, false),
            (true, true, false, false),
        ] {
            assert_eq!(
                prints_link(is_terminal, is_dev, has_page),
                expected,
                "{is_terminal} {is_dev} {has_page}"
            );
        }
    }

    #[test]
    fn the_commands_name_only_what_differs_from_the_defaults() {
        let mut config = Config::default();
        let commands = next(config.listen, &config);
        assert_eq!(commands.len(), 2);
        assert_eq!(commands[1], "postrider send task.updated '{\"status\": \"CUR\"}'");
        config.dev = true;
        config.data_dir = "/tmp/x".into();
        let commands = next("127.0.0.1:1".parse().unwrap(), &config);
        assert_eq!(commands[0], "postrider listen");
        assert!(commands[2].ends_with("--server http://127.0.0.1:1 --data-dir '/tmp/x'"));
        config.admin_key = Some("canary".to_owned());
        let commands = next(config.listen, &config).join("\n");
        assert!(commands.contains("$POSTRIDER_ADMIN_KEY") && !commands.contains("canary"));
    }
}
