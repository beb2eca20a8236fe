"""Bytes that a program prints, as lines of bounded length and number.

Output cannot fill the agent's memory: a line is cut at `LINE_BYTES_MAX` and says so, its rest is thrown
away as it comes; and what exceeds `ByteRateLimit` is dropped and counted.
"""

LINE_BYTES_MAX = 64 * 1024
PIECE = "piece"  # the stream of what `ctx.stream` sends: not part of the log that people read
CUT = " … [line cut: longer than 64 KiB]"


def sendable(text: str) -> str:
    """The text itself, or where half of a surrogate pair is in it, as in the name of a file that is no UTF-8, with
    that written out: nothing else could travel."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode(errors="backslashreplace").decode()
    return text


class LineSplitter:
    """One stream, cut into lines. Holds at most one line."""

    def __init__(self, stream: str) -> None:
        self.stream = stream
        self._held = b""
        self._skipping = False  # the rest of a line that was cut

    def feed(self, data: bytes) -> list[str]:
        lines = []
        *whole, rest = data.split(b"\n")
        for piece in whole:
            if self._skipping:
                self._skipping = False
            else:
                lines.append(_text(self._held + piece))
            self._held = b""
        if not self._skipping:
            self._held += rest
            if len(self._held) > LINE_BYTES_MAX:
                lines.append(_text(self._held))
                self._held, self._skipping = b"", True
        return lines

    def rest(self) -> list[str]:
        """What was printed without an end of line. What comes next is another line."""
        held, self._held, self._skipping = self._held, b"", False
        return [_text(held)] if held else []


class ByteRateLimit:
    """A bucket of bytes: short bursts pass, a flood is dropped and counted."""

    __slots__ = ("_at_ms", "_left", "dropped")

    RATE = 256 * 1024  # bytes per second
    BURST = 2 * 1024 * 1024

    def __init__(self) -> None:
        self._left, self._at_ms, self.dropped = self.BURST, 0, 0

    def admit(self, size: int, *, now_ms: int) -> bool:
        if now_ms > self._at_ms:
            self._left = min(self.BURST, self._left + (now_ms - self._at_ms) * self.RATE // 1_000)
            self._at_ms = now_ms
        if size + 64 > self._left:
            self.dropped += 1
            return False
        self._left -= size + 64
        return True

    def note(self) -> str:
        """The line that stands for what was dropped, once something passes again; empty where nothing was."""
        dropped, self.dropped = self.dropped, 0
        return f"[{dropped} lines dropped: more than {self.RATE // 1024} KiB per second]" if dropped else ""


def _text(line: bytes) -> str:
    if len(line) > LINE_BYTES_MAX:
        return line[:LINE_BYTES_MAX].decode(errors="replace") + CUT
    return line.decode(errors="replace").removesuffix("\r")
