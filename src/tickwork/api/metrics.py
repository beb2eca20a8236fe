"""The metrics of /metrics: collected from the engine at each request, in base units, with no label per run."""

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from tickwork.core.state.schedule import Fate
from tickwork.protocol import http_models as wire
from tickwork.runtime.partition.commit_writer import COMMIT_SECONDS
from tickwork.runtime.views.runs import depths
from tickwork.runtime.workers.failure_detector import HeartbeatAges

if TYPE_CHECKING:
    from tickwork.cluster.node import Node
    from tickwork.runtime.engine import Engine
    from tickwork.runtime.maintenance.auditor import AuditProgress

BEAT_QUANTILES = (0.5, 0.95, 1.0)


def exposition(
    readings: "Sequence[tuple[Engine, wire.Status]]", node: "Node | None" = None, horizon_ms: int | None = None
) -> bytes:
    """Collect the metrics of all partitions of a node, with the partition as a label."""
    registry = CollectorRegistry()
    registry.register(_Cluster(readings, node, horizon_ms) if node is not None else _Reading(*readings[0]))
    return generate_latest(registry)


class _Cluster(Collector):
    def __init__(
        self, readings: "Sequence[tuple[Engine, wire.Status]]", node: "Node", horizon_ms: int | None = None
    ) -> None:
        self._readings = readings
        self._node = node
        self._horizon_ms = horizon_ms

    def collect(self) -> Iterator[Metric]:
        node = self._node
        yield GaugeMetricFamily("tickwork_partitions_owned", "Partitions of this node.", value=len(node.engines))
        yield GaugeMetricFamily("tickwork_nodes", "Nodes that live.", value=len(node.ownership.members))
        yield GaugeMetricFamily(
            "tickwork_guests", "Workers that speak to this node.", value=len(node.workers.gateway.workers)
        )
        yield from _beats(node.workers.gateway.heartbeat_ages())
        yield _labelled(
            CounterMetricFamily("tickwork_node_alarms", "Alarms of the node by kind.", labels=["kind"]),
            node.alarms.counts,
        )
        if self._horizon_ms is not None:
            yield GaugeMetricFamily(
                "tickwork_horizon_age_seconds", "Age of the oldest snapshot in the database.",
                value=self._horizon_ms / 1000,
            )  # fmt: skip
        yield from audits([auditor.view() for auditor in node.auditors])
        families: dict[str, Metric] = {}
        for engine, status in self._readings:
            for family in _Reading(engine, status, alone=False).collect():
                known = families.setdefault(family.name, family)
                samples = [
                    sample._replace(labels=sample.labels | {"partition": str(engine.context.number)})
                    for sample in family.samples
                ]
                known.samples = samples if known is family else [*known.samples, *samples]
        yield from families.values()


class _Reading(Collector):
    def __init__(self, engine: "Engine", status: wire.Status, *, alone: bool = True) -> None:
        """Collect the metrics of one partition. In a cluster (not `alone`), nodes report the workers."""
        self._engine = engine
        self._status = status
        self._alone = alone

    def collect(self) -> Iterator[Metric]:
        status, live = self._status, self._engine.context.partition
        assert live is not None, "an engine with a status has started"
        yield _labelled(
            GaugeMetricFamily(
                "tickwork_runs", "Runs by state; `live` are those that have not ended.", labels=["state"]
            ),
            {"live": status.live_runs} | status.runs,
        )
        yield GaugeMetricFamily("tickwork_tick", "The last logical tick.", value=status.tick)
        yield CounterMetricFamily("tickwork_ticks", "Ticks that became durable; the seq.", value=status.seq)
        yield GaugeMetricFamily(
            "tickwork_watermark_lag_ticks", "Ticks by which rows are behind.", value=status.seq - status.watermark
        )
        yield GaugeMetricFamily("tickwork_epoch", "The epoch of this owner.", value=status.epoch)
        yield GaugeMetricFamily("tickwork_tasks_live", "Tasks in memory.", value=status.live_tasks)
        yield GaugeMetricFamily("tickwork_tasks_ready", "Tasks that could start.", value=status.ready)
        yield GaugeMetricFamily("tickwork_tasks_running", "Attempts that workers hold.", value=status.running)
        yield GaugeMetricFamily("tickwork_workers", "Workers that are here.", value=status.workers)
        yield GaugeMetricFamily("tickwork_accepting", "1 while new work is accepted.", value=int(status.accepting))
        yield GaugeMetricFamily("tickwork_backlog_inputs", "Inputs that wait for a tick.", value=live.backlog)
        yield CounterMetricFamily("tickwork_inputs", "Inputs taken since the start.", value=live.inputs_taken)
        yield CounterMetricFamily("tickwork_dispatches", "Attempts given to workers.", value=live.dispatches)
        yield CounterMetricFamily(
            "tickwork_reports_fenced", "Reports that came too late.", value=self._engine.workers.fenced
        )
        ledger = live.write_behind.ledger
        yield GaugeMetricFamily("tickwork_schedules", "Schedules, paused ones included.", value=len(ledger))
        yield GaugeMetricFamily("tickwork_schedules_late", "Schedules that catch up.", value=len(ledger.late))
        totals = ledger.totals()
        yield GaugeMetricFamily(
            "tickwork_occurrences_buffered", "Occurrences that wait for a run to end.", value=totals.buffered
        )
        yield _labelled(
            CounterMetricFamily("tickwork_occurrences", "Expected occurrences by fate.", labels=["fate"]),
            {fate.name.lower(): totals.fates[fate - 1] for fate in Fate},
        )
        yield CounterMetricFamily(
            "tickwork_ledger_differences", "Occurrences without one fate; a defect.", value=ledger.differences
        )
        yield _labelled(
            CounterMetricFamily("tickwork_alarms", "Alarms by kind.", labels=["kind"]),
            self._engine.context.alarms.counts,
        )
        commits = HistogramMetricFamily("tickwork_commit_seconds", "How long a commit took.", labels=[])
        yield _counted(commits, [], COMMIT_SECONDS, live.writer.commit_counts, live.writer.commit_seconds)
        yield from _work(self._engine)
        if self._alone:
            yield from _beats(self._engine.workers.heartbeat_ages())
        yield from audits([auditor.view() for auditor in self._engine.maintenance.auditors])


