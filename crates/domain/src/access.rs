//! The scopes of API keys.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A permission of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// Send events.
    Ingest,
    /// Change subscriptions, destinations and deliveries.
    Manage,
    /// Read everything of the tenant.
    Read,
    /// Everything, for every tenant.
    Admin,
}

/// The text is not a scope.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a scope: ingest, manage, read or admin")]
pub struct InvalidScope;

impl Scope {
    /// All scopes.
    pub const ALL: [Scope; 4] = [Scope::Ingest, Scope::Manage, Scope::Read, Scope::Admin];

    /// The name in the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Scope::Ingest => "ingest",
            Scope::Manage => "manage",
            Scope::Read => "read",
            Scope::Admin => "admin",
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Scope {
    type Err = InvalidScope;

    fn from_str(text: &str) -> Result<Self, InvalidScope> {
        Scope::ALL.into_iter().find(|scope| scope.as_str() == text).ok_or(InvalidScope)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scope_parses_back_from_its_text() {
        for scope in Scope::ALL {
            assert_eq!(scope.to_string().parse(), Ok(scope));
            let json = serde_json::to_string(&scope).unwrap();
            assert_eq!(json, format!("\"{scope}\""));
        }
        assert_eq!("root".parse::<Scope>(), Err(InvalidScope));
    }
}
