"""Helpers for operators with two inputs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from forkpoint.api.base import StreamBase
from forkpoint.api.signatures import output_type as type_of_output
from forkpoint.api.signatures import returns_nothing
from forkpoint.errors import GraphError
from forkpoint.functions import Function
from forkpoint.graph.specs import OperatorSpec
from forkpoint.graph.transformations import KeyBy
from forkpoint.types import TypeInformation

if TYPE_CHECKING:
    from forkpoint.api.streams import DataStream


def two_inputs(
    first: StreamBase, second: StreamBase, spec: OperatorSpec, name: str, output_type: TypeInformation | None
) -> DataStream:
    """Add an operator with two inputs."""
    edges = (*first.edges, *(replace(edge, ordinal=1) for edge in second.edges))
    return first._stream(edges, None)._operator(spec, name, output_type)


def plain(stream: StreamBase) -> DataStream:
    """The stream as a plain DataStream."""
    return stream._stream(stream.edges, stream.get_type())


def is_keyed(stream: StreamBase) -> bool:
    return all(isinstance(edge.partitioning, KeyBy) for edge in stream.edges)


def both_types(explicit: Any, func: Function, methods: tuple[str, str], *, many: bool) -> TypeInformation | None:
    """The explicit type, else the type that both methods are annotated with; a method ``-> None`` emits nothing."""
    found = [type_of_output(explicit, func, m, many=many) for m in methods if not returns_nothing(func, m)]
    return found[0] if found and all(type == found[0] for type in found) else None


def check_environments(first: StreamBase, second: StreamBase, operator: str) -> None:
    if not isinstance(second, StreamBase):
        raise GraphError(f"{operator}() takes a stream, not {second!r}")
    if first.get_execution_environment() is not second.get_execution_environment():
        raise GraphError(f"{operator}(): the streams belong to different environments; build a job in one environment")
