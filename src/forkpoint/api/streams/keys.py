"""key_by: the key's columns and type, from the selector.

A selector that only picks fields (``lambda e: e.room``, ``lambda e: (e.a, e[1])``) is recognised by calling it once
with a probe in place of an element. Anything else it does with the probe aborts the recognition, and the selector is
then called for each element: recognition may miss a case but must never be wrong. A probe cannot detect ``is`` or type
checks, so functions with branches, calls or stores are not probed at all.
"""

from __future__ import annotations

import dis
import operator
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

import pyarrow as pa

from forkpoint.errors import GraphError
from forkpoint.functions import KeySelector, TimestampAssigner, WatermarkStrategy
from forkpoint.functions.base import no_class
from forkpoint.graph.transformations import KeyBy
from forkpoint.types import Row, TypeInformation, Types, type_of

BY_NAME = frozenset({"namedtuple", "dataclass", "struct", "row"})
BY_INDEX = frozenset({"namedtuple", "tuple", "row"})
BY_ITEM_NAME = frozenset({"row"})


def one_key(element: Any) -> int:
    return 0


ONE_KEY = KeyBy(one_key, Types.INT(), columns=())
"""A constant key for all elements."""


def key_by(selector: Any, key_type: Any, input_type: TypeInformation | None, annotated: TypeInformation | None = None) -> KeyBy:
    """The partitioning for a selector: a callable, a KeySelector, a field name or index, or a tuple of names and indices.

    The key's type is ``key_type``, else the type of its fields, else ``annotated``, else ``Types.ANY()``.
    GraphError for an unknown field or an invalid selector.
    """
    no_class(selector, "key_by()")
    shape = _Shape.of(input_type)
    if isinstance(selector, str | int | tuple) and not isinstance(selector, bool):
        picked = selector if isinstance(selector, tuple) else (selector,)
        if not picked or not all(isinstance(p, str | int) and not isinstance(p, bool) for p in picked):
            raise GraphError(f"key_by({selector!r}): a tuple of fields must hold names or indices, at least one")
        found = [shape.index_of(field, selector) for field in picked]
        getters = [shape.getter(field, index) for field, index in zip(picked, found, strict=True)]
        single = not isinstance(selector, tuple)
        function: Callable[[Any], Any] = getters[0] if single else PickFields(tuple(getters))
        indices = None if None in found else tuple(i for i in found if i is not None)
    elif isinstance(selector, KeySelector):
        function, (indices, single) = selector.get_key, traced(selector.get_key, shape)
    elif callable(selector):
        function, (indices, single) = selector, traced(selector, shape)
    else:
        raise GraphError(
            f"key_by({selector!r}): a key selector is a callable, a field name or index, or a tuple of names and indices"
        )
    columns = None if indices is None else tuple(shape.columns[i] for i in indices)
    return KeyBy(function, _key_type(key_type, indices, single, shape) or annotated or Types.ANY(), columns, single)


def _key_type(given: Any, indices: tuple[int, ...] | None, single: bool, shape: _Shape) -> TypeInformation | None:
    if given is not None:
        return type_of(given)
    if indices is not None:
        fields = [shape.types[i] for i in indices]
        return fields[0] if single else Types.TUPLE(fields)
    return None


@dataclass(frozen=True)
class PickFields:
    """Selects a tuple of fields."""

    getters: tuple[Callable[[Any], Any], ...]

    def __call__(self, element: Any) -> tuple[Any, ...]:
        return tuple(getter(element) for getter in self.getters)


@dataclass(frozen=True)
class PickByName:
    """Selects a field of untyped elements by name: an attribute, or an entry of a mapping."""

    name: str

    def __call__(self, element: Any) -> Any:
        return element[self.name] if isinstance(element, Mapping) else getattr(element, self.name)


@dataclass(frozen=True)
class _Shape:
    """The elements' columns and how the Python object gives access to a field.

    ``known`` is False for untyped elements. Elements that are not records have one column, the element itself.
    """

    known: bool
    record: bool
    columns: tuple[str, ...]
    types: tuple[TypeInformation, ...]
    flavor: str

    @staticmethod
    def of(type: TypeInformation | None) -> _Shape:
        if type is None:
            return _Shape(False, False, (), (), "")
        if type.fields is None:
            return _Shape(True, False, tuple(type.column_names), (type,), "")
        flavor = str(type.describe().get("flavor", ""))
        return _Shape(True, True, tuple(f.name for f in type.fields), tuple(f.type for f in type.fields), flavor)

    def index_of(self, field: str | int, selector: Any) -> int | None:
        """The column of a field given by name or index; None if the type has no fields."""
        if not self.record:
            return None
        if isinstance(field, str):
            if field not in self.columns:
                raise GraphError(f"key_by({selector!r}): the elements have no field {field!r}; they have {self._fields}")
            return self.columns.index(field)
        if not -len(self.columns) <= field < len(self.columns):
            raise GraphError(f"key_by({selector!r}): there is no field {field}; the elements have {self._fields}")
        return field % len(self.columns)

    def getter(self, field: str | int, index: int | None) -> Callable[[Any], Any]:
        """A function that gets the field of an element."""
        if index is None:
            return PickByName(field) if isinstance(field, str) else operator.itemgetter(field)
        if self.flavor in BY_INDEX:
            return operator.itemgetter(index)
        return operator.attrgetter(self.columns[index])

    @property
    def _fields(self) -> str:
        return ", ".join(self.columns)


