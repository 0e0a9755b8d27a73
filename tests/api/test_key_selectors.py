import dataclasses
import functools
import operator
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forkpoint.api.streams.keys import key_by
from forkpoint.errors import GraphError
from forkpoint.functions import KeySelector
from forkpoint.types import Row, Types, type_of


class Event(NamedTuple):
    kind: str
    room: int
    count: int  # hides tuple.count


@dataclasses.dataclass
class Point:
    x: int
    y: float

    @property
    def norm(self) -> float:
        return self.x * self.x + self.y * self.y


class Packet(msgspec.Struct):
    ip: str
    size: int


EVENT, POINT, PACKET, PAIR = map(type_of, (Event, Point, Packet, tuple[int, str]))
ROW = Types.ROW_NAMED(["id", "as_dict"], [Types.STRING(), Types.LONG()])
INDEX = 1


@pytest.mark.parametrize(
    ("selector", "type", "columns", "single"),
    [
        (lambda e: e.room, EVENT, ("room",), True),
        (lambda e: e.count, EVENT, ("count",), True),
        (lambda e: e[1], EVENT, ("room",), True),
        (lambda e: e[-1], EVENT, ("count",), True),
        (lambda e: (e.room, e.kind), EVENT, ("room", "kind"), False),
        (lambda e: (e.room,), EVENT, ("room",), False),
        (lambda e, i=0: e[i], EVENT, ("kind",), True),
        (operator.attrgetter("room"), EVENT, ("room",), True),
        (operator.itemgetter(0, 1), EVENT, ("kind", "room"), False),
        (lambda e: e.y, POINT, ("y",), True),
        (lambda e: e.ip, PACKET, ("ip",), True),
        (lambda e: e[0], PAIR, ("f0",), True),
        (lambda e: e["id"], ROW, ("id",), True),
        (lambda e: e.id, ROW, ("id",), True),
        (lambda e: e[1], ROW, ("as_dict",), True),
        (lambda e: e, type_of(int), ("value",), True),
        ("room", EVENT, ("room",), True),
        (1, EVENT, ("room",), True),
        (("kind", 1), EVENT, ("kind", "room"), False),
        ("f1", PAIR, ("f1",), True),
        (0, POINT, ("x",), True),
    ],
)
def test_fields_that_are_picked_are_columns(selector, type, columns, single):
    found = key_by(selector, None, type)
    assert (found.columns, found.single) == (columns, single)
    fields = dict(zip(type.column_names, type.fields or (None,), strict=True))
    types = [type if fields[c] is None else fields[c].type for c in columns]
    assert found.key_type == (types[0] if single else Types.TUPLE(types))


class ByRoom(KeySelector):
    def get_key(self, value: Event) -> int:
        return value.room


class ByOwnIndex(KeySelector):
    def __init__(self) -> None:
        self.index = 0

    def get_key(self, value: Event) -> Any:
        return value[self.index]


def parity(e: Event) -> int:
    return e.room % 2


def nobody(e):
    return e.kind


@pytest.mark.parametrize(
    ("selector", "type"),
    [
        (lambda e: e.room + 1, EVENT),
        (lambda e: -e.room, EVENT),
        (lambda e: e.room == 3, EVENT),
        (lambda e: e.room < 3, EVENT),
        (lambda e: not e.room, EVENT),
        (lambda e: e.room or e.count, EVENT),
        (lambda e: e.kind if e.kind is not None else e.room, EVENT),
        (lambda e: e.kind is None, EVENT),
        (lambda e: (e.kind, 1), EVENT),
        (lambda e: f"{e.kind}", EVENT),
        (lambda e: str(e.room), EVENT),
        (lambda e: e.kind if isinstance(e, Event) else e.room, EVENT),
        (lambda e: len(e), EVENT),
        (lambda e: e.kind.lower, EVENT),
        (lambda e: e.kind[0], EVENT),
        (lambda e: e[0:2], EVENT),
        (lambda e: e[INDEX], EVENT),  # may be another by the time of the run
        (lambda e: e["room"], EVENT),  # a TypeError for each real element, so not a key
        (lambda e: e[7], EVENT),
        (lambda e: (e.room, e.room), EVENT),
        (lambda e: e, EVENT),
        (lambda e: [e.room], EVENT),
        (lambda e: (*e,), EVENT),
        (lambda e: (yield e.room), EVENT),
        (lambda e: e.norm, POINT),
        (lambda e: e[0], POINT),
        (lambda e: e.as_dict, ROW),  # a Row's method, not its field
        (lambda e: e.room, None),
        (lambda e: e.real, type_of(int)),
        (functools.partial(lambda i, e: e[i], 0), EVENT),
        (ByOwnIndex(), EVENT),
        (parity, EVENT),
    ],
)
def test_everything_else_is_called(selector, type):
    assert key_by(selector, None, type).columns is None


def test_a_key_selector_object_is_traced_too():
    found = key_by(ByRoom(), None, EVENT)
    assert (found.columns, found.key_type, found.selector(Event("a", 4, 0))) == (("room",), Types.LONG(), 4)


def test_where_the_key_type_comes_from():
    assert key_by(lambda e: e.room, Types.INT(), EVENT).key_type == Types.INT()
    assert key_by(parity, None, EVENT, Types.LONG()).key_type == Types.LONG()
    assert key_by(lambda e: e.kind, None, EVENT, Types.LONG()).key_type == Types.STRING()
    assert key_by(nobody, None, None).key_type == Types.ANY()
    assert key_by(ByOwnIndex(), None, None).key_type == Types.ANY()
    assert key_by(nobody, str, None).key_type == Types.STRING()


@pytest.mark.parametrize("type", [EVENT, None])
def test_names_and_indices_select_from_elements(type):
    event = Event("motion", 4, 1)
    assert key_by("room", None, type).selector(event) == 4
    assert key_by(("room", 0), None, type).selector(event) == (4, "motion")


def test_names_select_from_dicts_rows_and_classes():
    assert key_by("room", None, None).selector({"room": 3}) == 3
    assert key_by("id", None, ROW).selector(Row(id="a", as_dict=1)) == "a"
    assert key_by(1, None, POINT).selector(Point(1, 2.0)) == 2.0
    assert key_by("f1", None, PAIR).selector((1, "x")) == "x"


@pytest.mark.parametrize(
    ("selector", "message"),
    [
        ("rooms", "no field 'rooms'; they have kind, room, count"),
        (3, "no field 3"),
        (("kind", "rooms"), "no field 'rooms'"),
        ((), "at least one"),
        (True, "key selector is"),
        (2.5, "key selector is"),
    ],
)
def test_wrong_selectors(selector, message):
    with pytest.raises(GraphError, match=message):
        key_by(selector, None, EVENT)


@given(st.lists(st.sampled_from([0, 1, 2, "kind", "room", "count"]), min_size=1, max_size=3), st.booleans())
def test_columns_and_selector_tell_the_same_key(picked, alone):
    selector = picked[0] if alone else tuple(picked)
    found = key_by(selector, None, EVENT)
    event = Event("motion", 7, 9)
    key = tuple(event._asdict()[c] for c in found.columns)
    assert found.selector(event) == (key[0] if found.single else key)
