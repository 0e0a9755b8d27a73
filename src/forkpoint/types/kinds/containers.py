"""Types that contain other types: Optional, Union, list, tuple of any length, set, dict."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, pairwise
from operator import itemgetter
from typing import Any, Optional

import numpy as np
import pyarrow as pa
from msgspec import Raw

from forkpoint.errors import TypeNotSupported
from forkpoint.types.acceptance import Convert, Source
from forkpoint.types.information import JsonObject, TypeInformation
from forkpoint.types.kinds.literals import both
from forkpoint.types.wire import shown, type_name


@dataclass(frozen=True, eq=False, repr=False)
class OptionalType(TypeInformation):
    """A type whose values may be None: nil in bytes, null in columns. Created by `optional`."""

    of: TypeInformation

    kind = "optional"
    nullable = True

    def describe(self) -> JsonObject:
        return {"kind": "optional", "of": self.of.describe()}

    @property
    def children(self) -> tuple[TypeInformation, ...]:
        return (self.of,)

    @property
    def wire(self) -> Any:
        return Optional[self.of.wire]  # noqa: UP045 - a wire annotation need not support "|"

    @cached_property
    def lower(self) -> Convert | None:
        return _unless_none(self.of.lower)

    @cached_property
    def lift(self) -> Convert | None:
        return _unless_none(self.of.lift)

    @property
    def arrow_type(self) -> pa.DataType:
        return self.of.arrow_type

    def _to_array(self, values: list[Any]) -> pa.Array:
        present = [value is not None for value in values]
        if all(present):
            return self.of.to_arrow(values)
        array = self.of.to_arrow([value for value in values if value is not None])
        mask = ~np.array(present, bool)
        return array.take(pa.array(np.cumsum(~mask) - 1, mask=mask))

    def _to_values(self, array: pa.Array) -> list[Any]:
        if not array.null_count:
            return self.of._to_values(array)
        values: list[Any] = [None] * len(array)
        places = np.flatnonzero(array.is_valid().to_numpy(zero_copy_only=False)).tolist()
        for index, value in zip(places, self.of._to_values(array.drop_null()), strict=True):
            values[index] = value
        return values

    @cached_property
    def immutable(self) -> bool:
        return self.of.immutable

    def _test(self, value: str, source: Source) -> str:
        first, v = source.once(value)
        if first == v:
            return f"({self.of._test(v, source)} or {v} is None)"
        return f"({first} is None or {self.of._test(v, source)})"

    @cached_property
    def all_exact(self) -> Callable[[Sequence[Any]], bool]:
        if not self.immutable:
            return super().all_exact
        exact = self.of.all_exact
        return lambda values: exact([value for value in values if value is not None] if None in values else values)

    @cached_property
    def _coerce(self) -> Convert:
        accept = self.of.accept
        return lambda value: None if value is None else accept(value)

    def __repr__(self) -> str:
        return f"Optional[{self.of!r}]"


def _unless_none(convert: Convert | None) -> Convert | None:
    return None if convert is None else lambda value: None if value is None else convert(value)


def optional(of: TypeInformation) -> TypeInformation:
    """Return `of` with None as an additional value; `of` itself if None already is a value."""
    return of if of.nullable or of.kind == "any" else OptionalType(of)


def present(of: TypeInformation) -> TypeInformation:
    """The inverse of `optional`; `of` itself if it is not an `OptionalType`."""
    return of.of if isinstance(of, OptionalType) else of


class _EncodedColumn(TypeInformation):
    """A type without an Arrow type: columns hold the encoded bytes."""

    @property
    def arrow_type(self) -> pa.DataType:
        return pa.binary()

    def _to_array(self, values: list[Any]) -> pa.Array:
        return pa.array(map(self.encode, values), pa.binary())

    def _to_values(self, array: pa.Array) -> list[Any]:
        return list(map(self.decode, array.to_pylist()))


@dataclass(frozen=True, eq=False, repr=False)
class UnionType(_EncodedColumn):
    """One of several types, chosen by the value's class; on the wire [index of the member, value]."""

    members: tuple[TypeInformation, ...]

    kind = "union"

    def describe(self) -> JsonObject:
        return {"kind": "union", "members": [member.describe() for member in self.members]}

    @property
    def children(self) -> tuple[TypeInformation, ...]:
        return self.members

    @property
    def wire(self) -> Any:
        return tuple[int, Raw]

    @cached_property
    def lower(self) -> Convert:
        encoders, member_of = [member.encode for member in self.members], self._member_of

        def lower(value: Any) -> tuple[int, Raw]:
            index = member_of(value)
            return index, Raw(encoders[index](value))

        return lower

    @cached_property
    def immutable(self) -> bool:
        return all(member.immutable for member in self.members)

    def _test(self, value: str, source: Source) -> str:
        v = source.variable()
        tests = " or ".join(member._test(v, source) for member in self.members)
        return f"(({v} := {value},) and ({tests}))"

    @cached_property
    def _coerce(self) -> Convert:
        accepts, member_of = [member.accept for member in self.members], self._member_of
        return lambda value: accepts[member_of(value)](value)

    @cached_property
    def _member_of(self) -> Callable[[Any], int]:
        """The index of a value's member, by the value's class."""
        known: dict[type, int] = {}
        for index, member in enumerate(self.members):
            if member.python_class is not None:
                known.setdefault(member.python_class, index)

        def member_of(value: Any) -> int:
            cls = type(value)
            index = known.get(cls)
            if index is None:
                index = known[cls] = self._find_member(cls, known, value)
            return index

        return member_of

    def _find_member(self, cls: type, known: dict[type, int], value: object) -> int:
        for base in () if cls is bool else cls.__mro__:  # Union[int, str] does not include True
            if base in known and base is not object:
                self.members[known[base]].check_class(cls)
                return known[base]
        raise TypeNotSupported(f"{shown(value)} of type {type_name(cls)} belongs to none of the types of {self!r}")

    @cached_property
    def lift(self) -> Convert:
        decoders: list[Callable[[Any], Any]] = [member.decode for member in self.members]
        return lambda pair: decoders[pair[0]](pair[1])

    @cached_property
    def native(self) -> dict[type, Any]:
        return {}  # the members have their own decoders

    def __repr__(self) -> str:
        return f"Union[{', '.join(map(repr, self.members))}]"


