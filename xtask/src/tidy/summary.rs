//! Every page below `docs/` is in the book's list of chapters: a page that is not there is in no book.

use super::links::{links, resolve};
use super::{Finding, Tree};

const SUMMARY: &str = "docs/SUMMARY.md";

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let Some(summary) = tree.text(SUMMARY) else { return Vec::new() };
    let listed: Vec<String> =
        links(summary).iter().filter_map(|(_, target)| resolve("docs", target)).collect();
    let pages = tree.ending(&[".md"]).map(|(path, _)| path);
    let pages = pages.filter(|path| path.starts_with("docs/") && *path != SUMMARY);
    pages
        .filter(|page| !listed.iter().any(|one| one == page))
        .map(|page| Finding::new(page, 1, format!("the page is not in {SUMMARY}: add it there")))
        .collect()
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
}
