"""Functions that are expressions are computed over columns exactly as in Python; others are not."""

import functools
import logging
import math
import pickle
import random
import time
from dataclasses import MISSING, dataclass, fields
from typing import NamedTuple

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import forkpoint as fp
from example_counts import examples
from forkpoint.driver.start.records import plan_of
from forkpoint.graph.compile import compile_graph
from forkpoint.runtime.exchange.batch import EMPTY_LONGS, Batch
from forkpoint.runtime.expressions import functions
from forkpoint.runtime.expressions.functions import column_condition, column_map, condition, mapped, text_of
from forkpoint.runtime.expressions.reducers import how_reduced
from forkpoint.testing import Eof, Pause, TestSource, run_local
from forkpoint.types import dumps, type_of


class Row(NamedTuple):
    a: int
    b: int
    f: float
    g: float
    s: str
    u: str
    t: bool
    o: int | None


@dataclass(frozen=True)
class Pair:
    n: int
    s: str


class Wide(msgspec.Struct, frozen=True):
    n: int
    f: float


ROWS = type_of(Row)
LONGS = [0, 1, -1, 2, 3, -7, 10, 2**31, 2**53, 2**53 + 1, -(2**53) - 1, 2**62, 2**63 - 1, -(2**63)]
FLOATS = [0.0, -0.0, 1.0, -1.5, 2.5, 3.0, 1e300, -1e300, 2.0**53, 1e-320, math.inf, -math.inf, math.nan]
rows = st.lists(
    st.builds(
        Row,
        *[st.one_of(st.integers(-5, 5), st.sampled_from(LONGS))] * 2,
        *[st.one_of(st.floats(-10, 10), st.sampled_from(FLOATS))] * 2,
        *[st.sampled_from(["", "a", "ab", "b", "é", "日本", "a\0", "😀"])] * 2,
        st.booleans(),
        st.one_of(st.none(), st.integers(-2, 2)),
    ),
    min_size=1,
    max_size=6,
)


def helper(x, y=2):
    if x > y:
        return x - y
    return x + y


def _binary(operators, of, other=None):
    return st.tuples(of, st.sampled_from(operators), of if other is None else other).map(
        lambda found: f"({found[0]} {found[1]} {found[2]})"
    )


def bools_of(of):
    return _binary(["<", "<=", ">", ">=", "==", "!="], of)


ints = st.recursive(
    st.sampled_from(["r.a", "r.b", "r[0]", "r.o", "K", "3", "0", "-2", "len(r.s)", "r.t", str(2**62)]),
    lambda of: st.one_of(
        _binary(["+", "-", "*", "//", "%", "&", "|", "^"], of),
        of.map(lambda x: f"(-{x})"),
        of.map(lambda x: f"abs({x})"),
        of.map(lambda x: f"helper({x})"),
        of.map(lambda x: f"({x} >> 2)"),
        of.map(lambda x: f"int(bool({x}))"),
        st.tuples(of, of).map("min({0[0]}, {0[1]})".format),
        st.tuples(bools_of(of), of, of).map("({0[1]} if {0[0]} else {0[2]})".format),
    ),
    max_leaves=5,
)
floats = st.recursive(
    st.one_of(st.sampled_from(["r.f", "r.g", "0.5", "-3.0"]), ints.map(lambda x: f"float({x})")),
    lambda of: st.one_of(
        _binary(["+", "-", "*", "/", "//", "%"], of),
        _binary(["+", "*", "/", "%"], of, ints),
        _binary(["/"], ints),
        st.tuples(bools_of(of), of, of).map("({0[1]} if {0[0]} else {0[2]})".format),
    ),
    max_leaves=4,
)
texts = st.recursive(
    st.one_of(st.sampled_from(["r.s", "r.u", "'a'", "''"]), ints.map(lambda x: f"str({x})")),
    lambda of: _binary(["+"], of),
    max_leaves=3,
)


