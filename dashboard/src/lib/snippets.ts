// How a receiver verifies a signature (Standard Webhooks, HMAC-SHA256), in four languages.

export const SNIPPETS: Record<string, string> = {
  Python: `import base64, hashlib, hmac, os, time

# The secret of this subscription: whsec_…
SECRET = base64.b64decode(os.environ["WEBHOOK_SECRET"].removeprefix("whsec_"))

def verify(headers: dict, body: bytes) -> bool:
    """headers by lower-case name, the body as it came."""
    sent_at = int(headers["webhook-timestamp"])
    if abs(time.time() - sent_at) > 300:
        return False
    signed = f"{headers['webhook-id']}.{sent_at}.".encode() + body
    expected = hmac.new(SECRET, signed, hashlib.sha256).digest()
    # Several signatures during a rotation: one of them must fit.
    for signature in headers["webhook-signature"].split(" "):
        version, _, value = signature.partition(",")
        if version == "v1" and hmac.compare_digest(base64.b64decode(value), expected):
            return True
    return False
`,
  JavaScript: `import { createHmac, timingSafeEqual } from 'node:crypto';

// The secret of this subscription: whsec_…
const SECRET = Buffer.from(process.env.WEBHOOK_SECRET.replace(/^whsec_/, ''), 'base64');

/** headers by lower-case name, the body as it came (a Buffer or a string). */
export function verify(headers, body) {
  const sentAt = Number(headers['webhook-timestamp']);
  if (!(Math.abs(Date.now() / 1000 - sentAt) <= 300)) return false;
  const expected = createHmac('sha256', SECRET)
    .update(\`\${headers['webhook-id']}.\${sentAt}.\`)
    .update(body)
    .digest();
  // Several signatures during a rotation: one of them must fit.
  return headers['webhook-signature'].split(' ').some((signature) => {
    const [version, value] = signature.split(',');
    const given = Buffer.from(value ?? '', 'base64');
    return version === 'v1' && given.length === expected.length && timingSafeEqual(given, expected);
  });
}
`,
  Go: withTabs(`package webhook

import (
    "crypto/hmac"
    "crypto/sha256"
    "encoding/base64"
    "math"
    "net/http"
    "os"
    "strconv"
    "strings"
    "time"
)

// Verify reports whether body was signed with the secret of this subscription (whsec_…).
func Verify(header http.Header, body []byte) bool {
    secret, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(os.Getenv("WEBHOOK_SECRET"), "whsec_"))
    if err != nil {
        return false
    }
    timestamp := header.Get("webhook-timestamp")
    sentAt, err := strconv.ParseInt(timestamp, 10, 64)
    if err != nil || math.Abs(float64(time.Now().Unix()-sentAt)) > 300 {
        return false
    }
    mac := hmac.New(sha256.New, secret)
    mac.Write([]byte(header.Get("webhook-id") + "." + timestamp + "."))
    mac.Write(body)
    expected := mac.Sum(nil)
    // Several signatures during a rotation: one of them must fit.
    for _, signature := range strings.Fields(header.Get("webhook-signature")) {
        value, ok := strings.CutPrefix(signature, "v1,")
        if given, err := base64.StdEncoding.DecodeString(value); ok && err == nil && hmac.Equal(given, expected) {
            return true
        }
    }
    return false
}
`),
  Rust: `// Cargo.toml: base64 = "0.22", hmac = "0.12", sha2 = "0.10", http = "1"
use base64::{Engine as _, engine::general_purpose::STANDARD};
use hmac::{Hmac, Mac as _};
use sha2::Sha256;

/// Whether \`body\` was signed with the secret of this subscription (whsec_…).
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
`,
};

/** Go is indented by tabs. */
function withTabs(code: string): string {
  return code.replace(/^(?: {4})+/gm, (blanks) => '\t'.repeat(blanks.length / 4));
}
