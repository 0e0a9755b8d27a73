"""Which keys are the same, for every operator: as the documentation says, wherever epochs end and at any parallelism.

The model knows nothing of encodings: ``identity`` says in Python what `forkpoint.types.keys` documents.
"""

import dataclasses
import datetime as dt
import enum
import struct
from collections import defaultdict
from decimal import Decimal
from itertools import product
from typing import Any, NamedTuple, Optional

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import forkpoint as fp
from example_counts import examples
from forkpoint.testing import TestSource, run_local
from forkpoint.types import Types, type_of

CUTS = list(product((1, 3, 100), (1, 2, 3)))
WINDOW = 100


class Price(NamedTuple):
    amount: Decimal
    currency: str


@dataclasses.dataclass(frozen=True)
class Order:
    shop: str
    weight: float
    note: str = dataclasses.field(default="", compare=False)


@dataclasses.dataclass(frozen=True, eq=False)
class ByObject:
    number: int


class Point(msgspec.Struct, frozen=True):
    x: float
    y: Decimal


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Alike(NamedTuple):
    text: str
    number: int

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Alike) and self.number == other.number

    __hash__ = None  # type: ignore[assignment]


def float_of(bits: int) -> float:
    return struct.unpack("<d", struct.pack("<Q", bits))[0]


PARIS, DELHI = dt.timezone(dt.timedelta(hours=1)), dt.timezone(dt.timedelta(hours=5, minutes=30))
NOON = dt.datetime(2024, 5, 1, 12, tzinfo=dt.UTC)
DECIMALS = list(map(Decimal, ["2.5", "2.50", "-0", "0.00", "100", "1E+2", "1e-7", "1E+90", "10E+89", "NaN", "-NaN7"]))
FLOATS = [0.0, -0.0, 1.0, 0.1, float("nan"), float_of(0xFFF8000000000123), float("inf")]
ANYTHING = [1, 1.0, True, 0.0, -0.0, False, "1", b"1", None, *DECIMALS[:3], float("nan"), float_of(0xFFF8000000000001)]

KEYS: dict[str, tuple[Any, list[Any]]] = {
    "decimal": (Decimal, DECIMALS),
    "optional": (Optional[Decimal], [*DECIMALS, None]),  # noqa: UP045
    "float": (float, FLOATS),
    "float32": (Types.FLOAT(), FLOATS),
    "tuple": (tuple[Decimal, float], list(product(DECIMALS[:4], FLOATS[:6]))),
    "plain tuple": (tuple[str, int], [("a", 1), ("a", 2), ("b", 1)]),
    "namedtuple": (Price, [Price(d, c) for d in DECIMALS[:4] for c in "ab"]),
    "own equality": (Alike, [Alike("a", 1), Alike("b", 1), Alike("a", 2)]),
    "dataclass": (Order, [Order("a", w, n) for w in FLOATS for n in "xy"]),
    "compared by object": (ByObject, [ByObject(1), ByObject(1), ByObject(2)]),
    "struct": (Point, [Point(x, y) for x in FLOATS[:6] for y in DECIMALS[:3]]),
    "union": (Decimal | float | str, [*DECIMALS, *FLOATS, "a"]),
    "list": (list[Decimal], [[Decimal("1.0")], [Decimal(1)], []]),
    "any": (None, ANYTHING),
    "any in tuples": (
        None,
        [*((k,) for k in ANYTHING), *((k, "a") for k in ANYTHING), ((1,),), ((True,),), [1], [True]],
    ),
    "any in dicts": (None, [{"a": 1}, {"a": True}, {"a": Decimal("1.0")}, {"a": Decimal(1)}, {Decimal("1.0"): 1}]),
    "enum": (Level, list(Level)),
    "instant": (fp.Instant, [NOON, NOON.astimezone(PARIS), NOON.astimezone(DELHI), NOON + dt.timedelta(hours=1)]),
    "any instant": (None, [NOON, NOON.astimezone(PARIS), NOON.replace(tzinfo=None), NOON.date()]),
    "text": (str, ["\u00e9", "e\u0301", "E"]),
    "bool": (bool, [True, False]),
    "bytes": (bytes, [b"", b"\0", b"a"]),
}