bools = st.recursive(
    st.one_of(
        *(bools_of(of) for of in (ints, floats, texts)),
        _binary(["<", "==", ">="], ints, floats),
        st.sampled_from(
            ["r.t", "r.o is None", "r.o is not None", "r.a in (1, 2)", "'a' in r.s", "r.s.startswith('a')", "r.u.endswith('b')"]
        ),
        st.sampled_from(["r.a in {1, 2, -1}", "r.s not in {'a', ''}", "0 < r.a <= 3", "r.u in NAMES", "(r.a, r.s) == (1, r.u)"]),
    ),
    lambda of: st.one_of(_binary(["and", "or", "==", "&"], of), of.map(lambda x: f"(not {x})")),
    max_leaves=3,
)
RESULTS = {
    int: ints,
    float: floats,
    str: texts,
    bool: bools,
    tuple[int, str]: st.tuples(ints, texts).map("({0[0]}, {0[1]})".format),
    Pair: st.tuples(ints, texts).map("Pair({0[0]}, s={0[1]})".format),
    Wide: st.tuples(ints, floats).map("Wide({0[0]}, {0[1]})".format),
    Row: st.tuples(ints, bools).map("r._replace(b={0[0]}, t={0[1]})".format),
}
programs = st.one_of(*(st.tuples(st.just(of), results) for of, results in RESULTS.items()))


def function(text):
    scope = {"K": 7, "NAMES": frozenset({"a", "é"}), "helper": helper, "Pair": Pair, "Wide": Wide}
    exec(f"def found(r):\n    c = {text}\n    return c", scope)  # a statement, too
    return scope["found"]


def batch_of(elements, type=ROWS):
    table = pa.RecordBatch.from_arrays(type.to_columns(elements), schema=type.arrow_schema)
    return Batch(len(elements), 0, 0, EMPTY_LONGS, table=table, type=type)


def in_python(fn, elements, type):
    """The results as bytes, which differ for 1, 1.0 and True, and for 0.0 and -0.0; None if some call fails."""
    try:
        return [type.encode(type.accept(fn(element))) for element in elements]
    except Exception:
        return None


def told_of(find, fn, *types):
    return text_of(fn, lambda: find(fn, *types))


@pytest.fixture(scope="module", autouse=True)
def _without_sample():
    """The sample would hide differences."""
    before, functions._SAMPLE = functions._SAMPLE, 0
    yield
    functions._SAMPLE = before


@examples(150)
@given(programs, rows)
def test_results_are_those_of_python(program, elements):
    """A chunk for which Python raises, or for which columns might differ, is left to Python."""
    of, text = program
    fn, output = function(text), type_of(of)
    found = column_map("m", fn, ROWS, output)
    if found is None:
        return  # types that depend on the path, or more conditions than are followed
    columns = found.columns(batch_of(elements), 1)
    assert found.usable, text
    if columns is not None:
        assert [output.encode(each) for each in output.from_columns(columns)] == in_python(fn, elements, output), text
    kept = column_condition("c", fn, ROWS) if of in (int, float, str, bool) else None
    mask = None if kept is None else kept.mask(batch_of(elements), 1)
    assert kept is None or kept.usable, text
    if mask is not None:
        assert mask.tolist() == [bool(fn(element)) for element in elements], text


# -- what stays in Python ----------------------------------------------------------------------------------------------

SEEN = []
COUNT = 0
RATE = 908
TABLE = {1: 2}


def counts(r):
    global COUNT
    COUNT += 1
    return r.a


def outer_counter():
    seen = 0

    def count(r):
        nonlocal seen
        seen += 1
        return r.a

    return count


def remembers(r, seen=[]):  # noqa: B006
    seen.append(r)
    return r.a


def several(r):
    yield r.a


def loops(r):
    found = 0
    for _ in range(3):
        found += r.a
    return found


def tries(r):
    try:
        return r.a // r.b
    except ZeroDivisionError:
        return 0


def random_call(r):
    return r.a + random.randint(1, 2)


def logs(r):
    logging.getLogger("x").info("seen")
    return r.a


def helped(r):
    return counts(r)


def unused(r):
    r.a // r.b
    return r.a


class Keeps:
    def __init__(self):
        self.seen, self.rate = 0, 3

    def count(self, r):
        self.seen += 1
        return r.a

    def times(self, r):
        return r.a * self.rate

    def __call__(self, r):
        return r.a


@dataclass(frozen=True)
class Checked:
    n: int

    def __post_init__(self):
        SEEN.append(self.n)


class Doubled(NamedTuple):
    n: int

    @property
    def twice(self):
        SEEN.append(self)
        return self.n * 2


class Late(NamedTuple):
    n: int


class Shadowed(Late):
    @property
    def n(self):
        SEEN.append(self)
        return 1


