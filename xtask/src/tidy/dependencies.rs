//! Every dependency has its version in the workspace's manifest and its reason in one table.

use std::collections::BTreeMap;

use super::{Finding, Tree};
use crate::toml::Toml;

const MANIFEST: &str = "Cargo.toml";
const TABLE: &str = "docs/dependencies.md";
const PAGE: &str = "dashboard/package.json";

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let manifest = Toml::parse(tree.text(MANIFEST).unwrap_or_default());
    let rows = rows(tree.text(TABLE).unwrap_or_default());
    let mut findings = Vec::new();
    let mut listed = Vec::new();
    for entry in manifest.entries(|section| section == "workspace.dependencies") {
        if entry.value.contains("path = ") {
            continue;
        }
        listed.push(entry.name());
        if !rows.contains_key(entry.name()) {
            let message = format!("{} has no row in {TABLE}", entry.name());
            findings.push(Finding::new(MANIFEST, entry.line, message));
        }
    }
    for (name, line) in rows.iter().filter(|(name, _)| !listed.contains(name)) {
        let message = format!("{name} has a row but is no dependency of the workspace");
        findings.push(Finding::new(TABLE, *line, message));
    }
    findings.extend(of_the_page(tree));
    findings.extend(of_chores(tree));
    // The fuzz targets are a workspace of their own: they cannot take a version from this one.
    let of_this = |(path, _): &(&str, &str)| !path.starts_with("fuzz/");
    for (path, text) in tree.ending(&["/Cargo.toml"]).filter(of_this) {
        findings.extend(with_own_version(path, text));
    }
    findings
}

/// Packages of the web page that have no row `| name | …`. Only names of packages have versions for values.
fn of_the_page(tree: &Tree) -> Vec<Finding> {
    let table = tree.text(TABLE).unwrap_or_default();
    let has_row = |name: &str| table.lines().any(|line| line.starts_with(&format!("| {name} |")));
    let mut section = "";
    let mut findings = Vec::new();
    for (index, line) in tree.text(PAGE).unwrap_or_default().lines().enumerate() {
        let Some((name, value)) =
            line.trim().strip_prefix('"').and_then(|rest| rest.split_once("\": "))
        else {
            continue;
        };
        if value == "{" {
            section = name;
        } else if section.to_lowercase().ends_with("dependencies") && !has_row(name) {
            findings.push(Finding::new(PAGE, index + 1, format!("{name} has no row in {TABLE}")));
        }
    }
    findings
}

/// Packages that a chore installs and that have no row `| name | …`.
fn of_chores(tree: &Tree) -> Vec<Finding> {
    const NAMED: [&str; 3] =
        ["package: \"", "ensure_debian_package(\"", "unpacked_from_debian(root, \""];
    let table = tree.text(TABLE).unwrap_or_default();
    let has_row = |name: &str| table.lines().any(|line| line.starts_with(&format!("| {name} |")));
    let is_chore =
        |path: &str| path.starts_with("xtask/src/") && !path.starts_with("xtask/src/tidy/");
    let mut findings = Vec::new();
    for (path, text) in tree.ending(&[".rs"]).filter(|(path, _)| is_chore(path)) {
        let mut is_list = false;
        let code = text.lines().take_while(|line| !line.starts_with("#[cfg(test)]"));
        for (index, line) in code.enumerate() {
            is_list |= line.contains("_PACKAGES: [") || line.contains("_PACKAGE: &str");
            let mut names: Vec<&str> = (NAMED.iter())
                .filter_map(|before| line.split_once(before)?.1.split_once('"'))
                .map(|(name, _)| name)
                .collect();
            if is_list {
                names.extend(line.split('"').skip(1).step_by(2));
                is_list = !line.ends_with(';');
            }
            for name in names.into_iter().map(without_version).filter(|name| !has_row(name)) {
                findings.push(Finding::new(
                    path,
                    index + 1,
                    format!("{name} has no row in {TABLE}"),
                ));
            }
        }
    }
    findings
}

/// `@a/b@1.0` and `b==1.0` without their versions.
fn without_version(package: &str) -> &str {
    let name = package.split("==").next().unwrap_or(package);
    match name.rsplit_once('@') {
        Some((name, _)) if !name.is_empty() => name,
        Some(_) | None => name,
    }
}

