//! Every page below `docs/` is in the book's list of chapters: a page that is not there is in no book. Decisions have
//! one form of title, `0001: Crates that forbid`, there and on their page.

use super::links::{links, resolve};
use super::{Finding, Tree};

const SUMMARY: &str = "docs/SUMMARY.md";

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let Some(summary) = tree.text(SUMMARY) else { return Vec::new() };
    let listed: Vec<String> =
        links(summary).iter().filter_map(|(_, target)| resolve("docs", target)).collect();
    let pages = tree.ending(&[".md"]).map(|(path, _)| path);
    let pages = pages.filter(|path| path.starts_with("docs/") && *path != SUMMARY);
    let mut findings: Vec<Finding> = pages
        .filter(|page| !listed.iter().any(|one| one == page))
        .map(|page| Finding::new(page, 1, format!("the page is not in {SUMMARY}: add it there")))
        .collect();
    findings.extend(tree.ending(&[".md"]).filter_map(|(path, text)| title(summary, path, text)));
    findings
}

/// What is wrong with the title of a decision.
fn title(summary: &str, path: &str, text: &str) -> Option<Finding> {
    let name = path.strip_prefix("docs/decisions/")?;
    let number = name.get(..4).filter(|number| number.bytes().all(|byte| byte.is_ascii_digit()))?;
    let title = text.lines().next().unwrap_or_default().trim_start_matches("# ");
    if !title.starts_with(&format!("{number}: ")) {
        return Some(Finding::new(path, 1, format!("the title begins with `# {number}: `")));
    }
    let link = format!("[{title}](decisions/{name})");
    (!summary.contains(&link))
        .then(|| Finding::new(path, 1, format!("{SUMMARY} names it otherwise: write {link}")))
}

#[cfg(test)]
mod tests {
    use super::super::found;
    use super::*;

    #[test]
    fn pages_that_the_book_would_not_have_are_found() {
        let files = [
            ("docs/SUMMARY.md", "[Top](README.md)\n- [A](guide/a.md)\n"),
            ("docs/README.md", ""),
            ("docs/guide/a.md", ""),
            ("docs/guide/b.md", ""),
            ("clients/README.md", ""),
        ];
        assert_eq!(
            found(check, &files),
            ["docs/guide/b.md:1: the page is not in docs/SUMMARY.md: add it there"]
        );
    }

    #[test]
    fn decisions_have_one_form_of_title() {
        let summary = "- [0001: A](decisions/0001-a.md)\n- [2. B](decisions/0002-b.md)\n\
                       - [Three](decisions/0003-c.md)\n[T](decisions/template.md)\n";
        let files = [
            ("docs/SUMMARY.md", summary),
            ("docs/decisions/0001-a.md", "# 0001: A\n"),
            ("docs/decisions/0002-b.md", "# 2. B\n"),
            ("docs/decisions/0003-c.md", "# 0003: C\n"),
            ("docs/decisions/template.md", "# NNNN: T\n"),
        ];
        assert_eq!(
            found(check, &files),
            [
                "docs/decisions/0002-b.md:1: the title begins with `# 0002: `",
                "docs/decisions/0003-c.md:1: docs/SUMMARY.md names it otherwise: write [0003: C](decisions/0003-c.md)",
            ]
        );
    }
}