STAYS = {
    "property for a field": (lambda r: Shadowed(r.a).n, "calls Shadowed, which is not known"),
    "print": (lambda r: print(r) or r.a, "calls print, which is not known"),
    "append": (lambda r: SEEN.append(r) or r.a, "reads SEEN.append, which can change"),
    "global": (counts, "assigns a global"),
    "nonlocal": (outer_counter(), "assigns a variable of an outer function"),
    "helper": (helped, "calls counts, which assigns a global"),
    "mutable default": (remembers, "has a default value that can change"),
    "random": (random_call, "calls random.randint, which is not known"),
    "time": (lambda r: int(time.time()), "calls time.time, which is not known"),
    "logging": (logs, "calls logging.getLogger, which calls isinstance, which is not known"),
    "math": (lambda r: int(math.sin(r.f)), "calls math.sin, which is not known"),
    "generator": (several, "is a generator"),
    "loop": (loops, "has a loop"),
    "try": (tries, "handles errors"),
    "partial": (functools.partial(helper, y=3), "is not a function written in Python, but a partial"),
    "callable": (Keeps(), "is not a function written in Python, but a Keeps"),
    "state of self": (Keeps().count, "sets an attribute"),
    "dict": (lambda r: TABLE[r.a], "reads TABLE, which can change"),
    "list": (lambda r: len([r.a]), "makes a list"),
    "f-string": (lambda r: len(f"{r.a}"), "formats a text"),
    "is": (lambda r: int(r.t is True), "asks with `is` for something other than None"),
    "isinstance": (lambda r: int(isinstance(r.a, int)), "calls isinstance, which is not known"),
    "post init": (lambda r: Checked(r.a).n, "calls Checked, which is not known"),
    "property": (lambda r: Doubled(r.a).twice, "uses .twice, which is not a field"),
    "unused failure": (unused, "computes a // b, but may not return it"),
    "upper": (lambda r: len(r.s.upper()), "uses .upper of s"),
    "text in a constant": (lambda r: int(r.s in "abc"), "does more with an element than an expression"),
    "invert": (lambda r: ~r.a, "does more with an element than an expression"),
    "hash": (lambda r: hash(r.a), "calls hash, which is not known"),
    "power": (lambda r: r.a**2, "computes a power"),
    "big": (lambda r: r.a + 2**64, "computes with 18446744073709551616"),
    "float for int": (lambda r: r.f, "returns f, which is no LONG"),
    "other types": (lambda r: r.a if r.t else r.f, "returns a or f, of different types"),
}


@pytest.mark.parametrize(("fn", "why"), STAYS.values(), ids=STAYS)
def test_a_function_that_does_more_stays_in_python(fn, why, capsys):
    """It is not even tried: nothing has happened afterwards."""
    assert told_of(mapped, fn, ROWS, type_of(int)) == f"in Python: {why}"
    assert (SEEN, COUNT, capsys.readouterr().out) == ([], 0, "")


def test_rows_without_classes():
    """As PyFlink's programs have them: by position, by name, and None in any field."""
    of = fp.Types.ROW_NAMED(["a", "s", "count"], [fp.Types.LONG(), fp.Types.STRING(), fp.Types.LONG()])
    elements = [fp.Row(a=n, s=f"s{n}", count=n * 2) for n in range(5)]
    fns = [
        lambda r: fp.Row(r[0] + 1, r["s"], r[2]),
        lambda r: fp.Row(a=r.a * 2, s=r.s + "!", count=r[-1]),
        lambda r: r if r.a > 2 else fp.Row(0, "", r[0]),
        lambda r: r,
    ]
    for fn in fns[:2]:
        found = column_map("rows", fn, of, of)
        columns = found.columns(batch_of(elements, of), 1)
        assert of.from_columns(columns) == [of.accept(fn(each)) for each in elements]
        assert found.columns(batch_of([*elements, fp.Row(None, "s", 1)], of), 1) is None
    said = [told_of(mapped, fn, of, of) for fn in (*fns[2:], lambda r: fp.Row(s=r.s, a=r.a, count=1))]
    assert said == [
        "in Python: returns objects of different classes",
        "over columns: Row(a, s, count)",
        f"in Python: returns no {of!r}",
    ]


class Event(NamedTuple):
    kind: int
    pair: Pair | None
    row: Row


