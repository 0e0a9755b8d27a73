"""The base of all streams: the edges that the next operator reads, and their partitioning."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, overload

from forkpoint.api.display import graph_html, operator_text, type_text
from forkpoint.api.streams.keys import key_by
from forkpoint.api.streams.signatures import type_of_output
from forkpoint.errors import GraphError
from forkpoint.functions import Function, KeySelector, Partitioner, StateDescriptor, declared_states
from forkpoint.functions.base import no_class
from forkpoint.graph.specs import OperatorSpec
from forkpoint.graph.transformations import Custom, Edge, Forward, KeyBy, Partitioning, Rebalance, Transformation
from forkpoint.types import TypeInformation, TypeLike, Types
from forkpoint.types.variables import K, T, T_co

if TYPE_CHECKING:
    from forkpoint.api.environment import StreamExecutionEnvironment
    from forkpoint.api.settings import ExecutionConfig
    from forkpoint.api.streams.streams import DataStream, KeyedStream

FieldNames: TypeAlias = str | int | tuple[str | int, ...]
KeyFunction: TypeAlias = KeySelector[T, K] | Callable[[T], K]


class StreamBase(ABC, Generic[T_co]):
    """A set of edges (several after a union) and the type of their elements, None if untyped."""

    def __init__(
        self, env: StreamExecutionEnvironment, edges: tuple[Edge, ...], output_type: TypeInformation[T_co] | None
    ) -> None:
        self._env = env
        self._edges = edges
        self._type = output_type

    def __repr__(self) -> str:
        of = ", ".join(operator_text(edge.upstream) for edge in self._edges)
        return f"<{type(self).__name__} of {type_text(self._type)} from {of}>"

    def _repr_html_(self) -> str:
        """The graph up to this stream, for a notebook."""
        producers = [edge.upstream for edge in self._edges]
        title = f"{type(self).__name__} of {type_text(self._type)}"
        return graph_html(title, producers, producers)

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

    @overload
    def key_by(self, key_selector: KeyFunction[T_co, K], key_type: Any = None) -> KeyedStream[T_co, K]: ...
    @overload
    def key_by(self, key_selector: FieldNames, key_type: TypeLike[K]) -> KeyedStream[T_co, K]: ...
    @overload
    def key_by(self, key_selector: FieldNames, key_type: Any = None) -> KeyedStream[T_co]: ...
    def key_by(self, key_selector: KeyFunction[T_co, Any] | FieldNames, key_type: Any = None) -> KeyedStream[T_co, Any]:
        """Partition the stream by key, so that functions can keep state per key.

        ``key_selector``: a callable or KeySelector, a field name or index, or a tuple of names and indices. ``key_type``:
        ``Types.*`` or a Python type; by default the type of the key's fields (also if a callable only picks fields), else
        the callable's return annotation, else ``Types.ANY()``. Keys are compared and stored by this type. GraphError for
        an unknown field.
        """
        return self._keyed(self._key_of(key_selector, key_type))

    def rebalance(self) -> DataStream[T_co]:
        """Distribute the elements over all subtasks, keeping each split together and in order."""
        return self._stream(self._partitioned(Rebalance()), self._type)

    def partition_custom(
        self, partitioner: Partitioner[K] | Callable[[K, int], int], key_selector: KeyFunction[T_co, K] | FieldNames
    ) -> DataStream[T_co]:
        """Send each element to the downstream subtask ``partitioner(key, number of subtasks)``.

        ``partitioner``: a function or a Partitioner. ``key_selector``: as in ``key_by``. The stream does not become keyed.
        Unless the partitioner is deterministic, output may differ after a failure.
        """
        no_class(partitioner, "partition_custom()")
        function = getattr(partitioner, "partition", partitioner)
        if not callable(function):
            raise GraphError(f"partition_custom() takes a function of a key and the number of subtasks, not {partitioner!r}")
        selector = self._key_of(key_selector, None).selector
        return self._stream(self._partitioned(Custom(function, selector)), self._type)

    def rescale(self) -> DataStream[T_co]:
        """Same as ``rebalance``; the two differ only in Flink's network layer."""
        return self._stream(self._partitioned(Rebalance(ship_strategy="RESCALE")), self._type)

    def shuffle(self) -> DataStream[T_co]:
        """Same as ``rebalance``: random partitioning could not be repeated after a failure."""
        return self._stream(self._partitioned(Rebalance(ship_strategy="SHUFFLE")), self._type)

    def forward(self) -> DataStream[T_co]:
        """Keep the elements on their subtask; undoes a ``rebalance`` on this stream."""
        return self._stream(self._partitioned(Forward()), self._type)

    @abstractmethod
    def _stream(self, edges: tuple[Edge, ...], output_type: TypeInformation | None) -> DataStream:
        """A plain DataStream in the same environment."""

    @abstractmethod
    def _keyed(self, key: KeyBy) -> KeyedStream[T_co]:
        """This stream, partitioned by key."""

    @property
    def _key(self) -> KeyBy | None:
        """The key that the stream is partitioned by, None if it is not keyed."""
        partitioning = self._edges[0].partitioning
        return partitioning if isinstance(partitioning, KeyBy) else None

    def _key_of(self, selector: Any, key_type: Any) -> KeyBy:
        """The partitioning by a key of the elements; arguments as for ``key_by``."""
        return key_by(selector, key_type, self._type, self._output_type(None, selector, "get_key"))

    def _output_type(
        self, explicit: Any, fn: Any, *methods: str, many: bool = False, with_state: bool = False
    ) -> TypeInformation | None:
        """Like ``type_of_output``, but ignores annotations if only explicit types count."""
        if explicit is None and self._env.explicit_types_only:
            return None
        return type_of_output(explicit, fn, *methods, many=many, with_state=with_state)

    @property
    def _element_type(self) -> TypeInformation[T_co]:
        return self._type or Types.ANY()

    def _plain(self) -> DataStream:
        """This stream as a plain DataStream."""
        return self._stream(self._edges, self._type)

    def _partitioned(self, partitioning: Partitioning) -> tuple[Edge, ...]:
        return tuple(replace(edge, partitioning=partitioning) for edge in self._edges)

    def _add(self, spec: OperatorSpec, name: str, output_type: TypeInformation | None) -> Transformation:
        transformation = Transformation(spec, name, self._edges, output_type)
        self._env.add_operator(transformation)
        return transformation

    def _operator(self, spec: OperatorSpec, name: str, output_type: TypeInformation | None) -> DataStream:
        return self._stream((Edge(self._add(spec, name, output_type)),), output_type)

    def _two_inputs(self, second: StreamBase, spec: OperatorSpec, name: str, output_type: TypeInformation | None) -> DataStream:
        """Add an operator whose inputs are this stream and a second one."""
        edges = (*self._edges, *(replace(edge, ordinal=1) for edge in second._edges))
        return self._stream(edges, None)._operator(spec, name, output_type)

    def _check_environment(self, other: Any, operator: str) -> None:
        if not isinstance(other, StreamBase):
            raise GraphError(f"{operator}() takes a stream, not {other!r}")
        if other._env is not self._env:
            raise GraphError(f"{operator}(): the streams belong to different environments; build a job in one environment")

    def _producer(self, call: str) -> Transformation:
        """The operator that produces this stream; GraphError after partitioning or a union and for side outputs.

        ``call``: the method call to name in the message.
        """
        edge = self._edges[0]
        if len(self._edges) == 1 and edge.tag is None and isinstance(edge.partitioning, Forward):
            return edge.upstream
        kind = (
            "a union"
            if len(self._edges) > 1
            else "a side output"
            if edge.tag is not None
            else f"a partitioned stream ({type(edge.partitioning).__name__})"
        )
        raise GraphError(
            f"{call} must directly follow an operator, but this is {kind}; call it on the stream the operator returned"
        )


