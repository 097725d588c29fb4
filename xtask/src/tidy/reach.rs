//! Every Rust file is part of some crate.
//!
//! From every crate root (`src/lib.rs`, `tests/*.rs` and so on) the `mod` lines are followed. Files
//! that are not reached are dead. The files are formatted: a `mod` has its own line, and an inline
//! module ends at a bracket in the column where it began.

use std::collections::BTreeSet;

use super::source::without_comment;
use super::{Finding, Tree};
use crate::toml::{Toml, texts};

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut reached = BTreeSet::new();
    for root in roots(tree) {
        follow(tree, &root, &mut reached);
    }
    tree.ending(&[".rs"])
        .filter(|(path, _)| !reached.contains(*path))
        .map(|(path, _)| Finding::new(path, 1, "no `mod` reaches this file: nothing compiles it"))
        .collect()
}

/// The crate roots that cargo compiles.
fn roots(tree: &Tree) -> Vec<String> {
    let mut roots = Vec::new();
    for (path, text) in tree.ending(&["Cargo.toml"]) {
        let toml = Toml::parse(text);
        if toml.value("package", "name").is_none() {
            continue;
        }
        let folder = path.trim_end_matches("Cargo.toml");
        for file in ["src/lib.rs", "src/main.rs", "build.rs"] {
            roots.push(format!("{folder}{file}"));
        }
        for targets in ["src/bin/", "tests/", "examples/", "benches/"] {
            roots.extend(targets_in(tree, &format!("{folder}{targets}")));
        }
        let named = toml.entries(|name| ["lib", "bin", "test", "bench", "example"].contains(&name));
        for entry in named.filter(|entry| entry.key == "path") {
            roots.extend(texts(&entry.value).into_iter().map(|path| join(folder, path)));
        }
    }
    roots.retain(|root| tree.files.contains_key(root));
    roots
}

/// `folder/x.rs` and `folder/x/main.rs`.
fn targets_in(tree: &Tree, folder: &str) -> Vec<String> {
    let is_target = |path: &&str| {
        let Some(rest) = path.strip_prefix(folder) else { return false };
        match rest.split_once('/') {
            None => true,
            Some((_, file)) => file == "main.rs",
        }
    };
    let paths = tree.ending(&[".rs"]).map(|(path, _)| path);
    paths.filter(is_target).map(str::to_owned).collect()
}

fn follow(tree: &Tree, file: &str, reached: &mut BTreeSet<String>) {
    let Some(text) = tree.text(file) else { return };
    if !reached.insert(file.to_owned()) {
        return;
    }
    for candidate in modules(file, text) {
        follow(tree, &candidate, reached);
    }
}

/// The files in which the modules of a file may be.
fn modules(file: &str, text: &str) -> Vec<String> {
    let (folder, name) = file.rsplit_once('/').map_or(("", file), |(f, name)| (f, name));
    let stem = name.trim_end_matches(".rs");
    let own = match stem {
        "mod" | "lib" | "main" | "build" => folder.to_owned(),
        _ => format!("{folder}/{stem}"),
    };
    let mut found = Vec::new();
    let mut inline: Vec<(usize, String)> = Vec::new();
    let mut path = None;
    for line in text.lines() {
        let indent = line.len() - line.trim_start().len();
        let line = without_comment(line).trim();
        if line == "}" {
            inline.retain(|(begun, _)| *begun < indent);
        }
        if let Some(attribute) = line.strip_prefix("#[path") {
            path = texts(attribute).first().map(|path| join(folder, path));
        } else if let Some(included) = line.strip_prefix("include!(") {
            found.extend(texts(included).first().map(|path| join(folder, path)));
        } else if let Some(name) = declared(line, ';') {
            // A test, example or benchmark is a crate root: its modules may be beside it, too.
            let inner: String = inline.iter().map(|(_, name)| format!("/{name}")).collect();
            for base in [&own, folder] {
                found.push(join("", &format!("{base}{inner}/{name}.rs")));
                found.push(join("", &format!("{base}{inner}/{name}/mod.rs")));
            }
            found.extend(path.take());
        } else if let Some(name) = declared(line, '{') {
            inline.push((indent, name.to_owned()));
        } else if !line.starts_with("#[") {
            path = None;
        }
    }
    found
}

/// The name in `mod name;` or `pub(crate) mod name {`.
fn declared(line: &str, end: char) -> Option<&str> {
    let rest = match line.strip_prefix("pub") {
        None => line,
        Some(rest) if rest.starts_with('(') => rest.split_once(')')?.1,
        Some(rest) => rest,
    };
    let name = rest.trim_start().strip_prefix("mod ")?.strip_suffix(end)?.trim();
    name.chars().all(|c| c.is_alphanumeric() || c == '_').then_some(name)
}

/// Resolves `path` relative to `folder`.
fn join(folder: &str, path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in folder.split('/').chain(path.split('/')) {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::super::found;
    use super::*;

    const MANIFEST: &str = "[package]\nname = \"x\"\n";

    #[test]
    fn a_file_that_no_mod_reaches_is_found() {
        let files = [
            ("c/Cargo.toml", MANIFEST),
            ("c/src/lib.rs", "pub mod a;\nmod b;\n// mod dead;\npub(crate) mod outer;\n"),
            ("c/src/a.rs", ""),
            ("c/src/b/mod.rs", "mod deep;\n"),
            ("c/src/b/deep.rs", ""),
            ("c/src/outer.rs", "mod inner;\n"),
            ("c/src/outer/inner.rs", ""),
            ("c/src/dead.rs", "mod never;\n"),
            ("c/src/dead/never.rs", ""),
        ];
        assert_eq!(
            found(check, &files),
            [
                "c/src/dead.rs:1: no `mod` reaches this file: nothing compiles it",
                "c/src/dead/never.rs:1: no `mod` reaches this file: nothing compiles it"
            ]
        );
    }

    #[test]
    fn tests_examples_benches_and_binaries_are_roots() {
        let files = [
            ("c/Cargo.toml", "[package]\nname = \"x\"\n[[test]]\npath = \"odd/place.rs\"\n"),
            ("c/src/main.rs", ""),
            ("c/src/bin/tool.rs", ""),
            ("c/tests/one.rs", "mod common;\n"),
            ("c/tests/common/mod.rs", "mod fake;\n"),
            ("c/tests/common/fake.rs", ""),
            ("c/tests/two/main.rs", "mod part;\n"),
            ("c/tests/two/part.rs", ""),
            ("c/tests/two/unused.rs", ""),
            ("c/examples/e.rs", ""),
            ("c/benches/b.rs", ""),
            ("c/odd/place.rs", ""),
            ("elsewhere/x.rs", ""),
        ];
        let found = found(check, &files);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].starts_with("c/tests/two/unused.rs:1"));
        assert!(found[1].starts_with("elsewhere/x.rs:1"));
    }

    #[test]
    fn paths_inline_modules_and_includes_are_followed() {
        let lib = "#[path = \"named/other.rs\"]\nmod a;\nmod tests {\n    mod inner;\n}\nmod after;\n\
                   include!(\"../generated/x.rs\");\n";
        let files = [
            ("c/Cargo.toml", MANIFEST),
            ("c/src/lib.rs", lib),
            ("c/src/named/other.rs", ""),
            ("c/src/tests/inner.rs", ""),
            ("c/src/after.rs", ""),
            ("c/generated/x.rs", ""),
        ];
        assert_eq!(found(check, &files), [""; 0]);
    }
}