def union(members: list[TypeInformation]) -> TypeInformation:
    """Return the union of types; None among them makes it optional.

    Raises TypeNotSupported if the class of a value does not determine its member.
    """
    kept: dict[TypeInformation, TypeInformation] = {}
    for member in members:
        if member.kind != "null":
            kept[member] = both(kept[member], member) if member in kept else member
    some = list(kept.values())
    if any(member.kind == "any" for member in some):
        return next(member for member in some if member.kind == "any")
    seen: dict[type | None, TypeInformation] = {}
    for member in some if len(some) > 1 else ():
        other = seen.setdefault(member.python_class, member)
        if other is not member:
            raise TypeNotSupported(
                f"Union of {other!r} and {member!r}: both are {member.python_class and type_name(member.python_class)} "
                "in Python, so values cannot be told apart; wrap each in a dataclass of its own, or use Types.ANY()"
            )
    if not some:
        return members[0]
    result = some[0] if len(some) == 1 else UnionType(tuple(some))
    return result if len(some) == len(set(members)) else optional(result)


@dataclass(frozen=True, eq=False, repr=False)
class SequenceType(TypeInformation):
    """A list, a tuple of any length, a set or a frozenset; sets are encoded in sorted order."""

    form: str  # "list", "tuple_of", "set", "frozenset"
    element: TypeInformation

    @property
    def kind(self) -> str:
        return self.form

    def describe(self) -> JsonObject:
        return {"kind": self.form, "element": self.element.describe()}

    @property
    def children(self) -> tuple[TypeInformation, ...]:
        return (self.element,)

    @property
    def python_class(self) -> type:
        return {"list": list, "tuple_of": tuple, "set": set, "frozenset": frozenset}[self.form]

    @property
    def sortable(self) -> bool:
        return self.form == "tuple_of" and self.element.sortable

    @property
    def _is_set(self) -> bool:
        return "set" in self.form

    @cached_property
    def _native_set(self) -> bool:  # msgspec sorts by value and builds the set itself
        return self.element.sortable and self.element.lower is None and self.element.lift is None

    @property
    def wire(self) -> Any:
        of = self.element.wire
        if self._is_set and not self._native_set:
            return list[of]  # type: ignore[valid-type]
        return tuple[of, ...] if self.form == "tuple_of" else self.python_class[of]  # type: ignore[index, valid-type]

    @cached_property
    def lower(self) -> Convert | None:
        lower = self.element.lower
        if self._is_set:
            if self._native_set:
                return None
            order = None if self.element.sortable else self.element.encode
            if lower is None:
                return lambda values: sorted(values, key=order)
            return lambda values: [lower(value) for value in sorted(values, key=order)]
        return None if lower is None else lambda values: [lower(value) for value in values]

    @cached_property
    def lift(self) -> Convert | None:
        lift, build = self.element.lift, self.python_class
        if lift is None:
            return build if self._is_set and not self._native_set else None
        return lambda values: build([lift(value) for value in values])

    @cached_property
    def immutable(self) -> bool:
        return self.form in ("tuple_of", "frozenset") and self.element.immutable

    def _test(self, value: str, source: Source) -> str:
        first, v = source.once(value)
        exact, cls = source.bind(self.element.all_exact), source.bind(self.python_class)
        return f"type({first}) is {cls} and {exact}({v})"

    @cached_property
    def _coerce(self) -> Convert:
        accept_all, read_back = self.element.accept_all, self._read_back
        classes = (set, frozenset) if self._is_set else (list, tuple)
        build: Convert = _same if self.form == "list" else self.python_class

        def coerce(value: Any) -> Any:
            some: Any = value if isinstance(value, classes) else read_back(value)
            return build(accept_all(list(some)))

        return coerce

    @cached_property
    def arrow_type(self) -> pa.DataType:
        return pa.list_(self.element.arrow_type)

    def _to_array(self, values: list[Any]) -> pa.Array:
        if self._is_set:
            order = None if self.element.sortable else self.element.encode
            values = [sorted(value, key=order) for value in values]
        elements = self.element.to_arrow(list(chain.from_iterable(values)))
        return pa.ListArray.from_arrays(_offsets(values), elements, type=self.arrow_type)

    def _to_values(self, array: pa.Array) -> list[Any]:
        bounds, (elements,) = _inside(array, [(array.values, self.element)])
        slices = [elements[start:stop] for start, stop in pairwise(bounds)]
        return slices if self.form == "list" else list(map(self.python_class, slices))

    def __repr__(self) -> str:
        return f"tuple[{self.element!r}, ...]" if self.form == "tuple_of" else f"{self.form}[{self.element!r}]"


