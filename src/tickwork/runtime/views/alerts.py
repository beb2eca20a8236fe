"""Alerts as callers see them."""

from tickwork.protocol import http_models as wire
from tickwork.runtime.alarms import Alarms
from tickwork.runtime.views.text import instant


def alert_views(alarms: Alarms, partition: int = 0) -> list[wire.Alert]:
    """Newest first."""
    return [
        wire.Alert(at=instant(alarm.at_ms), kind=alarm.kind, text=alarm.text, count=alarm.count, partition=partition)
        for alarm in reversed(alarms.recent)
    ]
