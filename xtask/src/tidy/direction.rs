//! Dependencies between our crates point one way.
//!
//! ```text
//! server ─▶ api ─▶ engine ─▶ { store, transport } ─▶ entropy ─▶ domain
//!       ├─▶ simulation ─┘
//!       └─▶ bench ─▶ { cli ─▶ { client, domain }, api, … }
//! ```

use super::{Finding, Tree};
use crate::toml::{ALL_KINDS, Toml};

/// Crates that are never part of a release. Every crate above the domain may use them in its tests;
/// any other use must be allowed explicitly. The domain's own tests cannot: they would see two
/// copies of its types.
const TESTING: &[&str] = &["store-testing", "test-support"];

/// Each crate's folder, and our crates that it may depend on.
const LAYERS: &[(&str, &[&str])] = &[
    ("domain", &[]),
    ("dashboard", &[]),
    ("test-support", &["domain"]),
    ("entropy", &["domain"]),
    ("store", &["entropy", "domain"]),
    ("store-testing", &["test-support", "store", "domain"]),
    ("transport", &["domain"]),
    ("engine", &["store", "transport", "entropy", "domain"]),
    ("api", &["dashboard", "engine", "store", "transport", "entropy", "domain"]),
    ("simulation", &["engine", "store-testing", "store", "transport", "domain"]),
    ("client", &[]),
    ("cli", &["client", "domain"]),
    ("bench", &["cli", "client", "api", "store", "transport", "entropy", "domain"]),
    (
        "server",
        &[
            "bench",
            "cli",
            "client",
            "simulation",
            "api",
            "engine",
            "store",
            "transport",
            "entropy",
            "domain",
        ],
    ),
];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (folder, path, text) in tree.crates() {
        let Some((_, allowed)) = LAYERS.iter().find(|(layer, _)| *layer == folder) else {
            let message = format!("the crate {folder} has no place in {}", file!());
            findings.push(Finding::new(path, 1, message));
            continue;
        };
        findings.extend(forbidden(path, text, folder, allowed));
    }
    if let Some(text) = tree.text("xtask/Cargo.toml") {
        findings.extend(forbidden("xtask/Cargo.toml", text, "xtask", &[]));
    }
    findings
}

fn forbidden(path: &str, manifest: &str, from: &str, allowed: &[&str]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let toml = Toml::parse(manifest);
    let in_tests = toml.dependencies(&["dev-dependencies"]);
    for (name, line) in toml.dependencies(ALL_KINDS) {
        let ours = match name {
            "xtask" => "xtask",
            // The package of the binary may be named `postrider`.
            "postrider" => "server",
            name => match name.strip_prefix("postrider-") {
                Some(ours) => ours,
                None => continue,
            },
        };
        let is_for_tests = TESTING.contains(&ours)
            && allowed.contains(&"domain")
            && in_tests.contains(&(name, line));
        if ours != from && !allowed.contains(&ours) && !is_for_tests {
            let message = format!("{from} must not depend on {ours}");
            findings.push(Finding::new(path, line, message));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::found;
    use super::*;

    #[test]
    fn a_crate_depends_only_on_those_below_it() {
        let files = [
            ("crates/domain/Cargo.toml", "[dependencies]\nserde.workspace = true\n"),
            ("crates/store/Cargo.toml", "[dependencies]\npostrider-domain.workspace = true\n"),
            (
                "crates/engine/Cargo.toml",
                "[dependencies]\npostrider-store.workspace = true\npostrider-transport.workspace = true\n",
            ),
            ("crates/server/Cargo.toml", "[dependencies]\npostrider-api = { path = \"../api\" }\n"),
        ];
        assert_eq!(found(check, &files), [""; 0]);
    }

    #[test]
    fn test_support_is_for_tests_only_and_not_for_the_domain() {
        let manifest = |kind: &str| format!("[{kind}]\npostrider-test-support.workspace = true\n");
        let in_tests = manifest("dev-dependencies");
        let engine = "crates/engine/Cargo.toml";
        assert_eq!(found(check, &[(engine, &in_tests)]), [""; 0]);
        assert_eq!(
            found(check, &[(engine, &manifest("dependencies"))]),
            [format!("{engine}:2: engine must not depend on test-support")]
        );
        let domain = "crates/domain/Cargo.toml";
        assert_eq!(
            found(check, &[(domain, &in_tests)]),
            [format!("{domain}:2: domain must not depend on test-support")]
        );
    }

    #[test]
    fn edges_upward_and_sideways_are_refused_in_tests_too() {
        let files = [
            ("crates/domain/Cargo.toml", "[dev-dependencies]\npostrider-engine.workspace = true\n"),
            ("crates/store/Cargo.toml", "[dependencies]\npostrider-transport.workspace = true\n"),
            ("crates/api/Cargo.toml", "[dependencies.postrider]\nworkspace = true\n"),
            ("crates/novel/Cargo.toml", ""),
            ("xtask/Cargo.toml", "[dependencies]\npostrider-domain.workspace = true\n"),
        ];
        assert_eq!(
            found(check, &files),
            [
                "crates/api/Cargo.toml:1: api must not depend on server",
                "crates/domain/Cargo.toml:2: domain must not depend on engine",
                &format!("crates/novel/Cargo.toml:1: the crate novel has no place in {}", file!()),
                "crates/store/Cargo.toml:2: store must not depend on transport",
                "xtask/Cargo.toml:2: xtask must not depend on domain",
            ]
        );
    }
}