def audits(views: "Sequence[AuditProgress]") -> Iterator[Metric]:
    """Collect the lag of the auditors in this process."""
    if not views:
        return
    lag = GaugeMetricFamily("tickwork_audit_lag_rows", "Rows that the auditor has not compared.", labels=["partition"])
    behind = GaugeMetricFamily("tickwork_audit_lag_seconds", "Age of the last compared tick.", labels=["partition"])
    rows = CounterMetricFamily("tickwork_audit_rows", "Rows decided again and equal.", labels=["partition"])
    family = GaugeMetricFamily("tickwork_audit_differs", "1 where the journal differs.", labels=["partition"])
    for view in views:
        label = [str(view.partition)]
        lag.add_metric(label, view.lag_rows)
        behind.add_metric(label, view.lag_ms / 1000)
        rows.add_metric(label, view.rows)
        family.add_metric(label, int(view.difference is not None))
    yield from (lag, behind, rows, family)


def _labelled(family: Metric, values: dict[str, int]) -> Metric:
    for label, value in sorted(values.items()):
        family.add_metric([label], value)  # type: ignore[attr-defined]  # the families have it, their base has not
    return family


def _counted(
    family: HistogramMetricFamily, labels: list[str], bounds: Sequence[float], counts: Sequence[int], total: float
) -> HistogramMetricFamily:
    names = [*(str(bound) for bound in bounds), "+Inf"]
    family.add_metric(labels, list(zip(names, accumulate(counts), strict=True)), total)
    return family


def _work(engine: "Engine") -> Iterator[Metric]:
    """Collect task metrics: waiting times, queue depths, attempts, and service levels."""
    live, figures, state = engine.context.partition, engine.context.metrics, engine.context.state
    assert live is not None
    waits = HistogramMetricFamily(
        "tickwork_dispatch_wait_seconds", "From due, or ready, until it is given to a worker.", labels=["of"]
    )
    for name, wait in figures.waits.items():
        _counted(waits, [name], wait.bounds, wait.counts, wait.sum)
    yield waits
    depth, oldest_ms = depths(state)
    ready = GaugeMetricFamily("tickwork_queue_depth", "Tasks that could start.", labels=["tenant", "queue", "priority"])
    for (tenant, queue, priority), count in sorted(depth.items()):
        ready.add_metric([tenant, queue, str(priority)], count)
    yield ready
    age_s = max(live.keeper.reading_ms() - oldest_ms, 0) / 1000 if oldest_ms else 0.0
    yield GaugeMetricFamily("tickwork_ready_age_seconds", "How long the oldest ready task has waited.", value=age_s)
    yield CounterMetricFamily("tickwork_tasks_ended", "Tasks that ended, however.", value=live.tasks_ended)
    yield CounterMetricFamily("tickwork_tasks_failed", "Tasks that failed for good.", value=figures.failed)
    yield _labelled(
        CounterMetricFamily("tickwork_attempts_again", "Attempts after which another follows.", labels=["cause"]),
        figures.again,
    )
    yield _labelled(
        CounterMetricFamily("tickwork_sla_breaches", "Service levels that were not kept.", labels=["workflow"]),
        figures.breaches,
    )


def _beats(heard: HeartbeatAges) -> Iterator[Metric]:
    ages = sorted(heard.ages_s)
    family = GaugeMetricFamily("tickwork_worker_beat_age_seconds", "Since a worker was heard.", labels=["quantile"])
    for share in BEAT_QUANTILES if ages else ():
        family.add_metric([str(share)], ages[min(int(share * len(ages)), len(ages) - 1)])
    yield family
    yield GaugeMetricFamily(
        "tickwork_attempts_orphaned", "Attempts of workers that miss a beat, or are gone.", value=heard.orphaned
    )
