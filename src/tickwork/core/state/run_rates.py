"""How many runs of a workflow may begin in a time, for each value of a key.

A key that was used is a bucket that fills up again. The bucket is one number: the time at which it will be full. A run
that has to wait books the next moment at once, so nobody stands in a line. A full bucket is dropped.
"""

import msgspec

from tickwork.core.base.errors import Refused
from tickwork.core.calendar.durations import duration_text
from tickwork.core.definition.model import RunRate

SWEEP_MS = 60_000  # how often full buckets are looked for, while there are any
SWEPT_MAX = 20_000  # looked at in one tick; the others follow
SWEEP_AGAIN_MS = 1_000
BOOKED_MS_MAX = 100 * 366 * 86_400_000  # a rate that is booked for so long takes no more runs


class RateKey(msgspec.Struct, gc=False, eq=False):
    """A key whose bucket is not full."""

    full_us: int  # when it will be
    waiting: int = 0  # number of the one run that waits, where a later one takes its place


def earliest_us(bucket: RateKey | None, rate: RunRate, now_us: int) -> int:
    """When the next run may begin: up to `limit` of them at once. Raises `Refused` where that is beyond all bounds."""
    if bucket is None:
        return now_us
    at_us = max(now_us, bucket.full_us - (rate.limit - 1) * rate.interval_us)
    if at_us - now_us > BOOKED_MS_MAX * 1_000:
        raise Refused("rate_booked_up", "so many runs wait for this rate that none can be added", path="rate")
    return at_us


def booked(bucket: RateKey | None, rate: RunRate, now_us: int) -> int:
    """When the bucket will be full after one more run."""
    return max(now_us, bucket.full_us if bucket is not None else 0) + rate.interval_us


def rate_words(rate: RunRate, key: str) -> str:
    return f"{rate.limit} runs may begin in {duration_text(rate.per_ms)}{f' for {key!r}' if key else ''}"
