//! Cargo.toml: base64 = "0.23", hmac = "0.13", sha2 = "0.11", http = "1"

use base64::{Engine as _, engine::general_purpose::STANDARD};
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

/// Whether `body` was signed with the secret of this subscription (whsec_…).
pub fn verify(secret: &str, headers: &http::HeaderMap, body: &[u8]) -> Option<()> {
    let text = |name: &str| headers.get(name)?.to_str().ok();
    let (id, timestamp) = (text("webhook-id")?, text("webhook-timestamp")?);
    let sent_at: u64 = timestamp.parse().ok()?;
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).ok()?.as_secs();
    if now.abs_diff(sent_at) > 300 {
        return None;
    }
    let key = STANDARD.decode(secret.trim_start_matches("whsec_")).ok()?;
    let mut mac = Hmac::<Sha256>::new_from_slice(&key).ok()?;
    mac.update(format!("{id}.{timestamp}.").as_bytes());
    mac.update(body);
    // Several signatures during a rotation: one of them must fit.
    let mut given = text("webhook-signature")?.split(' ').filter_map(|one| one.strip_prefix("v1,"));
    given.find(|one| {
        STANDARD.decode(one).is_ok_and(|bytes| mac.clone().verify_slice(&bytes).is_ok())
    })?;
    Some(())
}
