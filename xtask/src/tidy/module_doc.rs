//! Every Rust file begins with a module doc comment.

use super::{Finding, Tree};

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    tree.ending(&[".rs"])
        .filter(|(_, text)| !text.starts_with("//! "))
        .map(|(path, _)| {
            Finding::new(
                path,
                1,
                "begins without a module doc: `//! ` and what this is, in a sentence",
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::found;
    use super::*;

    #[test]
    fn the_first_line_is_the_module_doc() {
        let files = [
            ("a.rs", "//! What it is.\nfn a() {}\n"),
            ("b.rs", "fn b() {}\n"),
            ("c.rs", "// A comment.\n//! Too late.\n"),
            ("d.rs", ""),
            ("e.md", "no Rust"),
        ];
        let found = found(check, &files);
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found[0].starts_with("b.rs:1: begins without a module doc"));
        assert!(found[1].starts_with("c.rs:1: ") && found[2].starts_with("d.rs:1: "));
    }
}
