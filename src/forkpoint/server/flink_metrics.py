"""Metrics by Flink's names, as far as a job's driver knows them. Pure.

The driver counts per operator. Values of single subtasks are known only if all have the same value (watermarks), if there is only
one subtask, and for user functions' gauges. Unknown values are left out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

from forkpoint.checkpoint.plan import PlanOperator
from forkpoint.errors import ConfigError
from forkpoint.protocol.messages import JournalMessage, MetricsMessage, OperatorMetrics, UserMetrics
from forkpoint.server import messages as m

Number = int | float
Aggregation = Literal["min", "max", "avg", "sum"]
RATE_MS = 60_000  # the window of Flink's meters


@dataclass(frozen=True)
class VertexMetric:
    """``total``: the operator's value. ``by_subtask``: the values of single subtasks. ``adds``: whether these sum to
    ``total``."""

    total: Number | None = None
    by_subtask: Mapping[int, Number] = field(default_factory=dict)
    adds: bool = True


def job_metrics(overview: m.JobOverview, checkpoints: m.Checkpoints | None, measured: MetricsMessage | None) -> dict[str, Number]:
    """The metrics of a job by name. ``checkpoints`` and ``measured``: None if its driver does not run, or does not answer."""
    found: dict[str, Number | None] = {
        "numRestarts": overview.restarts,
        **_times(overview, measured),
        "lastCheckpointId": overview.epoch,
        "numRecordsIn": overview.records_read,
        "numLateRecordsDropped": overview.late_records_dropped,
    }
    if checkpoints is not None:
        counts, latest = checkpoints.counts, checkpoints.latest
        found |= {
            "totalNumberOfCheckpoints": counts.total,
            "numberOfCompletedCheckpoints": counts.completed,
            "numberOfInProgressCheckpoints": counts.in_progress,
            "numberOfFailedCheckpoints": counts.failed,
        }
        if latest.completed is not None:
            found |= {
                "lastCompletedCheckpointId": latest.completed.id,
                "lastCheckpointDuration": latest.completed.end_to_end_duration,
                "lastCheckpointSize": latest.completed.checkpointed_size,
            }
        if latest.restored is not None:
            found["lastCheckpointRestoreTimestamp"] = latest.restored.restore_timestamp
    return {name: value for name, value in found.items() if value is not None}


def _times(overview: m.JobOverview, measured: MetricsMessage | None) -> dict[str, Number | None]:
    """As in Flink, times without interruption; ``downtime`` is 0 while a job runs, and -1 after its end."""
    ended = overview.state in ("FINISHED", "CANCELED", "FAILED")
    if overview.state != "RUNNING":
        return {"uptime": -1 if ended else 0, "runningTime": 0, "downtime": -1 if ended else None}
    since_ms = None if measured is None else measured.since_ms
    passed_ms = None if measured is None or since_ms is None else max(0, measured.now_ms - since_ms)
    return {"uptime": passed_ms, "runningTime": passed_ms, "downtime": 0}


def vertex_metrics(
    operator: PlanOperator, measured: MetricsMessage | None, journal: JournalMessage | None
) -> dict[str, VertexMetric]:
    """The metrics of an operator by name."""
    if measured is None or operator.uid not in measured.operators:
        return {}
    own, parallelism = measured.operators[operator.uid], measured.parallelism
    counts = _counts(operator, own, measured) | _rate(operator.uid, journal, measured.now_ms)
    found = {name: VertexMetric(value, _only(value, parallelism)) for name, value in counts.items()}
    for name, value in _watermarks(operator, own, measured).items():
        found[name] = VertexMetric(value, dict.fromkeys(range(parallelism), value), adds=False)
    if operator.uid in measured.silent_ms:
        idle_ms = measured.silent_ms[operator.uid]
        found["sourceIdleTime"] = VertexMetric(idle_ms, _only(idle_ms, parallelism), adds=False)
    return found | _user(operator.uid, measured.user, parallelism)


def _only(value: Number, parallelism: int) -> dict[int, Number]:
    return {0: value} if parallelism == 1 else {}


def _counts(operator: PlanOperator, own: OperatorMetrics, measured: MetricsMessage) -> dict[str, Number]:
    found: dict[str, Number] = {
        "numRecordsIn": own.records_in,
        "numRecordsOut": own.records_out,
        "numBytesIn": own.bytes_in,
        "numBytesOut": own.bytes_out,
        "numLateRecordsDropped": own.late_records_dropped,
        "accumulateBusyTimeMs": round(own.busy_ms),
    }
    backlog = measured.backlog.get(operator.uid)
    if backlog is not None:
        found["pendingRecords" if backlog.unit == "elements" else "pendingBytes"] = backlog.amount
    return found


def _rate(uid: str, journal: JournalMessage | None, now_ms: int) -> dict[str, Number]:
    """Elements per second in the epochs of the last minute, according to the driver's journal."""
    recent = [
        epoch
        for epoch in ([] if journal is None else journal.epochs)
        if "committed" in epoch.phases and epoch.phases.get("planned", 0) >= now_ms - RATE_MS
    ]
    if not recent or (passed_ms := now_ms - recent[0].phases["planned"]) <= 0:
        return {}
    return {"numRecordsInPerSecond": round(sum(epoch.records.get(uid, 0) for epoch in recent) * 1000 / passed_ms, 3)}


