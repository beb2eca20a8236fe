"""Limits of tenants and labels as callers see them."""

from tickwork.core.calendar.durations import duration_text
from tickwork.core.state.ready_queues import UNLIMITED
from tickwork.core.state.state import State
from tickwork.protocol import http_models as wire


def tenant_views(state: State) -> list[wire.Tenant]:
    return [
        wire.Tenant(
            name=name,
            weight=tenant.weight,
            limit=_known(tenant.gauge.limit),
            rate=tenant.gauge.rate_starts if tenant.gauge.rate_ms else None,
            per=duration_text(tenant.gauge.rate_ms) if tenant.gauge.rate_ms else "",
            burst=tenant.gauge.burst if tenant.gauge.rate_ms and not tenant.gauge.sliding else None,
            window="" if not tenant.gauge.rate_ms else "sliding" if tenant.gauge.sliding else "bucket",
            max_live_runs=_known(tenant.max_live_runs),
            paused=tenant.gauge.paused,
            ready=tenant.queued,
            running=tenant.gauge.running,
            live_runs=tenant.active,
        )
        for name, tenant in sorted(state.tenants.items())
    ]


def label_limit_views(state: State) -> list[wire.LabelLimit]:
    return [
        wire.LabelLimit(label=label, value=value, limit=gauge.limit, running=gauge.running)
        for (label, value), gauge in sorted(state.label_gauges.items())
        if gauge.limit < UNLIMITED
    ]


def _known(limit: int) -> int | None:
    return limit if limit < UNLIMITED else None
