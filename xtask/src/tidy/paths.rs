//! Files that are named in a document must exist, or be marked as planned.

use super::{Finding, Tree};

/// The documents that describe the present state. Decisions and the changelog describe the past.
const DOCUMENTS: &[&str] = &["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md"];

/// A path in backticks is taken for one of ours when it begins so.
const FOLDERS: &[&str] = &["crates/", "dashboard/", "docs/", "packaging/", "xtask/"];

const PLANNED: &str = " (planned)";

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.texts().filter(|(path, _)| DOCUMENTS.contains(path)) {
        for (index, line) in text.lines().enumerate() {
            for (named, planned) in named_paths(line) {
                let message = match (tree.has(named.trim_end_matches('/')), planned) {
                    (true, false) | (false, true) => continue,
                    (true, true) => format!("{named} is there: it is not planned any more"),
                    (false, false) => {
                        format!("{named} is not there: add `{PLANNED}` or correct it")
                    }
                };
                findings.push(Finding::new(path, index + 1, message));
            }
        }
    }
    findings
}

/// The paths in backticks, and whether each is marked as planned.
fn named_paths(line: &str) -> Vec<(&str, bool)> {
    let pieces: Vec<&str> = line.split('`').collect();
    let in_code = pieces.windows(2).skip(1).step_by(2);
    in_code
        .filter(|pair| FOLDERS.iter().any(|folder| pair[0].starts_with(folder)))
        .filter(|pair| !pair[0].contains(['*', ' ', '<', '{']))
        .map(|pair| (pair[0], pair[1].starts_with(PLANNED)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::found;
    use super::*;

    #[test]
    fn a_named_file_is_there_or_planned() {
        let text = "`crates/a/src/lib.rs` and `crates/b/` (planned), `crates/*`\n\
                    `crates/c/` and `crates/a/` (planned)\n";
        let files =
            [("README.md", text), ("crates/a/src/lib.rs", ""), ("docs/x.md", "`crates/z`\n")];
        assert_eq!(
            found(check, &files),
            [
                "README.md:2: crates/c/ is not there: add ` (planned)` or correct it",
                "README.md:2: crates/a/ is there: it is not planned any more",
            ]
        );
    }
}
