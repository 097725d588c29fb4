//! Every shell block of README, of the guide and of the pages beside it is run by `cargo xtask docs-check`, or says that it is not.

use super::{Finding, Tree};
use crate::markdown::{blocks, has_checked_blocks};

const SHELLS: [&str; 5] = ["sh", "bash", "shell", "console", "zsh"];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.ending(&[".md"]).filter(|(path, _)| has_checked_blocks(path)) {
        for block in blocks(text) {
            let message = match block.language() {
                "" => "the block does not say what it is: `text`, `sh`, `json`, …",
                language if SHELLS.contains(&language) && block.run().is_none() => {
                    "a shell block is `sh` (it is run), `sh,background` or `sh,no-run`"
                }
                _ => continue,
            };
            findings.push(Finding::new(path, block.line, message));
        }
        findings.extend(indented(path, text));
    }
    findings
}

/// Code by indentation, which cannot say what it is.
fn indented(path: &str, text: &str) -> Vec<Finding> {
    let (mut findings, mut in_code, mut in_list, mut after_blank) =
        (Vec::new(), false, false, true);
    for (index, line) in text.lines().enumerate() {
        let body = line.trim_start();
        in_code ^= body.starts_with("```");
        if !line.starts_with(' ') && !line.is_empty() {
            in_list =
                body.starts_with(['-', '*']) || body.starts_with(|c: char| c.is_ascii_digit());
        }
        if after_blank && !in_code && !in_list && line.starts_with("    ") {
            findings.push(Finding::new(path, index + 1, "code by indentation: use a fence"));
        }
        after_blank = line.is_empty();
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::found;
    use super::*;

    #[test]
    fn blocks_that_do_not_say_what_becomes_of_them_are_found() {
        let page = "```sh\na\n```\n```sh,no-run\nb\n```\n```bash\nc\n```\n```\nd\n```\n\n    e\n\n- f\n\n      g\n";
        let files = [("docs/guide/a.md", page), ("docs/internals/b.md", page)];
        assert_eq!(
            found(check, &files),
            [
                "docs/guide/a.md:7: a shell block is `sh` (it is run), `sh,background` or `sh,no-run`",
                "docs/guide/a.md:10: the block does not say what it is: `text`, `sh`, `json`, …",
                "docs/guide/a.md:14: code by indentation: use a fence",
            ]
        );
    }
}