def check_type(argument: Any, kind: type, method: str) -> None:
    """Raise GraphError unless the argument of a method is a ``kind``."""
    no_class(argument, f"{method}()")
    if not isinstance(argument, kind):
        article = "an" if kind.__name__[0] in "AEIO" else "a"
        raise GraphError(f"{method}() takes {article} {kind.__name__}, not {argument!r}")


def check_not_keyed(
    states: Mapping[str, StateDescriptor], call: str, streams: str = "the stream is", remedy: str = "call key_by() first"
) -> None:
    """Raise GraphError if a function on non-keyed streams declares state."""
    if states:
        names = ", ".join(repr(d.name) for d in states.values())
        raise GraphError(f"{call}: state {names} is keyed, but {streams} not; {remedy}")


def check_function(func: Any, kind: type[Function], operator: str, *, keyed: bool) -> None:
    """Raise GraphError for a function that is neither a ``kind`` nor a plain callable, or has state without a key."""
    no_class(func, f"{operator}()")
    if not isinstance(func, kind) and (isinstance(func, Function) or not callable(func)):
        raise GraphError(f"{operator}() takes a {kind.__name__} or a callable, not {func!r}")
    states = declared_states(func) if isinstance(func, Function) else {}
    if not keyed:
        check_not_keyed(states, f"{operator}({type(func).__name__})")


def operator_name(operator: str, func: Any) -> str:
    """``map: parse`` for ``map(parse)``, ``map: Parse`` for an instance of that class, ``map`` for a lambda."""
    name = getattr(func, "__name__", None) or type(func).__name__
    return operator if name == "<lambda>" else f"{operator}: {name}"
