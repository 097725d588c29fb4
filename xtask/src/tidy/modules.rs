//! A module with submodules is always `name/mod.rs`, never `name.rs` beside `name/`.

use super::{Finding, Tree};

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let sources = || tree.ending(&[".rs"]).map(|(path, _)| path);
    let has_modules = |path: &&str| {
        let folder = format!("{}/", path.trim_end_matches(".rs"));
        sources().any(|other| other.starts_with(&folder))
    };
    let both = sources().filter(has_modules);
    let message = |path: &str| format!("it belongs to {}/mod.rs", path.trim_end_matches(".rs"));
    both.map(|path| Finding::new(path, 1, message(path))).collect()
}

#[cfg(test)]
mod tests {
    use super::super::found;
    use super::*;

    #[test]
    fn module_beside_its_folder_is_found() {
        let files = [
            ("crates/a/src/lib.rs", ""),
            ("crates/a/src/one.rs", ""),
            ("crates/a/src/one/inner.rs", ""),
            ("crates/a/src/two/inner.rs", ""),
            ("crates/a/src/two/mod.rs", ""),
            ("crates/a/src/two_more.rs", ""),
            // A folder without sources has no modules.
            ("crates/a/src/three.rs", ""),
            ("crates/a/src/three/page.css", ""),
        ];
        assert_eq!(
            found(check, &files),
            ["crates/a/src/one.rs:1: it belongs to crates/a/src/one/mod.rs"]
        );
    }
}
