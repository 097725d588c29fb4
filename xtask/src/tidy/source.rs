//! Helpers to look at Rust source line by line: without comments, and by words.

/// The line without its comment. A `//` within a text, as in a URL, is kept.
pub(super) fn without_comment(line: &str) -> &str {
    let mut quoted = false;
    let mut before = ' ';
    for (at, character) in line.char_indices() {
        match character {
            '"' if before != '\\' => quoted = !quoted,
            '/' if !quoted && before == '/' => return &line[..at - 1],
            _ => {}
        }
        before = character;
    }
    line
}

/// Whether the line contains the phrase as whole words.
pub(super) fn has_phrase(line: &str, phrase: &str) -> bool {
    let is_word = |character: char| character.is_alphanumeric() || character == '_';
    line.match_indices(phrase).any(|(at, _)| {
        let joins = |inner: Option<char>, outer: Option<char>| {
            inner.is_some_and(is_word) && outer.is_some_and(is_word)
        };
        let before = line[..at].chars().next_back();
        let after = line[at + phrase.len()..].chars().next();
        !joins(phrase.chars().next(), before) && !joins(phrase.chars().next_back(), after)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_go_and_texts_stay() {
        assert_eq!(without_comment("a(); // b"), "a(); ");
        assert_eq!(without_comment("//! doc"), "");
        assert_eq!(without_comment("f(\"http://x\") // y"), "f(\"http://x\") ");
        assert_eq!(without_comment("f(\"\\\"//\")"), "f(\"\\\"//\")");
        assert_eq!(without_comment("a / b"), "a / b");
    }

    #[test]
    fn a_phrase_is_whole_words() {
        assert!(has_phrase("use std::fs;", "std::fs"));
        assert!(has_phrase("x.await?", ".await"));
        assert!(!has_phrase("use std::fsx;", "std::fs"));
        assert!(!has_phrase("InstantX", "Instant"));
        assert!(!has_phrase("MyInstant", "Instant"));
        assert!(has_phrase("MyInstant, Instant", "Instant"));
    }
}
