"""Metrics of jobs in Prometheus' text format. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
    SummaryMetricFamily,
)
from prometheus_client.registry import Collector, CollectorRegistry

from forkpoint.protocol.messages import MetricsMessage, UserMetrics

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4

STATES = ("starting", "standby", "running", "restarting", "ended", "lost", "silent", "failed")

Values = Iterable[tuple[tuple[str, ...], float | None]]
"""A job's values of a metric, each with the values of its labels after ``job``."""


@dataclass(frozen=True)
class Definition:
    """A metric: its name, its help text, its labels after ``job``, and a function that reads its values from a job's message. A
    value of None is left out."""

    kind: type[CounterMetricFamily] | type[GaugeMetricFamily]
    name: str
    text: str
    labels: tuple[str, ...]
    values: Callable[[MetricsMessage], Values]


def _counter(name: str, text: str, values: Callable[[MetricsMessage], Values], *labels: str) -> Definition:
    return Definition(CounterMetricFamily, name, text, labels, values)


def _gauge(name: str, text: str, values: Callable[[MetricsMessage], Values], *labels: str) -> Definition:
    return Definition(GaugeMetricFamily, name, text, labels, values)


def _one(value: float | None) -> Values:
    return [((), value)]


def _by_uid(values: Mapping[str, float | None]) -> Values:
    return [((uid,), value) for uid, value in values.items()]


def _operators(m: MetricsMessage, field: str) -> Values:
    return [((uid,), getattr(operator, field)) for uid, operator in m.operators.items()]


def _backlog(m: MetricsMessage, unit: str) -> Values:
    return _by_uid({uid: b.amount if b.unit == unit else None for uid, b in m.backlog.items()})


def _states(m: MetricsMessage, field: str) -> Values:
    return [((s.uid, s.name), getattr(s, field)) for s in m.states or () if s.kind not in _DOMAINS]


def _timers(m: MetricsMessage) -> Values:
    return [((s.uid, _DOMAINS[s.kind]), s.entries) for s in m.states or () if s.kind in _DOMAINS]


def _problems(m: MetricsMessage) -> Values:
    return [(labels, 1) for labels in dict.fromkeys((p.severity, p.kind, p.uid or "") for p in m.problems)]


def _user(m: MetricsMessage, kind: str, value: Callable[[UserMetrics], float | None]) -> Values:
    return [((u.uid, u.group, u.name), value(u)) for u in m.user if u.kind == kind]


def _seconds(ms: float | None) -> float | None:
    return None if ms is None else ms / 1000


def _age(m: MetricsMessage, since_ms: int | None) -> float | None:
    return None if since_ms is None else (m.now_ms - since_ms) / 1000


_USER = ("uid", "group", "name")
_DOMAINS = {"timers-event": "event", "timers-processing": "processing"}

