"""The operators of a job, with what queries tell about themselves, and how much they have read and keep."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from forkpoint.checkpoint.history import History
from forkpoint.checkpoint.paths import JobPaths
from forkpoint.checkpoint.plan import PLAN
from forkpoint.driver.commit.measurements import states_of
from forkpoint.errors import ForkpointError, JobNotFound
from forkpoint.operations.roots import StateRoot
from forkpoint.protocol.messages import MetricsMessage
from forkpoint.protocol.registry import RunView, asked, list_runs
from forkpoint.storage.base import Storage


@dataclass(frozen=True)
class OperatorExplained:
    """``properties``: by their names in ``checkpoint.plan``. ``inputs``: the uids of the operators that it reads.
    ``rows_in`` and ``rows_out``: since the last (re)start; None if the job does not run. ``entries`` and ``bytes``: of its
    state, approximately; None if it has none, or if that is not known."""

    uid: str
    name: str
    properties: Mapping[str, str]
    inputs: tuple[str, ...]
    rows_in: int | None
    rows_out: int | None
    entries: int | None
    bytes: int | None


@dataclass(frozen=True)
class JobExplained:
    """``state``: of the job's newest run."""

    job: str
    run: str
    state: str
    operators: tuple[OperatorExplained, ...]


def explain(job: str, *, state_root: str | None = None) -> JobExplained:
    """The operators of a job's newest run, in topological order. Raises JobNotFound."""
    storage = StateRoot(state_root).existing
    views = list_runs(storage, job)
    if not views:
        raise JobNotFound(f"there is no job {job!r} under {storage.url}; `forkpoint list -a` lists jobs")
    view, paths = views[0], JobPaths(job)
    plan = PLAN.load_if_whole(storage, paths.plan_file(view.run))
    measured = _measured(storage, view)
    states = measured.states if measured is not None else None
    if states is None and (newest := History(storage, paths).newest()) is not None:
        states = states_of(newest)
    found = []
    for each in () if plan is None else plan.operators:
        counts = None if measured is None else measured.operators.get(each.uid)
        own = [state for state in states or () if state.uid == each.uid]
        found.append(
            OperatorExplained(
                each.uid,
                each.name,
                each.properties,
                tuple(dict.fromkeys(read.uid for read in each.inputs)),
                None if counts is None else counts.records_in,
                None if counts is None else counts.records_out,
                sum(state.entries for state in own) if own else None,
                sum(state.bytes for state in own) if own else None,
            )
        )
    return JobExplained(job, view.run, view.state, tuple(found))


def _measured(storage: Storage, view: RunView) -> MetricsMessage | None:
    if view.endpoint is None or not view.is_live:
        return None
    try:
        return asked(storage, view.endpoint, lambda client: client.metrics())
    except ForkpointError:  # it has ended, or is too busy to answer
        return None