def identity(key: Any) -> Any:
    """What tells keys apart, in terms of the documentation."""
    match key:
        case enum.Enum():
            return key.name
        case float():
            return "float", "nan" if key != key else repr(key)
        case Decimal():
            text = "nan" if key.is_nan() else str(key) if key.is_infinite() else str(key.as_integer_ratio())
            return "decimal", text
        case dt.datetime() if key.tzinfo is not None:
            return "instant", key.timestamp()
        case tuple():
            return "tuple", tuple(map(identity, key))
        case list():
            return "list", tuple(map(identity, key))
        case dict():
            return "dict", tuple((identity(k), identity(v)) for k, v in key.items())
        case msgspec.Struct() | ByObject() | Order():
            fields = key.__struct_fields__ if isinstance(key, msgspec.Struct) else key.__dataclass_fields__
            return "record", tuple(identity(getattr(key, name)) for name in fields)
    return type(key).__name__, key


def shown(key: Any) -> str:
    return f"{type(key).__name__} {identity(key)} {key!r}"


Element = tuple[Any, int]  # key, number


class Seen(fp.KeyedProcessFunction):
    """Counts a key's elements, in a value and in a map by the key itself; shows the key that it sees."""

    def __init__(self, kind: Any) -> None:
        self._kind = Types.ANY() if kind is None else kind

    def open(self, runtime_context: fp.RuntimeContext) -> None:
        self._count = runtime_context.get_state(fp.ValueStateDescriptor("count", int))
        self._map = runtime_context.get_map_state(fp.MapStateDescriptor("map", self._kind, int))

    def process_element(self, value, ctx):
        count = (self._count.value() or 0) + 1
        self._count.update(count)
        self._map.put(value[0], (self._map.get(value[0]) or 0) + 1)
        (own,) = self._map.keys()
        yield value[1], count, self._map.get(value[0]), shown(ctx.get_current_key()), shown(own)


class Both(fp.KeyedCoProcessFunction):
    """Each element with the number of elements on the other side so far."""

    COUNTS = fp.MapStateDescriptor("counts", int, int)

    def _process(self, side: int, value: Any, ctx: Any) -> Any:
        counts = self.COUNTS
        counts.put(side, (counts.get(side) or 0) + 1)
        yield value[1], counts.get(1 - side) or 0, shown(ctx.get_current_key())

    def process_element1(self, value, ctx):
        return self._process(0, value, ctx)

    def process_element2(self, value, ctx):
        return self._process(1, value, ctx)


class Ask(fp.LookupFunction):
    """Finds the identity of each key, whatever the equality of keys in a dict."""

    found_type = str

    def lookup(self, keys):
        return {key: repr(identity(key)) for key in keys}


def stream(env, source, name="in"):
    times = fp.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda e, _: e[1])
    return env.from_source(source, times, name)


def typed(kind, elements):
    return TestSource(elements, type=Types.TUPLE([Types.ANY() if kind is None else type_of(kind), Types.LONG()]))


def runs(cuts, build, *inputs):
    """The output, which is the same however the job is cut."""
    found = [
        sorted(run_local(build, *inputs, epochs=epochs, parallelism=parallelism).output, key=repr) for epochs, parallelism in cuts
    ]
    assert all(each == found[0] for each in found), dict(zip(cuts, found, strict=True))
    return found[0]


some_cuts = st.lists(st.sampled_from(CUTS), min_size=2, max_size=2, unique=True)


def by_identity(elements: list[Element]) -> dict[Any, list[int]]:
    found = defaultdict(list)
    for key, number in elements:
        found[identity(key)].append(number)
    return found


@st.composite
def cases(draw, size=9):
    name = draw(st.sampled_from(sorted(KEYS)))
    kind, keys = KEYS[name]
    some = draw(st.lists(st.sampled_from(keys), min_size=2, max_size=4))
    return kind, [(key, n) for n, key in enumerate(draw(st.lists(st.sampled_from(some), min_size=2, max_size=size)))]


