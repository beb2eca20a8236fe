"""A pattern on a zone's clock: which instants its readings are, also where clocks are changed.

Between two changes of the clocks a reading is one instant, and the price is one subtraction. Near a change
the policies decide. A reading that does not exist (a gap) is moved by the length of the gap (`shift`),
left out (`skip`), or taken at the gap's end (`end`). One that comes twice (a fold) counts the first
time, the second time, or both. No instant is due twice, however many readings lead to it.
"""

from dataclasses import dataclass

from tickwork.core.calendar.dates import MS_END, MS_START, S_END, S_START
from tickwork.core.calendar.recurrence import FAR_S, LocalRecurrence, Recurrence
from tickwork.core.calendar.zones import FOREVER_S, Period, Zone


@dataclass(frozen=True, slots=True, kw_only=True)
class ZonedRecurrence(Recurrence):
    pattern: LocalRecurrence
    zone: Zone
    gap: str
    overlap: str

    def next_ms(self, after_ms: int) -> int | None:
        after_s = max(after_ms // 1000, S_START - 1)
        start_s, end_s, offset_s, before_s, next_s = self.zone.period(after_s)
        if after_s >= start_s + abs(offset_s - before_s):
            local_s = self.pattern.next_s(after_s + offset_s)
            if local_s is not None and local_s - offset_s < end_s - max(offset_s - next_s, 0):
                return _counting((local_s - offset_s) * 1000)
        return self._next_near_changes(after_s)

    def prev_ms(self, before_ms: int) -> int | None:
        before_s = min(-(-before_ms // 1000), S_END)
        start_s, end_s, offset_s, earlier_s, next_s = self.zone.period(before_s)
        if before_s < end_s - max(offset_s - next_s, 0):
            local_s = self.pattern.prev_s(before_s + offset_s)
            if local_s is not None and start_s + abs(offset_s - earlier_s) <= local_s - offset_s:
                return _counting((local_s - offset_s) * 1000)
        return self._prev_near_changes(before_s)

    def _next_near_changes(self, after_s: int) -> int | None:
        from_s = after_s
        while from_s < S_END:
            period = self.zone.period(from_s)
            searched_s = max(after_s, self._counted(period)[0] - 1)
            reading = self.pattern.next_s(searched_s + period.offset_s)
            time_s = self._first_in(period, after_s, reading)
            if time_s is not None:
                return _counting(time_s * 1000)
            from_s = period.end_s
            # Nothing lies between the two readings. The clock may still be set back to before the first of them.
            if from_s - searched_s >= FAR_S:
                if reading is None or from_s == FOREVER_S:
                    return None
                from_s = max(from_s, reading - period.offset_s - FAR_S)
        return None

    def _prev_near_changes(self, before_s: int) -> int | None:
        until_s = before_s - 1
        while until_s >= S_START:
            period = self.zone.period(until_s)
            searched_s = min(before_s, self._counted(period)[1])
            reading = self.pattern.prev_s(searched_s + period.offset_s)
            time_s = self._last_in(period, before_s, reading)
            if time_s is not None:
                return _counting(time_s * 1000)
            until_s = period.start_s - 1
            if searched_s - period.start_s >= FAR_S:
                if reading is None or period.start_s == -FOREVER_S:
                    return None
                until_s = min(until_s, reading - period.offset_s + FAR_S)
        return None

    def _first_in(self, period: Period, after_s: int, reading: int | None) -> int | None:
        """The first instant of a period after this one. `reading` is the next one on its clock."""
        offset_s = period.offset_s
        _, high_s = self._counted(period)
        times = [] if reading is None or reading - offset_s >= high_s else [reading - offset_s]
        if offset_s > period.before_s:
            times += self._first_of_gap(period, after_s)
        return min(times, default=None)

    def _last_in(self, period: Period, before_s: int, reading: int | None) -> int | None:
        offset_s = period.offset_s
        low_s, _ = self._counted(period)
        times = [] if reading is None or reading - offset_s < low_s else [reading - offset_s]
        if offset_s > period.before_s:
            times += self._last_of_gap(period, before_s)
        return max(times, default=None)

    def _counted(self, period: Period) -> tuple[int, int]:
        """From when to when a period's readings count: without the times of folds that do not."""
        start_s, end_s, offset_s, before_s, after_s = period
        if self.overlap == "first":
            start_s += max(before_s - offset_s, 0)
        elif self.overlap == "second":
            end_s -= max(offset_s - after_s, 0)
        return start_s, end_s

    def _first_of_gap(self, period: Period, after_s: int) -> list[int]:
        """The first instant after this one that stands for a reading in the gap with which the period starts."""
        start_s, _, offset_s, before_s, _ = period
        if self.gap == "skip" or (self.gap == "end" and after_s >= start_s):
            return []
        reading = self.pattern.next_s(max(after_s, start_s - 1) + before_s)
        if reading is None or reading >= start_s + offset_s:
            return []
        return [reading - before_s if self.gap == "shift" else start_s]

    def _last_of_gap(self, period: Period, before_s: int) -> list[int]:
        start_s, _, offset_s, earlier_s, _ = period
        if self.gap == "skip" or before_s <= start_s:
            return []
        end_s = start_s + offset_s - earlier_s  # of the shifted readings
        until_s = min(before_s, end_s) if self.gap == "shift" else end_s
        reading = self.pattern.prev_s(until_s + earlier_s)
        if reading is None or reading < start_s + earlier_s:
            return []
        return [reading - earlier_s if self.gap == "shift" else start_s]


def _counting(at_ms: int) -> int | None:
    """Years are counted from 1 to 9999 in UTC, whatever the zone's clock shows then."""
    return at_ms if MS_START <= at_ms < MS_END else None