def _watermarks(operator: PlanOperator, own: OperatorMetrics, measured: MetricsMessage) -> dict[str, int]:
    """An operator's watermark is the minimum of its inputs' watermarks, unless it assigns timestamps."""
    found: dict[str, int | None] = {"currentOutputWatermark": own.watermark_ms}
    if operator.inputs and operator.uid in measured.watermarks:
        above = measured.operators.get(operator.inputs[0].uid)
        found["currentInputWatermark"] = None if above is None else above.watermark_ms
    elif operator.inputs:
        found["currentInputWatermark"] = own.watermark_ms
    elif own.watermark_ms is not None:
        found["watermarkLag"] = measured.now_ms - own.watermark_ms
    return {name: value for name, value in found.items() if value is not None}


def _user(uid: str, metrics: Iterable[UserMetrics], parallelism: int) -> dict[str, VertexMetric]:
    """The metrics of user functions, except meters, which are rates in Flink and unknown to the driver."""
    found: dict[str, VertexMetric] = {}
    for each in metrics:
        if each.uid != uid:
            continue
        name = ".".join(part for part in (each.group, each.name) if part)
        if each.kind == "counter":
            value = _number(each.value)
            found[name] = VertexMetric(value, _only(value, parallelism))
        elif each.kind == "gauge" and each.subtask is not None:
            known = found.get(name, VertexMetric(adds=False))
            found[name] = VertexMetric(None, {**known.by_subtask, each.subtask: _number(each.value)}, adds=False)
        elif each.kind == "distribution" and each.value:
            shape = {"min": each.least, "max": each.greatest, "mean": each.sum / each.value}
            for part, number in shape.items():
                if number is not None:
                    found[f"{name}_{part}"] = VertexMetric(number, _only(number, parallelism), adds=False)
    return found


def _number(value: float) -> Number:
    return int(value) if float(value).is_integer() else value


def of_subtasks(found: Mapping[str, VertexMetric]) -> dict[str, Number]:
    """An operator's values by name, and its subtasks' values by number and name, as in Flink."""
    totals = {name: metric.total for name, metric in found.items() if metric.total is not None}
    return totals | {f"{task}.{name}": value for name, metric in found.items() for task, value in metric.by_subtask.items()}


def selected(found: Mapping[str, Number], get: str | None) -> list[m.MetricValue]:
    """The names, or the values of the requested names; unknown names are left out."""
    if get is None:
        return [m.MetricValue(id=name) for name in found]
    return [m.MetricValue(id=name, value=str(found[name])) for name in _names(get) if name in found]


def aggregated_subtasks(
    found: Mapping[str, VertexMetric], parallelism: int, get: str | None, agg: str | None
) -> list[m.AggregatedMetric]:
    """Aggregates over an operator's subtasks. If only the total is known, it gives the sum and the average."""
    known: dict[str, dict[Aggregation, float]] = {}
    for name, metric in found.items():
        if len(metric.by_subtask) == parallelism:
            known[name] = _aggregates(list(metric.by_subtask.values()))
        elif metric.adds and metric.total is not None:
            known[name] = {"sum": float(metric.total), "avg": metric.total / parallelism}
    return _aggregated(known, get, agg)


def aggregated_jobs(jobs: Sequence[Mapping[str, Number]], get: str | None, agg: str | None) -> list[m.AggregatedMetric]:
    """Aggregates over the jobs that have a metric."""
    names = dict.fromkeys(name for job in jobs for name in job)
    return _aggregated({name: _aggregates([job[name] for job in jobs if name in job]) for name in names}, get, agg)


def _aggregates(values: Sequence[Number]) -> dict[Aggregation, float]:
    total = float(sum(values))
    return {"min": float(min(values)), "max": float(max(values)), "avg": total / len(values), "sum": total}


def _aggregated(known: Mapping[str, Mapping[Aggregation, float]], get: str | None, agg: str | None) -> list[m.AggregatedMetric]:
    wanted = _wanted(agg)
    if get is None:
        return [m.AggregatedMetric(id=name) for name in known]
    return [
        m.AggregatedMetric(id=name, **{how: value for how, value in known[name].items() if how in wanted})
        for name in _names(get)
        if name in known
    ]


def _wanted(agg: str | None) -> Collection[str]:
    every = get_args(Aggregation)
    if agg is None:
        return every
    given = [name.strip().lower() for name in agg.split(",")]
    for name in given:
        if name not in every:
            raise ConfigError(f"`agg` has {name!r}; there are {', '.join(every)}")
    return given


def _names(get: str) -> Iterator[str]:
    yield from dict.fromkeys(get.split(","))
