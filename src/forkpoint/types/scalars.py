"""Types whose values have no parts: numbers, text, bytes, dates and times, UUIDs, Enums, and ANY."""

from __future__ import annotations

import struct
from array import array as machine_array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, Flag
from functools import cached_property
from operator import attrgetter
from typing import Annotated, Any
from uuid import UUID

import numpy as np
import pyarrow as pa
from msgspec import Meta, Raw

from forkpoint.errors import TypeNotSupported
from forkpoint.types import dynamic
from forkpoint.types.acceptance import Convert, Source
from forkpoint.types.exact import AS_IT_IS, EXACT, NUMBERS, TEST_NAMES, Exact
from forkpoint.types.information import NO_NONE, JsonObject, TypeInformation
from forkpoint.types.wire import NativeClasses, shown, type_name

_EPOCH_UTC = datetime(1970, 1, 1, tzinfo=UTC)
_tzinfo = attrgetter("tzinfo")
_FLOAT32 = struct.Struct("<f")


@dataclass(frozen=True)
class _Scalar:
    """How one kind of scalar works; `to_array` and `to_values` see no None."""

    label: str
    wire: Any
    python_class: type
    arrow: pa.DataType
    to_array: Callable[[list[Any]], pa.Array]
    to_values: Callable[[pa.Array], list[Any]]
    sortable: bool = True
    lower: Convert | None = None
    lift: Convert | None = None
    exact: Exact = AS_IT_IS


@dataclass(frozen=True, eq=False, repr=False)
class ScalarType(TypeInformation):
    """One of the kinds of `scalar`."""

    name: str

    @property
    def _spec(self) -> _Scalar:
        return _SCALARS[self.name]

    @property
    def kind(self) -> str:
        return self.name

    def describe(self) -> JsonObject:
        return {"kind": self.name}

    @property
    def wire(self) -> Any:
        return self._spec.wire

    @cached_property
    def lower(self) -> Convert | None:
        return self._spec.lower

    @cached_property
    def lift(self) -> Convert | None:
        return self._spec.lift

    @cached_property
    def arrow_type(self) -> pa.DataType:
        return self._spec.arrow

    def _to_array(self, values: list[Any]) -> pa.Array:
        return self._spec.to_array(values)

    def _to_values(self, array: pa.Array) -> list[Any]:
        return self._spec.to_values(array)

    @cached_property
    def immutable(self) -> bool:
        return True

    def _test(self, value: str, source: Source) -> str:
        (first, v), cls = source.once(value), source.bind(self.python_class)
        condition = self._spec.exact.test
        if not condition:
            return f"type({value}) is {cls}"
        source.names |= TEST_NAMES
        return f"type({first}) is {cls} and {condition.replace('@', v)}"

    @cached_property
    def all_exact(self) -> Callable[[Sequence[Any]], bool]:
        classes, condition = {self.python_class}, self._spec.exact.all
        if condition is None:
            return lambda values: classes.issuperset(map(type, values))
        return lambda values: classes.issuperset(map(type, values)) and condition(values)

    @cached_property
    def _remake(self) -> Convert:
        takes = (self.python_class, *self._spec.exact.takes)
        source = Source()
        test = source.compiled(self._test("value", source))
        numbers = self.name in NUMBERS

        def remake(value: Any) -> Any:
            if not isinstance(value, takes):
                why = NO_NONE if value is None else f"it is of type {type_name(type(value))}"
                raise TypeNotSupported(f"{shown(value)} is not a value of {self!r}: {why}")
            made = self._read_back(int(value) if numbers and isinstance(value, bool | np.bool_) else value)
            if not test(made):
                raise TypeNotSupported(f"{shown(value)} is not a value of {self!r}: it is out of range{self._wider}")
            return made

        return remake

    @property
    def _wider(self) -> str:
        return "; declare Types.BIG_INT()" if self.name == "long" else ""

    @property
    def nullable(self) -> bool:
        return self.name == "null"

    @property
    def python_class(self) -> type:
        return self._spec.python_class

    @property
    def sortable(self) -> bool:
        return self._spec.sortable

    def __repr__(self) -> str:
        return self._spec.label

    def __reduce__(self) -> tuple[Any, ...]:
        return scalar, (self.name,)


