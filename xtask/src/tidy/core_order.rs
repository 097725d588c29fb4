//! The modules of the engine's core have an order, and each uses only those before it.
//!
//! The rule checks paths `super::module::…`, calls `self.method(…)` of methods of `Core`, which may be
//! defined in any module, and uses `self.field` of fields of `Core`: a field belongs to the module that
//! defines its type. The compiler checks none of it.

use std::collections::BTreeMap;

use super::source::without_comment;
use super::{Finding, Tree};

const FOLDER: &str = "crates/engine/src/core/";

/// The modules, the lowest first. `mod` is above all of them.
const ORDER: &[&str] = &[
    // Data without behaviour.
    "ids",
    "limiter",
    "destinations",
    "table",
    "shards",
    "suspensions",
    "alarms",
    "messages",
    "commits",
    STATE,
    "shutdown",
    "policies",
    // The path of a delivery.
    "payloads",
    "reads",
    "turns",
    "lanes",
    "window",
    "places",
    "lookup",
    "admission",
    "asked",
    "drain",
    "probe",
    "guard",
    "cancel",
    "dispatch",
    "settle",
    // Processes beside it.
    "replay",
    "residence",
    "arrivals",
    "ownership",
    "requests",
    "trial",
    // Inputs from outside.
    "answers",
    "durable",
    "views",
    "commands",
    TOP,
];

/// The module with the fields of `Core`: it uses the types of all modules, and calls none of their
/// methods of `Core`.
const STATE: &str = "state";

/// The module that handles the inputs.
const TOP: &str = "mod";

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let files: BTreeMap<&str, (&str, String)> = tree
        .texts()
        .filter_map(|(path, text)| {
            let name = path.strip_prefix(FOLDER)?.strip_suffix(".rs")?;
            Some((name, (path, code(text))))
        })
        .collect();
    let mut methods = BTreeMap::new();
    for (name, (_, code)) in &files {
        methods.extend(methods_of_core(code).map(|method| (method, *name)));
    }
    let fields = files.get(STATE).map_or_else(BTreeMap::new, |(_, code)| fields_of_core(code));
    let mut findings = Vec::new();
    for (name, (path, code)) in &files {
        let Some(own) = place(name) else {
            let message = format!("the module {name} has no place in {}", file!());
            findings.push(Finding::new(path, 1, message));
            continue;
        };
        let used = modules_named(code).filter(|_| *name != STATE);
        for (line, used) in used {
            if place(used).is_none_or(|used| used >= own) {
                let message = format!("{name} must not use {used}, which comes after it");
                findings.push(Finding::new(path, line, message));
            }
        }
        for (line, method) in calls(code) {
            if let Some(of) = methods.get(method)
                && place(of).is_none_or(|of| of > own)
            {
                let message = format!("{name} must not call {of}'s {method}, which comes after it");
                findings.push(Finding::new(path, line, message));
            }
        }
        for (line, field) in uses(code).filter(|_| *name != STATE) {
            if let Some(of) = fields.get(field)
                && place(of).is_none_or(|of| of > own)
            {
                let message = format!("{name} must not use {of}'s {field}, which comes after it");
                findings.push(Finding::new(path, line, message));
            }
        }
    }
    findings
}

fn place(module: &str) -> Option<usize> {
    ORDER.iter().position(|name| *name == module)
}

/// The source without comments and without its tests.
fn code(text: &str) -> String {
    let lines = text.lines().take_while(|line| !line.starts_with("#[cfg(test)]"));
    lines.map(|line| format!("{}\n", without_comment(line))).collect()
}

/// The names of the methods of `Core`.
fn methods_of_core(code: &str) -> impl Iterator<Item = &str> {
    let mut is_core = false;
    code.lines().filter_map(move |line| {
        match line {
            "impl Core {" => is_core = true,
            "}" => is_core = false,
            _ => {}
        }
        let method = line.strip_prefix("    ").filter(|line| is_core && !line.starts_with(' '))?;
        let visibility = method.find("fn ").filter(|at| {
            let before = method[..*at].trim_end();
            before.is_empty() || before.starts_with("pub")
        })?;
        Some(word(&method[visibility + 3..]))
    })
}

/// The fields of `Core` that have a type of one of the modules, with that module.
fn fields_of_core(code: &str) -> BTreeMap<&str, &str> {
    let mut types = BTreeMap::new();
    for import in code.lines().filter_map(|line| line.strip_prefix("use super::")) {
        if let Some((module, names)) = import.trim_end_matches(';').split_once("::") {
            let names = names.split(|c: char| !c.is_alphanumeric());
            types.extend(names.map(|name| (name, module)));
        }
    }
    let fields = code.lines().skip_while(|line| !line.ends_with("struct Core {"));
    let fields = fields.take_while(|line| *line != "}").filter_map(|line| {
        let (field, kind) = line.trim_end_matches(',').split_once(": ")?;
        Some((field.rsplit(' ').next()?, *types.get(kind)?))
    });
    fields.collect()
}

