//! The page of all settings.

use serde_json::Value as Json;

use super::{Document, code};
use crate::config::describe;

const INTRODUCTION: &str = "\
Every setting can be given in a TOML file (`postrider serve --config FILE`, or `POSTRIDER_CONFIG`), by a variable,
or by a flag (`--set key=value`). A variable wins over the file, a flag over both. Unknown settings are refused.
`postrider config` prints the values in force and where each comes from.

*live*: a running server takes a change of the file at SIGHUP. All others need a restart. *secret*: the value is
never shown. A duration is written as `84800ms`, `90s`, `10m`, `2h30m` or `30d`. In the file, `retry.max` stands in the table
`[retry]` as `max`.";

pub(super) fn page() -> String {
    let mut page = Document::new("Settings", INTRODUCTION);
    let mut group = None;
    for setting in describe::all() {
        let of = setting.key.split_once('.').map_or("general", |(group, _)| group);
        if group != Some(of) {
            page.heading(of);
            page.columns(&["setting", "default", "meaning", "value", "variable"]);
            group = Some(of);
        }
        let marks = match (setting.live, setting.secret) {
            (true, _) => " *live*",
            (_, true) => " *secret*",
            (false, false) => "",
        };
        let default = match &setting.default {
            Json::Null => "not set".to_owned(),
            Json::String(text) => code(text),
            value @ (Json::Bool(_) | Json::Number(_) | Json::Array(_) | Json::Object(_)) => {
                code(&value.to_string())
            }
        };
        page.row(&[
            format!("`{}`{marks}", setting.key),
            default,
            setting.help.to_owned(),
            setting.takes,
            code(&setting.variable),
        ]);
    }
    page.0
}