@dataclass(frozen=True, eq=False, repr=False)
class AnyType(ScalarType):
    """`Types.ANY()`: a dynamic value, in a column as its encoded bytes; None is a value like others, not a null."""

    @cached_property
    def encode(self) -> Callable[[Any], bytes]:
        return dynamic.encode_any

    @cached_property
    def decode(self) -> Callable[[bytes], Any]:
        return dynamic.decode_any

    @cached_property
    def immutable(self) -> bool:
        return False

    @cached_property
    def accept(self) -> Convert:
        return dynamic.accept_any

    @cached_property
    def accept_all(self) -> Callable[[list[Any]], list[Any]]:
        return dynamic.accept_all_any


def scalar(name: str) -> ScalarType:
    """Return the scalar type of this kind."""
    return _INSTANCES[name]


def is_scalar(kind: object) -> bool:
    """Whether `scalar` knows the kind."""
    return kind in _INSTANCES


# -- conversions -------------------------------------------------------------------------------------------------------


def _numbers(array: pa.Array) -> list[Any]:
    return array.to_numpy(zero_copy_only=False).tolist()  # type: ignore[no-any-return]


def _pylist(array: pa.Array) -> list[Any]:
    return array.to_pylist()  # type: ignore[no-any-return]


def _arrow(arrow: pa.DataType) -> Callable[[list[Any]], pa.Array]:
    return lambda values: pa.array(values, arrow)


def _ints(code: str, dtype: type) -> Callable[[list[Any]], pa.Array]:
    # Not pa.array: it is slower, and silently cuts a float down to an int.
    return lambda values: pa.array(np.frombuffer(machine_array(code, values), dtype))


def _bounded(label: str, bits: int) -> Convert:
    low, high = -(1 << bits - 1), (1 << bits - 1) - 1

    def lower(value: Any) -> Any:
        if not low <= value <= high:
            raise TypeNotSupported(f"{value} does not fit into {label} ({low} to {high}); declare Types.LONG()")
        return value

    return lower


def _float32(value: Any) -> float:
    try:
        return _FLOAT32.unpack(_FLOAT32.pack(value))[0]  # type: ignore[no-any-return]
    except OverflowError:
        raise TypeNotSupported(f"{value} does not fit into FLOAT; declare Types.DOUBLE()") from None


def _to_float32(values: list[Any]) -> pa.Array:
    return pa.array(np.array([_float32(value) for value in values], np.float32))


def _big_int_lower(value: Any) -> Any:
    return value if dynamic.INT64_MIN <= value <= dynamic.UINT64_MAX else dynamic.int_bytes(value)


def _big_int_lift(value: Any) -> int:
    return dynamic.int_from_bytes(value) if type(value) is bytes else value


def _digits(values: list[Any]) -> pa.Array:
    return pa.array([str(value + 0) for value in values], pa.string())  # "+ 0": text is not an int


def _decimals(values: list[Any]) -> pa.Array:
    if not set(map(type, values)) <= {Decimal, int}:
        raise TypeError("expected Decimal")
    return pa.array(list(map(str, values)), pa.string())


def _dates(values: list[Any]) -> pa.Array:
    if datetime in set(map(type, values)):
        raise TypeError("expected date, got datetime, whose time of day would be lost; declare Types.SQL_TIMESTAMP()")
    return pa.array(values, pa.date32())


_AWARE = (
    "is aware (it has a time zone), but the type holds naive ones; annotate the field "
    "Instant (or declare Types.INSTANT()), or drop the zone"
)
_NAIVE = "is naive (it has no time zone), but INSTANT holds aware ones; annotate the field datetime, or give it a zone"


def _naive(arrow: pa.DataType) -> Callable[[list[Any]], pa.Array]:
    def convert(values: list[Any]) -> pa.Array:
        if not {None}.issuperset(map(_tzinfo, values)):
            raise ValueError(f"it {_AWARE}")
        return pa.array(values, arrow)

    return convert


def _instants(values: list[Any]) -> pa.Array:
    if None in set(map(_tzinfo, values)):
        raise ValueError(f"it {_NAIVE}")
    return pa.array(values, pa.timestamp("us", "UTC"))


def _from_instants(array: pa.Array) -> list[datetime]:
    # Adding a timedelta is one C call for each value; datetime.replace(tzinfo=...) and to_pylist take far longer.
    return list(map(_EPOCH_UTC.__add__, array.cast(pa.int64()).cast(pa.duration("us")).to_numpy().tolist()))


