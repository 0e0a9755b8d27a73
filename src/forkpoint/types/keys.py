"""Equality of keys: two keys are equal if ``key_form`` of their type encodes them to the same bytes.

This applies everywhere: key groups, grouping, state, timers, windows, joins, and the keys of maps. Equal keys are encoded as
one canonical value, which functions see:

    Decimal     by value: 2.5 and 2.50 are one key, written without trailing zeros
    float       as in Java: all NaNs are one key, regardless of sign and payload; 0.0 and -0.0 are two keys
    ANY         the same for nested Decimals and floats; the class counts, so 1, 1.0 and True are three keys, but a NamedTuple
                is the tuple of its values, and a numpy number is the Python number, because Python considers them equal
    others      have one encoding per value

A type has the same description as its key form, so the two are equal; a state's `StateInfo.canonical_keys` distinguishes them.
"""

from __future__ import annotations

import struct
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from itertools import chain
from math import nan
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
from msgspec import Raw

from forkpoint.errors import TypeNotSupported
from forkpoint.types.acceptance import Convert, Source, all_encodable, collections, converted
from forkpoint.types.information import Field, TypeInformation
from forkpoint.types.kinds import dynamic
from forkpoint.types.kinds.classes import record_of_parts, restore_record
from forkpoint.types.kinds.containers import MapType, OptionalType, SequenceType, UnionType
from forkpoint.types.kinds.enums import EnumType
from forkpoint.types.kinds.objects import MemberName, StandIn, shape_of, why_opaque, with_parts
from forkpoint.types.kinds.records import RecordType
from forkpoint.types.kinds.scalars import SPECS, AnyType, ClasslessAnyType, ScalarSpec, ScalarType
from forkpoint.types.wire import from_numpy, pack, shown

_MANY_FORMS = frozenset({"double", "float", "big_dec", "any"})
_MANY_TEXTS = frozenset({"big_int", "uuid"})  # columns from other tools may have several texts for a value


def has_many_forms(of: TypeInformation) -> bool:
    """Whether equal keys of a type may have different encodings by the type itself."""
    return not _MANY_FORMS.isdisjoint(of.kinds())


def key_form(of: TypeInformation) -> TypeInformation:
    """The type for keys: it accepts and encodes every value in its canonical form. It is equal to ``of``."""
    if not has_many_forms(of):
        return of
    match of:
        case ScalarType():
            return _CLASSLESS_KEY if isinstance(of, ClasslessAnyType) else _KEY_SCALARS[of.name]
        case OptionalType():
            return OptionalType(key_form(of.of))
        case UnionType():
            return UnionType(tuple(map(key_form, of.members)))
        case SequenceType():
            return SequenceType(of.form, key_form(of.element))
        case MapType():
            return MapType(key_form(of.key), key_form(of.value))
        case RecordType():
            members = tuple(replace(field, type=key_form(field.type)) for field in of.members)
            return _KeyRecord(of.flavor, of.name, members, of.cls, of.plain, of.build)
    raise AssertionError(f"{of!r} has parts of unknown kind")


def has_other_forms(key: Any, of: TypeInformation) -> bool:
    """Whether keys equal to this key may have other encodings by the type itself."""
    if not has_many_forms(of):
        return False
    if of.kind in ("double", "float"):
        return bool(key != key)
    return of.kind != "any" or not _plain_parts([key])


def is_key_form(of: TypeInformation) -> bool:
    """Whether the type is a key form that differs from its original type."""
    return isinstance(of, _KeyScalar) or any(map(is_key_form, of.children))


def canonical_column(array: pa.Array, of: TypeInformation) -> pa.Array:
    """A column of keys in canonical form, so that equal keys have equal values. ``of``: their key form."""
    if pa.types.is_floating(array.type):
        return _one_nan(array)
    if pa.types.is_nested(array.type):
        return of.to_arrow(of.from_arrow(array)) if is_key_form(of) else array
    if (_MANY_FORMS | _MANY_TEXTS).isdisjoint(of.kinds()):
        return array
    encoded = array.dictionary_encode()
    return of.to_arrow(of.from_arrow(encoded.dictionary)).take(encoded.indices)


