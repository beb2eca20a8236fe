"""Text that is cut says so."""


def shortened(text: str, characters_max: int) -> str:
    """At most so many characters; the last is … where some are missing."""
    return text if len(text) <= characters_max else f"{text[: characters_max - 1]}…"