def test_a_record_within_an_element_is_passed_on_as_columns():
    """Where it is None, Python computes, which refuses it as before; only a record of the declared type is passed on."""
    row = Row(1, 2, 0.5, -0.5, "s", "u", True, None)
    events = [Event(1, Pair(7, "a"), row), Event(2, Pair(8, ""), row._replace(o=3))]
    elements = type_of(Event)
    for select, of, expected in (
        (lambda event: event.pair, Pair, [Pair(7, "a"), Pair(8, "")]),
        (lambda event: event.row, Row, [row, row._replace(o=3)]),
    ):
        found = column_map("op", select, elements, type_of(of))
        batch = batch_of(events, elements)
        assert type_of(of).from_columns(found.columns(batch, 1)) == expected
        cut = batch.slice(1, 2)
        assert type_of(of).from_columns(found.columns(cut, 1)) == expected[1:]
    found = column_map("op", lambda event: event.pair, elements, type_of(Pair))
    assert found.columns(batch_of([events[0]._replace(pair=None)], elements), 1) is None
    assert found.usable
    assert column_map("op", lambda event: event.pair, elements, type_of(Row)) is None
    assert column_map("op", lambda event: event.pair, elements, type_of(Wide)) is None


def test_how_functions_run_in_words():
    told = {
        "a * 908 // 1000": lambda r: r.a * RATE // 1000,
        "a * 3": Keeps().times,
        "a - 2 if a > 2 else a + 2": lambda r: helper(r.a),
        "(a + b) * (a - (b - 1)) % -b": lambda r: (r.a + r.b) * (r.a - (r.b - 1)) % -r.b,
        "(a if s != '' else len(u)) if t else len(u)": lambda r: r.a if r.t and r.s else len(r.u),
    }
    assert {told_of(mapped, fn, ROWS, type_of(int)) for fn in told.values()} == {f"over columns: {t}" for t in told}
    assert told_of(mapped, lambda r: Pair(r.a, r.s + "!"), ROWS, type_of(Pair)) == "over columns: Pair(a, s + '!')"
    secret = "from outside"
    assert told_of(condition, lambda r: r.s == secret or r.u == "a", ROWS) == "over columns: s == … or u == 'a'"
    assert told_of(condition, lambda r: r.t and not r.a, ROWS) == "over columns: t and not a != 0"
    assert told_of(mapped, lambda r: (r.a,), None, type_of(tuple[int])) == ("in Python: the type of its elements is not declared")
    assert told_of(mapped, lambda r: r.a, ROWS, None) == "in Python: its output type is not declared"


# -- in jobs -----------------------------------------------------------------------------------------------------------


class Sale(NamedTuple):
    item: int
    price: int


class Cents(NamedTuple):
    item: int
    euros: int


def prices(env, fn, over_columns=True):
    env.configure({"execution.functions-over-columns": over_columns})
    numbers = env.from_source(fp.CounterSource(60, per_epoch=20), fp.WatermarkStrategy.no_watermarks(), "numbers")
    sales = numbers.map(lambda n: Sale(n % 7, n * 100), Sale).uid("sales")
    return sales.filter(lambda sale: sale.price > 300 and sale.item != 2).map(fn, Cents).uid("cents")


