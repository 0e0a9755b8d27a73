"""Sources read only the fields that the job uses, as far as the operators behind them say which. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from forkpoint.graph.job import Operator
from forkpoint.graph.specs import Fields
from forkpoint.graph.transformations import KeyBy
from forkpoint.types import TypeInformation
from forkpoint.types.kinds.records import RecordType


def projected(operators: Collection[Operator]) -> list[Operator]:
    """Operators in topological order without the fields that nothing reads."""
    used: dict[int, Fields] = {o.id: frozenset() for o in operators}
    found: dict[int, Operator] = {}
    for operator in reversed(list(operators)):
        found[operator.id] = kept = _with_fields(operator, used[operator.id])
        for edge in kept.inputs:
            if edge.tag is None:
                used[edge.upstream] = _both(used[edge.upstream], _read(kept, edge.partitioning))
    return [_after(found[o.id], found) for o in operators]


def _read(operator: Operator, partitioning: object) -> Fields:
    """The fields of its input that an operator reads."""
    output = None if operator.output_type is None else frozenset(operator.output_type.column_names)
    fields = operator.spec.reads(output)
    if isinstance(partitioning, KeyBy):
        return _both(fields, None if partitioning.columns is None else frozenset(partitioning.columns))
    return fields


def _both(one: Fields, other: Fields) -> Fields:
    return None if one is None or other is None else one | other


def _with_fields(operator: Operator, used: Fields) -> Operator:
    """The operator with only these fields in its output, if it can leave out others."""
    of = operator.output_type
    if used is None or not isinstance(of, RecordType) or of.flavor != "row":
        return operator
    type = _narrowed(of, used | {operator.timestamp_column})
    if type == of:
        return operator
    spec = operator.spec.projected(type)
    return operator if spec is None else replace(operator, spec=spec, output_type=type)


def _narrowed(type: RecordType, used: Collection[str | None]) -> RecordType:
    """The fields that are used, in the type's order; a small one if there is none, because rows have at least one column."""
    kept = tuple(field for field in type.members if field.name in used)
    return replace(type, members=kept or (min(type.members, key=lambda field: _width(field.type)),))


def _width(type: TypeInformation) -> int:
    try:
        return int(type.arrow_type.bit_width)
    except ValueError:  # of variable length
        return 1 << 20


def _after(operator: Operator, known: Mapping[int, Operator]) -> Operator:
    """The operator with its inputs as they are now."""
    inputs = tuple(replace(edge, type=known[edge.upstream].output_type) if edge.tag is None else edge for edge in operator.inputs)
    return replace(operator, inputs=inputs)