def equal_as_encoded(keys: Sequence[Any], of: TypeInformation) -> bool:
    """Whether Python's equality (and hash) of these accepted keys matches the equality of their encodings."""
    match of.kind:
        case "any":
            return _any_equal_as_encoded(keys)
        case "double" | "float":
            return _plain_floats(keys)
        case "big_dec":
            return not any(map(Decimal.is_nan, keys))
    return _equal_as_encoded(of)


def _equal_as_encoded(of: TypeInformation) -> bool:
    match of:
        case EnumType(cls=enum):
            return enum is None or enum.__eq__ in (object.__eq__, int.__eq__, str.__eq__)
        case RecordType(flavor=flavor):
            # A class may define any comparison, and exclude fields from it.
            record: Any = of.python_class
            as_tuple = record.__eq__ is tuple.__eq__ and record.__hash__ is tuple.__hash__
            return flavor in ("tuple", "namedtuple") and as_tuple and all(map(_equal_as_encoded, of.children))
        case OptionalType() | SequenceType(form="tuple_of" | "frozenset"):
            return all(map(_equal_as_encoded, of.children))
        case ScalarType():
            return of.name not in _MANY_FORMS
    return False


def _plain_floats(keys: Sequence[float]) -> bool:
    """Whether no key is zero or NaN."""
    numbers = np.array(keys, np.float64)
    return bool(numbers.all() and not np.isnan(numbers).any())


def _any_equal_as_encoded(keys: Sequence[Any]) -> bool:
    """`equal_as_encoded` for scalars of ANY, and tuples of them: False for values such as 1 and True, which Python considers
    equal."""
    classes = set(map(type, keys))
    if classes == {float}:
        return _plain_floats(keys)
    if tuple in classes:
        classes.remove(tuple)
        classes |= set(map(type, chain.from_iterable([key for key in keys if type(key) is tuple])))
    return classes <= _ONE_FORM and not {bool, int} <= classes


class _KeyRecord(RecordType):
    def __reduce__(self) -> tuple[Any, ...]:
        make, parts = super().__reduce__()
        return _key_record if make is restore_record else make, parts


def _key_record(flavor: str, name: str, members: tuple[Field, ...], cls: type | None) -> RecordType:
    made = record_of_parts(flavor, name, members, cls)
    return _KeyRecord(made.flavor, made.name, made.members, made.cls, made.plain, made.build)


# -- floats ------------------------------------------------------------------------------------------------------------

_NAN = struct.pack("<d", nan)


def _is_one_nan(value: float) -> bool:
    return struct.pack("<d", value) == _NAN


def _float(value: Any) -> Any:
    """The canonical float; converts an int."""
    if value != value:
        return nan
    return float(value) if isinstance(value, int) else value


def _one_nan(array: pa.Array) -> pa.Array:
    if not len(array):
        return array
    numbers = array.fill_null(0).to_numpy(zero_copy_only=False) if array.null_count else array.to_numpy()
    found = np.isnan(numbers)
    if not found.any():
        return array
    nulls = array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None
    return pa.array(np.where(found, np.array(nan, numbers.dtype), numbers), array.type, mask=nulls)


def _all_one_nan(values: Sequence[float]) -> bool:
    numbers = np.array(values, np.float64)
    return all(map(_is_one_nan, numbers[np.isnan(numbers)].tolist()))


# -- decimals ----------------------------------------------------------------------------------------------------------

_LONGEST = 64  # maximum digits of a whole number that is written without an exponent
_ZERO, _DECIMAL_NAN = Decimal(0), Decimal("NaN")


