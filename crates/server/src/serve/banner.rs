//! The text printed at the start: the address, the key, and what to try next.

use std::io;
use std::net::SocketAddr;
use std::path::Path;

use serde_json::json;

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
    },
    /// Given by the operator.
    Given,
    /// Created at an earlier start.
    Exists {
        /// The file with the key.
        path: &'a Path,
    },
}

/// Prints the text. Without a terminal, only a new key is printed.
pub(super) fn print(
    output: Output,
    is_terminal: bool,
    address: SocketAddr,
    key: &AdminKey<'_>,
    config: &Config,
) -> io::Result<()> {
    if output.json || !is_terminal {
        return match key {
            AdminKey::Created { key, .. } => {
                output.value(&json!({ "admin_key": key }), |_| format!("admin key: {key}"))
            }
            AdminKey::Given | AdminKey::Exists { .. } => Ok(()),
        };
    }
    let bold = |text: &str| output.paint(Colour::Bold, text);
    let shown_key = match key {
        AdminKey::Created { key, path } => {
            format!("{}  (shown once; kept in {})", bold(key), path.display())
        }
        AdminKey::Given => "yours, by POSTRIDER_ADMIN_KEY".to_owned(),
        AdminKey::Exists { path } if path.exists() => format!("in {}", path.display()),
        AdminKey::Exists { path } => {
            format!("no longer in {}; set POSTRIDER_ADMIN_KEY to get in", path.display())
        }
    };
    let next: Vec<_> = next(address, config).iter().map(|line| format!("    {line}")).collect();
    line(&format!(
        "\n  {} {}\n\n  API        {}\n  admin key  {shown_key}\n\n  Try next, in another \
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
