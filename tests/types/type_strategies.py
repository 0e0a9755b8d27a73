"""Random types, each with a strategy of its values."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import itertools
from decimal import Decimal
from typing import Any, NamedTuple, Optional, Union
from uuid import UUID

import msgspec
from hypothesis import strategies as st

from forkpoint.types import Instant, Row, Types


class Color(enum.StrEnum):
    RED = "r"
    GREEN = "g"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Shape(enum.Enum):
    ROUND = (1, 2)
    FLAT = None


class Rights(enum.Flag):
    READ = enum.auto()
    WRITE = enum.auto()


INT64 = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
DECIMALS = st.decimals(allow_nan=False)
NAIVE = st.datetimes().map(lambda value: value.replace(fold=0))  # fold means something only with a zone
TIMES = st.times().map(lambda value: value.replace(fold=0))
AWARE = st.datetimes(
    dt.datetime(2, 1, 1),  # noqa: DTZ001 - bounds are naive
    dt.datetime(9998, 1, 1),  # noqa: DTZ001
    timezones=st.sampled_from([dt.UTC, dt.timezone(dt.timedelta(hours=5, minutes=30))]),
)
DURATIONS = st.timedeltas(dt.timedelta(days=-100_000_000), dt.timedelta(days=100_000_000))
FLOATS = st.floats(allow_nan=False)

HASHABLE_LEAVES: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (int, INT64),
    (float, FLOATS),
    (str, TEXT),
    (bytes, st.binary(max_size=8)),
    (bool, st.booleans()),
    (Decimal, DECIMALS),
    (Types.DECIMAL(20, 3), st.decimals(-(10**16), 10**16, places=3).map(lambda value: value if value else abs(value))),
    (dt.date, st.dates()),
    (dt.datetime, NAIVE),
    (Instant, AWARE),
    (dt.time, TIMES),
    (dt.timedelta, DURATIONS),
    (UUID, st.uuids()),
    (Color, st.sampled_from(Color)),
    (Level, st.sampled_from(Level)),
    (Shape, st.sampled_from(Shape)),
    (Rights, st.sampled_from([Rights.READ, Rights.WRITE, Rights.READ | Rights.WRITE])),
]

_HASHABLE_DYNAMIC = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | FLOATS
    | TEXT
    | st.binary(max_size=4)
    | DECIMALS
    | st.dates()
    | TIMES
    | NAIVE
    | AWARE
    | st.timedeltas()
    | st.uuids(),
    lambda inner: st.tuples(inner, inner) | st.frozensets(inner, max_size=3),
    max_leaves=4,
)
DYNAMIC = st.recursive(
    _HASHABLE_DYNAMIC,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(TEXT, inner, max_size=3)
        | st.dictionaries(_HASHABLE_DYNAMIC, inner, max_size=3)
        | st.sets(_HASHABLE_DYNAMIC, max_size=3)
        | st.lists(inner, max_size=3).map(lambda values: Row(*values))
    ),
    max_leaves=6,
)

_numbers = itertools.count()
Typed = tuple[Any, st.SearchStrategy[Any]]


def _record(flavor: str, parts: list[Typed]) -> Typed:
    name = f"{flavor.title()}{next(_numbers)}"
    fields = [(f"x{i}", annotation) for i, (annotation, _) in enumerate(parts)]
    cls: Any
    if flavor == "named":
        cls = NamedTuple(name, fields)  # type: ignore[misc]
    elif flavor == "data":
        cls = dataclasses.make_dataclass(name, fields)
    else:
        cls = msgspec.defstruct(name, fields)
    return cls, st.tuples(*(values for _, values in parts)).map(lambda values: cls(*values))


def _set(part: Typed, frozen: bool) -> Typed:
    annotation, values = part
    if frozen:
        return frozenset[annotation], st.frozensets(values, max_size=4)  # type: ignore[valid-type]
    return set[annotation], st.sets(values, max_size=4)  # type: ignore[valid-type]


_hashable: st.SearchStrategy[Typed] = st.recursive(
    st.sampled_from(HASHABLE_LEAVES),
    lambda inner: (
        st.lists(inner, min_size=1, max_size=2).map(
            lambda parts: (tuple[tuple(a for a, _ in parts)], st.tuples(*(v for _, v in parts)))  # type: ignore[misc]
        )
        | inner.map(lambda part: (Optional[part[0]], st.none() | part[1]))  # noqa: UP045
        | inner.map(lambda part: (tuple[part[0], ...], st.lists(part[1], max_size=3).map(tuple)))
    ),
    max_leaves=3,
)


def _compound(inner: st.SearchStrategy[Typed]) -> st.SearchStrategy[Typed]:
    parts = st.lists(inner, max_size=3)
    return st.one_of(
        inner.map(lambda part: (list[part[0]], st.lists(part[1], max_size=3))),  # type: ignore[valid-type]
        inner.map(lambda part: (Optional[part[0]], st.none() | part[1])),  # noqa: UP045
        inner.map(lambda part: (tuple[part[0], ...], st.lists(part[1], max_size=3).map(tuple))),
        st.tuples(_hashable, inner).map(
            lambda pair: (dict[pair[0][0], pair[1][0]], st.dictionaries(pair[0][1], pair[1][1], max_size=4))
        ),
        st.builds(_set, _hashable, st.booleans()),
        parts.map(lambda some: (tuple[tuple(a for a, _ in some)], st.tuples(*(v for _, v in some)))),  # type: ignore[misc]
        st.builds(_record, st.sampled_from(["named", "data", "struct"]), parts),
        parts.map(lambda some: _record("data", some)).map(
            lambda part: (Union[int, str, part[0], None], INT64 | TEXT | part[1] | st.none())  # noqa: UP007
        ),
    )


types: st.SearchStrategy[Typed] = st.recursive(
    st.sampled_from([*HASHABLE_LEAVES, (Any, DYNAMIC), (None, st.none())]), _compound, max_leaves=5
)


def exact(value: Any) -> Any:
    """A form of `value` that is equal only for values of the same classes throughout."""
    if isinstance(value, tuple | list):
        return type(value), [exact(item) for item in value]
    if isinstance(value, dict):
        return dict, sorted(([exact(key), exact(item)] for key, item in value.items()), key=repr)
    if isinstance(value, set | frozenset):
        return type(value), sorted(map(exact, value), key=repr)
    if isinstance(value, dt.datetime) and value.tzinfo is not None:
        return "aware", value.astimezone(dt.UTC).isoformat()
    if isinstance(value, Row):
        return Row, [exact(item) for item in value]
    if dataclasses.is_dataclass(value):
        return type(value), [exact(getattr(value, field.name)) for field in dataclasses.fields(value)]
    if isinstance(value, msgspec.Struct):
        return type(value), [exact(getattr(value, name)) for name in value.__struct_fields__]
    return type(value), value if isinstance(value, enum.Enum) else repr(value)
