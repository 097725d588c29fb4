//! White space: no tabs, none at the end of a line, and exactly one line end at the end of a file.

use super::{Finding, Tree};

/// Files that are written by hand. Snapshots and test data are exempt.
const OURS: &[&str] = &[
    ".rs", ".toml", ".md", ".ts", ".js", ".svelte", ".css", ".html", ".json", ".yml", ".yaml",
    ".sql", ".sh", ".ci/run",
];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.ending(OURS) {
        for (index, line) in text.split('\n').enumerate() {
            let mut complain =
                |message: &str| findings.push(Finding::new(path, index + 1, message));
            if line.ends_with('\r') {
                complain("ends with a carriage return");
            } else if line.ends_with([' ', '\t']) {
                complain("has white space at its end");
            } else if line.contains('\t') {
                complain("has a tab");
            }
        }
        if !text.is_empty() && (!text.ends_with('\n') || text.ends_with("\n\n")) {
            let message = "does not end with exactly one end of line";
            findings.push(Finding::new(path, text.lines().count(), message));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::found;
    use super::*;

    #[test]
    fn tabs_and_trailing_blanks_are_found() {
        let files = [
            ("a.rs", "fine\nblank \n\tb\nc\r\n"),
            ("b.md", "no end"),
            ("c.md", "two ends\n\n"),
            ("d.snap", "as it is \n\n"),
            ("e.toml", "fine = true\n"),
        ];
        assert_eq!(
            found(check, &files),
            [
                "a.rs:2: has white space at its end",
                "a.rs:3: has a tab",
                "a.rs:4: ends with a carriage return",
                "b.md:1: does not end with exactly one end of line",
                "c.md:2: does not end with exactly one end of line",
            ]
        );
    }
}
