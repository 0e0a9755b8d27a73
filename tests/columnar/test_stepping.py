"""Keyed functions with state that are expressions are computed over columns exactly as in Python, also as they are saved."""

from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest  # noqa: F401
from hypothesis import given
from hypothesis import strategies as st

import forkpoint as fp
from example_counts import examples
from forkpoint.graph.compile import compile_graph
from forkpoint.runtime.columnar import recurrences, stepping
from forkpoint.runtime.event_time.watermarks import Window
from forkpoint.runtime.exchange.batch import Batch
from forkpoint.runtime.operators.base import Epoch, TaskInfo
from forkpoint.runtime.operators.instances import make_instance
from forkpoint.state import Changes
from forkpoint.state.dict_store import DictStore
from forkpoint.types import type_of


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
    st.recursive(st.one_of(plain, st.just("n")), lambda of: st.one_of(over("+", "-", "*", "//", "%")(of), choices(of)), max_leaves=4),
)
ints = st.one_of(ints, st.tuples(ints, bools).map("({0[0]} if {0[1]} else n)".format))
floats = st.one_of(
    st.sampled_from(["f + r.f", "r.f", "f", "f * 0.5 + r.f", "max(f, r.f)", "float(n)"]),
    st.recursive(st.sampled_from(["f", "r.f", "0.5"]), lambda of: st.one_of(over("+", "-", "*", "/")(of), choices(of)), max_leaves=3),
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


def epoch(operator, store, elements, number):
    """The outputs in order, as bytes, which differ for 0.0 and -0.0; an error as its text."""
    try:
        outputs = operator.run([batch_of(elements)], Epoch(number, Window(0, 0, 0), 0)).main
        values = list(map(type_of(Out).encode, outputs.values)) if outputs.size else []
    except fp.ForkpointError as error:
        return str(error).splitlines()[0]
    log = operator.changes()
    store.apply(Changes(log.keys, log.values), number, number - 1)
    return list(zip(values, outputs.sequence.tolist(), strict=True)) if outputs.size else []


@contextmanager
def small_epochs(*, in_rounds=False):
    """Columns for small epochs, and without the sample, which would hide differences."""
    computed = []
    original = stepping.SteppingKernel.compute

    def compute(self, batch, epoch):
        found = original(self, batch, epoch)
        computed.append(found is not None)
        assert self.usable
        return found

    with (
        patch.object(stepping, "_WORTH", 1),
        patch.object(stepping, "_SAMPLED_KEYS", 0),
        patch.object(recurrences, "_LEAST_ROWS", 0),
        patch.object(stepping.SteppingKernel, "compute", compute),
    ):
        if not in_rounds:
            yield computed
        else:
            with patch.object(recurrences.Recurrences, "_solve", lambda *_: False):
                yield computed


@examples(150)
@given(st.one_of(mapped, processed), st.lists(st.lists(rows, min_size=1, max_size=8), min_size=1, max_size=3), st.booleans())
def test_results_and_states_are_those_of_python(text, epochs, in_rounds):
    """Also of an epoch that goes on from a state of the other way."""
    stores = DictStore(), DictStore(), DictStore()
    python = instance(function(text), stores[0], False)
    with small_epochs(in_rounds=in_rounds):
        columns = instance(function(text), stores[1], True)
        for number, elements in enumerate(epochs, 1):
            expected = epoch(python, stores[0], elements, number)
            assert epoch(columns, stores[1], elements, number) == expected, text
            switched = instance(function(text), stores[2], number % 2 == 1)
            assert epoch(switched, stores[2], elements, number) == expected, text
            saved = [list(store.scan(b"\0", b"\xff" * 9)) for store in stores]
            assert saved[1] == saved[0], text
            assert saved[2] == saved[0], text
            if isinstance(expected, str):
                return