DEFINITIONS: Sequence[Definition] = (
    _gauge("forkpoint_job_info", "The run that leads the job; always 1.", lambda m: [((m.run,), 1)], "run"),
    _gauge("forkpoint_job_start_time_seconds", "When the run began.", lambda m: _one(_seconds(m.started_ms))),
    _gauge("forkpoint_job_parallelism", "Subtasks of each stage.", lambda m: _one(m.parallelism)),
    _gauge(
        "forkpoint_job_problem",
        "1 for what is wrong with the job, as `forkpoint list` tells it in sentences.",
        _problems,
        "severity",
        "kind",
        "uid",
    ),
    _counter("forkpoint_job_restarts", "Restarts of the run so far, after failures.", lambda m: _one(m.restarts)),
    _counter("forkpoint_job_rescalings", "Rescalings of the run so far.", lambda m: _one(m.rescalings)),
    _gauge("forkpoint_job_epoch", "The last committed epoch.", lambda m: _one(m.epoch)),
    _counter("forkpoint_epochs_committed", "Epochs committed since the last (re)start.", lambda m: _one(m.epochs)),
    _gauge(
        "forkpoint_epoch_last_commit_timestamp_seconds",
        "When this run committed its last epoch.",
        lambda m: _one(_seconds(m.committed_ms)),
    ),
    _gauge(
        "forkpoint_epoch_running_seconds",
        "How long the epoch under way has been computing; 0 between epochs.",
        lambda m: _one(m.epoch_ms / 1000),
    ),
    _counter(
        "forkpoint_operator_records_in",
        "Elements that an operator has taken; of a source: that it has read.",
        lambda m: _operators(m, "records_in"),
        "uid",
    ),
    _counter(
        "forkpoint_operator_records_out",
        "Elements that an operator has emitted, without side outputs.",
        lambda m: _operators(m, "records_out"),
        "uid",
    ),
    _counter(
        "forkpoint_operator_late_records_dropped",
        "Elements that came too late for an operator.",
        lambda m: _operators(m, "late_records_dropped"),
        "uid",
    ),
    _counter(
        "forkpoint_operator_busy_seconds",
        "Time at work, added up over the subtasks.",
        lambda m: _by_uid({uid: o.busy_ms / 1000 for uid, o in m.operators.items()}),
        "uid",
    ),
    _counter(
        "forkpoint_operator_bytes_in",
        "Bytes that came through exchanges; of a source: of the columns it has read.",
        lambda m: _operators(m, "bytes_in"),
        "uid",
    ),
    _counter(
        "forkpoint_operator_bytes_out",
        "Bytes that an operator has sent through exchanges.",
        lambda m: _operators(m, "bytes_out"),
        "uid",
    ),
    _gauge(
        "forkpoint_operator_watermark_seconds",
        "An operator's watermark, in seconds since 1970.",
        lambda m: _by_uid({uid: _seconds(o.watermark_ms) for uid, o in m.operators.items()}),
        "uid",
    ),
    _gauge(
        "forkpoint_operator_watermark_lag_seconds",
        "How far an operator's watermark is behind the clock.",
        lambda m: _by_uid({uid: _age(m, o.watermark_ms) for uid, o in m.operators.items()}),
        "uid",
    ),
    _gauge(
        "forkpoint_source_watermark_seconds",
        "A source's lowest watermark, and the split that holds it back.",
        lambda m: [((uid, w.split), _seconds(w.watermark_ms)) for uid, w in m.watermarks.items()],
        "uid",
        "split",
    ),
    _gauge(
        "forkpoint_source_backlog_records",
        "Elements that a source knows of and has not read yet.",
        lambda m: _backlog(m, "elements"),
        "uid",
    ),
    _gauge(
        "forkpoint_source_backlog_bytes",
        "Bytes that a source knows of and has not read yet.",
        lambda m: _backlog(m, "bytes"),
        "uid",
    ),
    _gauge(
        "forkpoint_source_backlog_files",
        "Files that a source knows of and has not read to their end yet.",
        lambda m: _by_uid({uid: b.files for uid, b in m.backlog.items()}),
        "uid",
    ),
    _gauge(
        "forkpoint_source_silence_seconds",
        "How long an unbounded source has read nothing.",
        lambda m: _by_uid({uid: ms / 1000 for uid, ms in m.silent_ms.items()}),
        "uid",
    ),
    _gauge(
        "forkpoint_sink_unpublished_epochs",
        "Committed epochs that a sink has not published yet.",
        lambda m: _by_uid(dict(m.unpublished)),
        "uid",
    ),
    _counter(
        "forkpoint_epoch_changelog_bytes",
        "Bytes of changes of state that epochs have written.",
        lambda m: _one(m.changelog_bytes),
    ),
    _counter("forkpoint_epoch_snapshot_bytes", "Bytes of snapshots of state written.", lambda m: _one(m.snapshot_bytes)),
    _gauge("forkpoint_state_entries", "About how many entries the state's stores have.", lambda m: _one(m.state_entries)),
    _gauge("forkpoint_state_bytes", "About how many bytes the state's stores use.", lambda m: _one(m.state_bytes)),
    _gauge(
        "forkpoint_operator_state_entries",
        "About how many entries a state of an operator has, over all subtasks.",
        lambda m: _states(m, "entries"),
        "uid",
        "state",
    ),
    _gauge(
        "forkpoint_operator_state_bytes",
        "About how many bytes the keys and values of these entries have.",
        lambda m: _states(m, "bytes"),
        "uid",
        "state",
    ),
    _gauge(
        "forkpoint_operator_timers", "About how many timers of an operator are set, by time domain.", _timers, "uid", "domain"
    ),
    _counter(
        "forkpoint_state_catch_ups",
        "How often a subtask's store was brought to its epoch's initial state, by means.",
        lambda m: [((kind,), c.count) for kind, c in m.catch_ups.items()],
        "kind",
    ),
    _counter(
        "forkpoint_state_catch_up_seconds",
        "How long that took, by means.",
        lambda m: [((kind,), c.sum_ms / 1000) for kind, c in m.catch_ups.items()],
        "kind",
    ),
    _counter("forkpoint_state_stores_reused", "Tasks that found their store up to date.", lambda m: _one(m.stores_reused)),
    _counter("forkpoint_savepoints_completed", "Savepoints that the run has completed.", lambda m: _one(m.savepoints)),
    _counter("forkpoint_savepoints_failed", "Savepoints of the run that failed.", lambda m: _one(m.savepoints_failed)),
    _gauge("forkpoint_savepoint_age_seconds", "How old the run's last savepoint is.", lambda m: _one(_age(m, m.savepoint_ms))),
    _gauge(
        "forkpoint_user_counted",
        "A counter of a user function; it may also be decremented.",
        lambda m: _user(m, "counter", lambda u: u.value),
        *_USER,
    ),
    _gauge(
        "forkpoint_user_value",
        "A gauge of a user function.",
        lambda m: [((u.uid, u.group, u.name, str(u.subtask)), u.value) for u in m.user if u.kind == "gauge"],
        *_USER,
        "subtask",
    ),
    _counter(
        "forkpoint_user_meter_events",
        "Events that a meter of a user function has counted.",
        lambda m: _user(m, "meter", lambda u: u.value),
        *_USER,
    ),
    _gauge(
        "forkpoint_user_distribution_min",
        "The least value of a distribution of a user function.",
        lambda m: _user(m, "distribution", lambda u: u.least),
        *_USER,
    ),
    _gauge(
        "forkpoint_user_distribution_max",
        "The greatest value of a distribution of a user function.",
        lambda m: _user(m, "distribution", lambda u: u.greatest),
        *_USER,
    ),
)


