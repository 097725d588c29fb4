import base64, hashlib, hmac, os, time

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
