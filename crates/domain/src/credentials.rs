//! Keeps secrets and tokens out of logs and API responses.
//!
//! At most the last four characters of a token are shown. The attempt log stores a receiver's
//! response only after the credentials that were sent to it are removed from it.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use zeroize::Zeroizing;

use crate::hex;

/// Replaces a secret of any length.
const MASK: &str = "****";
/// A token of this many characters or fewer is masked completely.
const MASKED_WHOLE_CHARS_MAX: usize = 8;
/// How many characters of a longer token are shown.
const SHOWN_CHARS: usize = 4;
/// A beginning of a secret at the end of a body is masked from this length on; the rest was cut off
/// by the size limit.
const CUT_BYTES_MIN: usize = 8;

/// The steps of a search for each byte of a body: each place at which a form may
/// begin is a step, and so is each form that begins with the same bytes, and every [`BLOCK_BYTES`]
/// of it. Ordinary responses take less than one.
const STEPS_PER_BYTE: usize = 32;
const BLOCK_BYTES: usize = 32;
/// A shorter body has the steps of one of this length.
const STEPS_FOR_BYTES_MIN: usize = 1024;

/// A token with all but its last four characters masked; all of it where it has eight or fewer.
pub fn mask(token: &str) -> String {
    let hidden = token.chars().count().saturating_sub(SHOWN_CHARS);
    if hidden <= MASKED_WHOLE_CHARS_MAX - SHOWN_CHARS {
        return MASK.to_owned();
    }
    MASK.chars().chain(token.chars().skip(hidden)).collect()
}

/// Masks every occurrence of `secrets` in a response body. See [`Scrubber`].
pub fn scrub<'b>(body: &'b [u8], secrets: &[&str]) -> Cow<'b, [u8]> {
    Scrubber::new(secrets).scrub(body)
}

/// Finds given secrets in a response body: verbatim, without their prefix (`whsec_` and the like),
/// and encoded as base64, hexadecimal, JSON or URL.
///
/// Create one per subscription and keep it: the encoded forms are computed once. **The work is
/// bounded by the length of the body**, whatever the secrets are: a body that needs more is masked
/// as a whole.
pub struct Scrubber {
    /// Every encoded form of every secret that has [`CUT_BYTES_MIN`] bytes or more, in order.
    long: Vec<Zeroizing<Vec<u8>>>,
    /// The shorter ones, in order; none is empty.
    short: Vec<Zeroizing<Vec<u8>>>,
    /// The bytes with which a form begins.
    begins: [bool; 256],
}

impl Scrubber {
    /// A scrubber for these secrets and tokens.
    pub fn new(secrets: &[&str]) -> Self {
        let mut scrubber = Scrubber { long: Vec::new(), short: Vec::new(), begins: [false; 256] };
        for secret in secrets {
            scrubber.add_text(secret);
            if let Some(base64) = without_prefix(secret) {
                scrubber.add_text(base64);
            }
        }
        for forms in [&mut scrubber.long, &mut scrubber.short] {
            forms.sort_unstable_by(|one, other| one.as_slice().cmp(other));
            forms.dedup();
            forms.shrink_to_fit();
        }
        scrubber
    }