def canonical_decimal(value: Any) -> Any:
    """The canonical Decimal of a value: 2.5 for 2.50, 100 for 1E+2, NaN for every NaN. Returns the same object if it is
    canonical."""
    if not isinstance(value, Decimal):
        return canonical_decimal(Decimal(value)) if isinstance(value, int) else value
    text = str(value)
    if "." in text:
        if text[-1] != "0" and "E" not in text:
            return value
    elif text.removeprefix("-").isdecimal() and len(text) <= _LONGEST and text != "-0":
        return value
    if value.is_nan():
        return value if text == "NaN" else _DECIMAL_NAN
    if value.is_infinite():
        return value
    return _shortest(value)


def _shortest(value: Decimal) -> Decimal:
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    kept = "".join(map(str, digits)).rstrip("0")
    if not kept:
        return _ZERO
    exponent += len(digits) - len(kept)
    kept = kept.lstrip("0")
    if 0 < exponent <= _LONGEST - len(kept):
        kept, exponent = kept + "0" * exponent, 0
    made = Decimal(f"{'-' if sign else ''}{kept}E{exponent}")
    return value if made.as_tuple() == value.as_tuple() else made


def _is_canonical_decimal(value: Decimal) -> bool:
    return canonical_decimal(value) is value


# -- ANY ---------------------------------------------------------------------------------------------------------------

_PACKED = frozenset({type(None), bool, int, str, bytes})
_ONE_FORM = frozenset({type(None), bool, int, str, bytes, UUID, date, datetime, timedelta})


def canonical_any(value: Any) -> Any:
    """The canonical form of a value of ANY; the same object if it is canonical."""
    cls = type(value)
    if cls in _ONE_FORM:
        return value
    convert = _CANONICAL.get(cls)
    return _canonical_object(value) if convert is None else convert(value)


def _canonical_object(value: Any) -> Any:
    if isinstance(value, Enum | MemberName):
        return value
    if isinstance(value, np.generic):
        if value.dtype.kind in "cM":
            return value
        text = isinstance(value, np.str_ | np.bytes_)
        return canonical_any(value.item() if text else from_numpy(value))
    if isinstance(value, tuple):
        return canonical_any(tuple(value))
    if isinstance(value, StandIn) or shape_of(type(value)) is not None:
        return with_parts(value, _canonical_all)
    raise TypeNotSupported(f"{shown(value)} cannot be a key: {why_opaque(type(value))}")


def _canonical_all(values: list[Any]) -> list[Any]:
    return values if _plain_parts(values) else converted(values, canonical_any)


def _canonical_items(value: dict[Any, Any]) -> Iterable[tuple[Any, Any]]:
    return zip(_canonical_all(list(value)), _canonical_all(list(value.values())), strict=True)


def _plain_parts(values: list[Any]) -> bool:
    classes = set(map(type, values))
    if classes == {tuple}:
        classes = set(map(type, chain.from_iterable(values)))
    return classes <= _ONE_FORM


_CANONICAL: dict[type, Convert] = {
    float: _float,
    Decimal: canonical_decimal,
    **dict.fromkeys((time, range, bytearray, np.ndarray), lambda value: value),
    complex: lambda value: complex(_float(value.real), _float(value.imag)),
    deque: lambda value: deque(_canonical_all(list(value)), value.maxlen),
    OrderedDict: lambda value: OrderedDict(_canonical_items(value)),
    Counter: lambda value: Counter(dict(_canonical_items(value))),
    defaultdict: lambda value: defaultdict(value.default_factory, _canonical_items(value)),
    **collections(_ONE_FORM, _canonical_all),
}


def _accept_any(value: Any) -> Any:
    return canonical_any(dynamic.accept_any(value))


def _accept_all_any(values: list[Any]) -> list[Any]:
    parts = list(chain.from_iterable(values)) if set(map(type, values)) == {tuple} else values
    if _PACKED.issuperset(map(type, parts)) and all_encodable([part for part in parts if type(part) is str]):
        return values
    return _canonical_all(dynamic.accept_all_any(values))