class _Aborted(Exception):
    """The selector does more than pick fields."""


class _Probe:
    """A placeholder value. Any use of it aborts the recognition."""

    def _abort(self, *_: Any) -> NoReturn:
        raise _Aborted

    __getattribute__ = __getattr__ = __setattr__ = __delattr__ = _abort
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _abort
    __hash__ = __bool__ = __repr__ = __str__ = __format__ = _abort
    __reduce__ = __reduce_ex__ = __sizeof__ = __dir__ = _abort


class _Field(_Probe):
    """A placeholder for a field of the element. ``index`` is its column."""

    __slots__ = ("index",)

    def __init__(self, index: int) -> None:
        object.__setattr__(self, "index", index)


class _Element(_Probe):
    """A placeholder for the element, with the field access of its Python type."""

    __slots__ = ("shape",)

    def __init__(self, shape: _Shape) -> None:
        object.__setattr__(self, "shape", shape)

    def __getattribute__(self, name: str) -> Any:
        shape = _shape_of(self)
        if shape.flavor not in BY_NAME or name not in shape.columns:
            raise _Aborted
        if shape.flavor == "row" and hasattr(Row, name):  # a Row's own method hides the field
            raise _Aborted
        return _Field(shape.columns.index(name))

    def __getitem__(self, item: Any) -> Any:
        shape = _shape_of(self)
        if type(item) is int and shape.flavor in BY_INDEX and -len(shape.columns) <= item < len(shape.columns):
            return _Field(item % len(shape.columns))
        if type(item) is str and shape.flavor in BY_ITEM_NAME and item in shape.columns:
            return _Field(shape.columns.index(item))
        raise _Aborted


def _shape_of(element: _Element) -> _Shape:
    shape: _Shape = object.__getattribute__(element, "shape")
    return shape


def timestamp_column(strategy: WatermarkStrategy, input_type: TypeInformation | None) -> str | None:
    """The field that the strategy's timestamp assigner picks; None if it does anything else."""
    assigner = strategy.timestamp_assigner
    function = assigner.extract_timestamp if isinstance(assigner, TimestampAssigner) else assigner
    shape = _Shape.of(input_type)
    indices, single = (None, False) if function is None else traced(function, shape, _Probe())
    if indices is None or not single or not is_time(shape.types[indices[0]].arrow_type):
        return None
    return shape.columns[indices[0]]


def is_time(type: pa.DataType) -> bool:
    """Whether a column of this Arrow type can hold timestamps: integers (ms) or instants."""
    return bool(pa.types.is_integer(type) or (pa.types.is_timestamp(type) and type.tz is not None))


def traced(selector: Callable[..., Any], shape: _Shape, *others: Any) -> tuple[tuple[int, ...] | None, bool]:
    """The key's columns, and whether the key is a single column rather than a tuple.

    ``others``: probes for the selector's further arguments. (None, True) if the selector does more than pick fields or
    the elements are untyped.
    """
    nothing = (None, True)
    if not shape.known or not picks_only(selector):
        return nothing
    element = _Element(shape)
    try:
        key = selector(element, *others)
    except Exception:  # the selector did more than pick fields
        return nothing
    if key is element:
        return nothing if shape.record else ((0,), True)
    if type(key) is _Field:
        return (object.__getattribute__(key, "index"),), True
    if type(key) is tuple and key and all(type(part) is _Field for part in key):
        indices = tuple(object.__getattribute__(part, "index") for part in key)
        return (indices, False) if len(set(indices)) == len(indices) else nothing
    return nothing


# Operations that a probe cannot detect, but that can make the key depend on more than the picked fields. Names from outside
# the function may change before the run.
_OUTER_NAMES = ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_CLOSURE")
_EFFECTS = ("CALL", "PRECALL", "STORE_", "DELETE_", "IMPORT", "YIELD", "RETURN_GENERATOR", "RAISE")
_FORBIDDEN_PREFIXES = (*_OUTER_NAMES, *_EFFECTS, "IS_OP", "MAKE_FUNCTION", "MATCH")
_JUMPS = frozenset(dis.hasjrel) | frozenset(dis.hasjabs)


def picks_only(selector: Any) -> bool:
    """Whether a selector can be probed: straight-line code without calls, outer names or side effects."""
    if type(selector) in (operator.attrgetter, operator.itemgetter):
        return True
    function = selector.__func__ if isinstance(selector, types.MethodType) else selector
    if not isinstance(function, types.FunctionType):
        return False
    owner = function.__code__.co_varnames[:1] if function is not selector else ()  # self may change
    return not any(
        i.opcode in _JUMPS
        or (i.opname.startswith(_FORBIDDEN_PREFIXES) and not i.opname.startswith("STORE_FAST"))
        or (i.opname.startswith("LOAD_FAST") and any(name in owner for name in _names(i.argval)))
        for i in dis.get_instructions(function)
    )


def _names(argval: Any) -> tuple[Any, ...]:
    """The variables of an instruction; newer Python versions have some that load two."""
    return argval if isinstance(argval, tuple) else (argval,)