    /// Replaces each occurrence of a secret, and a cut-off beginning of one at the end, by `****`.
    /// Accepts any bytes; a body without secrets is not copied.
    pub fn scrub<'b>(&self, body: &'b [u8]) -> Cow<'b, [u8]> {
        let bytes = body.len().max(STEPS_FOR_BYTES_MIN);
        self.scrub_within(body, &mut bytes.saturating_mul(STEPS_PER_BYTE))
    }

    /// The same within this many steps, of which those that are left are told.
    fn scrub_within<'b>(&self, body: &'b [u8], steps: &mut usize) -> Cow<'b, [u8]> {
        let mut clean: Option<Vec<u8>> = None;
        // Everything before `kept` is in `clean`; `masked_to` is the end of the current masked
        // stretch.
        let (mut kept, mut masked_to) = (0, None);
        for at in 0..body.len() {
            if let Some(end) = masked_to
                && end < at
            {
                (kept, masked_to) = (end, None);
            }
            let Ok(found) = self.secret_at(body, at, steps) else {
                return Cow::Owned(MASK.as_bytes().to_vec());
            };
            let Some(end) = found else { continue };
            if masked_to.is_none() {
                let clean = clean.get_or_insert_with(|| Vec::with_capacity(body.len()));
                clean.extend_from_slice(&body[kept..at]);
                clean.extend_from_slice(MASK.as_bytes());
            }
            masked_to = masked_to.max(Some(end));
        }
        match clean {
            None => Cow::Borrowed(body),
            Some(mut clean) => {
                clean.extend_from_slice(&body[masked_to.unwrap_or(kept)..]);
                Cow::Owned(clean)
            }
        }
    }

    /// The end of the longest secret that begins at `at`.
    fn secret_at(
        &self,
        body: &[u8],
        at: usize,
        steps: &mut usize,
    ) -> Result<Option<usize>, OutOfSteps> {
        let rest = &body[at..];
        let first = rest[0];
        if !self.begins[usize::from(first)] {
            return Ok(None);
        }
        // The first bytes exclude most forms.
        let short = beginning_with(&self.short, &rest[..1]);
        let long = rest.get(..CUT_BYTES_MIN).map(|begin| beginning_with(&self.long, begin));
        *steps = steps.checked_sub(1).ok_or(OutOfSteps)?;
        let mut end = None;
        for form in short.chain(long.into_iter().flatten()) {
            let compared = form.len().min(rest.len());
            *steps = steps.checked_sub(1 + compared / BLOCK_BYTES).ok_or(OutOfSteps)?;
            let is_cut_off = || rest.len() >= CUT_BYTES_MIN && form.starts_with(rest);
            if rest.starts_with(form) || is_cut_off() {
                end = end.max(Some(at + compared));
            }
        }
        Ok(end)
    }

    /// Adds the forms in which a receiver may echo a text.
    fn add_text(&mut self, text: &str) {
        let bytes = text.as_bytes();
        self.add(bytes.to_vec());
        let json = Zeroizing::new(text.replace('\\', "\\\\").replace('"', "\\\""));
        self.add(json.as_bytes().to_vec());
        self.add(json.replace('/', "\\/").into_bytes());
        for digits in [b"0123456789ABCDEF", b"0123456789abcdef"] {
            self.add(percent_encoded(bytes, digits));
            self.add(bytes.iter().flat_map(|&byte| hex::digits(byte, digits)).collect());
        }
        // The last characters of base64 depend on the bytes that follow, so only whole groups are
        // compared.
        let whole = &bytes[..bytes.len() / 3 * 3];
        self.add(STANDARD_NO_PAD.encode(whole).into_bytes());
        self.add(URL_SAFE_NO_PAD.encode(whole).into_bytes());
    }

    fn add(&mut self, form: Vec<u8>) {
        let form = Zeroizing::new(form);
        if let Some(&first) = form.first() {
            self.begins[usize::from(first)] = true;
            let is_long = form.len() >= CUT_BYTES_MIN;
            if is_long { &mut self.long } else { &mut self.short }.push(form);
        }
    }
}

/// The forms that begin with these bytes, of a list that is in order. None is shorter than them.
fn beginning_with<'f>(
    forms: &'f [Zeroizing<Vec<u8>>],
    begin: &'f [u8],
) -> impl Iterator<Item = &'f [u8]> {
    let from = forms.partition_point(|form| form[..begin.len()] < *begin);
    forms[from..].iter().map(|form| &form[..]).take_while(move |form| form.starts_with(begin))
}

/// The search needs more steps than it may take.
struct OutOfSteps;

impl std::fmt::Debug for Scrubber {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Scrubber({} forms)", self.long.len() + self.short.len())
    }
}

/// The base64 of a signing secret, without prefix and padding.
fn without_prefix(secret: &str) -> Option<&str> {
    let base64 = secret.strip_prefix("whsec_").or_else(|| secret.strip_prefix("whsk_"))?;
    Some(base64.trim_end_matches('='))
}

