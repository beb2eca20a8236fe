"""Chance without dice: the same parts give the same number on every machine and in every version.

Used wherever load is to be spread: jitter, backoff. Python's own hash differs between processes.
"""

from hashlib import blake2b


def stable_hash(*parts: str | int) -> int:
    """64 bits. Each part is written with its type and length, so ("a", "bc") differs from ("ab", "c")."""
    digest = blake2b(digest_size=8)
    for part in parts:
        kind = "i" if isinstance(part, int) else "s"
        text = str(part).encode("utf-8", "surrogatepass")
        digest.update(f"{kind}{len(text)}:".encode() + text)
    return int.from_bytes(digest.digest(), "big")


def spread(limit: int, *parts: str | int) -> int:
    """A number in [0, limit], each about equally likely."""
    assert limit >= 0, "nothing lies between 0 and a negative limit"
    return stable_hash(*parts) * (limit + 1) >> 64


def stable_digest(*parts: str | bytes) -> str:
    """A name for these parts, in hexadecimal; different parts have different names."""
    digest = blake2b(digest_size=20)
    for part in parts:
        data = part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part
        digest.update(f"{len(data)}:".encode() + data)
    return digest.hexdigest()
