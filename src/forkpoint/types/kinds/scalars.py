"""Scalar types: numbers, text, bytes, dates and times, UUIDs, and ANY."""

from __future__ import annotations

import struct
from array import array as machine_array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from functools import cached_property
from operator import attrgetter
from typing import Annotated, Any
from uuid import UUID

import numpy as np
import pyarrow as pa
from msgspec import Meta, Raw

from forkpoint.errors import TypeNotSupported
from forkpoint.types.acceptance import Convert, Source, all_encodable, encodable
from forkpoint.types.information import NO_NONE, JsonObject, TypeInformation
from forkpoint.types.kinds import dynamic
from forkpoint.types.wire import shown, type_name

ToArray = Callable[[list[Any]], pa.Array]
ToValues = Callable[[pa.Array], list[Any]]
AllExact = Callable[[Sequence[Any]], bool]


def _numbers(array: pa.Array) -> list[Any]:
    return array.to_numpy(zero_copy_only=False).tolist()  # type: ignore[no-any-return]


@dataclass(frozen=True)
class ScalarSpec:
    """The behaviour of a kind of scalar; `to_array` and `to_values` receive no None.

    `exact`: the condition, besides the class, under which a value ``@`` can be stored unchanged; `all_exact` checks it
    for many values of that class. `takes`: other classes whose values are converted.
    """

    label: str
    python_class: type
    arrow: pa.DataType
    to_array: ToArray
    to_values: ToValues = _numbers
    sortable: bool = True
    wire: Any = None  # None: the class
    lower: Convert | None = None
    lift: Convert | None = None
    exact: str = ""
    all_exact: AllExact | None = None
    takes: tuple[type, ...] = ()


def _arrow(arrow: pa.DataType) -> ToArray:
    return lambda values: pa.array(values, arrow)


def _parsed(parse: Convert) -> ToValues:
    return lambda array: list(map(parse, array.to_pylist()))


def _pylist(array: pa.Array) -> list[Any]:
    return array.to_pylist()  # type: ignore[no-any-return]


# -- numbers -----------------------------------------------------------------------------------------------------------

_NUMPY_INTEGERS = (np.integer, np.bool_)
_NUMPY_NUMBERS = (int, np.floating, *_NUMPY_INTEGERS)
_FLOAT32 = struct.Struct("<f")


def _bounds(bits: int) -> tuple[int, int]:
    return -(1 << bits - 1), (1 << bits - 1) - 1


def _integer(label: str, arrow: pa.DataType, code: str) -> ScalarSpec:
    dtype, (low, high) = arrow.to_pandas_dtype(), _bounds(arrow.bit_width)

    def to_array(values: list[Any]) -> pa.Array:
        # Not pa.array, which is slower, and silently truncates a float to an int.
        return pa.array(np.frombuffer(machine_array(code, values), dtype))

    def all_exact(values: Sequence[Any]) -> bool:
        try:
            machine_array(code, values)
        except OverflowError:
            return False
        return True

    exact = f"{low} <= @ <= {high}"
    return ScalarSpec(label, int, arrow, to_array, exact=exact, all_exact=all_exact, takes=_NUMPY_INTEGERS)


def _bounded(spec: ScalarSpec) -> ScalarSpec:
    """Adds a range check for integers with less than 64 bits, whose bounds msgspec does not check."""
    low, high = _bounds(spec.arrow.bit_width)

    def lower(value: Any) -> Any:
        if not low <= value <= high:
            raise TypeNotSupported(f"{value} does not fit into {spec.label} ({low} to {high}); declare Types.LONG()")
        return value

    return replace(spec, lower=lower)


def _float32(value: Any) -> float:
    try:
        return _FLOAT32.unpack(_FLOAT32.pack(value))[0]  # type: ignore[no-any-return]
    except OverflowError:
        raise TypeNotSupported(f"{value} does not fit into FLOAT; declare Types.DOUBLE()") from None


def _to_float32(values: list[Any]) -> pa.Array:
    return pa.array(np.array([_float32(value) for value in values], np.float32))


def _has_32_bits(value: float) -> bool:
    try:
        return _FLOAT32.unpack(_FLOAT32.pack(value))[0] == value or value != value
    except OverflowError:
        return False


def _all_have_32_bits(values: Sequence[Any]) -> bool:
    with np.errstate(over="ignore"):
        numbers = np.array(values, np.float64)
        return bool(np.array_equal(numbers.astype(np.float32), numbers, equal_nan=True))


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


# -- dates and times ---------------------------------------------------------------------------------------------------

_EPOCH_UTC = datetime(1970, 1, 1, tzinfo=UTC)
_LONGEST = timedelta(days=106_751_991)  # a column holds 64 bits of microseconds
_tzinfo, _fold = attrgetter("tzinfo"), attrgetter("fold")
_AWARE = (
    "is aware (it has a time zone), but the type holds naive ones; annotate the field "
    "Instant (or declare Types.INSTANT()), or drop the zone"
)
_NAIVE = "is naive (it has no time zone), but INSTANT holds aware ones; annotate the field datetime, or give it a zone"