def _naive_lower(value: Any) -> Any:
    if value.tzinfo is not None:
        raise TypeNotSupported(f"{shown(value)} {_AWARE}")
    return value


def _instant_lower(value: Any) -> Any:
    if value.tzinfo is None:
        raise TypeNotSupported(f"{shown(value)} {_NAIVE}")
    return value


def _spec(name: str) -> _Scalar:
    string = pa.string()
    match name:
        case "byte" | "short" | "int":
            code, dtype, arrow, bits = {
                "byte": ("b", np.int8, pa.int8(), 8),
                "short": ("h", np.int16, pa.int16(), 16),
                "int": ("i", np.int32, pa.int32(), 32),
            }[name]
            label = name.upper()
            return _Scalar(label, int, int, arrow, _ints(code, dtype), _numbers, lower=_bounded(label, bits))
        case "long":
            return _Scalar("LONG", int, int, pa.int64(), _ints("q", np.int64), _numbers)
        case "float":  # not sortable: NaN has no place in an order
            return _Scalar("FLOAT", float, float, pa.float32(), _to_float32, _numbers, False, _float32)
        case "double":
            return _Scalar("DOUBLE", float, float, pa.float64(), _arrow(pa.float64()), _numbers, False)
        case "big_int":
            return _Scalar(
                "BIG_INT", int | bytes, int, string, _digits, lambda array: list(map(int, array.to_pylist())), True,
                _big_int_lower, _big_int_lift,
            )  # fmt: skip
        case "big_dec":
            return _Scalar(
                "BIG_DEC", Decimal, Decimal, string, _decimals,
                lambda array: list(map(Decimal, array.to_pylist())), False,
            )  # fmt: skip
        case "boolean":
            return _Scalar("BOOLEAN", bool, bool, pa.bool_(), _arrow(pa.bool_()), _numbers)
        case "string" | "char":
            return _Scalar(name.upper(), str, str, string, _arrow(string), _pylist)
        case "bytes":
            return _Scalar("BYTES", bytes, bytes, pa.binary(), _arrow(pa.binary()), _pylist)
        case "uuid":
            return _Scalar(
                "UUID", UUID, UUID, string, lambda values: pa.array([str(UUID(int=v.int)) for v in values], string),
                lambda array: list(map(UUID, array.to_pylist())),
            )  # fmt: skip
        case "date":
            return _Scalar("SQL_DATE", date, date, pa.date32(), _dates, _numbers)
        case "time":
            arrow = pa.time64("us")
            return _Scalar("SQL_TIME", time, time, arrow, _naive(arrow), _numbers, lower=_naive_lower)
        case "timestamp":
            wire, arrow = Annotated[datetime, Meta(tz=False)], pa.timestamp("us")
            return _Scalar("SQL_TIMESTAMP", wire, datetime, arrow, _naive(arrow), _numbers, lower=_naive_lower)
        case "instant":
            wire, arrow = Annotated[datetime, Meta(tz=True)], pa.timestamp("us", "UTC")
            return _Scalar("INSTANT", wire, datetime, arrow, _instants, _from_instants, lower=_instant_lower)
        case "duration":
            arrow = pa.duration("us")
            return _Scalar("DURATION", timedelta, timedelta, arrow, _arrow(arrow), _numbers)
        case "null":
            return _Scalar("NULL", None, type(None), pa.null(), _arrow(pa.null()), _pylist, False)
        case "any":
            return _Scalar(
                "ANY", Raw, object, pa.binary(), lambda values: pa.array(map(dynamic.encode_any, values), pa.binary()),
                lambda array: list(map(dynamic.decode_any, array.to_pylist())), False,
                lambda value: Raw(dynamic.encode_any(value)), dynamic.decode_any,
            )  # fmt: skip
        case _:
            raise KeyError(name)


_SCALARS: dict[str, _Scalar] = {
    name: replace(_spec(name), exact=EXACT.get(name, AS_IT_IS))
    for name in (
        "byte", "short", "int", "long", "float", "double", "big_int", "big_dec", "boolean", "string", "char", "bytes",
        "uuid", "date", "time", "timestamp", "instant", "duration", "null", "any",
    )
}  # fmt: skip
_INSTANCES: dict[str, ScalarType] = {name: ScalarType(name) for name in _SCALARS if name != "any"} | {
    "any": AnyType("any")
}