/// URL encoding: every byte except unreserved characters becomes `%` and two digits.
fn percent_encoded(bytes: &[u8], digits: &[u8; 16]) -> Vec<u8> {
    let mut encoded = Vec::with_capacity(bytes.len() * 3);
    for &byte in bytes {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(byte);
        } else {
            encoded.push(b'%');
            encoded.extend(hex::digits(byte, digits));
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use base64::engine::general_purpose::STANDARD;
    use proptest::prelude::*;

    use super::*;

    const SECRET: &str = "whsec_MfKQ9r8GKYqr/wjUPD8ILPZIo2LaLaSwAA==";
    const TOKEN: &str = "tok_\"Xy+7/q\\Z9";

    #[test]
    fn tokens_are_masked_to_their_last_four_characters() {
        for (token, masked) in [
            ("", "****"),
            ("a", "****"),
            ("12345678", "****"),
            ("123456789", "****6789"),
            ("a-much-longer-token", "****oken"),
            ("ääääääää", "****"),
            ("äääääöüßñ", "****öüßñ"),
            ("🔑🔑🔑🔑🔑abcd", "****abcd"),
        ] {
            assert_eq!(mask(token), masked, "{token}");
        }
    }

    fn check(body: &str, expected: &str) {
        let scrubbed = scrub(body.as_bytes(), &[SECRET, TOKEN]);
        assert_eq!(String::from_utf8_lossy(&scrubbed), expected, "{body}");
    }

    #[test]
    fn secrets_are_masked_wherever_they_stand() {
        check("", "");
        check("ok", "ok");
        check(SECRET, "****");
        check(&format!("secret={SECRET}&"), "secret=****&");
        check(&format!("{TOKEN}{TOKEN} {SECRET}!"), "**** ****!");
        check("MfKQ9r8GKYqr/wjUPD8ILPZIo2LaLaSwAA==", "****==");
        check("<MfKQ9r8GKYqr/wjUPD8ILPZIo2LaLaSwAA>", "<****>");
        check("whsec_MfKQ9r8GKYqr/wjUPD8ILPZIo2LaLaSwAA", "****");
        check("MfKQ9r8GKYqr, whsec_ and tok_ are no secrets", {
            "MfKQ9r8GKYqr, whsec_ and tok_ are no secrets"
        });
    }

    #[test]
    fn secrets_are_found_in_other_encodings() {
        let json = serde_json::to_string(TOKEN).unwrap();
        check(&format!("{{\"token\":{json}}}"), "{\"token\":\"****\"}");
        check(&json.replace('/', "\\/"), "\"****\"");
        check(&SECRET.replace('/', "\\/"), "****");
        check("?t=tok_%22Xy%2B7%2Fq%5CZ9&", "?t=****&");
        check("?t=tok_%22Xy%2b7%2fq%5cZ9&", "?t=****&");
        check("746f6b5f2258792b372f715c5a39.", "****.");
        check("746F6B5F2258792B372F715C5A39.", "****.");
        // The token has 14 bytes: the last two are in characters that depend on what follows.
        let encoded = STANDARD.encode(TOKEN);
        check(&encoded, &format!("****{}", &encoded[16..]));
    }

    #[test]
    fn a_secret_that_the_limit_cut_off_is_masked_too() {
        check("seen: whsec_MfKQ9r8", "seen: ****");
        check("seen: tok_\"Xy+", "seen: ****");
        check("seen: tok_\"Xy", "seen: tok_\"Xy");
        check("whsec_MfKQ9r8 and more", "whsec_MfKQ9r8 and more");
    }

    #[test]
    fn overlapping_secrets_are_masked_as_one_stretch() {
        for (body, secrets, expected) in [
            ("xabcdex", &["abc", "cde"][..], "x****x"),
            ("xabcdex", &["abcde", "b"], "x****x"),
            ("aaa", &["aa"], "****"),
            ("ababab-ab", &["abab"], "****-ab"),
            ("abcdabxcd", &["ab", "cd"], "****x****"),
            ("abc", &[], "abc"),
            ("abc", &["", ""], "abc"),
            ("abc", &["whsec_", "whsec_=="], "abc"),
        ] {
            assert_eq!(scrub(body.as_bytes(), secrets), expected.as_bytes(), "{body} {secrets:?}");
        }
    }

    /// Twenty secrets as long as a header may be, alike up to their last byte.
    fn long_secrets() -> Vec<String> {
        (b'b'..=b'u').map(|last| format!("{}{}", "a".repeat(1_021), char::from(last))).collect()
    }

    /// What is left of a body, and how many steps that took.
    fn counted(body: &[u8], secrets: &[String]) -> (Vec<u8>, usize) {
        let secrets: Vec<&str> = secrets.iter().map(String::as_str).collect();
        let mut steps = usize::MAX;
        let clean = Scrubber::new(&secrets).scrub_within(body, &mut steps).into_owned();
        (clean, usize::MAX - steps)
    }

    #[test]
    fn the_work_follows_the_body_and_not_the_secrets() {
        let (secrets, body) = (long_secrets(), vec![b'a'; 16 * 1024]);
        let (_, needed) = counted(&body, &secrets);
        assert!(needed > 10 * STEPS_PER_BYTE * body.len(), "the attack is none: {needed}");
        let texts: Vec<&str> = secrets.iter().map(String::as_str).collect();
        assert_eq!(*scrub(&body, &texts), *MASK.as_bytes(), "it is masked as a whole");
        let mut steps = 1_000;
        assert_eq!(*Scrubber::new(&texts).scrub_within(&body, &mut steps), *MASK.as_bytes());
        assert!(steps < 100, "it ends when the steps are used up");
    }

    #[test]
    fn ordinary_bodies_take_a_small_part_of_the_steps() {
        let secrets: Vec<String> = (0..20)
            .map(|n| format!("Bearer {}", STANDARD.encode(format!("key {n} of many"))))
            .collect();
        let text =
            "{\"error\":\"Bad request: the Token was not accepted by Backend B\",\"id\":\"6b65\"}";
        let echo = format!("{} {}", secrets[3], text.repeat(200));
        let (clean, steps) = counted(echo.as_bytes(), &secrets);
        assert_eq!(String::from_utf8(clean).unwrap(), format!("**** {}", text.repeat(200)));
        assert!(steps < 2 * echo.len(), "{steps} steps for {} bytes", echo.len());
    }

    #[test]
    fn a_clean_body_is_not_copied() {
        assert!(matches!(scrub(b"all is well \xff", &[SECRET]), Cow::Borrowed(_)));
        let debug = format!("{:?}", Scrubber::new(&["abc"]));
        assert_eq!(debug, "Scrubber(3 forms)");
    }

    fn contains(body: &[u8], needle: &[u8]) -> bool {
        body.windows(needle.len()).any(|window| window == needle)
    }

    proptest! {
        #[test]
        fn scrubbing_removes_every_occurrence_from_any_bytes(
            secrets in prop::collection::vec("(whsec_|whsk_|)[ab/=\"%é]{1,12}", 1..4),
            noise in prop::collection::vec(
                prop_oneof![
                    prop::collection::vec(any::<u8>(), 0..8),
                    "[ab/=\"%é]{0,6}".prop_map(String::into_bytes),
                ],
                0..6,
            ),
            order in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
        ) {
            let mut body = Vec::new();
            for (n, noise) in noise.iter().enumerate() {
                body.extend_from_slice(noise);
                if let Some(index) = order.get(n) {
                    body.extend_from_slice(index.get(&secrets).as_bytes());
                }
            }
            let secrets: Vec<&str> = secrets.iter().map(String::as_str).collect();
            let scrubbed = scrub(&body, &secrets);
            for secret in &secrets {
                prop_assert!(!contains(&scrubbed, secret.as_bytes()));
                let bare = without_prefix(secret).unwrap_or(secret);
                prop_assert!(bare.is_empty() || !contains(&scrubbed, bare.as_bytes()));
                let encoded = STANDARD.encode(secret);
                let echoed = [b"<", encoded.as_bytes()].concat();
                let whole = &encoded[..secret.len() / 3 * 4];
                let scrubbed = scrub(&echoed, &secrets);
                prop_assert!(whole.is_empty() || !contains(&scrubbed, whole.as_bytes()));
            }
        }

        #[test]
        fn text_without_secrets_stays_byte_for_byte(
            before in prop::collection::vec(0x80u8.., 0..40),
            after in prop::collection::vec(0x80u8.., 0..40),
        ) {
            let body = [&before[..], SECRET.as_bytes(), &after[..]].concat();
            let expected = [&before[..], MASK.as_bytes(), &after[..]].concat();
            prop_assert_eq!(scrub(&body, &[SECRET]).into_owned(), expected);
            prop_assert_eq!(scrub(&before, &[SECRET]).into_owned(), before);
        }

        #[test]
        fn a_mask_shows_four_characters_at_most(token in any::<String>()) {
            let masked = mask(&token);
            let shown = masked.strip_prefix(MASK).unwrap();
            prop_assert!(token.ends_with(shown));
            let expected = if token.chars().count() > 8 { 4 } else { 0 };
            prop_assert_eq!(shown.chars().count(), expected);
        }
    }
}
