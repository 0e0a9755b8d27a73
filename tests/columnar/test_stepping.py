"""Keyed functions with state that are expressions are computed over columns exactly as in Python, also as they are saved."""

import pickle
import random
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import forkpoint as fp
from example_counts import examples
from forkpoint.graph.compile import compile_graph
from forkpoint.runtime.columnar import recurrences, stepping
from forkpoint.runtime.event_time.watermarks import Window
from forkpoint.runtime.exchange.batch import Batch
from forkpoint.runtime.expressions.steps import stepping_process, stepping_with_state
from forkpoint.runtime.operators.base import Epoch, TaskInfo
from forkpoint.runtime.operators.emission import ChangingOutput
from forkpoint.runtime.operators.instances import make_instance
from forkpoint.state import Changes
from forkpoint.state.dict_store import DictStore
from forkpoint.testing import Abort, Eof, Pause, TestSource, run_local
from forkpoint.types import dumps, type_of


class Row(NamedTuple):
    k: int
    a: int
    f: float
    s: str
    t: bool
    o: int | None
    w: str


class State(NamedTuple):
    n: int
    f: float
    s: str
    t: bool


@dataclass(frozen=True)
class Out:
    k: int
    n: int
    f: float
    s: str
    t: bool


ROWS = type_of(Row)
LONGS = [0, 1, -1, 2, 7, 2**31, 2**53 + 1, 2**62, 2**63 - 1, -(2**63)]
FLOATS = [0.0, -0.0, 1.0, -1.5, 2.5, 1e300, float("inf"), float("nan")]
rows = st.builds(
    Row,
    st.integers(0, 2),
    st.one_of(st.integers(-5, 5), st.integers(-5, 5), st.sampled_from(LONGS)),
    st.one_of(st.floats(-10, 10), st.sampled_from(FLOATS)),
    st.sampled_from(["", "a", "ab", "é"]),
    st.booleans(),
    st.one_of(st.integers(-2, 2), st.integers(-2, 2), st.none()),
    st.just(""),
)


def over(*operators):
    return lambda of: st.tuples(of, st.sampled_from(operators), of).map("({0[0]} {0[1]} {0[2]})".format)


def choices(of):
    return st.tuples(of, bools, of).map("({0[0]} if {0[1]} else {0[2]})".format)


plain = st.sampled_from(["r.a", "r.a", "r.o", "r.k", "3", "0", "-1", "len(r.s)"])
bools = st.sampled_from(["r.t", "n > 2", "r.a > 0", "s == r.s", "t", "f < r.f", "not t", "n", "r.s != ''", "there", "n < r.a"])
ints = st.one_of(
    plain,
    st.tuples(st.sampled_from(["n + {0}", "{0} + n", "n - {0}", "max(n, {0})", "min({0}, n)", "n"]), plain).map(
        lambda found: found[0].format(found[1])
    ),
    st.recursive(
        st.one_of(plain, st.just("n")), lambda of: st.one_of(over("+", "-", "*", "//", "%")(of), choices(of)), max_leaves=4
    ),
)
ints = st.one_of(ints, st.tuples(ints, bools).map("({0[0]} if {0[1]} else n)".format))
floats = st.one_of(
    st.sampled_from(["f + r.f", "r.f", "f", "f * 0.5 + r.f", "max(f, r.f)", "float(n)"]),
    st.recursive(
        st.sampled_from(["f", "r.f", "0.5"]), lambda of: st.one_of(over("+", "-", "*", "/")(of), choices(of)), max_leaves=3
    ),
)
texts = st.sampled_from(["s", "r.s", "'x'", "s + r.s if len(s) < 9 else r.s", "r.s if r.t else s", "str(n)"])
truths = st.sampled_from(["t", "r.t", "t or r.t", "t and r.t", "not t", "r.a > n", "t or not there", "True"])
states = st.tuples(ints, floats, texts, truths).map("State({0[0]}, {0[1]}, {0[2]}, {0[3]})".format)
outs = st.tuples(ints, floats, texts, truths).map("Out(r.k, {0[0]}, {0[1]}, {0[2]}, {0[3]})".format)
maybe = st.one_of(st.none(), st.none(), bools)