/// Dependencies of a crate that do not take their version from the workspace.
fn with_own_version(path: &str, text: &str) -> Vec<Finding> {
    let toml = Toml::parse(text);
    let mut findings = Vec::new();
    for entry in toml.entries(|section| section.contains("dependencies")) {
        let own_table = entry.section.contains("dependencies.");
        let inherits = match own_table {
            true => entry.key != "version",
            false => entry.key.ends_with(".workspace") || entry.value.contains("workspace = true"),
        };
        // A table's heading is parsed as a key without a value.
        if !inherits && !entry.value.is_empty() {
            let name = if own_table { &entry.section } else { &entry.key };
            let message = format!("{name} takes its version not from the workspace");
            findings.push(Finding::new(path, entry.line, message));
        }
    }
    findings
}

/// The crates with a row in the table: a line that begins with `` | `name` | ``.
fn rows(text: &str) -> BTreeMap<&str, usize> {
    text.lines()
        .enumerate()
        .filter_map(|(index, line)| {
            let (name, _) = line.strip_prefix("| `")?.split_once('`')?;
            Some((name, index + 1))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::found;
    use super::*;

    #[test]
    fn the_table_and_the_manifest_name_the_same_crates() {
        let manifest = "[workspace.dependencies]\nours = { path = \"crates/ours\" }\nserde = \"1\"\nurl = \"2\"\n";
        let table = "| crate | for |\n|---|---|\n| `serde` | JSON |\n| `gone` | nothing |\n";
        assert_eq!(
            found(check, &[(MANIFEST, manifest), (TABLE, table)]),
            [
                "Cargo.toml:4: url has no row in docs/dependencies.md",
                "docs/dependencies.md:4: gone has a row but is no dependency of the workspace",
            ]
        );
    }

    #[test]
    fn packages_of_the_page_have_a_row() {
        let package = "{\n  \"scripts\": {\n    \"dev\": \"vite\"\n  },\n  \"devDependencies\": {\n    \
                       \"svelte\": \"^5\",\n    \"@a/b\": \"1\"\n  },\n  \"overrides\": {\n    \"c\": \"1\"\n  }\n}\n";
        assert_eq!(
            found(check, &[(PAGE, package), (TABLE, "| svelte | the page |\n")]),
            ["dashboard/package.json:7: @a/b has no row in docs/dependencies.md"]
        );
    }

    #[test]
    fn versions_stand_in_the_workspace_only() {
        let text = "[dependencies]\na.workspace = true\nb = { workspace = true, features = [\"x\"] }\n\
                    c = \"1\"\n[dependencies.d]\nworkspace = true\n\
                    [dependencies.e]\nversion = \"1\"\n[target.'cfg(unix)'.dependencies]\nf = \"1\"\n";
        assert_eq!(
            found(check, &[("crates/x/Cargo.toml", text)]),
            [
                "crates/x/Cargo.toml:4: c takes its version not from the workspace",
                "crates/x/Cargo.toml:8: dependencies.e takes its version not from the workspace",
                "crates/x/Cargo.toml:10: f takes its version not from the workspace",
            ]
        );
    }

    #[test]
    fn package_that_a_chore_installs_has_a_row() {
        let chore = "const NODE_PACKAGES: [&str; 2] =\n    [\"@a/b@1.0\", \"c@2\"];\nconst MAKE: Need = Need {\n    \
                     package: \"make\",\n};\nfn x() { ensure_debian_package(\"jq\", \"jq\", \"\"); }\n\
                     #[cfg(test)]\nfn y() { ensure_debian_package(\"dash\", \"\", \"\"); }\n";
        let table = "| package | from |\n|---|---|\n| @a/b | npm |\n| make | Debian |\n";
        let found = found(super::of_chores, &[("xtask/src/x.rs", chore), (TABLE, table)]);
        let expected = [
            "xtask/src/x.rs:2: c has no row in docs/dependencies.md",
            "xtask/src/x.rs:6: jq has no row in docs/dependencies.md",
        ];
        assert_eq!(found, expected);
        assert_eq!(without_version("b==1.0"), "b");
    }
}