def each_kind(test):
    return pytest.mark.parametrize("name", KEYS)(test)


def whole(name: str) -> tuple[Any, list[Element]]:
    """Each key of a kind twice."""
    kind, keys = KEYS[name]
    return kind, [(key, n) for n, key in enumerate([*keys, *keys])]


def check_counts(cuts: Any, kind: Any, elements: list[Element]) -> None:
    def build(env, source):
        return stream(env, source).key_by(lambda e: e[0], kind).process(Seen(kind))

    found = runs(cuts, build, typed(kind, elements))
    keys = by_identity(elements)
    expected = {n: at for numbers in keys.values() for at, n in enumerate(numbers, 1)}
    assert {n: (count, of_map) for n, count, of_map, *_ in found} == {n: (at, at) for n, at in expected.items()}
    seen = {n: keys for n, _, _, *keys in found}
    for numbers in keys.values():  # one object stands for all that are equal
        assert len({tuple(seen[n]) for n in numbers}) == 1, [seen[n] for n in numbers]


@each_kind
def test_counts_of_each_kind_of_key(name):
    check_counts([(3, 3), (100, 1)], *whole(name))  # test_counts takes any


@examples(5)
@given(some_cuts, cases())
def test_counts(cuts, case):
    check_counts(cuts, *case)


class Numbers(fp.ProcessWindowFunction):
    def process(self, key, context, elements):
        yield shown(key), [n for _, n in elements]


@examples(3)
@given(some_cuts, cases())
def test_windows(cuts, case):
    kind, elements = case

    def count_windows(env, source):
        return stream(env, source).key_by(lambda e: e[0], kind).count_window(2).process(Numbers())

    def time_windows(env, source):
        keyed = stream(env, source).key_by(lambda e: e[0], kind)
        return keyed.window(fp.TumblingEventTimeWindows.of(WINDOW)).process(Numbers())

    keys = by_identity(elements).values()
    found = runs(cuts, count_windows, typed(kind, elements))
    assert sorted(n for _, n in found) == sorted(numbers[at : at + 2] for numbers in keys for at in range(0, len(numbers) - 1, 2))
    assert sorted(n for _, n in runs(cuts, time_windows, typed(kind, elements))) == sorted(keys)


@examples(3)
@given(some_cuts, cases())
def test_joins(cuts, case):
    kind, elements = case
    left, right = elements[::2], elements[1::2]
    ours, theirs = by_identity(left), by_identity(right)
    pairs = sorted((a, b) for key in ours for a in ours[key] for b in theirs.get(key, ()))

    def pair(left, right):
        return left[1], right[1]

    def window_join(env, first, second):
        both = stream(env, first, "a").join(stream(env, second, "b"))
        keyed = both.where(lambda e: e[0], kind).equal_to(lambda e: e[0], kind)
        return keyed.window(fp.TumblingEventTimeWindows.of(WINDOW)).apply(pair)

    def interval_join(env, first, second):
        a, b = (stream(env, s, name).key_by(lambda e: e[0], kind) for s, name in ((first, "a"), (second, "b")))
        return a.interval_join(b).between(-WINDOW, WINDOW).process(lambda x, y, _: [pair(x, y)])

    assert [tuple(p) for p in runs(cuts, window_join, typed(kind, left), typed(kind, right))] == pairs
    assert [tuple(p) for p in runs(cuts, interval_join, typed(kind, left), typed(kind, right))] == pairs


@examples(5)
@given(some_cuts, cases())
def test_connected_streams(cuts, case):
    kind, elements = case

    def build(env, source):
        every = stream(env, source)
        first, second = (every.filter(lambda e, side=side: e[1] % 2 == side) for side in (0, 1))
        return first.connect(second).key_by(lambda e: e[0], lambda e: e[0], kind).process(Both())

    found = {n: others for n, others, _ in runs(cuts, build, typed(kind, elements))}
    keys = by_identity(elements).values()
    assert found == {n: sum(m < n and m % 2 != n % 2 for m in numbers) for numbers in keys for n in numbers}


