"""Alarms as callers see them."""

from tickwork.protocol import http_models as wire
from tickwork.runtime.alarms import Alarms
from tickwork.runtime.views.text import instant


def alarm_views(alarms: Alarms, partition: int = 0) -> list[wire.Alarm]:
    """Newest first."""
    return [
        wire.Alarm(at=instant(alarm.at_ms), kind=alarm.kind, text=alarm.text, count=alarm.count, partition=partition)
        for alarm in reversed(alarms.recent)
    ]
