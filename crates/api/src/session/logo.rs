//! Logos of portals: small pictures that an application uploads with a link.
//!
//! **The first bytes of a picture decide its content type**, and only PNG, JPEG and WebP are
//! served: a file that can hold a script never is. The identifier of a logo is a keyed hash of its
//! bytes. So the same picture is stored once for each tenant, and nobody can guess its address.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use postrider_domain::ids::TenantId;
use postrider_domain::time::Timestamp;
use postrider_store::{Pass, PassKind, PassLimits, PassPut};

use super::full;
use crate::problem::Problem;
use crate::state::ApiState;

/// The most bytes of a logo.
pub(crate) const LOGO_BYTES_MAX: usize = 32 * 1024;
/// The prefix of a logo's identifier.
const PREFIX: &str = "lg_";
/// The most logos of one tenant, and of all tenants. A tenant's oldest logo is removed for a new
/// one.
const LOGOS: PassLimits = PassLimits { of_owner: 20, in_total: 20_000 };
const FIELD: &str = "theme.logo";

/// Decodes a picture from base64, and checks its size and its type.
pub(crate) fn decode(text: &str) -> Result<Vec<u8>, Problem> {
    let wrong = || {
        let detail = format!("a PNG, JPEG or WebP of at most {LOGO_BYTES_MAX} bytes, in base64");
        Problem::field(FIELD, detail)
    };
    // Checked before decoding: base64 has four characters for three bytes.
    if text.len() > LOGO_BYTES_MAX.div_ceil(3) * 4 {
        return Err(wrong());
    }
    let bytes = STANDARD.decode(text).map_err(|_| wrong())?;
    let is_logo = bytes.len() <= LOGO_BYTES_MAX && content_type(&bytes).is_some();
    if is_logo { Ok(bytes) } else { Err(wrong()) }
}

/// Stores a picture for as long as a link and its session may live. Returns its identifier.
pub(crate) async fn keep(
    state: &ApiState,
    tenant: &TenantId,
    bytes: Vec<u8>,
    now: Timestamp,
    link_lifetime: Duration,
) -> Result<String, Problem> {
    let hash = state.vault().keyed_hash(&[b"portal logo", tenant.as_str().as_bytes(), &bytes]);
    let id = format!("{PREFIX}{}", postrider_domain::hex::encode(&hash[..16]));
    let lifetime = link_lifetime.saturating_add(state.settings().session_lifetime);
    let pass = Pass {
        id,
        kind: PassKind::Logo,
        owner: tenant.to_string(),
        tenant: Some(tenant.clone()),
        created_at: now,
        expires_at: now.saturating_add(lifetime),
        used_at: None,
        body: bytes,
    };
    match state.store().put_pass(&pass, LOGOS).await? {
        PassPut::Stored => Ok(pass.id),
        PassPut::Full => Err(full("logos", LOGOS.in_total)),
    }
}

/// Finds a picture by its identifier, with its content type.
pub(crate) async fn find(
    state: &ApiState,
    id: &str,
) -> Result<Option<(&'static str, Vec<u8>)>, Problem> {
    let digits = id.strip_prefix(PREFIX).unwrap_or_default();
    if digits.len() != 32 || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Ok(None);
    }
    let pass = state.store().pass(id).await?.filter(|pass| pass.kind == PassKind::Logo);
    Ok(pass.and_then(|pass| Some((content_type(&pass.body)?, pass.body))))
}

/// The content type of a picture, by its first bytes; `None` if it is not PNG, JPEG or WebP.
fn content_type(bytes: &[u8]) -> Option<&'static str> {
    match bytes {
        [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => Some("image/png"),
        [0xff, 0xd8, 0xff, ..] => Some("image/jpeg"),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some("image/webp"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn picture_is_taken_by_its_first_bytes_and_size() {
        let png = b"\x89PNG\r\n\x1a\nrest".to_vec();
        assert_eq!(decode(&STANDARD.encode(&png)).unwrap(), png);
        for ok in [b"\xff\xd8\xff\xe0x".as_slice(), b"RIFF\0\0\0\0WEBPVP8 "] {
            assert!(decode(&STANDARD.encode(ok)).is_ok(), "{ok:?}");
        }
        let large = [png.as_slice(), &[0; LOGO_BYTES_MAX]].concat();
        let svg = b"<svg xmlns=\"http://www.w3.org/2000/svg\"><script>alert(1)</script></svg>";
        for bad in [b"".as_slice(), b"GIF89a", svg, b"<html>", &large] {
            assert!(decode(&STANDARD.encode(bad)).is_err(), "{} bytes", bad.len());
        }
        assert!(decode("not base64!").is_err());
    }
}
