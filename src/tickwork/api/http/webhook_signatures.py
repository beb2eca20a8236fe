"""Signatures of Standard Webhooks (https://www.standardwebhooks.com): HMAC-SHA256 over id, time and the raw body."""

import base64
import binascii
import hashlib
import hmac

SECRET_START = "whsec_"  # noqa: S105 - how a secret begins
VERSION = "v1"  # symmetric signatures; those of other versions in the header are passed over
SECRET_BYTES_MIN = 16
SIGNATURES_MAX = 20  # in one header: a sender that changes its secret sends two


def secret_bytes(text: str) -> bytes:
    """Return the key in `whsec_<base64>`. Raises `ValueError`, which says what is wrong and never shows the secret."""
    try:
        key = base64.b64decode(text.strip().removeprefix(SECRET_START), validate=True)
    except (binascii.Error, ValueError):
        message = f"is not a webhook secret; write it as its sender shows it, {SECRET_START} and base64"
        raise ValueError(message) from None
    if len(key) < SECRET_BYTES_MIN:
        message = f"has {len(key)} bytes, and a webhook secret has at least {SECRET_BYTES_MIN}"
        raise ValueError(message)
    return key


def sign(secret: bytes, *, message_id: str, timestamp: str, body: bytes) -> str:
    """Return the signature of a message as its header has it. `timestamp` is in seconds, as it is sent."""
    content = b"%b.%b.%b" % (message_id.encode(), timestamp.encode(), body)
    return f"{VERSION},{base64.b64encode(hmac.digest(secret, content, hashlib.sha256)).decode()}"


def is_signed(header: str, secrets: list[bytes], *, message_id: str, timestamp: str, body: bytes) -> bool:
    """Return whether one of the signatures in the header was made with one of the secrets."""
    given = [text.encode() for text in header.split(" ")[:SIGNATURES_MAX]]
    signed = False
    for secret in secrets:
        expected = sign(secret, message_id=message_id, timestamp=timestamp, body=body).encode()
        for text in given:  # all are compared, so that the time says nothing about which one fits
            signed |= hmac.compare_digest(text, expected)
    return signed
