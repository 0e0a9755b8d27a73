"""Routes: Flink's metrics, of jobs and of their operators."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query

from forkpoint.checkpoint.history import History
from forkpoint.checkpoint.plan import PlanOperator
from forkpoint.errors import ConfigError, JobNotFound
from forkpoint.protocol.messages import MetricsMessage
from forkpoint.server import flink, flink_metrics
from forkpoint.server import messages as m
from forkpoint.server.context import ERRORS, Context, Job, Served, now_ms
from forkpoint.server.flink_metrics import Number, VertexMetric
from forkpoint.server.segments import SegmentRoute
from forkpoint.server.service import JobEntry

router = APIRouter(route_class=SegmentRoute, responses=ERRORS, tags=["jobs"])

Get = Annotated[str | None, Query(description="the names of the wanted values, separated by commas")]
Agg = Annotated[str | None, Query(description="some of min, max, avg and sum, separated by commas; all by default")]


def vertex_of(vertex: str, entry: Job, served: Served) -> PlanOperator:
    """The operator with this uid or Flink id."""
    for operator in served.service.plan(entry).operators:
        if vertex == operator.uid or vertex.lower() == flink.vertex_id(operator.uid):
            return operator
    raise JobNotFound(f"job {entry.name!r} has no operator {vertex!r}")


Vertex = Annotated[PlanOperator, Depends(vertex_of)]


@router.get("/jobs/metrics", response_model=list[m.AggregatedMetric], response_model_exclude_none=True)
def jobs_metrics(
    served: Served,
    get: Get = None,
    agg: Agg = None,
    jobs: Annotated[str | None, Query(description="ids or names of jobs, with commas; all by default")] = None,
) -> list[m.AggregatedMetric]:
    """The names of jobs' metrics, or some of them over several jobs."""
    service = served.service
    entries = service.jobs() if jobs is None else [service.job(each) for each in dict.fromkeys(jobs.split(","))]
    return flink_metrics.aggregated_jobs([_of_job(entry, served) for entry in entries], get, agg)


@router.get("/jobs/{job}/metrics", response_model=list[m.MetricValue], response_model_exclude_none=True)
def job_metrics(entry: Job, served: Served, get: Get = None) -> list[m.MetricValue]:
    """The names of a job's metrics, or the values of some."""
    return flink_metrics.selected(_of_job(entry, served), get)


def _of_job(entry: JobEntry, served: Context) -> dict[str, Number]:
    journal, measured = served.service.journal(entry), served.service.metrics(entry)
    checkpoints = None if journal is None else flink.checkpoints(entry, journal)
    return flink_metrics.job_metrics(flink.overview(entry, now_ms()), checkpoints, measured)


@router.get("/jobs/{job}/vertices/{vertex}", response_model=m.VertexDetails)
def vertex_details(entry: Job, operator: Vertex, served: Served) -> m.VertexDetails:
    """An operator. Its counts include all subtasks."""
    service = served.service
    measured = service.metrics(entry)
    newest = History(entry.storage, entry.paths).newest()
    now = now_ms()
    found = flink.details(entry, service.plan(entry), service.record(entry), measured, newest, now)
    vertex = next(each for each in found.vertices if each.uid == operator.uid)
    return m.VertexDetails(**dict(vertex), now=now)


@router.get("/jobs/{job}/vertices/{vertex}/metrics", response_model=list[m.MetricValue], response_model_exclude_none=True)
def vertex_metrics(entry: Job, operator: Vertex, served: Served, get: Get = None) -> list[m.MetricValue]:
    """The names of an operator's metrics, or the values of some. Names of single subtasks begin with the subtask's number."""
    found, _ = _of_vertex(entry, operator, served)
    return flink_metrics.selected(flink_metrics.of_subtasks(found), get)


@router.get(
    "/jobs/{job}/vertices/{vertex}/subtasks/metrics", response_model=list[m.AggregatedMetric], response_model_exclude_none=True
)
def subtasks_metrics(
    entry: Job,
    operator: Vertex,
    served: Served,
    get: Get = None,
    agg: Agg = None,
    subtasks: Annotated[str | None, Query(description="some subtasks: refused, as counts are of all")] = None,
) -> list[m.AggregatedMetric]:
    """The names of an operator's metrics, or some of them over its subtasks."""
    if subtasks is not None:
        raise ConfigError("counts include all subtasks; leave out `subtasks`")
    found, measured = _of_vertex(entry, operator, served)
    return flink_metrics.aggregated_subtasks(found, 1 if measured is None else measured.parallelism, get, agg)


@router.get("/jobs/{job}/vertices/{vertex}/watermarks", response_model=list[m.MetricValue], response_model_exclude_none=True)
def watermarks(entry: Job, operator: Vertex, served: Served) -> list[m.MetricValue]:
    """The watermark that each subtask of an operator has received; sources have none."""
    found, _ = _of_vertex(entry, operator, served)
    values = flink_metrics.of_subtasks({name: metric for name, metric in found.items() if name == "currentInputWatermark"})
    return flink_metrics.selected(values, ",".join(name for name in values if name[0].isdigit()))


def _of_vertex(entry: JobEntry, operator: PlanOperator, served: Context) -> tuple[dict[str, VertexMetric], MetricsMessage | None]:
    measured, journal = served.service.metrics(entry), served.service.journal(entry)
    return flink_metrics.vertex_metrics(operator, measured, journal), measured
