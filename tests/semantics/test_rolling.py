"""Running aggregates: over columns, by elements, and written out as reduce, they give the very same."""

from dataclasses import dataclass
from itertools import accumulate
from typing import ClassVar, NamedTuple

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from semantics_programs import mix

import forkpoint as fp
from example_counts import examples
from forkpoint.errors import TypeNotSupported
from forkpoint.testing import OperatorHarness, TestSource, run_local


class Sale(NamedTuple):
    shop: str
    count: int
    price: float
    note: str


floats = st.floats(allow_nan=False, allow_infinity=True) | st.sampled_from([0.0, -0.0, 0.1, 0.2, 1e308, -1e308])
ints = st.integers(-5, 5) | st.integers(-(2**62), 2**62)
sales = st.lists(st.builds(Sale, st.sampled_from("ab"), ints, floats, st.sampled_from(["x", "y"])), max_size=30)


def run(elements, aggregate, *, columnar, rows=None, parallelism=1):
    def build(env, source):
        stream = env.from_source(source, fp.WatermarkStrategy.no_watermarks(), "in")
        return aggregate(stream.key_by("shop"))

    source = TestSource(elements, type=Sale, columnar=columnar, batch_rows=7)
    return run_local(build, source, epochs=rows, parallelism=parallelism).by_key(lambda s: s.shop)


def exactly(found):
    """Floats by their bits: 0.0 is not -0.0."""
    return {key: [tuple(map(repr, sale)) for sale in values] for key, values in found.items()}


@examples(8)
@given(
    sales,
    st.sampled_from(["sum", "min", "max"]),
    st.sampled_from(["count", "price"]),
    st.integers(1, 31),
    st.integers(1, 3),
)
@example([Sale("a", 1, -0.0, "x")], "sum", "price", 1, 1)
@example([Sale("a", 1, 0.0, "x"), Sale("a", 1, -0.0, "x")], "min", "price", 1, 1)
@example([Sale("a", 1, -0.0, "x"), Sale("a", 1, 0.0, "x")], "max", "price", 2, 1)
def test_columns_elements_and_reduce_agree(elements, kind, field, rows, parallelism):
    if kind == "sum" and field == "count":
        elements = [e._replace(count=e.count % 1000) for e in elements]
    if kind == "sum":
        elements = [e._replace(price=e.price if abs(e.price) < 1e300 else 1.5) for e in elements]
    function = {"sum": lambda a, b: a + b, "min": min, "max": max}[kind]

    def reduce(a, b):
        return a._replace(**{field: function(getattr(a, field), getattr(b, field))})

    rolled = exactly(run(elements, lambda s: getattr(s, kind)(field), columnar=True, rows=rows, parallelism=parallelism))
    assert rolled == exactly(run(elements, lambda s: getattr(s, kind)(field), columnar=False, rows=rows))
    assert rolled == exactly(run(elements, lambda s: s.reduce(reduce), columnar=True))
    expected = {}
    for sale in elements:
        expected.setdefault(sale.shop, []).append(sale)
    assert rolled == exactly({shop: list(accumulate(values, reduce)) for shop, values in expected.items()})


def test_long_keys_and_many_keys_agree():
    """Segments above and below the length at which each is worked through by itself."""
    elements = [Sale("a" if i % 3 else f"k{i % 40}", i, (i * 7919 % 1009) / 7, "n") for i in range(1500)]
    for kind in ("sum", "min", "max"):
        columns = run(elements, lambda s, kind=kind: getattr(s, kind)("price"), columnar=True, rows=900)
        objects = run(elements, lambda s, kind=kind: getattr(s, kind)("price"), columnar=False, parallelism=2)
        assert exactly(columns) == exactly(objects)


@pytest.mark.parametrize("kind", ["min", "max"])
def test_what_is_not_a_number_is_treated_alike(kind):
    nan = float("nan")
    elements = [Sale("a", 0, price, "") for price in (1.0, nan, 2.0, 0.5, nan, 3.0)]
    columns = run(elements, lambda s: getattr(s, kind)("price"), columnar=True, rows=2)
    objects = run(elements, lambda s: getattr(s, kind)("price"), columnar=False, rows=2)
    assert exactly(columns) == exactly(objects)


def test_a_sum_beyond_64_bits_does_not_wrap():
    elements = [Sale("a", 2**62, 0.0, ""), Sale("a", 2**62, 0.0, "")]
    with pytest.raises(TypeNotSupported, match=f"{2**63} is not a value of LONG"):
        run(elements, lambda s: s.sum("count"), columnar=True)


