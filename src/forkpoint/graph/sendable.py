"""Checks, before a job starts, that its operators can be sent to the workers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from forkpoint.errors import GraphError
from forkpoint.graph.specs import DataFrameSpec, EpochSinkSpec, SourceSpec
from forkpoint.graph.transformations import Transformation
from forkpoint.types.shipping import culprit, dumps


def check_sendable(operators: Iterable[Transformation], uids: Mapping[Transformation, str]) -> None:
    """Raise GraphError for an operator that cannot be pickled, naming its uid, line, the object, its path, and the remedy."""
    sent = {operator: _sent(operator) for operator in operators}
    try:
        dumps(list(sent.values()))
    except Exception as error:
        for operator, parts in sent.items():
            _check(operator, uids[operator], parts)
        raise GraphError(f"the job cannot be sent to the workers: {type(error).__name__}: {error}") from error


def _sent(operator: Transformation) -> list[Any]:
    spec = operator.spec
    parts: list[Any] = [edge.partitioning for edge in operator.inputs] + [operator.migrations]
    if isinstance(spec, EpochSinkSpec):  # runs on the driver
        return parts
    if isinstance(spec, SourceSpec) and spec.source.holds_elements:
        return [spec.strategy, *parts]  # pickling a million elements takes seconds, and the source has checked their types
    return [replace(spec, frame=None) if isinstance(spec, DataFrameSpec) else spec, *parts]


def _check(operator: Transformation, uid: str, parts: list[Any]) -> None:
    found = next((each for part in parts if (each := culprit(part)) is not None), None)
    if found is None:
        return
    line = f", {operator.line}" if operator.line else ""
    owner = "" if found.of_instance else "make the function an instance of a Function (MapFunction, ...), and "
    raise GraphError(
        f"operator {uid!r} ({operator.name}{line}) cannot be sent to the workers: {found.path or 'it'} is a {found.kind}, which "
        f"cannot be pickled; {owner}create it in open(), which runs on the workers ({found.error})"
    )
