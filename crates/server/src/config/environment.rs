//! The environment, read once.
//!
//! `POSTRIDER_RETRY__MAX` is the setting `retry.max`: two underscores separate levels. Nothing else
//! in the process reads the environment.

use std::path::PathBuf;

use super::fault::{Fault, Origin};
use super::value::Raw;
use super::{Given, value};
use crate::output::Terminal;

const PREFIX: &str = "POSTRIDER_";
/// Variables of the other commands, which the server ignores.
const OF_THE_CLIENT: [&str; 6] = [
    "POSTRIDER_CONFIG",
    "POSTRIDER_SERVER",
    "POSTRIDER_KEY",
    "POSTRIDER_TENANT",
    "POSTRIDER_MIGRATE_FROM",
    "POSTRIDER_MIGRATE_TO",
];

/// Whether Kubernetes sets such a variable in every pod, if there is a service called `postrider`:
/// `POSTRIDER_SERVICE_HOST`, `POSTRIDER_PORT`, `POSTRIDER_PORT_8080_TCP` and others.
fn is_of_a_service(name: &str) -> bool {
    name == "POSTRIDER_PORT"
        || ["POSTRIDER_SERVICE_", "POSTRIDER_PORT_"].iter().any(|prefix| name.starts_with(prefix))
}

/// All variables for Postrider, as they were at the start.
#[derive(Debug, Clone, Default)]
pub(crate) struct Environment {
    /// Name and value; `None` if the value is not UTF-8.
    variables: Vec<(String, Option<String>)>,
    terminal: Terminal,
}

impl Environment {
    /// Reads the environment of the process.
    pub(crate) fn of_the_process() -> Environment {
        let mut variables: Vec<_> = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok())))
            .collect();
        variables.sort();
        let value = |name: &str| {
            let found = variables.iter().find(|(found, _)| found == name);
            found.and_then(|(_, value)| value.as_deref()).filter(|value| !value.is_empty())
        };
        let terminal = Terminal {
            no_color: value("NO_COLOR").is_some(),
            is_dumb: value("TERM") == Some("dumb"),
            columns: value("COLUMNS").and_then(|columns| columns.parse().ok()),
        };
        variables.retain(|(name, _)| name.starts_with(PREFIX));
        Environment { variables, terminal }
    }

    /// Exactly these variables.
    #[cfg(test)]
    pub(crate) fn of(variables: &[(&str, &str)]) -> Environment {
        let variables = variables
            .iter()
            .map(|(name, value)| ((*name).to_owned(), Some((*value).to_owned())))
            .collect();
        Environment { variables, terminal: Terminal::default() }
    }

    /// What it says of the terminal: `NO_COLOR`, `TERM` and `COLUMNS`.
    pub(crate) const fn terminal(&self) -> Terminal {
        self.terminal
    }

    /// The file named by `POSTRIDER_CONFIG`.
    pub(crate) fn config_file(&self) -> Option<PathBuf> {
        self.get("POSTRIDER_CONFIG").map(PathBuf::from)
    }

    /// The variable with this name, if it is set and not empty.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let (_, value) = self.variables.iter().find(|(found, _)| found == name)?;
        value.as_deref().filter(|value| !value.is_empty())
    }

    /// Collects all settings for the server.
    pub(super) fn settings(&self, given: &mut Vec<Given>, faults: &mut Vec<Fault>) {
        for (name, value) in &self.variables {
            if OF_THE_CLIENT.contains(&name.as_str()) || is_of_a_service(name) {
                continue;
            }
            let origin = Origin::Environment(name.clone());
            let key = key_of(name);
            match value {
                Some(value) => {
                    given.push(Given { key, raw: Raw::Untyped(value.clone()), origin });
                }
                None => faults.push(Fault::bad(origin, &key, value::UTF8, None)),
            }
        }
    }
}

/// The key of the setting for a variable.
fn key_of(name: &str) -> String {
    name.strip_prefix(PREFIX).unwrap_or(name).to_ascii_lowercase().replace("__", ".")
}
