"""Signed requests: the other side can tell who asked, for what, and when.

The signature is HMAC-SHA256 under a shared key over time, method, path with query, and body, each line ended by a line
feed, the body last and as it is. `v1=` in front of it lets a later form stand beside this one.
"""

import hashlib
import hmac

TIMESTAMP = "x-tickwork-timestamp"
SIGNATURE = "x-tickwork-signature"


def signed(key: bytes, *, at_s: int, method: str, path: bytes, body: bytes) -> dict[str, str]:
    """The two headers."""
    message = b"%d\n%s\n%s\n%s" % (at_s, method.encode(), path, body)
    return {TIMESTAMP: str(at_s), SIGNATURE: f"v1={hmac.new(key, message, hashlib.sha256).hexdigest()}"}
