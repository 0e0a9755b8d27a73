"""Functions of an element and the state of its key, whose outputs and new state are expressions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest
from types import GeneratorType
from typing import Any

from forkpoint.functions import Function, KeyedProcessFunction, ValueStateDescriptor, declared_states
from forkpoint.runtime.expressions.functions import check_results
from forkpoint.runtime.expressions.screening import NotAnExpression, Screened, is_constant, is_plain_record
from forkpoint.runtime.expressions.symbols import BY_INDEX, BY_NAME, Record, Silent, Symbol, Trace, element_of
from forkpoint.runtime.expressions.tracing import Ends, Returned, followed, merged, merged_results, result_text, returned
from forkpoint.runtime.expressions.tree import Node, fields_of, is_field, kind_of
from forkpoint.types import TypeInformation, Types
from forkpoint.types.kinds.containers import present
from forkpoint.types.kinds.records import RecordType, field_names


@dataclass(frozen=True)
class StateColumns:
    """A state as columns. ``there``: the number of the column that says whether a key has a value; those of its fields follow.
    ``name`` is what the function calls it."""

    name: str
    type: TypeInformation
    there: int
    default: Any = None

    @property
    def types(self) -> list[TypeInformation]:
        return [self.type] if self.type.fields is None else [each.type for each in self.type.fields]

    @property
    def columns(self) -> range:
        """The numbers of its fields' columns."""
        return range(self.there + 1, self.there + 1 + len(self.types))


@dataclass(frozen=True)
class Value:
    """A state after an element: whether there is a value, and its fields, which are anything if there is none."""

    there: Node
    fields: tuple[Node, ...]


@dataclass(frozen=True)
class Emitted:
    """What an element emits, if ``when``."""

    when: Node
    what: Returned


@dataclass(frozen=True)
class Step:
    """What a function does with an element. ``emitted``: in order."""

    emitted: tuple[Emitted, ...]
    states: tuple[Value, ...]

    def nodes(self) -> Iterator[Node]:
        for emitted in self.emitted:
            yield from (emitted.when, *emitted.what[0])
        for value in self.states:
            yield from (value.there, *value.fields)


@dataclass(frozen=True)
class Stepping:
    """A function with state as expressions over the columns of ``elements``, followed by those of its ``states``, by one of the
    timestamps, and by those of the key. ``needed``: the columns of elements that must have no nulls."""

    step: Step
    states: tuple[StateColumns, ...]
    elements: TypeInformation
    timestamp: int
    needed: frozenset[int]
    screened: Screened

    @property
    def reads_timestamps(self) -> bool:
        return self.timestamp in fields_of(self.step.nodes())

    def __str__(self) -> str:
        parts = []
        for emitted in self.step.emitted:
            text = result_text(emitted.what[0], emitted.what[1][0])
            parts.append(text if emitted.when.is_truth else f"{text} if {emitted.when}")
        for state, value in zip(self.states, self.step.states, strict=True):
            made = state.type.python_class if isinstance(state.type, RecordType) else None
            text = result_text(value.fields, made)
            text = "None" if value.there.is_truth is False else text
            if not all(map(is_field, (value.there, *value.fields), (state.there, *state.columns))):
                parts.append(f"{state.name} = {text}" + ("" if value.there.is_truth is not None else f" if {value.there}"))
        return "; ".join(parts)


class _Context(Silent):
    """What stands for the context of an element."""

    __slots__ = ("key", "timestamp", "trace")

    def __init__(self, trace: Trace, timestamp: int, key: TypeInformation | None) -> None:
        for slot, value in (("trace", trace), ("timestamp", timestamp), ("key", key)):
            object.__setattr__(self, slot, value)

    def __getattribute__(self, name: str) -> Any:
        trace, timestamp, key = (object.__getattribute__(self, each) for each in ("trace", "timestamp", "key"))
        if name == "timestamp":
            return lambda: Symbol(trace.node("field", "int", timestamp, "timestamp"), trace)
        if name != "get_current_key" or key is None:
            raise NotAnExpression(f"uses .{name} of the context")
        return lambda: element_of(trace, key, "key", timestamp + 1)


_UNREAD = object()