def _encode_any(value: Any) -> bytes:
    cls = type(value)
    if cls is str or cls is bytes or (cls is int and dynamic.INT64_MIN <= value <= dynamic.UINT64_MAX):
        return pack(value)
    if cls in _ONE_FORM or (cls is tuple and _PACKED.issuperset(map(type, value))):
        return dynamic.encode_any(value)
    return dynamic.encode_any(canonical_any(value))


def _decode_any(data: Any) -> Any:
    return canonical_any(dynamic.decode_any(data))


def _accept_without_classes(value: Any) -> Any:
    return canonical_any(dynamic.accept_without_classes(value))


def _decode_without_classes(data: Any) -> Any:
    return canonical_any(dynamic.decode_without_classes(data))


# -- the key forms of scalars ------------------------------------------------------------------------------------------


def _floating(spec: ScalarSpec) -> ScalarSpec:
    exact, lower, to_array, to_values = spec.exact, spec.lower, spec.to_array, spec.to_values
    before = spec.all_exact
    return replace(
        spec,
        exact=f"(@ == @ or _is_one_nan(@)){f' and {exact}' if exact else ''}",
        all_exact=lambda values: _all_one_nan(values) and (before is None or before(values)),
        lower=_float if lower is None else lambda value: lower(_float(value)),
        to_array=lambda values: _one_nan(to_array(values)),
        to_values=lambda array: to_values(_one_nan(array)),
    )


_DECIMAL = SPECS["big_dec"]
_KEY_SPECS = {
    "double": _floating(SPECS["double"]),
    "float": _floating(SPECS["float"]),
    "big_dec": replace(
        _DECIMAL,
        exact="_is_canonical_decimal(@)",
        all_exact=lambda values: all(map(_is_canonical_decimal, values)),
        lower=canonical_decimal,
        to_array=lambda values: _DECIMAL.to_array(list(map(canonical_decimal, values))),
        to_values=lambda array: list(map(canonical_decimal, _DECIMAL.to_values(array))),
    ),
    "any": replace(
        SPECS["any"],
        lower=lambda value: Raw(_encode_any(value)),
        to_array=lambda values: pa.array(map(_encode_any, values), pa.binary()),
        to_values=lambda array: list(map(_decode_any, array.to_pylist())),
    ),
}


@dataclass(frozen=True, eq=False, repr=False)
class _KeyScalar(ScalarType):
    @property
    def _spec(self) -> ScalarSpec:
        return _KEY_SPECS[self.name]

    def _test(self, value: str, source: Source) -> str:
        source.names |= {"_is_one_nan": _is_one_nan, "_is_canonical_decimal": _is_canonical_decimal}
        return super()._test(value, source)

    def __reduce__(self) -> tuple[Any, ...]:
        return _key_scalar, (self.name,)


class _KeyAny(_KeyScalar, AnyType):
    encode = staticmethod(_encode_any)
    accept = staticmethod(_accept_any)
    accept_all = staticmethod(_accept_all_any)


class _ClasslessKeyAny(_KeyAny, ClasslessAnyType):
    accept = staticmethod(_accept_without_classes)
    accept_all = staticmethod(lambda values: list(map(_accept_without_classes, values)))

    @property
    def _spec(self) -> ScalarSpec:
        return _CLASSLESS_KEY_SPEC

    def __reduce__(self) -> tuple[Any, ...]:
        return _classless_key, ()


def _classless_key() -> ScalarType:
    return _CLASSLESS_KEY


_CLASSLESS_KEY_SPEC = replace(
    _KEY_SPECS["any"],
    lift=dynamic.decode_without_classes,
    to_values=lambda array: list(map(_decode_without_classes, array.to_pylist())),
)
_CLASSLESS_KEY = _ClasslessKeyAny("any")


def _key_scalar(name: str) -> ScalarType:
    return _KEY_SCALARS[name]


_KEY_SCALARS = {name: _KeyScalar(name) for name in _KEY_SPECS} | {"any": _KeyAny("any")}
