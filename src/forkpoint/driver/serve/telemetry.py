"""Sends metrics and a trace of each epoch to OpenTelemetry, by OTLP over HTTP.

OpenTelemetry's environment variables enable it and set the endpoint and interval. Its library logs and drops data that it cannot
send; the job continues.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.metrics import CallbackOptions, Observation
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from prometheus_client.metrics_core import CounterMetricFamily

from forkpoint.driver.observe.events import EpochCommitted, EpochReached, Event, Listener
from forkpoint.driver.observe.metrics import PARTS
from forkpoint.driver.run.job_driver import JobDriver
from forkpoint.driver.serve.commands import Commands
from forkpoint.protocol.exposition import DEFINITIONS, Definition
from forkpoint.protocol.messages import MetricsMessage

_NS = 1_000_000  # in a ms


class EpochSpan(NamedTuple):
    """A part of an epoch's trace. Times are ms since 1970."""

    name: str
    start_ms: int
    end_ms: int
    attributes: Mapping[str, Any]


def epoch_spans(phases: Sequence[EpochReached], committed: EpochCommitted) -> list[EpochSpan]:
    """The span of the epoch, then those of its phases. The span of "compute" has each operator's busy time and number of
    elements, by uid."""
    whole = EpochSpan("epoch", phases[0].since_ms, phases[-1].at_ms, {"forkpoint.changes_bytes": committed.changes_bytes})
    return [whole, *(EpochSpan(PARTS[p.phase], p.since_ms, p.at_ms, _attributes(p, committed)) for p in phases)]


def _attributes(phase: EpochReached, committed: EpochCommitted) -> dict[str, Any]:
    if phase.phase != "computed":
        return {}
    uids = [*committed.measured.busy_us]
    return {
        "forkpoint.uids": uids,
        "forkpoint.busy_ms": [committed.measured.busy_us[uid] / 1000 for uid in uids],
        "forkpoint.records_in": [committed.records_in.get(uid, 0) for uid in uids],
        "forkpoint.records_out": [committed.records_out.get(uid, 0) for uid in uids],
    }


class Telemetry(Listener):
    """Sends one run's metrics and traces. ``attach`` the driver before it runs; ``close`` sends the remaining data."""

    def __init__(self, job: str) -> None:
        self._resource = Resource.create({"forkpoint.job": job})
        self._traces = TracerProvider(resource=self._resource)
        self._traces.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        self._tracer = self._traces.get_tracer("forkpoint")
        self._phases: list[EpochReached] = []
        self._names: Mapping[str, Any] = {"forkpoint.job": job}

    def attach(self, driver: JobDriver) -> None:
        self._names = {**self._names, "forkpoint.run": driver.run_id}
        self._metrics = MeterProvider([PeriodicExportingMetricReader(OTLPMetricExporter())], self._resource)
        meter = self._metrics.get_meter("forkpoint")
        commands = Commands(driver)
        for definition in DEFINITIONS:
            counts = definition.kind is CounterMetricFamily
            create = meter.create_observable_counter if counts else meter.create_observable_gauge
            create(definition.name, [_observed(definition, commands.metrics)], description=definition.text)
        self._durations = meter.create_histogram("forkpoint_epoch_duration_seconds", "s", "How long phases took.")

    def on_event(self, event: Event) -> None:
        if isinstance(event, EpochReached):
            if event.phase == "planned":  # an epoch that is planned again was discarded
                self._phases = []
            self._phases.append(event)
            seconds = max(0, event.at_ms - event.since_ms) / 1000
            self._durations.record(seconds, {"job": str(self._names["forkpoint.job"]), "phase": PARTS[event.phase]})
        elif isinstance(event, EpochCommitted) and self._phases:
            self._trace(epoch_spans(self._phases, event), event.epoch)
            self._phases = []

    def _trace(self, spans: Sequence[EpochSpan], epoch: int) -> None:
        names = {**self._names, "forkpoint.epoch": epoch}
        whole, *parts = spans
        root = self._tracer.start_span(whole.name, start_time=whole.start_ms * _NS, attributes={**names, **whole.attributes})
        within = trace.set_span_in_context(root)
        for part in parts:
            attributes = {**names, **part.attributes}
            span = self._tracer.start_span(part.name, within, start_time=part.start_ms * _NS, attributes=attributes)
            span.end(part.end_ms * _NS)
        root.end(whole.end_ms * _NS)

    def close(self) -> None:
        self._traces.shutdown()
        self._metrics.shutdown()


def _observed(
    definition: Definition, metrics: Callable[[], MetricsMessage]
) -> Callable[[CallbackOptions], Iterable[Observation]]:
    def observe(options: CallbackOptions) -> Iterable[Observation]:
        message = metrics()
        for labels, value in definition.values(message):
            if value is not None:
                yield Observation(value, dict(zip(("job", *definition.labels), (message.job, *labels), strict=True)))

    return observe
