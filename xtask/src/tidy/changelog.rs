//! The changelog always begins with a section for the next release.

use super::{Finding, Tree};

const CHANGELOG: &str = "CHANGELOG.md";

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let open = |text: &str| text.lines().find(|line| line.starts_with("## ")).map(str::to_owned);
    match tree.text(CHANGELOG).map(open) {
        Some(Some(first)) if first.to_lowercase().contains("unreleased") => Vec::new(),
        Some(_) => vec![Finding::new(CHANGELOG, 1, "its first section is not `## [Unreleased]`")],
        None => vec![Finding::new(CHANGELOG, 1, "is missing")],
    }
}

#[cfg(test)]
mod tests {
    use super::super::found;
    use super::*;

    #[test]
    fn the_first_section_is_the_open_one() {
        let fine = "# Changelog\n\n## [Unreleased]\n\n## [0.1.0]\n";
        assert_eq!(found(check, &[(CHANGELOG, fine)]), [""; 0]);
        assert_eq!(found(check, &[]), ["CHANGELOG.md:1: is missing"]);
        for closed in ["# Changelog\n", "## [0.1.0]\n\n## [Unreleased]\n"] {
            let found = found(check, &[(CHANGELOG, closed)]);
            assert_eq!(found, ["CHANGELOG.md:1: its first section is not `## [Unreleased]`"]);
        }
    }
}