@examples(5)
@given(some_cuts, cases().filter(lambda case: type_of(case[0] or int).immutable))
def test_lookups(cuts, case):
    kind, elements = case
    elements = [e for e in elements if not isinstance(e[0], list | dict)]

    def build(env, source):
        return stream(env, source).lookup_join(Ask(), key=lambda e: e[0], key_type=kind).map(lambda pair: (pair[0][1], pair[1]))

    assert dict(runs(cuts, build, typed(kind, elements))) == {n: repr(identity(key)) for key, n in elements}


class Rule(fp.BroadcastProcessFunction):
    """Counts rules by name."""

    def __init__(self, rules: fp.MapStateDescriptor) -> None:
        self._rules = rules

    def process_element(self, value, ctx):
        rules = ctx.get_broadcast_state(self._rules)
        yield value[1], rules.get(value[0]), [shown(k) for k, _ in rules.items()]

    def process_broadcast_element(self, value, ctx):
        rules = ctx.get_broadcast_state(self._rules)
        rules.put(value[0], (rules.get(value[0]) or 0) + 1)


@examples(3)
@given(some_cuts, cases(6))
def test_the_keys_of_broadcast_state(cuts, case):
    kind, elements = case
    rules = fp.MapStateDescriptor("rules", Types.ANY() if kind is None else kind, int)

    def build(env, source):
        every = stream(env, source)
        some = every.filter(lambda e: e[1] < len(elements)).broadcast(rules)
        return every.filter(lambda e: e[1] >= len(elements)).connect(some).process(Rule(rules))

    later = [(key, n + WINDOW) for key, n in elements]
    keys = by_identity(elements)
    found = runs(cuts, build, typed(kind, [*elements, *later]))
    assert [n for n, *_ in found] == sorted(n for _, n in later)
    assert {n: count for n, count, _ in found} == {n: len(keys[identity(key)]) for key, n in later}
    assert {len(shown) for *_, shown in found} == {len(keys)}


# -- columns


class Row(NamedTuple):
    d: Decimal
    f: float
    n: int


@examples(3)
@given(
    some_cuts,
    st.lists(st.tuples(st.sampled_from(DECIMALS), st.sampled_from(FLOATS)), min_size=2, max_size=9),
    st.sampled_from([("d",), ("f",), ("d", "f"), "d", "f"]),
    st.booleans(),
)
def test_keys_that_are_columns(cuts, keys, by, columnar):
    rows = [Row(d, f, n) for n, (d, f) in enumerate(keys)]

    def running(env, source):
        return stream_of(env, source).key_by(by).agg(count=fp.Count(), last=fp.Max("n"))

    def windows(env, source):
        keyed = stream_of(env, source).key_by(by).window(fp.TumblingEventTimeWindows.of(WINDOW))
        return keyed.agg(count=fp.Count(), last=fp.Max("n"))

    def sessions(env, source):
        keyed = stream_of(env, source).key_by(by).window(fp.EventTimeSessionWindows.with_gap(WINDOW))
        return keyed.agg(count=fp.Count(), last=fp.Max("n"))

    def stream_of(env, source):
        times = fp.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda e, _: e.n)
        return env.from_source(source, times, "in")

    def found(build):
        source = TestSource(rows, type=Row, columnar=columnar, batch_rows=4)
        return runs(cuts, lambda env, s: build(env, s).map(lambda r: (r.last, r.count, shown(r[:-2]))), source)

    groups = defaultdict(list)
    for row in rows:
        groups[identity(tuple(getattr(row, name) for name in by))].append(row.n)
    assert {n: count for n, count, _ in found(running)} == {n: at for g in groups.values() for at, n in enumerate(g, 1)}
    assert {n: count for n, count, _ in found(windows)} == {g[-1]: len(g) for g in groups.values()}
    assert {n: count for n, count, _ in found(sessions)} == {g[-1]: len(g) for g in groups.values()}