def _dates(values: list[Any]) -> pa.Array:
    if datetime in set(map(type, values)):
        raise TypeError("expected date, got datetime, whose time of day would be lost; declare Types.SQL_TIMESTAMP()")
    return pa.array(values, pa.date32())


def _naive(label: str, python_class: type, arrow: pa.DataType, wire: Any = None) -> ScalarSpec:
    def to_array(values: list[Any]) -> pa.Array:
        if not {None}.issuperset(map(_tzinfo, values)):
            raise ValueError(f"it {_AWARE}")
        return pa.array(values, arrow)

    def lower(value: Any) -> Any:
        if value.tzinfo is not None:
            raise TypeNotSupported(f"{shown(value)} {_AWARE}")
        return value

    return ScalarSpec(
        label,
        python_class,
        arrow,
        to_array,
        wire=wire,
        lower=lower,
        exact="@.tzinfo is None and not @.fold",
        all_exact=_all_in_zone(None),
    )


def _instants(values: list[Any]) -> pa.Array:
    if None in set(map(_tzinfo, values)):
        raise ValueError(f"it {_NAIVE}")
    return pa.array(values, pa.timestamp("us", "UTC"))


def _from_instants(array: pa.Array) -> list[datetime]:
    # Adding a timedelta is one C call per value; datetime.replace(tzinfo=...) and to_pylist are far slower.
    return list(map(_EPOCH_UTC.__add__, array.cast(pa.int64()).cast(pa.duration("us")).to_numpy().tolist()))


def _instant_lower(value: Any) -> Any:
    if value.tzinfo is None:
        raise TypeNotSupported(f"{shown(value)} {_NAIVE}")
    return value


def _all_in_zone(zone: object) -> AllExact:
    """A test for the zone and for `fold`, which codecs drop, so values with a fold are not exact."""
    zones = {zone}
    return lambda values: zones.issuperset(map(_tzinfo, values)) and not any(map(_fold, values))


def _all_short(values: Sequence[timedelta]) -> bool:
    return not values or (min(values) >= -_LONGEST and max(values) <= _LONGEST)


# -- all ---------------------------------------------------------------------------------------------------------------

_EXACT_NAMES = {"_UTC": UTC, "_encodable": encodable, "_has_32_bits": _has_32_bits, "_LONGEST": _LONGEST}
_NUMBERS = frozenset({"byte", "short", "int", "long", "big_int", "float", "double"})


def _text(label: str) -> ScalarSpec:
    exact = "(@.isascii() or _encodable(@))"
    return ScalarSpec(label, str, pa.string(), _arrow(pa.string()), _pylist, exact=exact, all_exact=all_encodable)


SPECS: dict[str, ScalarSpec] = {
    "byte": _bounded(_integer("BYTE", pa.int8(), "b")),
    "short": _bounded(_integer("SHORT", pa.int16(), "h")),
    "int": _bounded(_integer("INT", pa.int32(), "i")),
    "long": _integer("LONG", pa.int64(), "q"),
    # Floats are not sortable, because NaN has no order.
    "float": ScalarSpec(
        "FLOAT",
        float,
        pa.float32(),
        _to_float32,
        sortable=False,
        lower=_float32,
        exact="_has_32_bits(@)",
        all_exact=_all_have_32_bits,
        takes=_NUMPY_NUMBERS,
    ),
    "double": ScalarSpec("DOUBLE", float, pa.float64(), _arrow(pa.float64()), sortable=False, takes=_NUMPY_NUMBERS),
    "big_int": ScalarSpec(
        "BIG_INT",
        int,
        pa.string(),
        _digits,
        _parsed(int),
        wire=int | bytes,
        lower=_big_int_lower,
        lift=_big_int_lift,
        takes=_NUMPY_INTEGERS,
    ),
    "big_dec": ScalarSpec("BIG_DEC", Decimal, pa.string(), _decimals, _parsed(Decimal), sortable=False, takes=(int,)),
    "boolean": ScalarSpec("BOOLEAN", bool, pa.bool_(), _arrow(pa.bool_()), takes=(np.bool_,)),
    "string": _text("STRING"),
    "char": _text("CHAR"),
    "bytes": ScalarSpec("BYTES", bytes, pa.binary(), _arrow(pa.binary()), _pylist, takes=(bytearray, memoryview)),
    "uuid": ScalarSpec(
        "UUID", UUID, pa.string(), lambda values: pa.array([str(UUID(int=v.int)) for v in values], pa.string()), _parsed(UUID)
    ),
    "date": ScalarSpec("SQL_DATE", date, pa.date32(), _dates),
    "time": _naive("SQL_TIME", time, pa.time64("us")),
    "timestamp": _naive("SQL_TIMESTAMP", datetime, pa.timestamp("us"), Annotated[datetime, Meta(tz=False)]),
    "instant": ScalarSpec(
        "INSTANT",
        datetime,
        pa.timestamp("us", "UTC"),
        _instants,
        _from_instants,
        wire=Annotated[datetime, Meta(tz=True)],
        lower=_instant_lower,
        exact="@.tzinfo is _UTC and not @.fold",
        all_exact=_all_in_zone(UTC),
    ),
    "duration": ScalarSpec(
        "DURATION",
        timedelta,
        pa.duration("us"),
        _arrow(pa.duration("us")),
        exact="-_LONGEST <= @ <= _LONGEST",
        all_exact=_all_short,
    ),
    "null": ScalarSpec("NULL", type(None), pa.null(), _arrow(pa.null()), _pylist, sortable=False),
    "any": ScalarSpec(
        "ANY",
        object,
        pa.binary(),
        lambda values: pa.array(map(dynamic.encode_any, values), pa.binary()),
        _parsed(dynamic.decode_any),
        sortable=False,
        wire=Raw,
        lower=lambda value: Raw(dynamic.encode_any(value)),
        lift=dynamic.decode_any,
    ),
}