/// The modules in paths that begin with `super::`, each with its line. A path without a module,
/// because `mod.rs` exports the item, counts as a use of `mod`.
fn modules_named(code: &str) -> impl Iterator<Item = (usize, &str)> {
    code.match_indices("super::").map(|(at, prefix)| {
        let name = word(&code[at + prefix.len()..]);
        let is_module = name.starts_with(char::is_lowercase);
        (line_of(code, at), if is_module { name } else { TOP })
    })
}

/// The methods that are called on `self` or on `core`, each with its line.
fn calls(code: &str) -> impl Iterator<Item = (usize, &str)> {
    members(code).filter(|(_, _, is_call)| *is_call).map(|(line, name, _)| (line, name))
}

/// The fields of `self` or of `core` that are used, each with its line.
fn uses(code: &str) -> impl Iterator<Item = (usize, &str)> {
    members(code).filter(|(_, _, is_call)| !is_call).map(|(line, name, _)| (line, name))
}

/// The names after `self.` and `core.`, each with its line and whether it is called.
fn members(code: &str) -> impl Iterator<Item = (usize, &str, bool)> {
    code.match_indices('.').filter_map(|(at, _)| {
        let of = code[..at].trim_end();
        let of = of.rsplit(|c: char| !c.is_alphanumeric() && c != '_' && c != '.').next()?;
        let name = word(&code[at + 1..]);
        let is_call = code[at + 1 + name.len()..].starts_with('(');
        matches!(of, "self" | "core").then(|| (line_of(code, at), name, is_call))
    })
}

fn word(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    &text[..end]
}

fn line_of(code: &str, at: usize) -> usize {
    code[..at].matches('\n').count() + 1
}

#[cfg(test)]
mod tests {
    use super::super::found;
    use super::*;

    const LANES: &str =
        "use super::state::Core;\n\nimpl Core {\n    pub(super) fn pop(&mut self) {}\n}\n";

    fn core(files: &[(&str, &str)]) -> Vec<String> {
        let paths: Vec<_> = files.iter().map(|(name, _)| format!("{FOLDER}{name}.rs")).collect();
        let files: Vec<_> =
            paths.iter().zip(files).map(|(path, (_, text))| (path.as_str(), *text)).collect();
        found(check, &files)
    }

    #[test]
    fn module_may_use_those_before_it() {
        let window = "use super::state::Core;\n\nimpl Core {\n    fn fire(&mut self) {\n        self.pop();\n    }\n}\n";
        let top = "use lanes::Lane;\nimpl Core {\n    fn advance(&mut self) {\n        self.fire();\n    }\n}\n";
        let state = "use super::window::Due;\n";
        let files = [("lanes", LANES), ("window", window), ("mod", top), ("state", state)];
        assert_eq!(core(&files), [""; 0]);
    }

    #[test]
    fn call_of_a_later_module_is_refused_also_over_two_lines_and_by_a_closure() {
        let turns = "impl Core {\n    fn next(&mut self) {\n        self\n            .pop();\n        |core| core.pop();\n        other.pop();\n        self.lane.pop();\n    }\n}\n";
        let message = "turns must not call lanes's pop, which comes after it";
        assert_eq!(
            core(&[("lanes", LANES), ("turns", turns)]),
            [format!("{FOLDER}turns.rs:4: {message}"), format!("{FOLDER}turns.rs:5: {message}")]
        );
    }

    #[test]
    fn path_to_a_later_module_is_refused_and_so_is_a_type_that_mod_exports() {
        let turns = "use super::lanes::Lane;\nuse super::Core;\n// super::commands\n";
        assert_eq!(
            core(&[("turns", turns)]),
            [
                format!("{FOLDER}turns.rs:1: turns must not use lanes, which comes after it"),
                format!("{FOLDER}turns.rs:2: turns must not use mod, which comes after it"),
            ]
        );
    }

    #[test]
    fn field_whose_type_a_later_module_defines_is_refused() {
        let state = "use super::window::Window;\nuse super::table::{Entry, Table};\n\npub(crate) struct Core {\n    pub(super) table: Table,\n    pub(super) window: Window,\n    pub(super) now: Timestamp,\n}\n";
        let lanes = "impl Core {\n    fn peek(&self) {\n        self.table.get();\n        self.window.get(self.now);\n    }\n}\n";
        let places = "impl Core {\n    fn take(&self) {\n        self.window.get();\n    }\n}\n";
        assert_eq!(
            core(&[("lanes", lanes), ("places", places), ("state", state)]),
            [format!(
                "{FOLDER}lanes.rs:4: lanes must not use window's window, which comes after it"
            )]
        );
    }

    #[test]
    fn module_that_is_not_in_the_list_is_refused() {
        assert_eq!(
            core(&[("novel", "")]),
            [format!("{FOLDER}novel.rs:1: the module novel has no place in {}", file!())]
        );
    }
}
