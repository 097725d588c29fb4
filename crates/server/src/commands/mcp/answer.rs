//! What an assistant is shown: bounded, and without anything that looks like a secret.

use serde_json::{Value as Json, json};

/// An answer has at most so many bytes: more would fill an assistant's context.
const ANSWER_BYTES_MAX: usize = 48 * 1024;
/// How long texts and lists may be, from generous to strict. The first that makes the answer fit
/// is used.
const MEASURES: &[(usize, usize)] = &[(4_000, 200), (1_000, 100), (300, 30), (100, 10), (60, 3)];
/// How secrets and keys begin.
const SECRETS: &[&str] = &["whsec_", "whsk_", "pr_"];

/// The answer as text. The API shows no secret to a reader; a payload or a receiver's answer could
/// repeat one.
pub(super) fn bounded(mut value: Json) -> String {
    redact(&mut value);
    let whole = text(&value);
    if whole.len() <= ANSWER_BYTES_MAX {
        return whole;
    }
    for (characters, entries) in MEASURES {
        let mut cut = value.clone();
        shorten(&mut cut, *characters, *entries);
        let note = "long texts and lists are cut; ask for less, or for one record";
        let shown = json!({ "cut": note, "answer": cut }).to_string();
        if shown.len() <= ANSWER_BYTES_MAX {
            return shown;
        }
    }
    json!({ "cut": "the answer is too large to be shown; ask for less" }).to_string()
}

fn text(value: &Json) -> String {
    match value {
        Json::String(text) => text.clone(),
        Json::Null | Json::Bool(_) | Json::Number(_) | Json::Array(_) | Json::Object(_) => {
            value.to_string()
        }
    }
}

fn shorten(value: &mut Json, characters: usize, entries: usize) {
    match value {
        Json::String(text) => {
            if let Some((end, _)) = text.char_indices().nth(characters) {
                let left = text[end..].chars().count();
                text.truncate(end);
                text.push_str(&format!("… ({left} more characters)"));
            }
        }
        Json::Array(list) => {
            list.iter_mut().for_each(|one| shorten(one, characters, entries));
            if list.len() > entries {
                let left = list.len() - entries;
                list.truncate(entries);
                list.push(json!(format!("… ({left} more entries)")));
            }
        }
        Json::Object(fields) => {
            fields.values_mut().for_each(|one| shorten(one, characters, entries));
        }
        Json::Null | Json::Bool(_) | Json::Number(_) => {}
    }
}

fn redact(value: &mut Json) {
    match value {
        Json::String(text) => {
            if SECRETS.iter().any(|begin| text.contains(begin)) {
                *text = redacted(text);
            }
        }
        Json::Array(list) => list.iter_mut().for_each(redact),
        Json::Object(fields) => fields.values_mut().for_each(redact),
        Json::Null | Json::Bool(_) | Json::Number(_) => {}
    }
}

/// The text with every word that is a secret replaced.
fn redacted(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while !rest.is_empty() {
        let is_part =
            |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '+' | '/' | '=');
        let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        // A path such as /pr_a/b keeps its words apart.
        let hidden =
            word.split_inclusive('/').map(|part| if is_secret(part) { "[secret]" } else { part });
        match is_secret(word) {
            true => shown.push_str("[secret]"),
            false => shown.extend(hidden),
        }
        let gap = after.find(is_part).unwrap_or(after.len());
        shown.push_str(&after[..gap]);
        rest = &after[gap..];
    }
    shown
}

/// Whether a word is a secret: it starts with a prefix in `SECRETS` and has at least 20 characters.
fn is_secret(word: &str) -> bool {
    const LENGTH_MIN: usize = 20;
    word.len() >= LENGTH_MIN && SECRETS.iter().any(|begin| word.starts_with(begin))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_in_any_text_are_replaced_and_ordinary_words_stay() {
        let value = json!({
            "data": { "note": "use whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw= now", "list": ["pr_018f_0123456789abcdef0123"] },
            "url": "https://example.com/pr_short/x", "field": "whsec_",
        });
        let shown = bounded(value);
        assert!(!shown.contains("MfKQ9") && !shown.contains("0123456789"), "{shown}");
        assert!(shown.contains("use [secret] now"), "{shown}");
        assert!(shown.contains("https://example.com/pr_short/x") && shown.contains("\"whsec_\""));
    }

    #[test]
    fn large_answers_are_cut_and_say_so() {
        let long = "ключ ".repeat(50_000);
        for value in [json!({ "body": long }), json!(vec![json!({ "a": "b".repeat(500) }); 5_000])]
        {
            let shown = bounded(value);
            assert!(shown.len() <= ANSWER_BYTES_MAX && shown.contains("more"), "{}", shown.len());
            let parsed: Json = serde_json::from_str(&shown).unwrap();
            assert!(parsed["cut"].is_string());
        }
        let wide: serde_json::Map<_, _> =
            (0..9_000).map(|n| (format!("field{n}"), json!(n))).collect();
        assert!(bounded(Json::Object(wide)).len() <= ANSWER_BYTES_MAX);
        assert_eq!(bounded(json!({ "a": 1 })), r#"{"a":1}"#);
    }
}
