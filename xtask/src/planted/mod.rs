//! `cargo xtask planted`: checks that the simulation catches bugs that are planted in a copy of the
//! sources.
//!
//! The lists in `crates/simulation/planted/` say what to replace. All bugs are put into one copy,
//! each behind a switch, so that it is built once for all of them. **The sources of the product
//! contain no switch.** The copy is in `target/planted`; only files that changed are written again,
//! so that a second build is incremental.

pub(crate) mod list;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use self::list::Bug;
use crate::process::{command, output, run as run_command, target};

/// The parts of the repository that are copied.
const SOURCES: &str = "clients/rust crates xtask Cargo.toml Cargo.lock";
/// The module with the switches, which exists only in the copy.
const SWITCHES: &str = "crates/domain/src/planted.rs";
/// The file in which the copy declares that module.
const DOMAIN: &str = "crates/domain/src/lib.rs";
/// The file in which the simulation reads the switches; in the repository it has an empty list.
const SIMULATION: &str = "crates/simulation/src/planted/switches.rs";

/// Files of the copy by path.
type Files = BTreeMap<String, Vec<u8>>;

/// Plants all bugs in a copy, builds the simulation there and checks that it catches each of them.
/// The arguments are passed to `postrider-simulation planted`.
pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<()> {
    let mut files = sources(root)?;
    let bugs = bugs(&files)?;
    plant(&mut files, &bugs)?;
    let copy = root.join("target/planted");
    write(&copy, &files)?;
    // Reuse the third-party crates of the simulation: the same profile in the same folder.
    let words = "cargo run --quiet --profile simulation -p postrider-simulation --target-dir";
    let mut simulation = command(&copy, words);
    simulation.arg(target(root)).args(["--", "planted"]).args(arguments);
    run_command(&mut simulation)
}

/// The repository's files, committed or not, without those that git ignores.
fn sources(root: &Path) -> Result<Files> {
    let words = format!("git ls-files -z --cached --others --exclude-standard -- {SOURCES}");
    let mut files = Files::new();
    for path in output(&mut command(root, &words))?.split_terminator('\0') {
        // A deleted file is still listed until the deletion is committed.
        if root.join(path).is_file() {
            let bytes = fs::read(root.join(path)).with_context(|| format!("cannot read {path}"))?;
            files.insert(path.to_owned(), bytes);
        }
    }
    Ok(files)
}

fn bugs(files: &Files) -> Result<Vec<Bug>> {
    let mut bugs: Vec<Bug> = Vec::new();
    for path in files.keys().filter(|path| path.starts_with(list::FOLDER)) {
        match list::parse(text(files, path)?) {
            Ok(more) => bugs.extend(more),
            Err(mistake) => bail!("{path}:{}: {}", mistake.line, mistake.message),
        }
    }
    Ok(bugs)
}

fn text<'a>(files: &'a Files, path: &str) -> Result<&'a str> {
    let bytes = files.get(path).with_context(|| format!("there is no {path}"))?;
    std::str::from_utf8(bytes).with_context(|| format!("{path} is not text"))
}

/// Applies every change, adds the switches, and gives the copy's crates another version: otherwise
/// cargo would confuse them with those of the repository and rebuild both each time.
fn plant(files: &mut Files, bugs: &[Bug]) -> Result<()> {
    let mut paths: Vec<_> =
        bugs.iter().flat_map(|bug| &bug.changes).map(|change| change.file.as_str()).collect();
    paths.sort_unstable();
    paths.dedup();
    for path in paths {
        let changed = list::apply(path, text(files, path)?, &list::changes_in(bugs, path));
        let changed = changed.map_err(|mistakes| {
            let messages = mistakes.into_iter().map(|mistake| mistake.message);
            anyhow::anyhow!(messages.collect::<Vec<_>>().join("\n"))
        })?;
        files.insert(path.to_owned(), changed.into_bytes());
    }
    files.insert(SWITCHES.to_owned(), switches(bugs).into_bytes());
    let simulation = "//! The switches of the planted bugs.\n\
                      pub use postrider_domain::planted::BUGS;\n\
                      pub(super) use postrider_domain::planted::plant;\n";
    files.insert(SIMULATION.to_owned(), simulation.into());
    let domain = format!("{}pub mod planted;\n", text(files, DOMAIN)?);
    files.insert(DOMAIN.to_owned(), domain.into_bytes());
    let manifest = text(files, "Cargo.toml")?;
    let version = manifest.lines().find(|line| line.starts_with("version = "));
    let version = version.context("Cargo.toml has no version")?;
    let manifest = manifest.replacen(version, "version = \"0.0.0-planted\"", 1);
    files.insert("Cargo.toml".to_owned(), manifest.into_bytes());
    Ok(())
}