class _Held(Silent):
    """What stands for a value state."""

    __slots__ = ("now", "of", "own", "trace", "written")

    def __init__(self, of: StateColumns, own: Sequence[TypeInformation]) -> None:
        for slot, value in (("of", of), ("own", own), ("now", _UNREAD), ("trace", None), ("written", ())):
            object.__setattr__(self, slot, value)

    def __getattribute__(self, name: str) -> Any:
        if name not in _METHODS:
            raise NotAnExpression(f"uses .{name} of a state")
        return partial(_METHODS[name], self)


def _begin(held: _Held, trace: Trace) -> None:
    """A new path."""
    object.__setattr__(held, "trace", trace)
    object.__setattr__(held, "now", _UNREAD)
    object.__setattr__(held, "written", ())


def _read(held: _Held) -> Any:
    of, now, trace = (object.__getattribute__(held, each) for each in ("of", "now", "trace"))
    if now is _UNREAD:
        now = element_of(trace, of.type, of.name, of.there + 1) if trace.decide(_there(of, trace)) else None
        object.__setattr__(held, "now", now)
    return _constant(of.default) if now is None else now


def _write(held: _Held, value: Any) -> None:
    of, own, trace, lost = (object.__getattribute__(held, each) for each in ("of", "own", "trace", "written"))
    for node in lost:  # Python refuses an int beyond 64 bits
        if node.kind == "int" and node.operation != "constant":
            raise NotAnExpression(f"updates a state with {node}, and then again")
    nodes: tuple[Node, ...] = ()
    if value is not None:
        nodes, made = returned(value, trace)
        check_results((nodes, made), own, of.type)
    object.__setattr__(held, "now", value)
    object.__setattr__(held, "written", nodes)


_METHODS: dict[str, Callable[..., Any]] = {"value": _read, "update": _write, "clear": lambda held: _write(held, None)}


def _end(held: _Held) -> Value:
    """The state at the end of the path."""
    of, now, trace = (object.__getattribute__(held, each) for each in ("of", "now", "trace"))
    before = Value(_there(of, trace), _fields(of, trace))
    if now is _UNREAD:
        return before
    return Value(trace.lifted(False), before.fields) if now is None else Value(trace.lifted(True), returned(now, trace)[0])


def _there(of: StateColumns, trace: Trace) -> Node:
    return trace.node("field", "bool", of.there, f"{of.name} is not None")


def _fields(of: StateColumns, trace: Trace) -> tuple[Node, ...]:
    names = [of.name] if of.type.fields is None else [f"{of.name}.{each.name}" for each in of.type.fields]
    parts = zip(of.columns, of.types, names, strict=True)
    return tuple(trace.node("field", kind_of(each), index, name) for index, each, name in parts)


def _constant(value: Any) -> Any:
    """What stands for a constant, or for a record of constants."""
    if value is None or is_constant(value):
        return value
    of: Any = type(value)
    if not is_plain_record(of):
        raise NotAnExpression("has a state whose default value can change")
    items = tuple(value) if issubclass(of, tuple) else [getattr(value, name) for name in field_names(of)]
    if not all(map(is_constant, items)):
        raise NotAnExpression("has a state whose default value can change")
    return Record(of, of._fields if issubclass(of, tuple) else field_names(of), items, indexed=issubclass(of, tuple))


def _outputs(result: Any) -> list[Any]:
    """The outputs of a function that may have several."""
    if result is None:
        return []
    if type(result) in (tuple, GeneratorType):
        return list(result)
    raise NotAnExpression("returns no outputs, but something else")


def _merged_steps(trace: Trace, condition: Node, one: Step, other: Step) -> Step:
    return Step(
        tuple(_merged_outputs(trace, condition, *pair) for pair in zip_longest(one.emitted, other.emitted)),
        tuple(_merged_values(trace, condition, *pair) for pair in zip(one.states, other.states, strict=True)),
    )


def _merged_outputs(trace: Trace, condition: Node, one: Emitted | None, other: Emitted | None) -> Emitted:
    never = trace.lifted(False)
    when = merged(trace, condition, never if one is None else one.when, never if other is None else other.when)
    if one is None or other is None:
        (only,) = (each for each in (one, other) if each is not None)
        return Emitted(when, only.what)
    return Emitted(when, merged_results(trace, condition, one.what, other.what))


def _merged_values(trace: Trace, condition: Node, one: Value, other: Value) -> Value:
    there = merged(trace, condition, one.there, other.there)
    if one.there.is_truth is False or other.there.is_truth is False:
        return Value(there, other.fields if one.there.is_truth is False else one.fields)
    parts = zip(one.fields, other.fields, strict=True)
    return Value(there, tuple(merged(trace, condition, *pair) for pair in parts))