def _if(condition, text):
    return text if condition is None else f"if {condition}: {text}"


mapped = st.tuples(states, outs, st.booleans(), maybe, maybe).map(
    lambda found: "\n    ".join(
        [
            "def found(r, state):",
            "there = state is not None",
            "n, f, s, t = state or (0, 0.5, '', False)",
            f"now = {found[0]}",
            *([] if found[3] is None else [f"if {found[3]}: return ({found[1]}, state)"]),
            *([] if found[4] is None else [f"if {found[4]}: return ({found[1]}, None)"]),
            "n, f, s, t = now" if found[2] else "pass",
            f"return {found[1]}, now",
        ]
    )
)
processed = st.tuples(states, outs, outs, *[maybe] * 4, ints, st.sampled_from(["pass", "pass", "self.one.clear()"])).map(
    lambda found: "\n    ".join(
        [
            "class Found(fp.KeyedProcessFunction):",
            "one = fp.ValueStateDescriptor('one', State)",
            "two = fp.ValueStateDescriptor('two', int, 7)",
            "def process_element(self, r, ctx):",
            "    there = self.one.value() is not None",
            "    _, f, s, t = self.one.value() or State(0, 0.5, '', False)",
            "    n = self.two.value() or 0",
            "    " + _if(found[3], f"yield {found[1]}"),
            "    " + _if(found[4], f"self.two.update({found[7]})"),
            "    " + _if(found[5], f"self.one.update({found[0]})"),
            "    " + _if(found[6], found[8]),
            "    n = self.two.value()",
            "    " + _if(found[3], f"yield {found[2]}"),
        ]
    )
)


def function(text):
    scope = {"State": State, "Out": Out, "fp": fp}
    exec(text, scope)
    return scope["found"] if "found" in scope else scope["Found"]()


def instance(fn, store, over_columns, key="k"):
    env = fp.StreamExecutionEnvironment.get_execution_environment()
    keyed = env.from_collection([Row(0, 0, 0.0, "", True, 0, "")], Row).key_by(key)
    out = keyed.process(fn, Out) if isinstance(fn, fp.KeyedProcessFunction) else keyed.map_with_state(fn, State, Out)
    out.uid("op").sink_to(fp.DiscardSink())
    graph = compile_graph(env.transformations, max_parallelism=16, require_uids=False, over_columns=over_columns).graph
    return make_instance(TaskInfo(graph.by_uid["op"], 0, 1, 16, {}), store, restored=True)[0]


