//! Errors of the configuration: the place, the problem, and what is expected.

use std::fmt;
use std::path::PathBuf;

use super::settings;
use super::value::Raw;

/// Where a value comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The setting is not set: its default holds.
    Default,
    /// A line of the configuration file.
    File {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
    },
    /// An environment variable.
    Environment(String),
    /// A flag.
    Flag(String),
}

impl Origin {
    /// The kind of source, as one word.
    pub(crate) const fn kind(&self) -> &'static str {
        match self {
            Origin::Default => "default",
            Origin::File { .. } => "file",
            Origin::Environment(_) => "env",
            Origin::Flag(_) => "flag",
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Default => f.write_str("default"),
            Origin::File { path, line } => write!(f, "{}:{line}", path.display()),
            Origin::Environment(name) => write!(f, "environment variable {name}"),
            Origin::Flag(name) => write!(f, "flag {name}"),
        }
    }
}

/// One error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    origin: Origin,
    problem: String,
}

impl Fault {
    pub(crate) fn new(origin: Origin, problem: impl Into<String>) -> Fault {
        Fault { origin, problem: problem.into() }
    }

    /// The error for an unknown setting.
    pub(super) fn unknown(origin: Origin, key: &str) -> Fault {
        let problem = match (settings::nearest(key), &origin) {
            (Some(near), Origin::Environment(_)) => {
                format!("unknown setting; did you mean {}?", settings::variable(near))
            }
            (Some(near), Origin::Default | Origin::File { .. } | Origin::Flag(_)) => {
                format!("unknown setting `{key}`; did you mean `{near}`?")
            }
            (None, _) => format!("unknown setting `{key}`; `postrider config` lists all of them"),
        };
        Fault { origin, problem }
    }

    /// The error for an invalid value.
    pub(super) fn bad(origin: Origin, key: &str, expected: &str, found: Option<&Raw>) -> Fault {
        let found = found.map(|raw| format!(", not {raw}")).unwrap_or_default();
        Fault { origin, problem: format!("`{key}` must be {expected}{found}") }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.origin, self.problem)
    }
}

/// All errors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ConfigError(pub(super) Vec<Fault>);

impl From<ConfigError> for crate::exit::Failure {
    fn from(error: ConfigError) -> Self {
        crate::exit::Failure::usage(error.to_string())
    }
}

impl From<Fault> for ConfigError {
    fn from(fault: Fault) -> Self {
        ConfigError(vec![fault])
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, fault) in self.0.iter().enumerate() {
            if n > 0 {
                writeln!(f)?;
            }
            write!(f, "{fault}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigError {}
