//! The token of a session (`ps_<id>_<secret>`) or of a link (`pt_<id>_<secret>`). The identifier
//! finds the pass in the store, which keeps only a keyed hash of the secret.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use subtle::ConstantTimeEq as _;
use zeroize::Zeroizing;

use crate::draw::Draw;
use crate::random::NoRandomness;
use crate::vault::Vault;

/// The prefix of a session's token, and of the identifier of its pass.
pub(crate) const SESSION: &str = "ps_";
/// The prefix of a link's token.
pub(crate) const LINK: &str = "pt_";
/// The prefix of the identifier of a link's pass.
pub(crate) const LINK_ID: &str = "pl_";

/// Part of the hashed text, so that these hashes differ from keyed hashes for other purposes.
const PURPOSE: &[u8] = b"pass";
/// How many characters an identifier has after its prefix.
const ID_CHARS: usize = 16;

/// A new token: the identifier of its pass, the hash to keep, and the text, which is shown once.
pub(crate) struct NewToken {
    pub(crate) id: String,
    pub(crate) hash: String,
    pub(crate) text: Zeroizing<String>,
}

/// Makes a token with one prefix for its text and one for the identifier of its pass.
pub(crate) fn new(
    vault: &Vault,
    prefix: &str,
    id_prefix: &str,
    draw: &Draw,
) -> Result<NewToken, NoRandomness> {
    let digits = postrider_domain::hex::encode(&draw.bytes::<8>("pass id")?);
    let secret = draw.secret_bytes::<32>("pass secret")?;
    let secret = Zeroizing::new(postrider_domain::hex::encode(secret.as_slice()));
    let id = format!("{id_prefix}{digits}");
    let hash = hash(vault, &id, secret.as_bytes());
    let text = Zeroizing::new(format!("{prefix}{digits}_{}", *secret));
    Ok(NewToken { id, hash, text })
}

/// Parses a token `PREFIX DIGITS _ SECRET`, written without the spaces: returns the 16 hexadecimal
/// digits that identify the pass, and the secret. `None` if the token is malformed or has another
/// prefix.
pub(super) fn parse<'t>(prefix: &str, token: &'t [u8]) -> Option<(&'t str, &'t [u8])> {
    let rest = token.strip_prefix(prefix.as_bytes())?;
    let (digits, rest) = rest.split_at_checked(ID_CHARS)?;
    let secret = rest.strip_prefix(b"_").filter(|secret| !secret.is_empty())?;
    let is_id = digits.iter().all(u8::is_ascii_hexdigit);
    let digits = std::str::from_utf8(digits).ok().filter(|_| is_id)?;
    Some((digits, secret))
}

/// Whether `secret` is the secret of the pass `id`. Compares in constant time.
pub(super) fn is_secret_of(vault: &Vault, id: &str, secret: &[u8], kept: &str) -> bool {
    hash(vault, id, secret).as_bytes().ct_eq(kept.as_bytes()).into()
}

fn hash(vault: &Vault, id: &str, secret: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(vault.keyed_hash(&[PURPOSE, id.as_bytes(), secret]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vault::KeyRing;

    #[test]
    fn token_is_recognised_and_nothing_else_is() {
        let vault = Vault::new(KeyRing::generate().unwrap());
        let token = new(&vault, LINK, LINK_ID, &Draw::default()).unwrap();
        let (digits, secret) = parse(LINK, token.text.as_bytes()).unwrap();
        let id = format!("{LINK_ID}{digits}");
        assert_eq!(id, token.id);
        assert!(is_secret_of(&vault, &id, secret, &token.hash));
        assert!(!is_secret_of(&vault, &id, &secret[1..], &token.hash));
        assert!(!is_secret_of(&vault, "ps_0123456789abcdef", secret, &token.hash), "of its pass");
        assert_eq!(parse(SESSION, token.text.as_bytes()), None, "of its kind");
        assert!(!token.hash.contains(std::str::from_utf8(secret).unwrap()));
    }

    #[test]
    fn texts_that_are_no_tokens_are_told_by_their_shape() {
        for text in ["", "ps_", "ps_0123456789abcdef", "ps_0123456789abcdef_", "ps_0123_x"] {
            assert_eq!(parse(SESSION, text.as_bytes()), None, "{text}");
        }
        assert_eq!(parse(SESSION, b"ps_0123456789abcde\xff_x"), None);
        assert_eq!(parse(SESSION, b"ps_0123456789abcdez_x"), None);
    }
}