def batch_of(elements):
    table = pa.RecordBatch.from_arrays(ROWS.to_columns(elements), schema=ROWS.arrow_schema)
    return Batch(len(elements), 0, 0, np.arange(len(elements)) // 2, table=table, type=ROWS)


def epoch(operator, store, elements, number, one_by_one=False):
    """The outputs in order, as bytes, which differ for 0.0 and -0.0; None of an epoch that fails. Which of several errors comes
    first depends on whether outputs are taken one by one."""
    try:
        outputs = operator.run([batch_of(elements)], Epoch(number, Window(0, 0, 0), 0, one_by_one=one_by_one)).main
        values = list(map(type_of(Out).encode, outputs.values)) if outputs.size else []
    except ChangingOutput:
        return epoch(operator, store, elements, number, one_by_one=True)
    except fp.ForkpointError:
        return None
    log = operator.changes()
    store.apply(Changes(log.keys, log.values), number, number - 1)
    return list(zip(values, outputs.sequence.tolist(), strict=True)) if outputs.size else []


ways = st.sampled_from(["known", "rounds", "loops", "both"])


@contextmanager
def small_epochs(way="known"):
    """Columns for small epochs, and without the sample, which would hide differences. ``way``: known recurrences, where there are
    any, or all states in rounds, or in loops, or what a few keys have more than others in loops."""
    computed = []
    original = stepping.SteppingKernel.compute

    def compute(self, batch, epoch):
        found = original(self, batch, epoch)
        computed.append(found is not None)
        assert self.usable
        return found

    with (
        patch.object(stepping, "_WORTH", 1),
        patch.object(stepping, "sampled_keys", lambda *_: []),
        patch.object(recurrences, "_LEAST_ROWS", {"loops": 100, "both": 2}.get(way, 0)),
        patch.object(stepping.SteppingKernel, "compute", compute),
    ):
        if way == "known":
            yield computed
        else:
            with patch.object(recurrences.Recurrences, "_solve", lambda *_: False):
                yield computed


@examples(150)
@given(st.one_of(mapped, processed), st.lists(st.lists(rows, min_size=1, max_size=8), min_size=1, max_size=3), ways)
def test_results_and_states_are_those_of_python(text, epochs, way):
    """Also of an epoch that goes on from a state of the other way."""
    stores = DictStore(), DictStore(), DictStore()
    python = instance(function(text), stores[0], False)
    with small_epochs(way):
        columns = instance(function(text), stores[1], True)
        for number, elements in enumerate(epochs, 1):
            expected = epoch(python, stores[0], elements, number)
            assert epoch(columns, stores[1], elements, number) == expected, text
            switched = instance(function(text), stores[2], number % 2 == 1)
            assert epoch(switched, stores[2], elements, number) == expected, text
            saved = [list(store.scan(b"\0", b"\xff" * 9)) for store in stores]
            assert saved[1] == saved[0], text
            assert saved[2] == saved[0], text
            if expected is None:
                return


RECURRENCES = {
    "count": "n + 1",
    "sum": "r.a + n",
    "difference": "n - r.a - 1",
    "some": "n + r.a if r.t else n",
    "not some": "n if r.t else n - 1",
    "greatest": "max(n, r.a)",
    "least": "min(r.a, n)",
    "least of some": "min(r.a, n) if r.t else n",
    "first": "n if state else r.a",
    "last": "r.a",
    "last of some": "r.a if r.t else n",
    "by a bool": "n + r.a if t else n + 1",
    "of a sum": "n * 2 - r.a",
    "of another state": "n + len(s)",
}


BESIDES = {
    "pass": 0,
    "if not r.s: return (Out(r.k, n, f, s, t), state)": 3,
    "if r.f > 8: return (Out(0, n, f, s, t), None)": 3,
}


KEPT_AND_SOUGHT = " return Out(r.k, n, f, s, s.startswith('x') or r.s.endswith('x')), State(n + r.a, f, 'x', 'x' in s)"


@pytest.mark.parametrize("way", ["known", "both"])
def test_recurrences_of_new_and_old_keys(way):
    """Each with keys that have no state yet, or one of an earlier epoch, or that some elements leave alone, or remove."""
    rng = random.Random(5)
    texts = [
        f"def found(r, state):\n n, f, s, t = state or ({start}, 0.5, '', False)\n {besides}\n"
        f" now = State({n}, f + r.f, r.s, t or r.t)\n return Out(r.k, {'n' if start else 'now.n'}, now.f, now.s, now.t), now"
        for n in RECURRENCES.values()
        for besides, start in BESIDES.items()
    ]
    texts.append(f"def found(r, state):\n n, f, s, t = state or (0, 0.5, '', False)\n{KEPT_AND_SOUGHT}")
    for text in texts:
        stores = DictStore(), DictStore()
        with small_epochs(way) as computed:
            operators = instance(function(text), stores[0], False), instance(function(text), stores[1], True)
            for number in (1, 2, 3):
                keys, letters = [number, number + 1, number + 2, 9], ["", "a", "b"]
                found = [
                    Row(rng.choice(keys), rng.randint(-9, 9), rng.random() * 9, rng.choice(letters), rng.random() < 0.5, 0, "")
                    for _ in range(30)
                ]
                expected, ours = (epoch(*pair, found, number) for pair in zip(operators, stores, strict=True))
                assert ours == expected, text
                assert list(stores[1].scan(b"\0", b"\xff" * 9)) == list(stores[0].scan(b"\0", b"\xff" * 9)), text
        assert computed == [True] * 3, text


# -- what is computed, and how it is said ------------------------------------------------------------------------------


class Add(NamedTuple):
    n: int
    total: int


def add(r, state):
    n, total = state or (0, 0)
    now = Add(n + 1, total + r.a)
    return (r.k, now.n, now.total), now


def several(r, state):
    return ((r.a, r.a), (r.k, state or 0)) if r.t else None, r.a


class Latest(fp.KeyedProcessFunction):
    """Differences to the value before, without small ones."""

    last = fp.ValueStateDescriptor("last", int)
    seen = fp.ValueStateDescriptor("seen", int, 10)

    def __init__(self, least=2):
        self.least = least

    def process_element(self, r, ctx):
        last = self.last.value()
        if last is not None and abs(r.a - last) < self.least:
            return
        self.last.update(r.a)
        self.seen.update(self.seen.value() + 1)
        yield ctx.get_current_key(), r.a if last is None else r.a - last, ctx.timestamp() + self.seen.value()
        if r.t:
            yield ctx.get_current_key(), 0, 0


class Remembers(Latest):
    def process_element(self, r, ctx):
        self.seen_at = r.a
        yield r.a


class Opened(Latest):
    def open(self, runtime_context):
        self.least = 3


class Timed(Latest):
    def process_element(self, r, ctx):
        ctx.timer_service().register_event_time_timer(r.a)


class Listing(fp.KeyedProcessFunction):
    seen = fp.ListStateDescriptor("seen", int)

    def process_element(self, r, ctx):
        yield r.a


class Nested(Latest):
    pair = fp.ValueStateDescriptor("pair", tuple[int, bytes])


class Expiring(Latest):
    last = fp.ValueStateDescriptor("last", int).enable_time_to_live(fp.StateTtlConfig.new_builder(1000).build())


class Tagged(Latest):
    def process_element(self, r, ctx):
        yield LATE, r.a


class Singly(Latest):
    def process_element(self, r, ctx):
        return r.a


LATE = fp.OutputTag("late", int)
TRIPLE = tuple[int, int, int]


def prints(r, state):
    print(r)
    return r.a, state


TOLD = {
    "over columns: (k, state.n + 1 if state is not None else 1, state.total + a if state is not None else 0 + a); "
    "state = Add(state.n + 1 if state is not None else 1, state.total + a if state is not None else 0 + a)": (add, Add, TRIPLE),
    "over columns: s; state = len(s) if t": (lambda r, n: (r.s, len(r.s) if r.t else None), int, str),
    "in Python: calls print, which is not known": (prints, int, int),
    "in Python: returns no pair of an output and a state": (lambda r, n: r.a, int, int),
    "in Python: returns a, which is no DOUBLE": (lambda r, n: (r.a, r.a), float, int),
    "in Python: its output type is not declared": (lambda r, n: (r.a, n), int, None),
    "in Python: sets an attribute": (Remembers(), None, int),
    "in Python: has open()": (Opened(), None, int),
    "in Python: uses .timer_service of the context": (Timed(), None, int),
    "in Python: has a list state": (Listing(), None, int),
    "in Python: has a state with a time to live": (Expiring(), None, int),
    "in Python: has a state self.pair of tuple[LONG, BYTES], which has parts other than numbers, bools and texts": (
        Nested(),
        None,
        int,
    ),
    "in Python: reads LATE, which can change": (Tagged(), None, int),
    "in Python: returns no outputs, but something else": (Singly(), None, int),
}


def stream(keyed, fn, state, output):
    if state is None:
        return keyed.process(fn, output)
    return (keyed.flat_map_with_state if fn is several else keyed.map_with_state)(fn, state, output)


@pytest.mark.parametrize(("told", "of"), TOLD.items(), ids=range(len(TOLD)))
def test_the_plan_says_how_functions_with_state_run(told, of, capsys):
    """One that is not computed over columns is not even tried."""
    env = fp.StreamExecutionEnvironment.get_execution_environment()
    stream(env.from_collection([], Row).key_by("k"), *of).uid("op").sink_to(fp.DiscardSink())
    operator = compile_graph(env.transformations, max_parallelism=16, require_uids=False).graph.by_uid["op"]
    made = make_instance(TaskInfo(operator, 0, 1, 16, {}), DictStore(), restored=False)[0]
    assert operator.spec.how(operator) == told
    assert isinstance(made, stepping.SteppingOperator) == told.startswith("over columns")
    assert capsys.readouterr().out == ""


# -- in jobs -----------------------------------------------------------------------------------------------------------


def elements(count, keys):
    return [Row(n * 7919 % keys, n * 31 % 13, n / 3, f"s{n % 5}", n % 11 == 0, None, f"w{n % 3}") for n in range(count)]


JOBS = {
    "map": (add, Add, TRIPLE, "k"),
    "process": (Latest(), None, TRIPLE, "k"),
    "computed key": (add, Add, TRIPLE, lambda r: r.k % 4 > 1),
    "two fields": (lambda r, n: ((r.w, r.k, n or 0), r.a), int, tuple[str, int, int], ("w", "k")),
    "flat": (several, int, tuple[int, int], "k"),
}


def test_jobs_go_on_either_way(tmp_path):
    """After a death, and from a savepoint of the other way."""
    found = elements(700, 40)

    def run(over_columns, items, **options):
        def build(env, source):
            env.configure({"execution.functions-over-columns": over_columns})
            strategy = fp.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda r, _: int(r.f))
            read = env.from_source(source, strategy, "rows").uid("rows")
            return {name: stream(read.key_by(key), *of).uid(name) for name, (*of, key) in JOBS.items()}

        source = TestSource(items, type=Row, columnar=True)
        return run_local(build, source, state_root=tmp_path, **options)

    first = [*found[:300], Pause(), *found[300:450], Eof(savepoint=True)]
    second = [*first, *found[450:500], Abort(), *found[500:]]
    with small_epochs() as computed:
        plain = run(False, first, job_name="plain")
        assert computed == []
        fast = run(True, first, job_name="fast")
        assert all(computed)
        assert fast.outputs == plain.outputs
        ends = [
            run(over_columns, second, job_name=f"{before}-{over_columns}", restore=savepoint).outputs
            for before, savepoint in (("plain", plain.savepoint), ("fast", fast.savepoint))
            for over_columns in (True, False)
        ]
    assert all(ends[0].values())
    assert all(end == ends[0] for end in ends)


