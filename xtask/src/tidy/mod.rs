//! `cargo xtask tidy`: rules of this repository that clippy cannot check.
//!
//! A rule is a function from the tree of files to its violations. It reads no file itself: the tree
//! is in memory, and tests construct their own.

mod changelog;
mod core_order;
mod dependencies;
mod direction;
mod domain;
mod hosts;
mod length;
mod links;
mod logs;
mod module_doc;
mod modules;
mod paths;
mod planted;
mod reach;
mod shell_blocks;
mod sleep;
mod source;
mod summary;
mod symbols;
mod whitespace;

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

pub(crate) use self::links::resolve;

/// Folders and files that are built or fetched, never written by us.
const NOT_OURS: &[&str] = &[
    ".git",
    "target",
    "node_modules",
    "dist",
    "embed",
    "generated",
    "postrider-data",
    "corpus",
    "artifacts",
    // The TypeScript client's types, made from the OpenAPI document.
    "schema.ts",
];

type Rule = fn(&Tree) -> Vec<Finding>;

const RULES: &[(&str, Rule)] = &[
    ("a file begins with its module doc", module_doc::check),
    ("a file stays short", length::check),
    ("every file is reached by a mod", reach::check),
    ("a module with modules is a folder", modules::check),
    ("crates depend in one direction", direction::check),
    ("modules of the core use those before them", core_order::check),
    ("the domain is pure", domain::check),
    ("tests do not sleep", sleep::check),
    ("log lines have words and numbers, not Rust's Debug", logs::check),
    ("no registry is named by its host", hosts::check),
    ("white space is plain", whitespace::check),
    ("the changelog has its open section", changelog::check),
    ("links in documents lead somewhere", links::check),
    ("functions and tests that documents name are there", symbols::check),
    ("files that documents name are there", paths::check),
    ("every page is in the book", summary::check),
    ("shell blocks are run or marked", shell_blocks::check),
    ("dependencies have their reason", dependencies::check),
    ("planted bugs fit the sources", planted::check),
];

/// Checks the repository against every rule.
pub(crate) fn run(root: &Path) -> Result<()> {
    let tree = Tree::read(root)?;
    let mut broken = 0;
    for (name, rule) in RULES {
        let findings = rule(&tree);
        for finding in &findings {
            println!("{finding}");
        }
        if !findings.is_empty() {
            println!("  ^ {name}\n");
            broken += findings.len();
        }
    }
    println!("tidy: {} files, {} rules, {broken} findings", tree.files.len(), RULES.len());
    if broken > 0 {
        bail!("{broken} things are untidy");
    }
    Ok(())
}

/// Checks the links of all documents; how many there are.
pub(crate) fn check_links(root: &Path) -> Result<usize> {
    let tree = Tree::read(root)?;
    let findings = links::check(&tree);
    for finding in &findings {
        println!("{finding}");
    }
    if !findings.is_empty() {
        bail!("{} links lead nowhere", findings.len());
    }
    Ok(links::count(&tree))
}

/// Something that breaks a rule, and where.
#[derive(Debug, PartialEq, Eq)]
struct Finding {
    path: String,
    /// The line, from 1.
    line: usize,
    message: String,
}

impl Finding {
    fn new(path: &str, line: usize, message: impl Into<String>) -> Self {
        Finding { path: path.to_owned(), line, message: message.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.message)
    }
}

/// The repository's files by path, with `/` between folders.
struct Tree {
    /// The text of each file; `None` if it is not text.
    files: BTreeMap<String, Option<String>>,
}

impl Tree {
    fn read(root: &Path) -> Result<Self> {
        let mut files = BTreeMap::new();
        read_folder(root, "", &mut files)?;
        Ok(Tree { files })
    }

    /// A tree for a test.
    #[cfg(test)]
    fn of(files: &[(&str, &str)]) -> Self {
        let owned = |(path, text): &(&str, &str)| ((*path).to_owned(), Some((*text).to_owned()));
        Tree { files: files.iter().map(owned).collect() }
    }

    /// The text of a file, if it exists and is text.
    fn text(&self, path: &str) -> Option<&str> {
        self.files.get(path)?.as_deref()
    }

    /// The text files whose names end with one of these.
    fn ending<'a>(&'a self, ends: &'a [&str]) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.texts().filter(|(path, _)| ends.iter().any(|end| path.ends_with(end)))
    }

    /// All text files.
    fn texts(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files.iter().filter_map(|(path, text)| Some((path.as_str(), text.as_deref()?)))
    }

    /// Whether there is such a file, or a folder with files in it.
    fn has(&self, path: &str) -> bool {
        let folder = format!("{path}/");
        path.is_empty()
            || self.files.contains_key(path)
            || self.files.keys().any(|file| file.starts_with(&folder))
    }

    /// The crates in `crates/`, and the client in `clients/rust`: the name, the manifest's path, its
    /// text.
    fn crates(&self) -> impl Iterator<Item = (&str, &str, &str)> {
        self.texts().filter_map(|(path, text)| {
            if path == "clients/rust/Cargo.toml" {
                return Some(("client", path, text));
            }
            let folder = path.strip_prefix("crates/")?.strip_suffix("/Cargo.toml")?;
            (!folder.contains('/')).then_some((folder, path, text))
        })
    }
}

fn read_folder(
    folder: &Path,
    prefix: &str,
    files: &mut BTreeMap<String, Option<String>>,
) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("cannot read {prefix}"))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = format!("{prefix}{name}");
        let kind = entry.file_type()?;
        if NOT_OURS.contains(&name.as_str()) && path != "xtask/src/dist" {
            continue;
        }
        if kind.is_dir() {
            read_folder(&entry.path(), &format!("{path}/"), files)?;
        } else if kind.is_file() {
            files.insert(path, String::from_utf8(fs::read(entry.path())?).ok());
        }
    }
    Ok(())
}

/// The violations of a rule in a test's tree, as text.
#[cfg(test)]
fn found(rule: impl Fn(&Tree) -> Vec<Finding>, files: &[(&str, &str)]) -> Vec<String> {
    rule(&Tree::of(files)).iter().map(Finding::to_string).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tree_contains_our_files_only() {
        let tree = Tree::read(&crate::root()).unwrap();
        assert!(
            tree.text("xtask/src/tidy/mod.rs").is_some_and(|text| text.starts_with("//! `cargo"))
        );
        assert!(tree.text("xtask/src/dist/mod.rs").is_some());
        assert!(!tree.files.keys().any(|path| path.contains("target/")));
        for expected in ["domain", "client"] {
            assert!(tree.crates().any(|(folder, ..)| folder == expected), "{expected}");
        }
        assert!(tree.has("xtask/src") && tree.has("") && !tree.has("xtask/sr"));
    }

    #[test]
    fn a_finding_names_file_and_line() {
        assert_eq!(Finding::new("a/b.rs", 7, "odd").to_string(), "a/b.rs:7: odd");
    }
}
