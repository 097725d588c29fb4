//! The length of source files is limited, and of the pages that say what a user wants to know before deciding.

use super::{Finding, Tree};

const LINES_MAX: usize = 600;

/// Pages that are read to the end, or not at all. What does not fit belongs into `docs/internals/`.
const PAGES: [(&str, usize); 3] =
    [("README.md", 80), ("docs/performance.md", 80), ("docs/trust.md", 60)];

/// Files that may be longer: path and reason.
const LONGER: &[(&str, &str)] = &[];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = check_but(tree, LONGER);
    for (path, most) in PAGES {
        let lines = tree.text(path).map_or(0, |text| text.lines().count());
        if lines > most {
            let message = format!("{lines} lines, at most {most}: move details to docs/internals/");
            findings.push(Finding::new(path, lines, message));
        }
    }
    findings
}

fn check_but(tree: &Tree, longer: &[(&str, &str)]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut excused = Vec::new();
    for (path, text) in tree.ending(&[".rs", ".ts", ".svelte"]) {
        let lines = text.lines().count();
        if lines <= LINES_MAX {
            continue;
        }
        if longer.iter().any(|(listed, _)| *listed == path) {
            excused.push(path);
        } else {
            let message = format!("{lines} lines, at most {LINES_MAX}: split it by subject");
            findings.push(Finding::new(path, lines, message));
        }
    }
    for (path, _) in longer.iter().filter(|(path, _)| !excused.contains(path)) {
        findings.push(Finding::new(path, 1, "is not too long any more: take it off the list"));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::found;
    use super::*;

    #[test]
    fn pages_for_those_who_decide_stay_short() {
        let (short, long) = ("x\n".repeat(60), "x\n".repeat(81));
        let files = [
            ("README.md", long.as_str()),
            ("docs/performance.md", &long),
            ("docs/trust.md", &short),
            ("docs/scale.md", &long),
        ];
        assert_eq!(
            found(check, &files),
            [
                "README.md:81: 81 lines, at most 80: move details to docs/internals/",
                "docs/performance.md:81: 81 lines, at most 80: move details to docs/internals/",
            ]
        );
    }

    #[test]
    fn six_hundred_lines_are_enough_unless_there_is_a_reason() {
        let (enough, more) = ("x\n".repeat(600), "x\n".repeat(601));
        let files = [
            ("enough.rs", enough.as_str()),
            ("more.svelte", &more),
            ("excused.ts", &more),
            ("page.md", &more),
        ];
        let longer = [("excused.ts", "generated"), ("enough.rs", "was longer once")];
        assert_eq!(
            found(|tree| check_but(tree, &longer), &files),
            [
                "more.svelte:601: 601 lines, at most 600: split it by subject",
                "enough.rs:1: is not too long any more: take it off the list"
            ]
        );
    }
}
