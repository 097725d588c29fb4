//! The fields of log lines are never written by `Debug` (`Retry(1)`, `Some("x")`): their readers do
//! not know Rust, so they use the words and numbers of the contract.

use super::source::without_comment;
use super::{Finding, Tree};

/// The macros that write a log line.
const MACROS: &[&str] = &["trace!(", "debug!(", "info!(", "warn!(", "error!(", "event!("];

const MESSAGE: &str =
    "a field of the log is written by Debug: give it a word (`as_str`) or write it with `%`";

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.ending(&[".rs"]) {
        if !path.starts_with("crates/") {
            continue;
        }
        let text: String =
            text.lines().map(|line| without_comment(line).to_owned() + "\n").collect();
        for at in MACROS.iter().flat_map(|name| text.match_indices(name).map(|(at, _)| at)) {
            let call = arguments(&text[at..]);
            if let Some(inside) = debug_field(call) {
                let line = text[..at + inside].matches('\n').count() + 1;
                findings.push(Finding::new(path, line, MESSAGE));
            }
        }
    }
    findings
}

/// The text of a call up to its closing parenthesis.
fn arguments(text: &str) -> &str {
    let (mut depth, mut quoted, mut before) = (0_usize, false, ' ');
    for (at, character) in text.char_indices() {
        match character {
            '"' if before != '\\' => quoted = !quoted,
            '(' if !quoted => depth += 1,
            ')' if !quoted && depth == 1 => return &text[..at],
            ')' if !quoted => depth -= 1,
            _ => {}
        }
        before = character;
    }
    text
}

/// The position of the first field that `?` or `:?` writes by `Debug`. The operator `?` follows a
/// value; the sigil follows `(`, `,` or `=`.
fn debug_field(call: &str) -> Option<usize> {
    let (mut quoted, mut before, mut last) = (false, ' ', ' ');
    for (at, character) in call.char_indices() {
        match character {
            '"' if before != '\\' => quoted = !quoted,
            '?' if quoted && before == ':' => return Some(at),
            '?' if !quoted && matches!(last, '(' | ',' | '=') => return Some(at),
            _ => {}
        }
        before = character;
        if !character.is_whitespace() {
            last = character;
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::found;
    use super::*;

    #[test]
    fn fields_that_are_written_by_debug_are_found() {
        let files = [
            ("crates/a/src/short.rs", "tracing::info!(?turn, \"attempt\");\n"),
            ("crates/a/src/named.rs", "fn f() {\n  warn!(\n    from = ?x.from,\n    \"m\");\n}\n"),
            ("crates/a/src/text.rs", "tracing::error!(\"failed: {error:?}\");\n"),
            ("crates/a/src/fine.rs", "tracing::info!(%peer, turn = turn.as_str(), \"why?\");\n"),
            (
                "crates/a/src/operator.rs",
                "tracing::info!(count = all.first()?, \"m\");\nlet x = ?1;\n",
            ),
            ("crates/a/src/comment.rs", "// tracing::info!(?turn)\n"),
            ("xtask/src/other.rs", "tracing::info!(?turn);\n"),
        ];
        let found = found(check, &files);
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found[0].starts_with("crates/a/src/named.rs:3: a field of the log"), "{found:?}");
        assert!(found[1].starts_with("crates/a/src/short.rs:1: "), "{found:?}");
        assert!(found[2].starts_with("crates/a/src/text.rs:1: "), "{found:?}");
    }
}
