"""What user code prints and logs, as lines of the attempt that printed them.

Lines are collected and sent together, at the latest after a tenth of a second; a flood is cut here already, so that it
costs only itself. Code that prints nothing pays nothing: the thread that sends starts with the first line.
"""

import contextlib
import io
import logging
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from tickwork.protocol.child_messages import OutputLine, OutputLines
from tickwork.protocol.log_lines import CUT, LINE_BYTES_MAX, ByteRateLimit, sendable
from tickwork.sdk.context import current

SEND_S = 0.1
BATCH_BYTES = 32 * 1024
Key = tuple[int, int]


class Output:
    """The lines of all attempts of this process, on their way to the agent."""

    def __init__(self, send: Callable[[OutputLines], None]) -> None:
        self._send = send
        self._lock = threading.RLock()
        self._lines: list[OutputLine] = []
        self._bytes = 0
        self._open: dict[tuple[Key, str], str] = {}  # the beginning of a line whose end has not come
        self._flows: dict[Key, ByteRateLimit] = {}
        self._sender: threading.Thread | None = None
        self._before: tuple[Any, Any] | None = None
        self._handler: logging.Handler | None = None
        self._wakeup = threading.Event()
        self.by_bytes = False  # bytes were written directly: they are in a buffer of Python

    @property
    def used(self) -> bool:
        """Whether any attempt that runs has printed."""
        return bool(self._flows or self._open or self.by_bytes)

    def capture(self, *, tee: bool = False) -> None:
        """From here on, `print` and `logging` inside an attempt come here; with `tee`, also where they went before."""
        self._before = (sys.stdout, sys.stderr)
        self._flush_before()  # output of the application's loading belongs to no attempt
        sys.stdout = _Stream(self, "stdout", sys.stdout, tee)
        sys.stderr = _Stream(self, "stderr", sys.stderr, tee)
        root = logging.getLogger()
        if tee or not root.handlers:  # an application that has set up logging has its lines on stderr already
            self._handler = _Handler(self)
            root.addHandler(self._handler)
        if not tee and self._handler is not None:
            root.setLevel(logging.INFO)

    def release(self) -> None:
        """As it was before `capture`."""
        if isinstance(sys.stdout, _Stream) and self._before:
            sys.stdout, sys.stderr = self._before
        if self._handler is not None:
            logging.getLogger().removeHandler(self._handler)

    def write(self, key: Key, stream: str, text: str) -> None:
        with self._lock:
            text = self._open.pop((key, stream), "") + text
            if "\n" in text:
                *whole, text = text.split("\n")
                for line in whole:
                    self._line(key, stream, line)
            if len(text) > LINE_BYTES_MAX:
                text = text[: LINE_BYTES_MAX + 1]  # longer than allowed, so that it is cut when its end comes
            if text:
                self._open[key, stream] = text

    def line(self, key: Key, stream: str, text: str) -> None:
        with self._lock:
            for line in text.split("\n"):
                self._line(key, stream, line)

    def _line(self, key: Key, stream: str, text: str) -> None:
        if len(text) > LINE_BYTES_MAX:
            text = text[:LINE_BYTES_MAX] + CUT
        flow = self._flows.get(key)
        if flow is None:
            flow = self._flows[key] = ByteRateLimit()
        if not flow.admit(len(text), now_ms=time.monotonic_ns() // 1_000_000):
            return
        text = sendable(text)
        at_ms = time.time_ns() // 1_000_000
        if flow.dropped:
            self._lines.append(OutputLine(*key, stream, flow.note(), at_ms))
        self._lines.append(OutputLine(*key, stream, text, at_ms))
        self._bytes += len(text)
        if self._bytes > BATCH_BYTES:
            self.flush()
        else:
            self._send_soon()

    def ended(self, key: Key) -> None:
        """Everything that the attempt has printed is sent, the line without an end too."""
        with self._lock:
            for stream in ("stdout", "stderr"):
                rest = self._open.pop((key, stream), "")
                if rest:
                    self._line(key, stream, rest)
            if self.by_bytes:
                self._flush_before()
            flow = self._flows.pop(key, None)
            if flow is not None and flow.dropped:
                self._lines.append(OutputLine(*key, "stderr", flow.note(), time.time_ns() // 1_000_000))
            self.flush()

    def _flush_before(self) -> None:
        for stream in self._before or ():
            with contextlib.suppress(ValueError, OSError):  # closed by user code
                stream.flush()

    def flush(self) -> None:
        with self._lock:
            lines, self._lines, self._bytes = self._lines, [], 0
            if lines:
                self._send(OutputLines(tuple(lines)))

    def _send_soon(self) -> None:
        if self._sender is None or not self._sender.is_alive():  # also after a fork of user code
            self._sender = threading.Thread(target=self._send_late, name="tickwork-output", daemon=True)
            self._sender.start()
        self._wakeup.set()

    def _send_late(self) -> None:
        while True:
            self._wakeup.wait()
            self._wakeup.clear()
            time.sleep(SEND_S)
            self.flush()


class _Stream(io.TextIOBase):
    """In place of `sys.stdout`. Outside of an attempt it writes where the process did before."""

    def __init__(self, output: Output, name: str, before: Any, tee: bool) -> None:
        self._output, self._name, self._before, self._tee = output, name, before, tee

    @property
    def encoding(self) -> str:  # type: ignore[override]  # read-only here, as it never changes
        return "utf-8"

    @property
    def buffer(self) -> Any:
        self._output.by_bytes = True
        return self._before.buffer

    def reconfigure(self, **_options: Any) -> None:
        """Lines are lines of the log, whatever the encoding and the buffers."""

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return int(self._before.fileno())

    def write(self, text: str) -> int:
        here = current()
        if here is None or self._tee:
            self._before.write(text)
            self._before.flush()
        if here is not None:
            self._output.write((here.task_id, here.attempt), self._name, text)
        return len(text)

    def flush(self) -> None:
        if not self._before.closed:
            self._before.flush()


class _Handler(logging.Handler):
    def __init__(self, output: Output) -> None:
        super().__init__()
        self._output = output
        self.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        here = current()
        if here is None:
            return
        try:
            text = self.format(record)
        except Exception:  # arguments that do not fit their text fail no task: `logging` says so on stderr
            self.handleError(record)
            return
        self._output.line((here.task_id, here.attempt), "log", text)
