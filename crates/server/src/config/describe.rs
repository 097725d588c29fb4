//! What can be set, as the documents list it: taken from the table and from the defaults.

use serde_json::Value as Json;

use super::value::Raw;
use super::{Config, settings};

/// One setting as it is documented.
#[derive(Debug)]
pub(crate) struct Described {
    pub(crate) key: &'static str,
    pub(crate) help: &'static str,
    /// The variable that sets it.
    pub(crate) variable: String,
    /// What it is where nobody sets it; `null` where it is then absent.
    pub(crate) default: Json,
    /// What a value must be.
    pub(crate) takes: String,
    /// Whether its value is never shown.
    pub(crate) secret: bool,
    /// Whether a running server takes a change at SIGHUP.
    pub(crate) live: bool,
}

/// Every setting, in the order of the table.
pub(crate) fn all() -> Vec<Described> {
    let defaults = Config::default();
    let described = |setting: &settings::Setting| Described {
        key: setting.key,
        help: setting.help,
        variable: settings::variable(setting.key),
        default: (setting.show)(&defaults),
        takes: takes(setting),
        secret: setting.secret,
        live: setting.live,
    };
    settings::ALL.iter().map(described).collect()
}

/// What the setting says of a value that nothing takes.
fn takes(setting: &settings::Setting) -> String {
    let refused = (setting.set)(&mut Config::default(), &Raw::Other("a table"));
    refused.err().unwrap_or_else(|| "text".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_says_what_it_takes_and_what_it_is_unless_set() {
        let all = all();
        let retries = all.iter().find(|one| one.key == "retry.max").unwrap();
        assert_eq!(retries.default, Json::from(11));
        assert_eq!(retries.variable, "POSTRIDER_RETRY__MAX");
        assert!(retries.live && !retries.secret);
        for one in &all {
            assert!(!one.help.is_empty() && !one.takes.is_empty(), "{}", one.key);
            assert!(!one.secret || one.default.is_null(), "{}", one.key);
        }
    }
}