def test_it_computes_in_python_once_columns_differ(caplog):
    """A kernel that is wrong is found by the keys that are also computed in Python."""
    store = DictStore()
    operator = instance(function("def found(r, state):\n    return Out(r.k, r.a - 1, 0.5, '', True), state"), store, True)
    plain = operator._elements
    with (
        patch.object(stepping, "_WORTH", 1),
        patch.dict("forkpoint.runtime.expressions.kernels._PLAIN", {"-": lambda a, b: a + b}),
    ):
        first = epoch(operator, store, elements(20, 3), 1)
    assert "operator 'op' computes in Python from here on, not over columns: its results over columns are others" in caplog.text
    assert not operator._kernel.usable
    assert first == epoch(plain, DictStore(), elements(20, 3), 1)


def test_a_pickled_function_is_translated_alike():
    for fn, state, output, _ in JOBS.values():
        if isinstance(fn, fp.KeyedProcessFunction):
            assert str(stepping_process(pickle.loads(dumps(fn)), ROWS, type_of(output), type_of(int))) == str(
                stepping_process(fn, ROWS, type_of(output), type_of(int))
            )
        elif fn is add:
            sent = stepping_with_state(pickle.loads(dumps(fn)), ROWS, type_of(state), type_of(output), flat=False)
            assert str(sent) == str(stepping_with_state(fn, ROWS, type_of(state), type_of(output), flat=False))
