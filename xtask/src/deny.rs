//! Checks third-party code against `deny.toml`: licences, banned crates, sources, duplicate
//! versions.
//!
//! It runs cargo-deny if that is installed; otherwise this file checks the same lists with cargo's
//! own data. Security advisories are not checked: their database would have to be downloaded.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::process::{command, exists, output, run};
use crate::toml::{Toml, texts};

/// Checks every package in Cargo.lock.
pub(crate) fn check(root: &Path) -> Result<()> {
    println!("security advisories are not checked: their database is not reachable from CI");
    println!("(where it is reachable: cargo deny check advisories)");
    if exists("cargo deny --version") {
        return run(&mut command(root, "cargo deny check licenses bans sources"));
    }
    println!("cargo-deny is not installed: checking the lists of deny.toml by our own means");
    let rules = Rules::parse(&fs::read_to_string(root.join("deny.toml"))?);
    let lock = fs::read_to_string(root.join("Cargo.lock"))?;
    let licences = output(&mut command(
        root,
        "cargo tree --locked --workspace --all-features --target all --edges normal,build,dev \
         --prefix none --format {p}|{l}",
    ))?;
    let packages = packages(&lock);
    for (name, versions) in doubles(&packages) {
        println!(
            "warning: {name} is there in {} versions: {}",
            versions.len(),
            versions.join(", ")
        );
    }
    let mut faults = rules.judge_packages(&packages);
    faults.extend(rules.judge_licences(&licences));
    if faults.is_empty() {
        println!("{} packages: licences, bans and sources are fine", packages.len());
        return Ok(());
    }
    bail!("deny.toml forbids:\n  {}", faults.join("\n  "))
}

/// Checks the licences of what is in the web page, which its build lists.
pub(crate) fn check_page(root: &Path) -> Result<()> {
    let rules = Rules::parse(&fs::read_to_string(root.join("deny.toml"))?);
    let path = root.join("dashboard/embed/packages.txt");
    let list = fs::read_to_string(&path).with_context(|| {
        format!("cannot read {}: `npm run build` in dashboard/ writes it", path.display())
    })?;
    let faults = rules.judge_licences(&list);
    if list.trim().is_empty() {
        bail!("{} names no package: the page has at least that of its framework", path.display());
    }
    if faults.is_empty() {
        println!("{} packages are in the page: their licences are fine", list.lines().count());
        return Ok(());
    }
    bail!("deny.toml forbids in the page:\n  {}", faults.join("\n  "))
}

/// What `deny.toml` says.
struct Rules {
    licences: BTreeSet<String>,
    banned: BTreeMap<String, String>,
}

impl Rules {
    fn parse(text: &str) -> Self {
        let toml = Toml::parse(text);
        let list = |section, key| texts(toml.value(section, key).unwrap_or_default());
        Rules {
            licences: list("licenses", "allow").into_iter().map(str::to_owned).collect(),
            // Each element is `{ crate = "…", reason = "…" }`.
            banned: list("bans", "deny")
                .chunks_exact(2)
                .map(|pair| (pair[0].to_owned(), pair[1].to_owned()))
                .collect(),
        }
    }

    fn judge_packages(&self, packages: &[Package<'_>]) -> Vec<String> {
        let mut faults = Vec::new();
        for package in packages {
            if let Some(reason) = self.banned.get(package.name) {
                faults.push(format!("{} {}: banned, {reason}", package.name, package.version));
            }
            if let Some(source) = package.source
                && !is_default_registry(source)
            {
                faults.push(format!("{} {}: comes from {source}", package.name, package.version));
            }
        }
        faults
    }

    /// Checks lines of `name version (remarks)|licence`, as `cargo tree` prints them.
    fn judge_licences(&self, tree: &str) -> Vec<String> {
        let mut faults = BTreeSet::new();
        for line in tree.lines().filter(|line| !line.trim().is_empty()) {
            let (package, licence) = line.split_once('|').unwrap_or((line, ""));
            let licence = licence.trim_end_matches("(*)").trim();
            match self.accepts(licence) {
                Ok(true) => {}
                Ok(false) => {
                    faults.insert(format!("{package}: licence `{licence}` is not on the list"));
                }
                Err(error) => {
                    faults.insert(format!("{package}: licence `{licence}`: {error:#}"));
                }
            }
        }
        faults.into_iter().collect()
    }

    /// Whether an SPDX expression can be satisfied by the licences on the list.
    fn accepts(&self, expression: &str) -> Result<bool> {
        // Before SPDX expressions, `MIT/Apache-2.0` meant a choice.
        let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
        let mut words = spaced.split_whitespace().peekable();
        let answer = self.any_of(&mut words)?;
        match words.next() {
            None => Ok(answer),
            Some(word) => bail!("cannot read it from `{word}` on"),
        }
    }

    fn any_of<'a>(&self, words: &mut Words<'a, impl Iterator<Item = &'a str>>) -> Result<bool> {
        let mut answer = self.all_of(words)?;
        while words.next_if_eq(&"OR").is_some() {
            answer |= self.all_of(words)?;
        }
        Ok(answer)
    }

    fn all_of<'a>(&self, words: &mut Words<'a, impl Iterator<Item = &'a str>>) -> Result<bool> {
        let mut answer = self.one(words)?;
        while words.next_if_eq(&"AND").is_some() {
            answer &= self.one(words)?;
        }
        Ok(answer)
    }

    fn one<'a>(&self, words: &mut Words<'a, impl Iterator<Item = &'a str>>) -> Result<bool> {
        let mut licence = words.next().context("a licence is missing")?.to_owned();
        if licence == "(" {
            let answer = self.any_of(words)?;
            words.next_if_eq(&")").context("a bracket is not closed")?;
            return Ok(answer);
        }
        if words.next_if_eq(&"WITH").is_some() {
            let exception = words.next().context("an exception is missing")?;
            licence = format!("{licence} WITH {exception}");
        }
        Ok(self.licences.contains(&licence))
    }
}

