"""What each epoch reads from native sources, and who reads it."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from typing import Any

from forkpoint.connectors import SplitEnumerator, SplitRange
from forkpoint.graph.job import JobGraph, Operator
from forkpoint.graph.transformations import SourceSpec

Assignment = tuple[int, SplitRange]  # operator id, range


class SourcePlanner:
    """The enumerators of a job's native sources. Positions advance with planning; the manifest decides whether they count."""

    def __init__(self, graph: JobGraph, positions: Mapping[str, Any], parallelism: int, max_rows: int | None) -> None:
        self._parallelism = parallelism
        self._max_rows = max_rows
        self._operators: list[tuple[Operator, SplitEnumerator]] = []
        for operator in graph.native_sources:
            assert isinstance(operator.spec, SourceSpec)
            enumerator = operator.spec.source.create_enumerator(positions.get(operator.uid))
            self._operators.append((operator, enumerator))

    def plan(self) -> list[bytes]:
        """One blob for each task of stage 0; none if there is nothing to read now."""
        assignments: list[Assignment] = []
        for operator, enumerator in self._operators:
            assert isinstance(operator.spec, SourceSpec)
            limit = self._max_rows or operator.spec.source.default_limit
            assignments.extend((operator.id, r) for r in enumerator.plan(limit, self._parallelism))
        return [pickle.dumps(task, protocol=5) for task in spread(assignments, self._parallelism)]

    def positions(self) -> dict[str, Any]:
        return {operator.uid: enumerator.position for operator, enumerator in self._operators}

    def finished(self) -> set[str]:
        return {operator.uid for operator, enumerator in self._operators if enumerator.finished}

    def close(self) -> None:
        for _, enumerator in self._operators:
            enumerator.close()


def spread(assignments: Sequence[Assignment], tasks: int) -> list[list[Assignment]]:
    """Cut a list of ranges into runs of about as many rows each, in order, so that a task has neighbouring pieces."""
    weights = [r.rows if r.rows is not None else 1 for _, r in assignments]
    total = sum(weights) or 1
    cut: list[list[Assignment]] = [[] for _ in range(min(tasks, len(assignments)))]
    done = 0
    for assignment, weight in zip(assignments, weights, strict=True):
        cut[min(len(cut) - 1, (done + weight // 2) * len(cut) // total)].append(assignment)
        done += weight
    return [task for task in cut if task]
