//! Every planted bug still fits the sources: its `find` occurs exactly once in its file.
//!
//! A change of the sources that breaks a planted bug is noticed at once, without a build.

use std::collections::BTreeMap;

use super::{Finding, Tree};
use crate::planted::list::{self, Bug, Mistake};

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let (mut bugs, mut names) = (Vec::new(), BTreeMap::new());
    for (path, text) in tree.ending(&[".toml"]).filter(|(path, _)| path.starts_with(list::FOLDER)) {
        match list::parse(text) {
            Ok(more) => bugs.extend(more.into_iter().map(|bug| (path, bug))),
            Err(Mistake { line, message }) => findings.push(Finding::new(path, line, message)),
        }
    }
    for (path, bug) in &bugs {
        if let Some(before) = names.insert(bug.name.as_str(), path) {
            let message = format!("{} is the name of a bug in {before} already", bug.name);
            findings.push(Finding::new(path, bug.line, message));
        }
        for change in bug.changes.iter().filter(|change| tree.text(&change.file).is_none()) {
            let message = format!("{}: there is no file {}", bug.name, change.file);
            findings.push(Finding::new(path, change.line, message));
        }
    }
    // Grouped by list, because line numbers refer to a list.
    let mut lists: BTreeMap<&str, Vec<Bug>> = BTreeMap::new();
    for (path, bug) in bugs {
        lists.entry(path).or_default().push(bug);
    }
    for (path, bugs) in &lists {
        let mut files: Vec<_> = bugs.iter().flat_map(|bug| &bug.changes).map(|c| &c.file).collect();
        files.sort_unstable();
        files.dedup();
        for file in files {
            let Some(text) = tree.text(file) else { continue };
            let mistakes = list::apply(file, text, &list::changes_in(bugs, file)).err();
            for Mistake { line, message } in mistakes.into_iter().flatten() {
                findings.push(Finding::new(path, line, message));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::found;
    use super::*;

    const PATH: &str = "crates/simulation/planted/domain.toml";
    const LIST: &str = "[[bug]]\nname = \"Early\"\nbreaks = \"It is early.\"\n[[bug.change]]\n\
                        file = \"crates/domain/src/a.rs\"\nfind = \"wait(2)\"\n\
                        replace = \"wait(2 - u64::from(planted!()))\"\n";

    #[test]
    fn bug_whose_text_occurs_once_is_fine() {
        let files = [(PATH, LIST), ("crates/domain/src/a.rs", "fn f() { wait(2); wait(3) }")];
        assert_eq!(found(check, &files), [""; 0]);
    }

    #[test]
    fn bug_that_does_not_fit_the_sources_is_found() {
        let check_with = |text: &str, expected: &str| {
            let files = [(PATH, LIST), ("crates/domain/src/a.rs", text)];
            assert_eq!(found(check, &files), [format!("{PATH}:4: Early: {expected}")]);
        };
        check_with("wait(3)", "its `find` does not occur in crates/domain/src/a.rs");
        check_with("wait(2) wait(2)", "its `find` occurs 2 times in crates/domain/src/a.rs");
        let missing = found(check, &[(PATH, LIST)]);
        assert_eq!(missing, [format!("{PATH}:4: Early: there is no file crates/domain/src/a.rs")]);
    }

    #[test]
    fn bug_without_a_switch_and_a_second_one_of_its_name_are_found() {
        let source = ("crates/domain/src/a.rs", "wait(2)");
        let always = LIST.replace("planted!()", "true");
        let found_always = found(check, &[(PATH, &always), source]);
        assert!(found_always[0].contains(":4: `replace` has no `planted!()`"), "{found_always:?}");
        let twice = ("crates/simulation/planted/engine.toml", LIST);
        let found = found(check, &[(PATH, LIST), twice, source]);
        assert!(
            found[0].ends_with(
                "Early is the name of a bug in crates/simulation/planted/domain.toml already"
            ),
            "{found:?}"
        );
    }
}
