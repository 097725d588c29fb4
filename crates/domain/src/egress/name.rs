//! Decides whether a host name can be the name of a receiver.
//!
//! This gives early errors; it is not the protection. It refuses names that can never lead to a
//! public address. It looks at the parsed name (lowercase ASCII), never at the text as typed.

use super::UrlRefusal;

/// The longest name, without the final dot.
const NAME_BYTES_MAX: usize = 253;
/// The longest label.
const LABEL_BYTES_MAX: usize = 63;

/// Top-level names that public DNS does not have: reserved by RFCs 2606, 6761, 6762, 7686, 8375 and
/// 9476 or by ICANN, or common in private networks and clusters. `example` is left out on purpose:
/// it is for documentation, resolves nowhere, and people copy examples.
const SPECIAL_USE: [&str; 16] = [
    "alt",
    "arpa",
    "corp",
    "home",
    "internal",
    "intranet",
    "invalid",
    "lan",
    "local",
    "localdomain",
    "localhost",
    "mail",
    "onion",
    "private",
    "svc",
    "test",
];

/// Whether this is `localhost` or a name below it.
pub(super) fn is_localhost(name: &str) -> bool {
    last_label(without_root(name)) == "localhost"
}

/// Whether the name may be contacted; `localhost` names only with `localhost_allowed`.
pub(super) fn vet_name(name: &str, localhost_allowed: bool) -> Result<(), UrlRefusal> {
    let name = without_root(name);
    if name.len() > NAME_BYTES_MAX {
        return Err(UrlRefusal::NameTooLong);
    }
    if !name.split('.').all(is_label) {
        return Err(UrlRefusal::BadLabel);
    }
    if is_localhost(name) && localhost_allowed {
        return Ok(());
    }
    if !name.contains('.') {
        return Err(UrlRefusal::SingleLabel);
    }
    match SPECIAL_USE.iter().find(|&&special| special == last_label(name)) {
        Some(special) => Err(UrlRefusal::SpecialUseName(special)),
        None => Ok(()),
    }
}

/// The name without a final dot.
fn without_root(name: &str) -> &str {
    name.strip_suffix('.').unwrap_or(name)
}

fn last_label(name: &str) -> &str {
    name.rsplit('.').next().unwrap_or(name)
}

/// Whether resolvers and certificates accept the label; the underscore is accepted too, because it
/// is in use.
fn is_label(label: &str) -> bool {
    (1..=LABEL_BYTES_MAX).contains(&label.len())
        && label.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_two_labels_or_more_pass_with_or_without_the_root() {
        for good in ["example.com", "hooks.example.com.", "a_b.example.com", "shop.example"] {
            assert_eq!(vet_name(good, false), Ok(()), "{good}");
        }
    }

    #[test]
    fn labels_and_names_have_limits() {
        let label = |n: usize| "x".repeat(n);
        let longest = format!("{0}.{0}.{0}.{1}", label(63), label(61));
        assert_eq!(longest.len(), 253);
        assert_eq!(vet_name(&longest, false), Ok(()));
        assert_eq!(vet_name(&format!("{longest}."), false), Ok(()));
        assert_eq!(vet_name(&format!("{longest}x"), false), Err(UrlRefusal::NameTooLong));
        let cases = [format!("{}.com", label(64)), format!("a.{}", label(64))];
        for bad in cases.iter().map(String::as_str).chain([
            "",
            ".",
            "..",
            ".example.com",
            "a..com",
            "example.com..",
            "exa*mple.com",
            "a{b.com",
            "A.com",
        ]) {
            assert_eq!(vet_name(bad, true), Err(UrlRefusal::BadLabel), "{bad}");
        }
    }

    #[test]
    fn special_use_names_are_refused_at_every_depth_and_lookalikes_are_not() {
        for special in SPECIAL_USE {
            assert_eq!(vet_name(special, false), Err(UrlRefusal::SingleLabel));
            for name in [format!("a.{special}"), format!("b.a.{special}.")] {
                let refusal = Err(UrlRefusal::SpecialUseName(special));
                assert_eq!(vet_name(&name, false), refusal, "{name}");
            }
            for name in [format!("{special}.com"), format!("a.x{special}")] {
                assert_eq!(vet_name(&name, false), Ok(()), "{name}");
            }
        }
        assert!(SPECIAL_USE.is_sorted());
    }

    #[test]
    fn localhost_passes_only_where_it_is_allowed_and_nothing_passes_with_it() {
        for name in ["localhost", "localhost.", "a.localhost", "b.a.localhost."] {
            assert!(is_localhost(name), "{name}");
            assert_eq!(vet_name(name, true), Ok(()), "{name}");
            assert!(vet_name(name, false).is_err(), "{name}");
        }
        for name in ["ip6-localhost", "localhost.localdomain", "xlocalhost", "metadata", "a.local"]
        {
            assert!(!is_localhost(name), "{name}");
            assert!(vet_name(name, true).is_err(), "{name}");
        }
    }
}
