"""verify(): is this webhook from Postrider, unchanged and fresh? For receivers.

Signatures are those of Standard Webhooks. Give the raw body: the signature covers its exact bytes, and JSON that was
parsed and written again has others.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from .errors import VerificationError

TOLERANCE_SECONDS = 300
_SIGNATURES_MAX = 32
# With a dot in the id, the same signed text could be read as another id, time and body.
_ID = re.compile(r"[\x21-\x2d\x2f-\x7e]+")
_TIMESTAMP = re.compile(r"[0-9]{1,15}")
_SIGNATURE = re.compile(r"[\x21-\x7e]*,[\x21-\x7e]*")

Headers = Mapping[str, str] | Iterable[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Verified:
    """What a webhook that was verified says of itself."""

    id: str
    """``webhook-id``: the same for each attempt of a delivery. Use it to recognise a repeat."""
    timestamp: datetime
    """When this attempt was made."""


def verify(
    body: bytes | bytearray | memoryview | str,
    headers: Headers,
    secrets: str | Sequence[str],
    *,
    tolerance_seconds: float = TOLERANCE_SECONDS,
    now: float | None = None,
) -> Verified:
    """Returns where one of the secrets has signed exactly this body at about this time.

    ``secrets`` is one or several of ``whsec_...``, or ``whpk_...`` for ed25519 (which needs the extra
    ``postrider[ed25519]``). Give both secrets while one replaces the other. ``now`` is seconds since the epoch.
    Raises `VerificationError` for a webhook that is not to be trusted, and `ValueError` for a secret that is none.
    """
    pairs = _pairs(headers)
    identifier = _header(pairs, "webhook-id")
    timestamp = _header(pairs, "webhook-timestamp")
    signatures = _header(pairs, "webhook-signature").split(" ")
    if not _ID.fullmatch(identifier):
        raise _malformed("webhook-id")
    sent = _check_time(timestamp, time.time() if now is None else now, tolerance_seconds)
    if len(signatures) > _SIGNATURES_MAX or not all(map(_SIGNATURE.fullmatch, signatures)):
        raise _malformed("webhook-signature")

    if not isinstance(body, (bytes, bytearray, memoryview, str)):
        raise TypeError("verify needs the raw body, as bytes or text: was it parsed before?")
    raw = body.encode() if isinstance(body, str) else bytes(body)
    message = f"{identifier}.{timestamp}.".encode() + raw
    matches = False
    for secret in [secrets] if isinstance(secrets, str) else secrets:
        version, is_signature = _key(secret)
        for one in signatures:
            if one.startswith(version):
                signature = _base64(one.removeprefix(version))
                matches |= signature is not None and is_signature(signature, message)
    if not matches:
        raise VerificationError(
            "no_matching_signature", "no signature of the webhook was made with a known secret"
        )
    return Verified(identifier, datetime.fromtimestamp(sent, UTC))


def _key(secret: str) -> tuple[str, Callable[[bytes, bytes], bool]]:
    """The version of the signatures that a secret verifies, and what verifies one."""
    secret = secret.strip()
    if secret.startswith("whsec_"):
        key = _base64(_padded(secret.removeprefix("whsec_")))
        if key is None or not 24 <= len(key) <= 64:
            raise ValueError("a whsec_ secret holds 24 to 64 bytes, in base64")
        return "v1,", lambda signature, message: hmac.compare_digest(
            hmac.digest(key, message, hashlib.sha256), signature
        )
    if secret.startswith("whpk_"):
        public = _base64(_padded(secret.removeprefix("whpk_")))
        if public is None or len(public) != 32:
            raise ValueError("a whpk_ key holds 32 bytes, in base64")
        return "v1a,", _ed25519(public)
    if secret.startswith("whsk_"):
        raise ValueError("a whsk_ secret signs; a receiver needs the subscription's public_key (whpk_...)")
    raise ValueError("a secret begins with whsec_ (HMAC-SHA256) or whpk_ (ed25519)")


def _ed25519(public: bytes) -> Callable[[bytes, bytes], bool]:
    try:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    except ImportError:
        raise RuntimeError("a whpk_ key needs the extra: pip install 'postrider[ed25519]'") from None
    key = Ed25519PublicKey.from_public_bytes(public)

    def is_signature(signature: bytes, message: bytes) -> bool:
        try:
            key.verify(signature, message)
        except InvalidSignature:
            return False
        return True

    return is_signature


def _pairs(headers: Headers) -> list[tuple[str, str]]:
    """The headers as pairs. Starlette and httpx give a header that was sent twice as two pairs, if asked for them."""
    multi = getattr(headers, "multi_items", None)
    if multi is not None:
        return list(multi())
    # Not every collection with items is a Mapping: the headers of `http.server` are none.
    items = getattr(headers, "items", None)
    return list(headers if items is None else items())


def _header(pairs: list[tuple[str, str]], name: str) -> str:
    found = [value for key, value in pairs if key.lower() == name]
    if len(found) > 1:
        raise _malformed(name)
    if not found or not found[0]:
        raise VerificationError("missing_header", f"the header {name} is missing")
    return str(found[0])


def _check_time(timestamp: str, now: float, tolerance_seconds: float) -> int:
    if not _TIMESTAMP.fullmatch(timestamp):
        raise _malformed("webhook-timestamp")
    sent = int(timestamp)
    age = int(now) - sent
    # Written so that a tolerance that is not a number refuses.
    if not age <= tolerance_seconds:
        raise VerificationError("too_old", "the webhook was signed too long ago")
    if not -age <= tolerance_seconds:
        raise VerificationError("too_new", "the webhook was signed in the future")
    return sent


def _malformed(name: str) -> VerificationError:
    return VerificationError("malformed_header", f"the header {name} is malformed")


def _padded(text: str) -> str:
    """Adds the padding that people leave out when they copy a secret."""
    text = text.rstrip("=")
    return text + "=" * (-len(text) % 4)


def _base64(text: str) -> bytes | None:
    """The bytes of canonical base64; None for everything else."""
    try:
        decoded = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
    return decoded if base64.b64encode(decoded).decode() == text else None
