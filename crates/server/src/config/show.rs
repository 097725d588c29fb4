//! The effective configuration as TOML or JSON, with the origin of each value.

use serde_json::{Map, Value as Json, json};

use super::fault::Origin;
use super::{Loaded, settings};

/// One setting as it is shown.
#[derive(Debug, Clone)]
pub(crate) struct Shown {
    pub(crate) key: &'static str,
    pub(crate) help: &'static str,
    pub(crate) value: Json,
    pub(crate) origin: Origin,
    /// Whether a running server takes a change of it.
    pub(crate) live: bool,
}

pub(super) fn all(loaded: &Loaded) -> Vec<Shown> {
    let shown = |setting: &settings::Setting| {
        let value = (setting.masked)(&loaded.config);
        let value = if setting.secret && !value.is_null() { json!("***") } else { value };
        Shown {
            key: setting.key,
            help: setting.help,
            value,
            origin: loaded.origin(setting.key),
            live: setting.live,
        }
    };
    settings::ALL.iter().map(shown).collect()
}

/// As a TOML file: unset settings are comments.
pub(crate) fn toml(shown: &[Shown]) -> String {
    let mut text = String::new();
    let mut table = "";
    for one in shown {
        let (group, name) = one.key.rsplit_once('.').unwrap_or(("", one.key));
        if group != table {
            text.push_str(&format!("\n[{group}]\n"));
            table = group;
        }
        let line = match &one.value {
            Json::Null => format!("# {name} ="),
            value @ (Json::Bool(_)
            | Json::Number(_)
            | Json::String(_)
            | Json::Array(_)
            | Json::Object(_)) => format!("{name} = {value}"),
        };
        let from = match &one.origin {
            Origin::Default => String::new(),
            origin @ (Origin::File { .. } | Origin::Environment(_) | Origin::Flag(_)) => {
                format!(" (from {origin})")
            }
        };
        text.push_str(&format!("{line:<44}# {}{from}\n", one.help));
    }
    text
}

/// As JSON: key, value, kind and place of the origin.
pub(crate) fn json(shown: &[Shown]) -> Json {
    let mut all = Map::new();
    for one in shown {
        all.insert(
            one.key.to_owned(),
            json!({
                "value": one.value,
                "origin": one.origin.kind(),
                "place": one.origin.to_string(),
            }),
        );
    }
    Json::Object(all)
}