# -- enums -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, repr=False)
class EnumType(TypeInformation):
    """An Enum: by value where all values are str or all are ints, else by name.

    Without the class at hand its values come back as that str or int.
    """

    name: str
    form: str  # "str", "int": by value; "name": by name
    members: tuple[tuple[str, Any], ...]  # (name, value), or (name, None) where the form is "name"; sorted
    cls: type[Enum] | None

    @staticmethod
    def of(cls: type[Enum]) -> EnumType:
        """Return the type of an Enum class."""
        members = sorted(cls.__members__.items())
        classes = {type(member._value_) for _, member in members}
        form = "str" if classes == {str} else "int" if classes == {int} else "name"
        listed = tuple((name, None if form == "name" else member._value_) for name, member in members)
        return EnumType(cls.__name__, form, listed, cls)

    @property
    def kind(self) -> str:
        return "enum"

    def describe(self) -> JsonObject:
        return {"kind": "enum", "name": self.name, "form": self.form, "members": [list(pair) for pair in self.members]}

    @property
    def _base(self) -> ScalarType:
        return scalar("long" if self.form == "int" else "string")

    @property
    def wire(self) -> Any:
        return self._base.wire if self.cls is None or self.form == "name" else self.cls

    @cached_property
    def native(self) -> NativeClasses:
        return {} if self.cls is None else {self.cls: None}

    @cached_property
    def lower(self) -> Convert | None:
        return self._to_base if self.form == "name" and self.cls is not None else None

    @cached_property
    def lift(self) -> Convert | None:
        return self._from_base if self.form == "name" and self.cls is not None else None

    @cached_property
    def _to_base(self) -> Convert:
        return attrgetter("_name_" if self.form == "name" else "_value_")

    @cached_property
    def _from_base(self) -> Convert:
        cls = self.cls
        assert cls is not None
        if issubclass(cls, Flag):
            return cls  # combinations are not members
        known: dict[Any, Enum] = {
            (member._name_ if self.form == "name" else member._value_): member for member in cls.__members__.values()
        }

        def find(value: Any) -> Enum:
            member = known.get(value)
            return cls(value) if member is None else member  # the class's own _missing_ may know it

        return find

    @cached_property
    def immutable(self) -> bool:
        return True

    @cached_property
    def _exact(self) -> bool:
        """Whether each object of the class can be read again: not so a Flag's, which may have bits without a name."""
        if self.cls is None or issubclass(self.cls, Flag):
            return False
        return self.form == "name" or self._base.all_exact([member._value_ for member in self.cls])

    def _test(self, value: str, source: Source) -> str:
        if self.cls is None:
            return self._base._test(value, source)
        if self._exact:
            return f"type({value}) is {source.bind(self.cls)}"
        return f"{source.bind(self._reads_back)}({value})"

    def _reads_back(self, value: Any) -> bool:
        try:
            return type(value) is self.cls and self.from_arrow(self.to_arrow([value])) == [self._read_back(value)]
        except TypeNotSupported:
            return False

    @cached_property
    def all_exact(self) -> Callable[[Sequence[Any]], bool]:
        if self.cls is None:
            return self._base.all_exact
        if not self._exact:
            return super().all_exact
        classes = {self.cls}
        return lambda values: classes.issuperset(map(type, values))

    @cached_property
    def _remake(self) -> Convert:
        if self.cls is None:
            return self._base._remake
        source = Source()
        test = source.compiled(self._test("value", source))

        def remake(value: Any) -> Any:
            made = self._read_back(value)
            if not test(made):
                raise TypeNotSupported(f"{shown(value)} is not a value of {self!r} that can be read again")
            return made

        return remake

    @property
    def arrow_type(self) -> pa.DataType:
        return self._base.arrow_type

    def _to_array(self, values: list[Any]) -> pa.Array:
        return self._base._to_array(values if self.cls is None else list(map(self._to_base, values)))

    def _to_values(self, array: pa.Array) -> list[Any]:
        values = self._base._to_values(array)
        if self.cls is None:
            return values
        try:
            return list(map(self._from_base, values))
        except ValueError as error:
            raise TypeNotSupported(f"{error}; add the member to the Enum or map the column first") from error

    @property
    def python_class(self) -> type:
        return self._base.python_class if self.cls is None else self.cls

    def __repr__(self) -> str:
        return f"Enum {self.name}"