def _stepping(
    function: Any,
    elements: TypeInformation | None,
    output: TypeInformation | None,
    states: Mapping[str, tuple[str, TypeInformation, Any]],
    key: TypeInformation | None = None,
    *,
    of_handles: bool,
    several: bool,
) -> Stepping:
    """``states``: the name, type and default of each, by attribute. ``of_handles``: whether the function reads and writes them as
    attributes, or takes and returns the only one. ``key``: the type of the key."""
    if elements is None:
        raise NotAnExpression("the type of its elements is not declared")
    if output is None:
        raise NotAnExpression("its output type is not declared")
    own = [elements] if elements.fields is None else [each.type for each in elements.fields]
    found: list[StateColumns] = []
    for name, of, default in states.values():
        _check_state(name, of)
        found.append(StateColumns(name, of, len(own), default))
        own += [Types.BOOLEAN(), *found[-1].types]
    timestamp, width = len(own), found[0].there if found else len(own)
    own += [Types.LONG(), *([] if key is None else [key] if key.fields is None else [each.type for each in key.fields])]
    held = [_Held(each, own) for each in found]

    def arguments(trace: Trace) -> tuple[Any, ...]:
        for each in held:
            _begin(each, trace)
        element = element_of(trace, elements)
        return (element, _Context(trace, timestamp, key)) if of_handles else (element, _read(held[0]))

    def step(result: Any, trace: Trace) -> Step:
        if not of_handles:
            if type(result) is not tuple or len(result) != 2:
                raise NotAnExpression("returns no pair of an output and a state")
            result, state = result
            _write(held[0], state)
        outputs = _outputs(result) if several else [result]
        whats = [returned(each, trace) for each in outputs]
        for what in whats:
            check_results(what, own, output)
        values = tuple(map(_end, held))
        return Step(tuple(Emitted(trace.lifted(True), what) for what in whats), values)

    ends = Ends(step, _merged_steps, Step.nodes)
    stands = dict(zip(states, held, strict=True)) if of_handles else {}
    found_step, needed, screened = followed(function, arguments, ends, stands, yields=several and of_handles)
    of_elements = frozenset(each for each in needed if each < width)
    return Stepping(found_step, tuple(found), elements, timestamp, of_elements, screened)


def _check_state(name: str, of: TypeInformation) -> None:
    types = [of] if of.fields is None else [each.type for each in of.fields]
    plain = of.fields is None or (isinstance(of, RecordType) and of.flavor in BY_NAME | BY_INDEX and of.flavor != "row")
    if not plain or not types or of.nullable or any(each.nullable or kind_of(each) == "other" for each in types):
        raise NotAnExpression(f"has a state {name} of {of!r}, which has parts other than numbers, bools and texts")
    if any(present(each).kind == "float" for each in types):
        raise NotAnExpression(f"has a state {name} of {of!r}, whose floats are rounded")


def stepping_with_state(
    function: Any, elements: TypeInformation | None, state: TypeInformation, output: TypeInformation | None, *, flat: bool
) -> Stepping:
    """``map_with_state``, or ``flat_map_with_state``. Raises NotAnExpression."""
    states = {"state": ("state", state, None)}
    return _stepping(function, elements, output, states, of_handles=False, several=flat)


def stepping_process(
    function: KeyedProcessFunction[Any, Any, Any],
    elements: TypeInformation | None,
    output: TypeInformation | None,
    key: TypeInformation | None = None,
) -> Stepping:
    """A keyed process function. ``key``: the type of the key. Raises NotAnExpression."""
    of = type(function)
    for name, base in (("open", Function), ("close", Function), ("on_timer", KeyedProcessFunction)):
        if getattr(of, name) is not getattr(base, name):
            raise NotAnExpression(f"has {name}()")
    states = {}
    for attribute, descriptor in declared_states(function).items():
        if not isinstance(descriptor, ValueStateDescriptor):
            raise NotAnExpression(f"has a {descriptor.kind} state")
        if descriptor.ttl is not None:
            raise NotAnExpression("has a state with a time to live")
        states[attribute] = (f"self.{attribute}", descriptor.value_type, descriptor.default_value)
    return _stepping(function.process_element, elements, output, states, key, of_handles=True, several=True)