# -- the types ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, repr=False)
class ScalarType(TypeInformation):
    """One of the kinds of `scalar`."""

    name: str

    immutable = True

    @property
    def _spec(self) -> ScalarSpec:
        return SPECS[self.name]

    @property
    def kind(self) -> str:
        return self.name

    def describe(self) -> JsonObject:
        return {"kind": self.name}

    @property
    def wire(self) -> Any:
        return self._spec.wire or self.python_class

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

    def _test(self, value: str, source: Source) -> str:
        (first, v), cls = source.once(value), source.bind(self.python_class)
        condition = self._spec.exact
        if not condition:
            return f"type({value}) is {cls}"
        source.names |= _EXACT_NAMES
        return f"type({first}) is {cls} and {condition.replace('@', v)}"

    @cached_property
    def all_exact(self) -> Callable[[Sequence[Any]], bool]:
        classes, condition = {self.python_class}, self._spec.all_exact
        if condition is None:
            return lambda values: classes.issuperset(map(type, values))
        return lambda values: classes.issuperset(map(type, values)) and condition(values)

    @cached_property
    def _coerce(self) -> Convert:
        takes = (self.python_class, *self._spec.takes)
        source = Source()
        test = source.compiled(self._test("value", source))
        numbers = self.name in _NUMBERS

        def coerce(value: Any) -> Any:
            if not isinstance(value, takes):
                why = NO_NONE if value is None else f"it is of type {type_name(type(value))}"
                raise TypeNotSupported(f"{shown(value)} is not a value of {self!r}: {why}")
            made = self._read_back(int(value) if numbers and isinstance(value, bool | np.bool_) else value)
            if not test(made):
                hint = "; declare Types.BIG_INT()" if self.name == "long" else ""
                raise TypeNotSupported(f"{shown(value)} is not a value of {self!r}: it is out of range{hint}")
            if self.name == "double" and isinstance(value, int | np.integer) and int(value) != made:
                raise TypeNotSupported(
                    f"{shown(value)} is not a value of {self!r}: a float holds integers exactly up to 2**53; declare int"
                )
            return made

        return coerce

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
    """`Types.ANY()`: a dynamic value, which columns hold as encoded bytes; None is an ordinary value, not a null."""

    immutable = False
    encode = staticmethod(dynamic.encode_any)
    decode = staticmethod(dynamic.decode_any)
    accept = staticmethod(dynamic.accept_any)
    accept_all = staticmethod(dynamic.accept_all_any)


_WITHOUT_CLASSES = replace(SPECS["any"], to_values=_parsed(dynamic.decode_without_classes), lift=dynamic.decode_without_classes)


class ClasslessAnyType(AnyType):
    """ANY for programs without the classes of its values: decodes objects to rows, and members of Enums to names."""

    decode = staticmethod(dynamic.decode_without_classes)
    accept = staticmethod(dynamic.accept_without_classes)
    accept_all = staticmethod(lambda values: list(map(dynamic.accept_without_classes, values)))

    @property
    def _spec(self) -> ScalarSpec:
        return _WITHOUT_CLASSES

    def __reduce__(self) -> tuple[Any, ...]:
        return _classless_any, ()


def _classless_any() -> ScalarType:
    return CLASSLESS_ANY


CLASSLESS_ANY = ClasslessAnyType("any")

_INSTANCES = {name: ScalarType(name) for name in SPECS} | {"any": AnyType("any")}


def scalar(name: str) -> ScalarType:
    """Return the scalar type of this kind."""
    return _INSTANCES[name]
