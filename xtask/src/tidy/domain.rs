//! The domain has no IO, no async, no clock and no randomness: checked by its dependencies and by
//! its sources.

use super::source::{has_phrase, without_comment};
use super::{Finding, Tree};
use crate::toml::Toml;

const MANIFEST: &str = "crates/domain/Cargo.toml";

/// The exact dependencies of the domain. None of them, with the features that we use, reads a
/// clock, a file, a socket or a source of randomness.
const DEPENDENCIES: &[&str] = &[
    "base64",
    "bytes",
    "ed25519-dalek",
    "hmac",
    "ipnet",
    "jiff",
    "rpds",
    "serde",
    "serde_json",
    "sha2",
    "subtle",
    "thiserror",
    "url",
    "uuid",
    "zeroize",
];

/// Additional dependencies of its tests.
const TEST_DEPENDENCIES: &[&str] = &["insta", "proptest"];

/// Texts that its sources must not contain, and why.
const FORBIDDEN: &[(&str, &str)] = &[
    ("std::fs", "IO"),
    ("std::env", "reads the environment"),
    ("std::process", "IO"),
    ("std::thread", "runs by itself"),
    ("TcpStream", "IO"),
    ("TcpListener", "IO"),
    ("UdpSocket", "IO"),
    ("UnixStream", "IO"),
    ("UnixListener", "IO"),
    ("ToSocketAddrs", "asks a resolver"),
    ("Instant", "reads a clock; `now` is an argument"),
    ("SystemTime", "reads a clock; `now` is an argument"),
    ("Timestamp::now", "reads a clock; `now` is an argument"),
    ("Zoned::now", "reads a clock; `now` is an argument"),
    ("now_v7", "reads a clock; `now` is an argument"),
    ("new_v4", "draws random numbers; they are an argument"),
    ("OsRng", "draws random numbers; they are an argument"),
    ("async", "the domain answers at once"),
    (".await", "the domain answers at once"),
    ("tokio", "the domain has no runtime"),
];

/// Parts of `std` that a grouped import (`use std::{fs, fmt}`) would hide from the list above.
const FORBIDDEN_IN_GROUPS: &[&str] = &["fs", "env", "process", "thread"];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Some(text) = tree.text(MANIFEST) {
        findings.extend(check_dependencies(text));
    }
    let sources = tree.ending(&[".rs"]).filter(|(path, _)| path.starts_with("crates/domain/src/"));
    for (path, text) in sources {
        let mut in_std_group = false;
        for (index, line) in text.lines().enumerate() {
            let line = without_comment(line);
            for (phrase, why) in FORBIDDEN.iter().filter(|(phrase, _)| has_phrase(line, phrase)) {
                let message = format!("the domain does not say `{phrase}`: {why}");
                findings.push(Finding::new(path, index + 1, message));
            }
            in_std_group |= line.trim_start().contains("use std::{");
            if in_std_group {
                for part in FORBIDDEN_IN_GROUPS.iter().filter(|part| has_phrase(line, part)) {
                    let message = format!("the domain does not import `std::{part}`");
                    findings.push(Finding::new(path, index + 1, message));
                }
                in_std_group = !line.contains(';');
            }
        }
    }
    findings
}

fn check_dependencies(manifest: &str) -> Vec<Finding> {
    let toml = Toml::parse(manifest);
    let mut findings = Vec::new();
    let normal = toml.dependencies(&["dependencies", "build-dependencies"]);
    for (name, line) in &normal {
        if !DEPENDENCIES.contains(name) {
            let message =
                format!("{name} is not on the domain's list, which stands in {}", file!());
            findings.push(Finding::new(MANIFEST, *line, message));
        }
    }
    for name in DEPENDENCIES.iter().filter(|name| !normal.iter().any(|(used, _)| used == *name)) {
        let message = format!("{name} is on the domain's list in {} but not used", file!());
        findings.push(Finding::new(MANIFEST, 1, message));
    }
    for (name, line) in toml.dependencies(&["dev-dependencies"]) {
        if !TEST_DEPENDENCIES.contains(&name) {
            let message =
                format!("{name} is not on the list for the domain's tests in {}", file!());
            findings.push(Finding::new(MANIFEST, line, message));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::found;
    use super::*;

    #[test]
    fn the_dependencies_are_exactly_those_on_the_list() {
        let lines = |names: &[&str]| {
            names.iter().map(|name| format!("{name}.workspace = true\n")).collect::<String>()
        };
        let exact = format!("[dependencies]\n{}", lines(DEPENDENCIES));
        assert_eq!(found(check, &[(MANIFEST, &exact)]), [""; 0]);

        let odd = format!(
            "[dependencies]\ntokio.workspace = true\n{}[dev-dependencies]\nmockall.workspace = true\n",
            lines(&DEPENDENCIES[1..])
        );
        let found = found(check, &[(MANIFEST, &odd)]);
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found[0].starts_with("crates/domain/Cargo.toml:2: tokio is not on"));
        assert!(found[1].starts_with("crates/domain/Cargo.toml:1: base64 is on"));
        // A heading, tokio, all of the list except its first entry, and another heading.
        let line = 2 + (DEPENDENCIES.len() - 1) + 2;
        let expected = format!("crates/domain/Cargo.toml:{line}: mockall is not on");
        assert!(found[2].starts_with(&expected), "{found:?}");
    }

    #[test]
    fn clocks_files_sockets_and_async_are_refused() {
        for line in [
            "use std::fs::File;",
            "use std::net::{IpAddr, TcpStream};",
            "let now = std::time::Instant::now();",
            "use std::time::{Duration, SystemTime};",
            "let home = std::env::var(\"HOME\");",
            "std::thread::spawn(f);",
            "async fn f() {}",
            "f().await;",
            "use std::{fmt, fs};",
        ] {
            let found = found(check, &[("crates/domain/src/a.rs", line)]);
            assert!(!found.is_empty(), "{line}");
            assert!(found[0].starts_with("crates/domain/src/a.rs:1: the domain does not"));
        }
    }

    #[test]
    fn addresses_durations_and_comments_are_fine() {
        let text = "use std::net::{IpAddr, Ipv4Addr};\nuse std::time::Duration;\n// No Instant, no async.\n\
                    use std::{\n    fmt,\n    str,\n};\nfn env() {}\n";
        let elsewhere = ("crates/engine/src/a.rs", "use std::fs;\n");
        assert_eq!(found(check, &[("crates/domain/src/a.rs", text), elsewhere]), [""; 0]);
    }
}