class Euros(fp.MapFunction):
    def open(self, runtime_context):
        self.rate = 908

    def map(self, sale):
        return Cents(sale.item, sale.price * self.rate // 1000)


def test_a_job_has_the_same_results_with_and_without(monkeypatch):
    computed = []
    original = functions.OverColumns.columns

    def columns(self, batch, epoch):
        found = original(self, batch, epoch)
        computed.append((self.uid, found is not None))
        return found

    monkeypatch.setattr(functions.OverColumns, "columns", columns)

    def run(fn, **options):
        return run_local(lambda env: {"out": prices(env, fn, **options)}).outputs["out"]

    expected = run(Euros(), over_columns=False)
    assert computed == []
    assert run(Euros()) == run(lambda sale: Cents(sale.item, sale.price * 908 // 1000)) == expected
    assert all(type(each) is Cents for each in run(Euros()))
    assert {uid for uid, _ in computed} == {"sales", "filter", "cents"}
    assert all(over_columns for _, over_columns in computed)


def test_it_computes_in_python_once_columns_differ(caplog, monkeypatch):
    """A global that is assigned while the job runs, and a kernel that is wrong."""
    monkeypatch.setattr(functions, "_SAMPLE", 16)
    fn = lambda r: r.a * RATE  # noqa: E731
    found = column_map("priced", fn, ROWS, type_of(int))
    batch = batch_of([Row(1, 2, 0.5, 0.5, "", "", True, None)])
    assert found.columns(batch, 1)[0].to_pylist() == [908]
    monkeypatch.setitem(globals(), "RATE", 2)
    assert found.columns(batch, 2) is None
    assert "operator 'priced' computes in Python from here on, not over columns: a name that it reads" in caplog.text
    monkeypatch.setitem(globals(), "RATE", 908)
    assert found.columns(batch, 3) is None  # for good
    wrong = column_map("wrong", lambda r: r.a - r.b, ROWS, type_of(int))
    monkeypatch.setitem(functions.Evaluation.value.__globals__["_PLAIN"], "-", lambda a, b: a + b)
    assert wrong.columns(batch, 1) is None
    assert "operator 'wrong' computes in Python from here on" in caplog.text


def test_a_pickled_function_is_translated_alike():
    """As tasks get it: by value, with its globals, its closure and its classes."""

    @dataclass
    class Local:
        n: int
        s: str

    factor, local = 3, type_of(Local)
    fields(Local)[0].default_factory = type(MISSING)()  # as it arrives by value
    assert "over columns" in told_of(mapped, lambda r: Local(s=r.s, n=r.a), ROWS, local)
    for fn in (lambda r: Pair(r.a * factor, r.s), lambda r: Pair(helper(r.a) * RATE, s=r.s)):
        sent = pickle.loads(dumps(fn))
        assert told_of(mapped, sent, ROWS, type_of(Pair)) == told_of(mapped, fn, ROWS, type_of(Pair))
        assert "over columns" in told_of(mapped, sent, ROWS, type_of(Pair))


def test_the_plan_says_how_functions_run():
    def told(over_columns):
        env = fp.StreamExecutionEnvironment.get_execution_environment()
        sales = prices(env, lambda sale: Cents(sale.item, sale.price // 2))
        ends = [sales.map(lambda sale: print(sale), Cents).sink_to(fp.DiscardSink())]
        assert ends
        graph = compile_graph(env.transformations, max_parallelism=4, require_uids=False, over_columns=over_columns).graph
        return [each.properties["runs"] for each in plan_of(graph).operators if each.properties]

    assert told(True) == [
        "over columns: Sale(value % 7, value * 100)",
        "over columns: price > 300 and item != 2",
        "over columns: Cents(item, price // 2)",
        "in Python: calls print, which is not known",
    ]
    assert told(False) == []


# -- keys and timestamps -----------------------------------------------------------------------------------------------


class Visit(NamedTuple):
    user: str
    page: int
    s: int


VISITS = [Visit(f"u{n % 3}", n % 5, n * 7 % 40) for n in range(60)]


class Pages(fp.KeyedProcessFunction):
    seen = fp.ValueStateDescriptor("seen", int)

    def process_element(self, visit, ctx):
        self.seen.update((self.seen.value() or 0) + 1)
        yield ctx.get_current_key(), self.seen.value(), ctx.timestamp()


KEYS = {
    "int": (lambda visit: visit.page % 2, int),
    "text": (lambda visit: visit.user + "!", str),
    "condition": (lambda visit: visit.page > 2, bool),
    "any": (lambda visit: visit.page % 2, None),
    "tuple": (lambda visit: (visit.user, visit.page // 2), None),
    "typed tuple": (lambda visit: (visit.user, visit.page // 2), tuple[str, int]),
    "float": (lambda visit: visit.page / 2, float),
}


@pytest.mark.parametrize(("selector", "of"), KEYS.values(), ids=KEYS)
def test_keys_and_timestamps_are_those_of_python(selector, of, monkeypatch, tmp_path):
    """Also as they are saved: a savepoint of one run goes on in the other."""
    computed = set()
    original = functions.OverColumns.columns

    def columns(self, batch, epoch):
        found = original(self, batch, epoch)
        computed.add((self.uid, found is not None))
        return found

    monkeypatch.setattr(functions.OverColumns, "columns", columns)

    def run(over_columns, elements, **options):
        def build(env, source):
            env.configure({"execution.functions-over-columns": over_columns})
            strategy = fp.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda visit, _: visit.s * 1000)
            visits = env.from_source(source, strategy, "visits").uid("visits")
            return {"out": visits.key_by(selector, of).process(Pages(), fp.Types.ANY()).uid("pages")}

        source = TestSource(elements, type=Visit, columnar=True)
        return run_local(build, source, state_root=tmp_path, **options)

    first, second = [*VISITS[:30], Eof(savepoint=True)], [*VISITS[:30], Eof(savepoint=True), *VISITS[30:]]
    plain = run(False, first, job_name="plain")
    assert not computed
    fast = run(True, first, job_name="fast")
    assert computed == {("key_by", True), ("visits", True)}
    assert fast.output == plain.output
    ends = [
        run(over_columns, second, job_name=f"{name}-{over_columns}", restore=savepoint)
        for name, savepoint in (("of-plain", plain.savepoint), ("of-fast", fast.savepoint))
        for over_columns in (True, False)
    ]
    assert all(end.output == ends[0].output for end in ends)
    assert len(ends[0].output) == 30


def test_aggregates_by_a_computed_key_are_over_columns():
    """Of windows, too: the key is a column that they group by."""

    def build(env, source):
        strategy = fp.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda visit, _: visit.s * 1000)
        keyed = env.from_source(source, strategy, "visits").key_by(lambda visit: visit.page % 2 == 0, bool)
        windows = keyed.window(fp.TumblingEventTimeWindows.of(10_000))
        return {"n": keyed.agg(n=fp.Count()), "of_windows": windows.agg(start=fp.WindowStart(), n=fp.Count())}

    def run(over_columns):
        source = TestSource(VISITS, type=Visit, columnar=True)
        found = run_local(build, source, options={"over_columns": over_columns}).outputs
        return found["n"], found["of_windows"]

    assert run(True) == run(False)


# -- reducers ----------------------------------------------------------------------------------------------------------


class Total(NamedTuple):
    key: int
    n: int
    low: int
    high: str
    f: float
    o: int | None


class AsFunction(fp.ReduceFunction):
    def reduce(self, a, b):
        return a._replace(n=a.n + b.n)


REDUCERS = {
    "sum": lambda a, b: Total(a.key, a.n + b.n, min(a.low, b.low), max(b.high, a.high), a.f + b.f, b.o),
    "function": AsFunction(),
    "last": lambda a, b: b,
    "first": lambda a, b: a,
    "extremes": lambda a, b: a._replace(low=a.low if a.low < b.low else b.low, f=b.f if b.f > a.f else a.f),
    "first with the least": lambda a, b: b if b.low < a.low else a,
    "first with the greatest": lambda a, b: a if a.high >= b.high else b,
    "optional sum": lambda a, b: a._replace(o=a.o + b.o),
}
NOT_REDUCERS = {
    "reduces with a.n + b.low": lambda a, b: a._replace(n=a.n + b.low),
    "reduces with a.n + 1": lambda a, b: a._replace(n=a.n + 1),
    "takes the second of equal elements": lambda a, b: a if a.low < b.low else b,
    "reduces with a.n - b.n": lambda a, b: a._replace(n=a.n - b.n),
    "reduces with a.high + b.high": lambda a, b: a._replace(high=a.high + b.high),
    "returns no Total(key: LONG, n: LONG, low: LONG, high: STRING, f: DOUBLE, o: Optional[LONG])": lambda a, b: (a.n, b.n),
}
totals = st.builds(
    Total,
    st.integers(0, 2),
    st.one_of(st.integers(-3, 3), st.sampled_from([2**62, -(2**62)])),
    st.integers(-3, 3),
    st.sampled_from(["", "a", "b", "é"]),
    st.sampled_from([0.0, -0.0, 1.5, -2.0, 0.1, 1e300]),
    st.one_of(st.integers(0, 3), st.integers(0, 3), st.none()),
)


@examples(12)
@given(st.lists(totals, min_size=1, max_size=12), st.integers(0, 12), st.sampled_from(list(REDUCERS)))
def test_reducers_have_the_results_and_errors_of_python(elements, cut, name):
    """Running, and of windows; an epoch goes on from the state of the one before."""

    def build(env, source):
        strategy = fp.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda total, _: total.low)
        keyed = env.from_source(source, strategy, "totals").key_by(lambda total: total.key)
        windows = keyed.window(fp.TumblingEventTimeWindows.of(3))
        return {"running": keyed.reduce(REDUCERS[name]), "windows": windows.reduce(REDUCERS[name])}

    def run(over_columns):
        items = [*elements[:cut], Pause(), *elements[cut:]]
        source = TestSource(items, type=Total, columnar=True)
        try:
            found = run_local(build, source, options={"over_columns": over_columns}).outputs
        except fp.ForkpointError as error:
            return str(error).splitlines()[0]
        return [type_of(Total).encode(each) for output in ("running", "windows") for each in found[output]]

    assert run(True) == run(False)


def test_what_reducers_are_in_words():
    said = {how_reduced(fn, type_of(Total)) for fn in NOT_REDUCERS.values()}
    assert said == {f"in Python: {why}" for why in NOT_REDUCERS}
    assert all("over columns" in how_reduced(fn, type_of(Total)) for fn in REDUCERS.values())
    assert how_reduced(lambda a, b: a + b, type_of(int)) == "over columns: a + b"
