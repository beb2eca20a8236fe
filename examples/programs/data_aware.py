"""Reports that run when data is new: both, either, or at a time at the latest.

Airflow's example_assets. Two loads make data by name; nobody calls the reports. Each of them names what it reads, and
runs when that was updated. `because` says what it was.
"""

from typing import Any

import tickwork as tw

Row = dict[str, Any]

orders = tw.asset("shop.orders")
rates = tw.asset("bank.rates")
summary = tw.asset("shop.summary")


@tw.task(produces=orders)
def fetch_orders(day: str) -> list[Row]:
    rows: list[Row] = [{"day": day, "total": total} for total in (10, 20, 30)]
    return tw.materialized(rows, partition=day, details={"rows": len(rows)})


@tw.task(produces=rates)
def fetch_rates(day: str) -> dict[str, float]:
    return tw.materialized({"EUR": 1.1}, partition=day)


@tw.workflow
def load_orders(day: str) -> list[Row]:
    return fetch_orders(day)


@tw.workflow
def load_rates(day: str) -> dict[str, float]:
    return fetch_rates(day)


@tw.task(produces=summary)
def summarize(day: str, because: list[tw.Update]) -> str:
    return f"{day}: {' and '.join(update.name for update in because)}"


@tw.workflow(schedule=tw.on(orders & rates))
def summarize_day(partition: str, because: list[tw.Update]) -> str:
    """Both must be new, for the same day."""
    return summarize(partition, because)


@tw.task
def note(because: list[tw.Update]) -> str:
    return ", ".join(f"{update.name} by {update.source.partition(' of ')[0]}" for update in because) or "at its time"


@tw.workflow(schedule=tw.on(orders | rates, updates="each"))
def log_news(because: list[tw.Update]) -> str:
    """Either of them, each update for itself."""
    return note(because)


@tw.workflow(schedule=tw.on(summary, overlap="buffer_one") | tw.cron("0 6 * * *"))
def publish(because: list[tw.Update] = []) -> str:
    """The third asset in the chain; at six in the morning in any case."""
    return note(because)
