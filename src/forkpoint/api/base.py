"""Base of all streams: the edges that the next operator reads, and how operators are added."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic

from forkpoint.errors import GraphError
from forkpoint.functions import Function, StateDescriptor, declared_states
from forkpoint.graph.specs import OperatorSpec
from forkpoint.graph.transformations import Edge, Forward, KeyBy, Partitioning, Transformation
from forkpoint.types import TypeInformation
from forkpoint.types.variables import T_co

if TYPE_CHECKING:
    from forkpoint.api.environment import StreamExecutionEnvironment
    from forkpoint.api.settings import ExecutionConfig
    from forkpoint.api.streams import DataStream, KeyedStream


class StreamBase(ABC, Generic[T_co]):
    """A set of edges (several after a union) and the type of their elements, None if untyped."""

    def __init__(
        self, env: StreamExecutionEnvironment, edges: tuple[Edge, ...], output_type: TypeInformation[T_co] | None
    ) -> None:
        self._env = env
        self._edges = edges
        self._type = output_type

    def get_type(self) -> TypeInformation[T_co] | None:
        """The type of the elements, None if untyped."""
        return self._type

    def get_execution_config(self) -> ExecutionConfig:
        """The environment's ``get_config()``."""
        return self._env.get_config()

    def get_execution_environment(self) -> StreamExecutionEnvironment:
        """The environment in which the stream was created."""
        return self._env

    @property
    def edges(self) -> tuple[Edge, ...]:
        """The graph edges that an operator on this stream reads."""
        return self._edges

    @abstractmethod
    def _stream(self, edges: tuple[Edge, ...], output_type: TypeInformation | None) -> DataStream:
        """A plain DataStream in the same environment."""

    @abstractmethod
    def _keyed(self, key: KeyBy) -> KeyedStream[T_co]:
        """This stream, partitioned by key."""

    def _partitioned(self, partitioning: Partitioning) -> tuple[Edge, ...]:
        return tuple(replace(edge, partitioning=partitioning) for edge in self._edges)

    def _add(self, spec: OperatorSpec, name: str, output_type: TypeInformation | None) -> Transformation:
        transformation = Transformation(spec, name, self._edges, output_type)
        self._env.add_operator(transformation)
        return transformation

    def _operator(self, spec: OperatorSpec, name: str, output_type: TypeInformation | None) -> DataStream:
        return self._stream((Edge(self._add(spec, name, output_type)),), output_type)

    def _producer(self, call: str) -> Transformation:
        """The operator that produces this stream; GraphError after partitioning or a union and for side outputs.

        ``call`` is the method call that the message names.
        """
        edge = self._edges[0]
        if len(self._edges) == 1 and edge.tag is None and isinstance(edge.partitioning, Forward):
            return edge.upstream
        what = (
            "a union" if len(self._edges) > 1
            else "a side output" if edge.tag is not None
            else f"a partitioned stream ({type(edge.partitioning).__name__})"
        )  # fmt: skip
        raise GraphError(
            f"{call} must directly follow an operator, but this is {what}; call it on the stream the operator returned"
        )


def check_type(argument: Any, kind: type, method: str) -> None:
    """Raise GraphError unless the argument of a method is a ``kind``."""
    if not isinstance(argument, kind):
        article = "an" if kind.__name__[0] in "AEIO" else "a"
        raise GraphError(f"{method}() takes {article} {kind.__name__}, not {argument!r}")


def check_not_keyed(
    states: Mapping[str, StateDescriptor],
    call: str,
    streams: str = "the stream is",
    remedy: str = "call key_by() first",
) -> None:
    """Raise GraphError if a function on non-keyed streams declares state."""
    if states:
        names = ", ".join(repr(d.name) for d in states.values())
        raise GraphError(f"{call}: state {names} is keyed, but {streams} not; {remedy}")


def check_function(func: Any, kind: type[Function], operator: str, *, keyed: bool) -> Any:
    """Return the function; GraphError if it is neither a ``kind`` nor a plain callable, or has state without a key."""
    if not isinstance(func, kind) and (isinstance(func, Function) or not callable(func)):
        raise GraphError(f"{operator}() takes a {kind.__name__} or a callable, not {func!r}")
    states = declared_states(func) if isinstance(func, Function) else {}
    if not keyed:
        check_not_keyed(states, f"{operator}({type(func).__name__})")
    return func


def function_name(func: Any) -> str:
    """The name of a function, or of its class; empty for a lambda."""
    name = getattr(func, "__name__", None) or type(func).__name__
    return "" if name == "<lambda>" else str(name)


def operator_name(operator: str, func: Any) -> str:
    """``map: parse`` for ``map(parse)``, ``map`` for a lambda."""
    name = function_name(func)
    return f"{operator}: {name}" if name else operator