type Words<'a, I> = std::iter::Peekable<I>;

/// One package of Cargo.lock.
#[derive(Debug, PartialEq, Eq)]
struct Package<'a> {
    name: &'a str,
    version: &'a str,
    /// Its source; `None` for our own crates.
    source: Option<&'a str>,
}

fn packages(lock: &str) -> Vec<Package<'_>> {
    let package = |block| {
        let (name, version) = (field(block, "name")?, field(block, "version")?);
        Some(Package { name, version, source: field(block, "source") })
    };
    lock.split("[[package]]").skip(1).filter_map(package).collect()
}

fn field<'a>(block: &'a str, key: &str) -> Option<&'a str> {
    block.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(" = \"")?.strip_suffix('"'))
}

/// Cargo names its default registry by the index's repository.
fn is_default_registry(source: &str) -> bool {
    source
        .strip_prefix("registry+https://github.com/rust-lang/")
        .is_some_and(|index| index.ends_with("-index") && !index.contains('/'))
}

fn doubles<'a>(packages: &[Package<'a>]) -> Vec<(&'a str, Vec<&'a str>)> {
    let mut versions: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for package in packages {
        versions.entry(package.name).or_default().push(package.version);
    }
    versions.into_iter().filter(|(_, versions)| versions.len() > 1).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules() -> Rules {
        Rules::parse(
            r#"
[licenses]
allow = [
  "Apache-2.0", # ours
  "MIT",
  "Unicode-3.0",
]
[bans]
deny = [
  { crate = "openssl", reason = "rustls" },
]
"#,
        )
    }

    #[test]
    fn a_licence_expression_is_judged_by_its_logic() {
        let yes = [
            "MIT",
            "MIT OR GPL-3.0",
            "GPL-3.0/MIT",
            "Apache-2.0 / GPL-3.0",
            "(MIT OR Apache-2.0) AND Unicode-3.0",
            "Apache-2.0 WITH LLVM-exception OR MIT",
            "GPL-3.0 OR MIT AND Unicode-3.0",
        ];
        let no = [
            "GPL-3.0",
            "MIT AND GPL-3.0",
            "(MIT OR Apache-2.0) AND GPL-3.0",
            "Apache-2.0 WITH LLVM-exception",
            "GPL-3.0 OR MIT AND BSD-1-Clause",
        ];
        for expression in yes {
            assert!(rules().accepts(expression).unwrap(), "{expression}");
        }
        for expression in no {
            assert!(!rules().accepts(expression).unwrap(), "{expression}");
        }
        for malformed in ["", "(MIT", "MIT MIT", "MIT OR", "MIT WITH"] {
            assert!(rules().accepts(malformed).is_err(), "{malformed}");
        }
    }

    #[test]
    fn licences_are_named_with_their_package() {
        let tree = "a v1.0.0|MIT\nb v2.0.0 (proc-macro)|GPL-3.0 (*)\nb v2.0.0 (proc-macro)|GPL-3.0\n\nc v1|";
        assert_eq!(
            rules().judge_licences(tree),
            [
                "b v2.0.0 (proc-macro): licence `GPL-3.0` is not on the list",
                "c v1: licence ``: a licence is missing"
            ]
        );
    }

    #[test]
    fn banned_crates_and_foreign_sources_are_named() {
        let index = concat!("registry+https://github.com/rust-lang/crates", ".io-index");
        let lock = format!(
            "version = 4\n\n[[package]]\nname = \"ours\"\nversion = \"0.1.0\"\n\n\
             [[package]]\nname = \"openssl\"\nversion = \"0.10.1\"\nsource = \"{index}\"\n\n\
             [[package]]\nname = \"twice\"\nversion = \"1.0.0\"\nsource = \"{index}\"\n\n\
             [[package]]\nname = \"twice\"\nversion = \"2.0.0\"\nsource = \"git+https://example.com/x\"\n"
        );
        let packages = packages(&lock);
        assert_eq!(packages.len(), 4);
        assert_eq!(packages[0], Package { name: "ours", version: "0.1.0", source: None });
        assert_eq!(
            rules().judge_packages(&packages),
            ["openssl 0.10.1: banned, rustls", "twice 2.0.0: comes from git+https://example.com/x"]
        );
        assert_eq!(doubles(&packages), [("twice", vec!["1.0.0", "2.0.0"])]);
    }

    #[test]
    fn only_the_default_registry_is_the_default_registry() {
        assert!(!is_default_registry("registry+https://github.com/rust-lang/x/y-index"));
        assert!(!is_default_registry("registry+https://github.com/somebody/y-index"));
        assert!(!is_default_registry("sparse+https://example.com/index/"));
    }

    #[test]
    fn our_own_lists_are_read() {
        let root = crate::root();
        let rules = Rules::parse(&fs::read_to_string(root.join("deny.toml")).unwrap());
        assert!(rules.licences.contains("Apache-2.0"), "{:?}", rules.licences);
        assert!(rules.banned.contains_key("openssl"), "{:?}", rules.banned);
        let lock = fs::read_to_string(root.join("Cargo.lock")).unwrap();
        assert!(packages(&lock).iter().any(|package| package.name == "anyhow"));
    }
}