def _offsets(values: list[Any]) -> pa.Array:
    lengths = np.fromiter(map(len, values), np.int64, len(values))
    offsets = np.zeros(len(values) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    if offsets[-1] > np.iinfo(np.int32).max:
        raise TypeNotSupported(f"{offsets[-1]} elements exceed the 2³¹ of one array; use smaller batches")
    return pa.array(offsets.astype(np.int32))


def _inside(array: Any, parts: list[tuple[pa.Array, TypeInformation]]) -> tuple[list[int], list[list[Any]]]:
    """Return the bounds of the rows of a list or map array, and the flat values that they slice."""
    offsets = array.offsets.to_numpy() if len(array) else np.zeros(1, np.int32)
    start, stop = int(offsets[0]), int(offsets[-1])
    return (offsets - start).tolist(), [of.from_arrow(part.slice(start, stop - start)) for part, of in parts]


@dataclass(frozen=True, eq=False, repr=False)
class MapType(_EncodedColumn):
    """A dict, encoded in key order: as a msgpack map for str keys, else as an array of [key, value]."""

    key: TypeInformation
    value: TypeInformation

    kind = "map"
    python_class = dict

    def describe(self) -> JsonObject:
        return {"kind": "map", "key": self.key.describe(), "value": self.value.describe()}

    @property
    def children(self) -> tuple[TypeInformation, ...]:
        return (self.key, self.value)

    @property
    def _plain(self) -> bool:
        return self.key.kind in ("string", "char")

    @property
    def wire(self) -> Any:
        key, value = self.key.wire, self.value.wire
        return dict[str, value] if self._plain else list[tuple[key, value]]  # type: ignore[valid-type]

    @cached_property
    def lower(self) -> Convert | None:
        key, value = self.key.lower, self.value.lower
        if self._plain:
            return None if value is None else lambda items: {name: value(item) for name, item in items.items()}
        first, encode = itemgetter(0), self.key.encode
        order: Convert = first if self.key.sortable else lambda pair: encode(pair[0])
        if key is None and value is None:
            return lambda items: sorted(items.items(), key=order)
        on_key, on_value = key or _same, value or _same
        return lambda items: [(on_key(name), on_value(item)) for name, item in sorted(items.items(), key=order)]

    @cached_property
    def lift(self) -> Convert | None:
        key, value = self.key.lift, self.value.lift
        if self._plain:
            return None if value is None else lambda items: {name: value(item) for name, item in items.items()}
        if key is None and value is None:
            return dict
        on_key, on_value = key or _same, value or _same
        return lambda pairs: {on_key(name): on_value(item) for name, item in pairs}

    @cached_property
    def _coerce(self) -> Convert:
        key, item, read_back = self.key.accept, self.value.accept, self._read_back

        def coerce(value: Any) -> Any:
            some: dict[Any, Any] = value if isinstance(value, dict) else read_back(value)
            return {key(name): item(one) for name, one in some.items()}

        return coerce

    @property
    def _as_bytes(self) -> bool:
        return self.key.nullable  # Arrow's map has no null keys

    @cached_property
    def arrow_type(self) -> pa.DataType:
        return pa.binary() if self._as_bytes else pa.map_(self.key.arrow_type, self.value.arrow_type)

    def _to_array(self, values: list[Any]) -> pa.Array:
        if self._as_bytes:
            return super()._to_array(values)
        keys = self.key.to_arrow(list(chain.from_iterable(values)))
        items = self.value.to_arrow(list(chain.from_iterable([value.values() for value in values])))
        return pa.MapArray.from_arrays(_offsets(values), keys, items, self.arrow_type)

    def _to_values(self, array: pa.Array) -> list[Any]:
        if self._as_bytes:
            return super()._to_values(array)
        bounds, (keys, items) = _inside(array, [(array.keys, self.key), (array.items, self.value)])
        return [dict(zip(keys[a:b], items[a:b], strict=True)) for a, b in pairwise(bounds)]

    def __repr__(self) -> str:
        return f"dict[{self.key!r}, {self.value!r}]"


def _same(value: Any) -> Any:
    return value