@dataclass(frozen=True)
class Measured:
    """Jobs of one state root. ``others``: the states of jobs without metrics, by name, such as "lost"."""

    jobs: Sequence[MetricsMessage]
    others: Mapping[str, str]


def exposition(jobs: Sequence[MetricsMessage], others: Mapping[str, str] | None = None) -> str:
    """The metrics of running jobs in one text, in which each metric occurs once. ``others``: as in ``Measured``."""
    return _text(list(families(jobs, others or {})))


def exposition_of_roots(roots: Mapping[str, Measured]) -> str:
    """The metrics of jobs of several state roots, by URL, which is a label: two roots may have jobs of the same name."""
    merged: dict[str, Metric] = {}
    for root, measured in roots.items():
        for family in families(measured.jobs, measured.others):
            known = merged.setdefault(family.name, Metric(family.name, family.documentation, family.type))
            known.samples += [sample._replace(labels={"root": root, **sample.labels}) for sample in family.samples]
    return _text(list(merged.values()))


def _text(found: Sequence[Metric]) -> str:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Families(found))
    return generate_latest(registry).decode()


def families(jobs: Sequence[MetricsMessage], others: Mapping[str, str]) -> Iterator[Metric]:
    """The metrics of jobs, except metrics without values."""
    yield _job_states(jobs, others)
    for definition in DEFINITIONS:
        family = definition.kind(definition.name, definition.text, labels=("job", *definition.labels))
        for job in jobs:
            for labels, value in definition.values(job):
                if value is not None:
                    family.add_metric((job.job, *labels), value)
        if family.samples:
            yield family
    yield from (family for family in (*_durations(jobs), _distributions(jobs)) if family.samples)


@dataclass(frozen=True, eq=False)
class _Families(Collector):
    found: Sequence[Metric]

    def collect(self) -> Iterable[Metric]:
        return self.found


def _job_states(jobs: Sequence[MetricsMessage], others: Mapping[str, str]) -> Metric:
    """A value for each job and state, so that an alert needs no knowledge of a job's earlier states."""
    family = GaugeMetricFamily("forkpoint_job_state", "1 for the state that the job is in, else 0.", labels=("job", "state"))
    for job, state in {**others, **{m.job: m.state for m in jobs}}.items():
        for each in dict.fromkeys((*STATES, state)):
            family.add_metric((job, each), float(each == state))
    return family


def _durations(jobs: Sequence[MetricsMessage]) -> tuple[Metric, Metric]:
    """The durations of phases, and of entire epochs."""
    phases = HistogramMetricFamily(
        "forkpoint_epoch_duration_seconds", "How long the phases of epochs took.", labels=("job", "phase")
    )
    epochs = HistogramMetricFamily(
        "forkpoint_epoch_whole_duration_seconds", "How long epochs took, from plan to published output.", labels=("job",)
    )
    for m in jobs:
        for part, found in m.durations.items():
            bounds = [f"{bound / 1000:g}" for bound in found.bounds_ms]
            buckets = [*zip(bounds, found.at_most, strict=True), ("+Inf", found.count)]
            family, labels = (epochs, (m.job,)) if part == "epoch" else (phases, (m.job, part))
            family.add_metric(labels, buckets, found.sum_ms / 1000)
    return phases, epochs


def _distributions(jobs: Sequence[MetricsMessage]) -> Metric:
    family = SummaryMetricFamily(
        "forkpoint_user_distribution", "Count and sum of the values of a distribution of a user function.", labels=("job", *_USER)
    )
    for m in jobs:
        for u in m.user:
            if u.kind == "distribution":
                family.add_metric((m.job, u.uid, u.group, u.name), int(u.value), u.sum)
    return family