@examples(8)
@given(sales, st.integers(1, 31))
def test_min_by_and_max_by_keep_the_first_of_equals(elements, rows):
    for kind, better in (("min_by", lambda a, b: b.count < a.count), ("max_by", lambda a, b: b.count > a.count)):
        found = run(elements, lambda s, kind=kind: getattr(s, kind)("count"), columnar=True, rows=rows)
        expected = {}
        for sale in elements:
            expected.setdefault(sale.shop, []).append(sale)
        assert exactly(found) == exactly(
            {k: list(accumulate(v, lambda a, b, better=better: b if better(a, b) else a)) for k, v in expected.items()}
        )


def test_they_keep_the_first_of_equals_element_by_element():
    """Elements without a type are never columns."""
    elements = [("a", 1, "x"), ("a", 1, "y"), ("a", 0, "z"), ("a", 2, "u"), ("a", 2, "v"), ("a", 0, "w")]

    def build(env, source):
        keyed = env.from_source(source, fp.WatermarkStrategy.no_watermarks(), "in").map(lambda e: e).key_by(lambda e: e[0], str)
        return {"min": keyed.min_by(1), "max": keyed.max_by(1)}

    found = run_local(build, elements, epochs=2).outputs
    assert [e[2] for e in found["min"]] == ["x", "x", "z", "z", "z", "z"]
    assert [e[2] for e in found["max"]] == ["x", "x", "x", "u", "u", "u"]


@dataclass(frozen=True)
class Point:
    name: str
    x: int


class Item(msgspec.Struct, frozen=True):
    name: str
    x: int


class Pair(NamedTuple):
    name: str
    x: int


@pytest.mark.parametrize("field", ["x", 1, -1])
@pytest.mark.parametrize("kind", [Point, Item, Pair])
def test_fields_by_name_index_and_from_the_end(kind, field):
    with OperatorHarness(lambda s: s.key_by("name").sum(field), input_type=kind) as harness:
        harness.process_elements((kind("a", x), None) for x in (1, 2, 3))
        assert harness.output == [kind("a", 1), kind("a", 3), kind("a", 6)]


@pytest.mark.parametrize("field", [1, -1])
def test_fields_of_tuples(field):
    with OperatorHarness(lambda s: s.key_by(0).max(field), input_type=tuple[str, int]) as harness:
        harness.process_elements(((("a", x)), None) for x in (1, 3, 2))
        assert harness.output == [("a", 1), ("a", 3), ("a", 3)]


def test_numbers_themselves_are_aggregated_at_position_0():
    with OperatorHarness(lambda s: s.key_by(lambda x: x % 2, int).sum(), input_type=int) as harness:
        harness.process_elements((x, None) for x in (1, 2, 3, 4))
        assert sorted(harness.output) == [1, 2, 4, 6]


def running(element, state):
    return (element.note, mix(state or 0, element.count)), mix(state or 0, element.count) if element.count != 3 else None


def running_flat(element, state):
    total = mix(state or 0, element.count)
    return [(element.note, total)] * (element.count % 3) or None, total if element.count != 3 else None


class Written(fp.KeyedProcessFunction):
    """The same two, written out."""

    state = fp.ValueStateDescriptor("state", int)

    def __init__(self, fn, flat):
        self.fn, self.flat = fn, flat

    def process_element(self, element, ctx):
        out, state = self.fn(element, self.state.value())
        self.state.update(state)
        return (out or ()) if self.flat else (out,)


@examples(10)
@given(
    sales.map(lambda s: [e._replace(count=e.count % 7) for e in s]),
    st.integers(1, 31),
    st.integers(1, 3),
    st.booleans(),
)
def test_functions_with_state_do_what_they_do_written_out(elements, rows, parallelism, flat):
    def build(env, source):
        keyed = env.from_source(source, fp.WatermarkStrategy.no_watermarks(), "in").key_by("shop")
        if flat:
            return {
                "short": keyed.flat_map_with_state(running_flat, int),
                "long": keyed.process(Written(running_flat, True)),
            }
        return {"short": keyed.map_with_state(running, int), "long": keyed.process(Written(running, False))}

    found = run_local(build, TestSource(elements, type=Sale), epochs=rows, parallelism=parallelism).outputs
    assert found["short"] == found["long"]


class Longest(fp.ReduceFunction):
    closed: ClassVar = []

    def open(self, runtime_context):
        self.separator = runtime_context.get_job_parameter("separator", "+")

    def close(self):
        self.closed.append(self.separator)

    def reduce(self, value1, value2):
        return value1._replace(note=value1.note + self.separator + value2.note)


def test_a_reduce_function_is_opened_and_closed():
    Longest.closed.clear()
    with OperatorHarness(lambda s: s.key_by("shop").reduce(Longest()), input_type=Sale, parameters={"separator": "|"}) as harness:
        harness.process_elements((replace_note(n), None) for n in "abc")
        assert [s.note for s in harness.output] == ["a", "a|b", "a|b|c"]
    assert Longest.closed == ["|"]


def replace_note(note):
    return Sale("s", 0, 0.0, note)
