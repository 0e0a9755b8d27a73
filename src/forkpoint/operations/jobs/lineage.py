"""The history of jobs: runs and savepoints, and their parents."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from forkpoint.checkpoint.lineage import Lineage, Node, build_lineage
from forkpoint.driver.start.programs import load_program
from forkpoint.errors import JobNotFound
from forkpoint.operations.roots import StateRoot
from forkpoint.protocol.registry import RunView, list_runs, load_runs
from forkpoint.savepoint.catalog.names import known_savepoints

RunKey = tuple[str, str]  # job, run


@dataclass(frozen=True)
class Tree:
    """``runs``: every recorded run. ``paths``: of savepoints, by id. ``programs``: the programs' files, where recorded."""

    lineage: Lineage
    runs: Mapping[RunKey, RunView]
    paths: Mapping[str, str]
    programs: Mapping[RunKey, str]

    @property
    def nodes(self) -> list[Node]:
        """Runs and savepoints in the order of drawing, newest first."""
        return [row.node for row in self.lineage.rows() if row.node is not None]


def tree(job: str | None = None, *, state_root: str | None = None) -> Tree:
    """The history of a job, or of all jobs. A job's history includes its forks and its origin."""
    storage = StateRoot(state_root).existing
    runs = load_runs(storage)
    known = known_savepoints(storage, runs)
    lineage = build_lineage(runs, [savepoint for savepoint, _ in known.values()])
    if job is not None:
        lineage = _family(lineage, job)
        if not lineage.nodes:
            raise JobNotFound(f"there is no history of a job {job!r} under {storage.url}")
    views = {(view.job, view.run): view for view in list_runs(storage)}
    programs = {key: program.app for key in views if (program := load_program(storage, *key)) is not None}
    return Tree(lineage, views, {savepoint_id: path for savepoint_id, (_, path) in known.items()}, programs)


def job_of(node: Node) -> str | None:
    """The job of a run or savepoint; None if its record is missing and its key has no job."""
    return node.record.job if node.record is not None else node.key.job or None


def _family(lineage: Lineage, job: str) -> Lineage:
    """The complete trees that contain the job."""
    root = {key: (lineage.ancestors(key) or [lineage.nodes[key]])[-1].key for key in lineage.nodes}
    roots = {root[key] for key in lineage.nodes if job_of(lineage.nodes[key]) == job}
    return Lineage({key: node for key, node in lineage.nodes.items() if root[key] in roots})
