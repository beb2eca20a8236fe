"""Ten endpoints of a shop during a flash sale, and a planner that says when to call them.

Six monitors are called every few minutes, four actions once a day to see that they work. The planner reads what the
monitors answered and gives hints: look more often while something is wrong, act now. A hint ends by itself, and limits
hold whatever the planner says. Without it the endpoints go on as configured.

    tickwork server
    tickwork worker --allow-networks 10.20.0.0/16
    python examples/programs/flash_sale.py http://10.20.0.5
"""

import sys
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import tickwork as tw

MONITORS = {"traffic": "5m", "pages": "5m", "orders": "5m", "payments": "5m", "stock": "10m", "cache": "10m"}
ACTIONS = ("scale_up", "warm_cache", "drain_orders", "call_a_person")
REST = timedelta(minutes=10)  # of an action, before it is taken again


@dataclass
class Rule:
    """If this field of a monitor's answer is above the limit, watch these closely and do these now."""

    monitor: str
    field: str
    limit: float
    watch: tuple[str, ...]
    act: tuple[str, ...] = ()


RULES = (
    Rule("traffic", "visits_per_s", 500, watch=("traffic", "pages", "orders", "stock")),
    Rule("pages", "p95_ms", 1_500, watch=("pages", "cache"), act=("scale_up", "warm_cache")),
    Rule("orders", "waiting", 1_000, watch=("orders", "payments"), act=("drain_orders",)),
    Rule("payments", "failed_percent", 5, watch=("payments",), act=("call_a_person",)),
)


def set_up(client: tw.Client, shop: str) -> None:
    for name, every in MONITORS.items():
        client.put_endpoint(
            name, f"{shop}/{name}", every=every, min_interval="20s", max_interval="15m", retries=1, group="monitors"
        )
    for name in ACTIONS:
        client.put_endpoint(name, f"{shop}/{name}", method="POST", every="1d", pause_after=3, group="actions")


def answer_of(client: tw.Client, monitor: str) -> Any:
    last = next(iter(client.endpoint_runs(monitor, state="completed", page_size=1)), None)
    return last.body if last is not None and last.body is not None else {}


def acted(client: tw.Client, action: str) -> bool:
    """Whether it was called a short while ago."""
    last = next(iter(client.endpoint_runs(action, page_size=1)), None)
    if last is None or last.started_at is None:
        return last is not None
    return datetime.now(UTC) - datetime.fromisoformat(last.started_at) < REST


def plan(client: tw.Client) -> list[str]:
    """One look at the shop; what it advises, in words."""
    advice: list[str] = []
    for rule in RULES:
        value = answer_of(client, rule.monitor).get(rule.field, 0)
        if value <= rule.limit:
            continue
        reason = f"{rule.monitor}: {rule.field} is {value}"
        for name in rule.watch:
            client.hint(name, interval="20s", ttl="10m", reason=reason)
        acts = [name for name in rule.act if not acted(client, name)]
        for name in acts:
            client.hint(name, at=datetime.now(UTC), ttl="5m", reason=reason)
        advice.append(f"{reason}; watch {', '.join(rule.watch)}; do {', '.join(acts) or 'nothing'}")
    return advice


if __name__ == "__main__":
    with tw.Client() as shop_client:
        set_up(shop_client, sys.argv[1])
        while True:
            print(*plan(shop_client), sep="\n")
            time.sleep(30)
