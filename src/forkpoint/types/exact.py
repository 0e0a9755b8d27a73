"""Which objects are values of a scalar type just as they stand."""

from __future__ import annotations

import struct
from array import array as machine_array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, timedelta
from operator import attrgetter
from typing import Any

import numpy as np

from forkpoint.types.acceptance import all_encodable, encodable

_FLOAT32 = struct.Struct("<f")
_LONGEST = timedelta(days=106_751_991)  # a column holds 64 bits of microseconds
_fold = attrgetter("fold")


@dataclass(frozen=True)
class Exact:
    """Which objects of the Python class are values as they stand, and what other classes are taken.

    `test` is the condition on ``v`` beside its class, `all` the same for many values of that class.
    """

    test: str = ""
    all: Callable[[Sequence[Any]], bool] | None = None
    takes: tuple[type, ...] = ()


AS_IT_IS = Exact()


NUMBERS = ("byte", "short", "int", "long", "big_int", "float", "double")


def _has_32_bits(value: float) -> bool:
    try:
        return _FLOAT32.unpack(_FLOAT32.pack(value))[0] == value or value != value
    except OverflowError:
        return False


def _short(values: Sequence[timedelta]) -> bool:
    return not values or (min(values) >= -_LONGEST and max(values) <= _LONGEST)


TEST_NAMES = {"_UTC": UTC, "_encodable": encodable, "_has_32_bits": _has_32_bits, "_LONGEST": _LONGEST}


def _fit(code: str) -> Callable[[Sequence[Any]], bool]:
    def fit(values: Sequence[Any]) -> bool:
        try:
            machine_array(code, values)
        except OverflowError:
            return False
        return True

    return fit


def _rounded(values: Sequence[Any]) -> bool:
    with np.errstate(over="ignore"):
        numbers = np.array(values, np.float64)
        return bool(np.array_equal(numbers.astype(np.float32), numbers, equal_nan=True))


def _each(attribute: str, expected: Any) -> Callable[[Sequence[Any]], bool]:
    """Whether all values have this attribute, and nothing that a codec would drop (fold)."""
    get, wanted = attrgetter(attribute), {expected}
    return lambda values: wanted.issuperset(map(get, values)) and not any(map(_fold, values))


def _whole(bits: int, code: str) -> Exact:
    low, high = -(1 << bits - 1), (1 << bits - 1) - 1
    return Exact(f"{low} <= @ <= {high}", _fit(code), (np.integer, np.bool_))


_FLOATS = (int, np.floating, np.integer, np.bool_)
EXACT: dict[str, Exact] = {
    "byte": _whole(8, "b"),
    "short": _whole(16, "h"),
    "int": _whole(32, "i"),
    "long": _whole(64, "q"),
    "big_int": Exact(takes=(np.integer, np.bool_)),
    "float": Exact("_has_32_bits(@)", _rounded, _FLOATS),
    "double": Exact(takes=_FLOATS),
    "big_dec": Exact(takes=(int,)),
    "boolean": Exact(takes=(np.bool_,)),
    "string": Exact("(@.isascii() or _encodable(@))", all_encodable),
    "char": Exact("(@.isascii() or _encodable(@))", all_encodable),
    "bytes": Exact(takes=(bytearray, memoryview)),
    "time": Exact("@.tzinfo is None and not @.fold", _each("tzinfo", None)),
    "timestamp": Exact("@.tzinfo is None and not @.fold", _each("tzinfo", None)),
    "instant": Exact("@.tzinfo is _UTC and not @.fold", _each("tzinfo", UTC)),
    "duration": Exact("-_LONGEST <= @ <= _LONGEST", _short),
}
