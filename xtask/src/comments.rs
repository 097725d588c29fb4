//! `cargo xtask comments [count] [seed]`: prints random comments, for a reading test.
//!
//! Somebody who did not write the comments reads each one without the code and decides whether it
//! is understood at first reading. The same seed draws the same comments from the same sources.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// The folders whose comments are drawn.
const FOLDERS: [&str; 2] = ["crates", "xtask/src"];

/// Prints the drawn comments, each with its file and line.
pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<()> {
    let number = |index: usize, default: u64| match arguments.get(index) {
        None => Ok(default),
        Some(text) => text.parse().with_context(|| format!("cannot parse {text:?} as a number")),
    };
    let (count, seed) = (number(0, 100)?, number(1, 1)?);
    let mut files = Vec::new();
    for folder in FOLDERS {
        rust_files(&root.join(folder), &mut files)?;
    }
    files.sort();
    let mut all = Vec::new();
    for path in &files {
        let text = fs::read_to_string(path)?;
        let shown = path.strip_prefix(root).unwrap_or(path).display().to_string();
        all.extend(blocks(&text).into_iter().map(|(line, text)| format!("{shown}:{line}\n{text}")));
    }
    let total = all.len();
    for (n, block) in draw(all, usize::try_from(count)?, seed).iter().enumerate() {
        println!("{}. {block}\n", n + 1);
    }
    println!("{count} of {total} comments in {} files, seed {seed}", files.len());
    Ok(())
}

fn rust_files(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            rust_files(&path, files)?;
        } else if path.extension().is_some_and(|end| end == "rs") {
            files.push(path);
        }
    }
    Ok(())
}

/// Comments on lines of their own. Consecutive lines are one comment, with the number of its first
/// line and the line of code below it.
fn blocks(text: &str) -> Vec<(usize, String)> {
    let mut blocks: Vec<(usize, String)> = Vec::new();
    let mut open = false;
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        let is_comment = line.starts_with("//");
        match blocks.last_mut() {
            Some((_, block)) if open && is_comment => *block += &format!("\n{line}"),
            _ if is_comment => blocks.push((index + 1, line.to_owned())),
            Some((_, block)) if open && !line.is_empty() => *block += &format!("\n{line}"),
            _ => {}
        }
        open = is_comment;
    }
    blocks
}

/// Draws `count` elements without repetition.
fn draw<T>(mut from: Vec<T>, count: usize, seed: u64) -> Vec<T> {
    let mut state = seed;
    let mut drawn = Vec::new();
    while drawn.len() < count && !from.is_empty() {
        // A linear congruential generator (Knuth's constants) is even enough to draw comments.
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let at = usize::try_from(state >> 33).unwrap_or(0) % from.len();
        drawn.push(from.swap_remove(at));
    }
    drawn
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_of_comment_lines_is_one_comment() {
        let text = "//! A.\n//! B.\n\n/// C.\nfn f() {} // not on its own line\n    // D.\n";
        let expected =
            [(1, "//! A.\n//! B."), (4, "/// C.\nfn f() {} // not on its own line"), (6, "// D.")];
        assert_eq!(blocks(text), expected.map(|(line, text)| (line, text.to_owned())));
    }

    #[test]
    fn the_same_seed_draws_the_same_without_repetition() {
        let one = draw((0..50).collect(), 20, 7);
        assert_eq!(one, draw((0..50).collect(), 20, 7));
        let mut sorted = one.clone();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(sorted.len(), 20);
        assert_ne!(one, draw((0..50).collect(), 20, 8));
        assert_eq!(draw(vec![1, 2], 20, 7).len(), 2);
    }
}
