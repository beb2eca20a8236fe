"""When an endpoint is called next, by the sentences of the requirements (S003-26 to S003-85) and of docs/endpoints.md.

Nothing of the core is imported. Times are milliseconds. The oracle is told what happens to an endpoint, and when it was
decided; it answers with the next time and its source.
"""

from dataclasses import dataclass

MINUTE = 60_000
BACKOFF_MOST = 5


@dataclass
class Endpoint:
    every: int | None  # the baseline: an interval, or
    minutes: int | None  # a cron `*/minutes * * * *`
    least: int | None = None
    most: int | None = None
    failures: int = 0
    hint_every: int | None = None
    hint_at: int | None = None
    hint_until: int = 0
    paused: bool = False
    paused_until: int = 0  # 0: until it is resumed
    started: int | None = None  # of the run that goes on
    ended: int | None = None  # start of a run that ended in a pause without an end
    next: int | None = None
    source: str = ""
    chosen: str = ""

    # ---- what happens

    def put(self, now, every, minutes, least, most):
        self.every, self.minutes, self.least, self.most = every, minutes, least, most
        self.ask(now)

    def begin(self, at):
        assert not self.held(at), "a pause always wins"
        if self.paused:
            self.paused = False  # its end has come
        self.started, self.next, self.source = at, None, ""

    def end(self, now, outcome):
        started, self.started = self.started, None
        if outcome != "cancelled":
            self.failures = 0 if outcome == "completed" else self.failures + 1
        if self.hint_at is not None and self.hint_at <= started:
            self.hint_at = None  # the run has consumed it
        self.ended = started
        self.ask(now)

    def hint(self, now, every, at, ttl):
        if self.hint_until <= now:
            self.forget()
        self.hint_every = self.hint_every if every is None else every
        self.hint_at = self.hint_at if at is None else at
        self.hint_until = now + ttl
        self.sooner(now)

    def clear(self, now):
        self.forget()
        if self.started is None and not self.held(now):
            if self.chosen in ("ai-interval", "ai-oneshot"):
                self.ask(now)
            else:
                self.sooner(now)

    def reset(self, now):
        if self.failures:
            self.failures = 0
            self.sooner(now)

    def pause(self, now, until):
        self.paused, self.paused_until = True, until
        self.ask(now)

    def resume(self, now):
        self.paused = False
        self.ask(now)

    # ---- what follows

    def held(self, now):
        """In a pause without an end, or before its end."""
        return self.paused and not (self.paused_until and self.paused_until <= now)

    def ask(self, now):
        """Anew, in both directions."""
        self.next, self.source, self.chosen = None, "", ""
        if self.started is not None or (self.paused and not self.paused_until):
            return
        ended, self.ended = self.ended, None
        self.next, self.source, self.chosen = self.decided(now, ended)

    def sooner(self, now):
        """A hint, or failures that are forgotten, may only bring the next time forward."""
        if self.started is not None or (self.paused and not self.paused_until):
            return
        asked = self.decided(now, None)
        if self.next is None or asked[0] < self.next:
            self.next, self.source, self.chosen = asked

    def decided(self, now, started):
        if self.hint_until <= now:
            self.forget()
        found = self.counted(now, now if started is None else started)
        return found if found[0] >= now else self.counted(now, now)

    def counted(self, now, base):
        """Intervals and limits count from `base`."""
        if self.every is not None:
            baseline = base + self.every * 2 ** min(self.failures, BACKOFF_MOST), "baseline-interval"
        else:
            at = base // MINUTE * MINUTE + MINUTE
            while at // MINUTE % 60 % self.minutes:
                at += MINUTE
            baseline = at, "baseline-cron"
        interval = None if self.hint_every is None else (base + self.hint_every, "ai-interval")
        oneshot = None if self.hint_at is None else (max(self.hint_at, now), "ai-oneshot")
        if interval and oneshot:
            at, chosen = min(oneshot, interval, key=lambda one: one[0])
        elif interval:
            at, chosen = interval
        elif oneshot:
            at, chosen = min(oneshot, baseline, key=lambda one: one[0])
        else:
            at, chosen = baseline
        source = chosen
        if self.least is not None and at < base + self.least:
            at, source = base + self.least, "clamped-min"
        if self.most is not None and at > base + self.most:
            at, source = base + self.most, "clamped-max"
        if self.paused and self.paused_until > now:
            at, source = self.paused_until, "paused"
        return at, source, chosen

    def forget(self):
        self.hint_every = self.hint_at = None
        self.hint_until = 0