/// The module with one switch for each bug. A simulated world runs on one thread, and the switch is
/// per thread: so several worlds can run concurrently.
fn switches(bugs: &[Bug]) -> String {
    let (mut variants, mut names, mut arms) = (String::new(), String::new(), String::new());
    for Bug { name, breaks, .. } in bugs {
        variants += &format!("    /// {breaks}\n    {name},\n");
        names += &format!("    (\"{name}\", \"{}\"),\n", breaks.escape_default());
        arms += &format!("        Some(\"{name}\") => Some(Bug::{name}),\n");
    }
    format!(
        "//! The switches of the planted bugs. Made by `cargo xtask planted`.

use std::cell::Cell;

/// A bug.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bug {{
{variants}}}

/// All bugs: the name of each and what it breaks.
pub const BUGS: &[(&str, &str)] = &[
{names}];

thread_local! {{
    static PLANTED: Cell<Option<Bug>> = const {{ Cell::new(None) }};
}}

/// Whether this bug is planted on this thread.
pub fn is(bug: Bug) -> bool {{
    PLANTED.get() == Some(bug)
}}

/// Plants the bug of this name on this thread, in place of the one before.
pub fn plant(name: Option<&str>) {{
    PLANTED.set(match name {{
{arms}        Some(_) | None => None,
    }});
}}
"
    )
}

/// Writes the files that differ, and removes those that no longer exist. Other files keep their
/// time, so that cargo does not rebuild them.
fn write(folder: &Path, files: &Files) -> Result<()> {
    remove_others(folder, "", files)?;
    for (path, bytes) in files {
        let path = folder.join(path);
        if fs::read(&path).is_ok_and(|old| old == *bytes) {
            continue;
        }
        fs::create_dir_all(path.parent().unwrap_or(folder))?;
        fs::write(&path, bytes).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

fn remove_others(folder: &Path, prefix: &str, files: &Files) -> Result<()> {
    if !folder.exists() {
        return Ok(());
    }
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let path = format!("{prefix}{}", entry.file_name().to_string_lossy());
        if entry.file_type()?.is_dir() {
            remove_others(&entry.path(), &format!("{path}/"), files)?;
        } else if !files.contains_key(&path) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_listed_bug_has_a_switch_in_the_copy() {
        let mut files = sources(&crate::root()).unwrap();
        let bugs = bugs(&files).unwrap();
        plant(&mut files, &bugs).unwrap();
        let module = text(&files, SWITCHES).unwrap().to_owned();
        for Bug { name, .. } in &bugs {
            assert_eq!(
                module.matches(&format!("    {name},\n")).count(),
                1,
                "{name} in:\n{module}"
            );
            let switch = format!("Bug::{name})");
            let used = files.values().filter_map(|bytes| std::str::from_utf8(bytes).ok());
            assert!(used.into_iter().any(|text| text.contains(&switch)), "nothing asks for {name}");
        }
        assert!(text(&files, "Cargo.toml").unwrap().contains("version = \"0.0.0-planted\""));
    }

    #[test]
    fn second_write_touches_only_what_differs() {
        let folder = std::env::temp_dir().join(format!("planted-{}", std::process::id()));
        let of = |list: &[(&str, &str)]| -> Files {
            list.iter().map(|(path, text)| ((*path).to_owned(), text.as_bytes().to_vec())).collect()
        };
        write(&folder, &of(&[("a/same", "1"), ("a/differs", "1"), ("gone", "1")])).unwrap();
        let read_only = |path: &str, on: bool| {
            let path = folder.join(path);
            let mut permissions = fs::metadata(&path).unwrap().permissions();
            permissions.set_readonly(on);
            fs::set_permissions(&path, permissions).unwrap();
        };
        let before = fs::metadata(folder.join("a/same")).unwrap().modified().unwrap();
        read_only("a/same", true);
        write(&folder, &of(&[("a/same", "1"), ("a/differs", "2"), ("new", "1")])).unwrap();
        assert_eq!(fs::metadata(folder.join("a/same")).unwrap().modified().unwrap(), before);
        assert_eq!(fs::read(folder.join("a/differs")).unwrap(), b"2");
        assert!(folder.join("new").exists() && !folder.join("gone").exists());
        fs::remove_dir_all(&folder).unwrap();
    }
}
