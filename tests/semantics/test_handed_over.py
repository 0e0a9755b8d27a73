"""A value is what it was when it was handed over, and what the declared type says, wherever epochs are cut.

Each function here keeps what it hands over and goes on changing it. An element carries the text of what it was at that
moment, so whoever gets it sees whether it still is. Then it is spoilt, which others that read the stream must not see.
"""

import datetime as dt
from collections import defaultdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import forkpoint as fp
from example_counts import examples
from forkpoint.errors import TypeNotSupported
from forkpoint.testing import TestSource, run_local
from forkpoint.types import Row, Types

NO_TIME = fp.WatermarkStrategy.no_watermarks()
BY_TIME = fp.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda e, _: e["n"])
ELEMENT = Types.MAP(Types.STRING(), Types.ANY())
SIDE = fp.OutputTag("side")
TYPED_SIDE = fp.OutputTag("side", ELEMENT)
RULES = fp.MapStateDescriptor("rules", str, int)


def noted(element: dict[str, Any]) -> dict[str, Any]:
    """Note in the element what it is now."""
    element["was"] = text(element)
    return element


def text(element: Any) -> str:
    return repr(sorted((name, value) for name, value in element.items() if name != "was"))


def checked(element: dict[str, Any]) -> str:
    assert element["was"] == text(element)
    return element["was"]


def spoilt(element: dict[str, Any]) -> str:
    found = element["was"], text(element)
    element["log"].append("spoilt")
    element["n"] = -1
    return str(found)


class Keeper:
    """One element for each key, which is handed over again and again, and changed in between."""

    def __init__(self) -> None:
        self.kept: dict[Any, dict[str, Any]] = defaultdict(lambda: {"n": 0, "log": []})

    def next(self, element: Any, key: Any = None) -> dict[str, Any]:
        kept = self.kept[key]
        kept["n"] += element["n"]
        kept["log"].append(element["n"])
        return noted(kept)

    def twice(self, element: Any, key: Any = None) -> Any:
        yield self.next(element, key)
        yield self.next(element, key)
        self.kept[key]["log"].append("after")


class Mapping(Keeper, fp.MapFunction):
    def map(self, value):
        return self.next(value, value["n"] % 2)


class FlatMapping(Keeper, fp.FlatMapFunction):
    def flat_map(self, value):
        yield from self.twice(value)


class Filtering(fp.FilterFunction):
    """Changes what it let pass before."""

    def __init__(self):
        self.seen = []

    def filter(self, value):
        for element in self.seen:
            element["log"].append("late")
        self.seen.append(noted(value))
        return True


class Processing(Keeper, fp.ProcessFunction):
    def __init__(self, tag):
        super().__init__()
        self.tag = tag

    def process_element(self, value, ctx):
        for element in self.twice(value):
            yield element
            yield self.tag, element
        yield self.tag, self.next(value)


class KeyedProcessing(Keeper, fp.KeyedProcessFunction):
    def __init__(self, tag):
        super().__init__()
        self.tag = tag

    def process_element(self, value, ctx):
        ctx.timer_service().register_event_time_timer(ctx.timestamp() + 3)
        yield from self.twice(value, ctx.get_current_key())
        yield self.tag, self.kept[ctx.get_current_key()] and noted(self.kept[ctx.get_current_key()])

    def on_timer(self, timestamp, ctx):
        yield from self.twice({"n": timestamp}, ctx.get_current_key())


class CoMapping(Keeper, fp.CoMapFunction):
    def map1(self, value):
        return self.next(value, value["n"] % 2)

    def map2(self, value):
        return self.next(value, value["n"] % 2)


class CoProcessing(Keeper, fp.KeyedCoProcessFunction):
    def process_element1(self, value, ctx):
        yield from self.twice(value, ctx.get_current_key())

    def process_element2(self, value, ctx):
        yield from self.twice(value, ctx.get_current_key())


class Broadcasting(Keeper, fp.BroadcastProcessFunction):
    def process_element(self, value, ctx):
        yield from self.twice(value)

    def process_broadcast_element(self, value, ctx):
        yield from self.twice(value)


class KeyedBroadcasting(Keeper, fp.KeyedBroadcastProcessFunction):
    def process_element(self, value, ctx):
        yield from self.twice(value, ctx.get_current_key())

    def process_broadcast_element(self, value, ctx):
        yield from self.twice(value)


class OfWindow(Keeper, fp.ProcessWindowFunction):
    def process(self, key, context, elements):
        for element in elements:
            yield from self.twice(element, key)


class Applied(Keeper, fp.WindowFunction):
    def apply(self, key, window, inputs):
        for element in inputs:
            yield from self.twice(element, key)


class Summing(fp.AggregateFunction):
    """Its result is its accumulator."""

    def create_accumulator(self):
        return {"n": 0, "log": []}

    def add(self, value, accumulator):
        accumulator["n"] += value["n"]
        accumulator["log"].append(value["n"])
        return noted(accumulator)

    def get_result(self, accumulator):
        return accumulator

    def merge(self, a, b):
        return noted({"n": a["n"] + b["n"], "log": a["log"] + b["log"]})


class Joining(Keeper, fp.ProcessJoinFunction):
    def process_element(self, left, right, ctx):
        yield from self.twice(left, left["n"] % 2)
        yield from self.twice(right, left["n"] % 2)


class Asking(Keeper, fp.AsyncFunction):
    async def async_invoke(self, value):
        element = noted(value)
        return [element, element]


def in_place(a, b):
    a["n"] += b["n"]
    a["log"] = [*a["log"], b["n"]]
    return noted(a)


def with_state(element, kept):
    kept = kept or {"n": 0, "log": []}
    kept["n"] += element["n"]
    kept["log"].append(element["n"])
    return noted(kept), kept


def many_with_state(element, kept):
    first, kept = with_state(element, kept)

    def each():
        yield first
        kept["log"].append("again")
        yield noted(kept)

    return each(), kept


def keyed(stream):
    return stream.key_by(lambda e: e["n"] % 2, key_type=int)


def joined(stream, other):
    return stream.join(other).where(lambda e: e["n"] % 2).equal_to(lambda e: e["n"] % 2)


WINDOW = fp.TumblingEventTimeWindows.of(fp.Time.milliseconds(4))

OPERATORS = {
    "map": lambda s, of, tag: s.map(Mapping(), of),
    "flat_map": lambda s, of, tag: s.flat_map(FlatMapping(), of),
    "filter": lambda s, of, tag: s.filter(Filtering()),
    "process": lambda s, of, tag: s.process(Processing(tag), of),
    "keyed map": lambda s, of, tag: keyed(s).map(Mapping(), of),
    "keyed filter": lambda s, of, tag: keyed(s).filter(Filtering()),
    "keyed process": lambda s, of, tag: keyed(s).process(KeyedProcessing(tag), of),
    "reduce": lambda s, of, tag: keyed(s.map(noted, of)).reduce(in_place),
    "max_by": lambda s, of, tag: keyed(s.map(noted, of)).max_by("n"),
    "map_with_state": lambda s, of, tag: keyed(s).map_with_state(with_state, ELEMENT, of),
    "flat_map_with_state": lambda s, of, tag: keyed(s).flat_map_with_state(many_with_state, ELEMENT, of),
    "window process": lambda s, of, tag: keyed(s).window(WINDOW).process(OfWindow(), of),
    "window apply": lambda s, of, tag: keyed(s).window(WINDOW).apply(Applied(), of),
    "window reduce": lambda s, of, tag: keyed(s.map(noted, of)).window(WINDOW).reduce(in_place),
    "window aggregate": lambda s, of, tag: keyed(s).window(WINDOW).aggregate(Summing(), accumulator_type=ELEMENT, output_type=of),
    "count window": lambda s, of, tag: keyed(s.map(noted, of)).count_window(2, 1).reduce(in_place),
    "connected map": lambda s, of, tag: s.connect(s).map(CoMapping(), of),
    "connected process": lambda s, of, tag: keyed(s).connect(keyed(s)).process(CoProcessing(), of),
    "broadcast": lambda s, of, tag: s.connect(s.broadcast(RULES)).process(Broadcasting(), of),
    "keyed broadcast": lambda s, of, tag: keyed(s).connect(s.broadcast(RULES)).process(KeyedBroadcasting(), of),
    "interval join": lambda s, of, tag: (
        keyed(s).interval_join(keyed(s)).between(fp.Time.milliseconds(-2), fp.Time.milliseconds(2)).process(Joining(), of)
    ),
    "window join": lambda s, of, tag: joined(s, s).window(WINDOW).apply(lambda a, b: noted(a), of),
    "async": lambda s, of, tag: fp.AsyncDataStream.unordered_wait(s, Asking(), dt.timedelta(seconds=60), 1, of),
    "union": lambda s, of, tag: s.map(noted, of).union(s.map(noted, of)),
    "sort": lambda s, of, tag: keyed(s.map(noted, of)).sort_by_event_time(),
}


def job(operator, declared):
    def build(env, source):
        stream = env.from_source(source, BY_TIME, "source")
        tag = TYPED_SIDE if declared else SIDE
        out = OPERATORS[operator](stream, ELEMENT if declared else None, tag)
        outputs = {"spoilt": out.map(spoilt), "checked": out.map(checked), "source": stream.map(text)}
        if operator in ("process", "keyed process"):
            outputs["side"] = out.get_side_output(tag).map(checked)
        return outputs

    return build


@pytest.mark.parametrize("declared", [True, False])
@pytest.mark.parametrize("operator", OPERATORS)
@examples(2)
@given(st.lists(st.integers(0, 9), min_size=2, max_size=5).map(sorted))
def test_what_is_handed_over_does_not_change(operator, declared, numbers):
    def run(epochs):
        elements = [{"n": n, "log": [n]} for n in numbers]
        of = ELEMENT if declared else None
        return run_local(job(operator, declared), TestSource(elements, type=of), epochs=epochs, parallelism=1).outputs

    whole, cut = run(None), run(1)
    if operator == "union":  # two inputs have no order among them
        assert {name: sorted(values) for name, values in whole.items()} == {n: sorted(v) for n, v in cut.items()}
    else:
        assert whole == cut
    assert all(eval(found)[0] == eval(found)[1] for found in whole["spoilt"])
    assert sorted(eval(found)[0] for found in whole["spoilt"]) == sorted(whole["checked"])
    assert whole["source"] == [text({"n": n, "log": [n]}) for n in numbers]


# -- declared types ----------------------------------------------------------------------------------------------------


class Emitting(fp.ProcessFunction):
    def __init__(self, convert, tag=None):
        self.convert, self.tag = convert, tag

    def process_element(self, value, ctx):
        result = self.convert(value)
        yield result if self.tag is None else (self.tag, result)


class KeyedEmitting(fp.KeyedProcessFunction):
    def __init__(self, convert):
        self.convert = convert

    def process_element(self, value, ctx):
        yield self.convert(value)


class CoEmitting(fp.CoMapFunction):
    def __init__(self, convert):
        self.convert = convert

    def map1(self, value):
        return self.convert(value)

    def map2(self, value):
        return self.convert(value)


class EmittingFromWindow(fp.ProcessWindowFunction):
    def __init__(self, convert):
        self.convert = convert

    def process(self, key, context, elements):
        return [self.convert(element) for element in elements]


def side(stream, convert, of):
    tag = fp.OutputTag("misfits", of)
    return stream.process(Emitting(convert, tag)).uid("here").get_side_output(tag)


def asked(stream, convert, of):
    async def answer(value):
        return [convert(value)]

    return fp.AsyncDataStream.unordered_wait(stream, answer, dt.timedelta(seconds=60), 10, of).uid("here")


def one(stream):
    return stream.key_by(lambda v: 0, key_type=int)


EMITTING = {
    "map": lambda s, f, of: s.map(f, of).uid("here"),
    "flat_map": lambda s, f, of: s.flat_map(lambda v: [f(v)], of).uid("here"),
    "process": lambda s, f, of: s.process(Emitting(f), of).uid("here"),
    "side output": side,
    "keyed process": lambda s, f, of: one(s).process(KeyedEmitting(f), of).uid("here"),
    "map_with_state": lambda s, f, of: one(s).map_with_state(lambda v, kept: (f(v), 1), int, of).uid("here"),
    "flat_map_with_state": lambda s, f, of: one(s).flat_map_with_state(lambda v, kept: ([f(v)], 1), int, of).uid("here"),
    "window": lambda s, f, of: one(s).count_window(1).process(EmittingFromWindow(f), of).uid("here"),
    "connected": lambda s, f, of: s.connect(s.filter(lambda v: False)).map(CoEmitting(f), of).uid("here"),
    "async": asked,
}


def emitted(operator, convert, of, numbers, epochs):
    def build(env, source):
        stream = EMITTING[operator](env.from_source(source, NO_TIME, "source").uid("source"), convert, of)
        return stream.map(lambda v: (type(v).__name__, repr(v)))

    return run_local(build, TestSource(numbers, type=int), epochs=epochs, parallelism=1).output


AMOUNT = Types.ROW_NAMED(["id", "amount"], [Types.INT(), Types.DOUBLE()])
BUFFER: list[int] = [0]


def buffered(value):
    """A list that goes on changing, where the type says tuple; at first it is one."""
    if value < 3:
        return (value,)
    BUFFER[0] = value
    return BUFFER


@pytest.mark.parametrize("operator", EMITTING)
@pytest.mark.parametrize(
    ("of", "convert", "of_three"),
    [
        (AMOUNT, lambda v: (v, v), ("Row", "Row(id=3, amount=3.0)")),
        (AMOUNT, lambda v: Row(amount=v / 2, id=v), ("Row", "Row(id=3, amount=1.5)")),
        (Types.TUPLE([Types.INT()]), lambda v: [v], ("tuple", "(3,)")),
        (Types.TUPLE([Types.INT()]), buffered, ("tuple", "(3,)")),
        (Types.FLOAT(), lambda v: v / 10, ("float", "0.30000001192092896")),
        (Types.DOUBLE(), lambda v: v, ("float", "3.0")),
        (Types.DOUBLE(), lambda v: v if v > 2 else v / 1, ("float", "3.0")),
        (None, lambda v: v if v < 3 else {v}, ("set", "{3}")),
    ],
)
def test_outputs_are_what_their_type_says(operator, of, convert, of_three):
    numbers = [1, 2, 3, 4]
    whole = emitted(operator, convert, of, numbers, None)
    assert whole[2] == of_three
    assert whole == emitted(operator, convert, of, numbers, 1)
    assert len({kind for kind, _ in whole}) == 1 or of is None


@pytest.mark.parametrize("epochs", [None, 1])
@pytest.mark.parametrize("operator", EMITTING)
@pytest.mark.parametrize(
    ("of", "convert", "named"),
    [
        (Types.STRING(), lambda v: str(v) if v < 3 else v, "emits 3, which is not valid for its output type STRING"),
        (Types.INT(), lambda v: v << 39, "emits 549755813888, which is not valid for its output type INT"),
        (
            Types.TUPLE([Types.INT()]),
            lambda v: (None,),
            r"emits \(None,\), which is not valid for its output type tuple\[INT\]",
        ),
        (AMOUNT, lambda v: v, r"emits 1, which is not valid for its output type Row\("),
    ],
)
def test_misfits_are_refused_where_they_are_handed_over(operator, of, convert, named, epochs):
    with pytest.raises(TypeNotSupported, match=f"operator 'here' {named}"):
        emitted(operator, convert, of, [1, 2, 3, 4], epochs)


@pytest.mark.parametrize("epochs", [None, 1])
def test_a_sum_of_32_bits_is_rounded_at_each_step(epochs):
    def build(env, source):
        return one(env.from_source(source, NO_TIME, "source")).reduce(lambda a, b: a + b)

    found = run_local(build, TestSource([0.1] * 20, type=Types.FLOAT()), epochs=epochs, parallelism=1).output
    expected = [Types.FLOAT().accept(0.1)]
    for _ in range(19):
        expected.append(Types.FLOAT().accept(expected[-1] + expected[0]))
    assert found == expected


class Averages(fp.KeyedProcessFunction):
    state = fp.ValueStateDescriptor("state", tuple[int, float])

    def process_element(self, number, ctx):
        before = self.state.value()
        yield repr(before)
        self.state.update(sparsely_whole(number, before))


def sparsely_whole(number, before):
    """A state whose second part is an int, and not a float as its type says, for one number."""
    return (0 if before is None else before[0]) + 1, number if number == 5 else float(number)


@pytest.mark.parametrize("cuts", [[2], [2, 3, 4]])
@pytest.mark.parametrize("process", [True, False])
def test_a_state_is_what_its_type_says_also_where_only_the_next_element_sees_it(process, cuts):
    def averages(env, source):
        keyed = env.from_source(source, NO_TIME, "numbers").key_by(lambda number: "key", str)
        if process:
            return keyed.process(Averages(), str)
        return keyed.map_with_state(lambda n, before: (repr(before), sparsely_whole(n, before)), tuple[int, float], str)

    ran = run_local(averages, TestSource([1, 2, 5, 6, 7], type=int), epochs=cuts)
    assert ran.output == ["None", "(1, 1.0)", "(2, 2.0)", "(3, 5.0)", "(4, 6.0)"]


@pytest.mark.parametrize("epochs", [None, 1])
def test_a_state_that_is_none_of_its_type_is_refused_with_the_key(epochs):
    def build(env, source):
        return one(env.from_source(source, NO_TIME, "s")).map_with_state(lambda v, kept: (v, [v]), int).uid("here")

    with pytest.raises(TypeNotSupported, match=r"operator 'here', state 'state': .* of key 0 .* LONG: \[1\] is not a value"):
        run_local(build, [1, 2], epochs=epochs)


def test_the_elements_of_a_source_are_what_its_type_says():
    def build(env):
        rows = env.from_collection([(1, 2), (3, 4)], AMOUNT)
        rows.map(lambda row: repr(row)).sink_to(fp.testing.TestSink()).uid("out")

    env = fp.StreamExecutionEnvironment.get_execution_environment()
    build(env)
    assert run_local(env).outputs["out"] == ["Row(id=1, amount=2.0)", "Row(id=3, amount=4.0)"]


# -- keys --------------------------------------------------------------------------------------------------------------


class Counting(fp.KeyedProcessFunction):
    seen = fp.ValueStateDescriptor("seen", int)

    def process_element(self, value, ctx):
        self.seen.update((self.seen.value() or 0) + 1)
        key = ctx.get_current_key()
        yield repr(key), self.seen.value()
        if isinstance(key, list):
            key.append("mine")  # what a function does to the key it got is its own affair


@pytest.mark.parametrize("epochs", [None, 1])
@pytest.mark.parametrize("parallelism", [1, 3])
@pytest.mark.parametrize(
    ("key_type", "key", "of_three"),
    [
        (None, lambda e: e["tags"], "[1]"),
        (Types.LIST(Types.INT()), lambda e: e["tags"], "[1]"),
        (None, lambda e: {"b": 1, "a": e["n"] % 2} if e["n"] > 1 else {"a": 1, "b": 1}, "{'a': 1, 'b': 1}"),
        (dict[str, int], lambda e: {"b": 1, "a": e["n"] % 2} if e["n"] > 1 else {"a": 1, "b": 1}, "{'a': 1, 'b': 1}"),
        (None, lambda e: {e["n"] % 2}, "{1}"),
        (set[int], lambda e: {e["n"] % 2}, "{1}"),
        (None, lambda e: (e["tags"], Row(1)), "([1], <Row(1)>)"),
        (Types.ROW([Types.INT()]), lambda e: Row(e["n"] % 2), "Row(f0=1)"),
    ],
)
def test_keys_that_can_change_are_what_is_stored_of_them(key_type, key, of_three, parallelism, epochs):
    def build(env, source):
        return env.from_source(source, NO_TIME, "source").key_by(key, key_type).process(Counting())

    elements = [{"n": n, "tags": [n % 2]} for n in (1, 2, 3, 1)]
    found = run_local(build, TestSource(elements), epochs=epochs, parallelism=parallelism)
    by_key = found.by_key(lambda pair: pair[0])
    assert [count for _, count in by_key[of_three]] == [1, 2, 3]
    assert len(by_key) == 2


def test_a_key_that_is_none_of_its_type_is_refused():
    def build(env, source):
        return env.from_source(source, NO_TIME, "source").key_by(lambda v: v, str).process(Counting()).uid("here")

    with pytest.raises(TypeNotSupported, match=r"operator 'here': key 1 of element 1 is not valid for key type STRING"):
        run_local(build, [1, 2])


# -- values that can change, late --------------------------------------------------------------------------------------


class LateList(fp.KeyedProcessFunction):
    """Counts, with a timer for each element; its outputs are numbers at first, and then a list that it goes on changing."""

    count = fp.ValueStateDescriptor("count", int)

    def __init__(self):
        self.buffer = [0]

    def process_element(self, value, ctx):
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        ctx.timer_service().register_event_time_timer(ctx.timestamp() + 3)
        yield from self.counted(value["n"], count)

    def on_timer(self, timestamp, ctx):
        yield from self.counted(timestamp, -self.count.value())

    def counted(self, time, count):
        if time < 8:
            yield count
            return
        self.buffer[0] = count
        yield self.buffer
        self.buffer[0] = None


@pytest.mark.parametrize("parallelism", [1, 2])
@pytest.mark.parametrize("epochs", [None, 4, 1])
def test_an_epoch_that_is_done_again_counts_once(epochs, parallelism):
    def build(env, source):
        counts = keyed(env.from_source(source, BY_TIME, "source").uid("source")).process(LateList()).uid("counts")
        return counts.map(lambda v: (type(v).__name__, repr(v))).uid("shown")

    elements = [{"n": n} for n in range(20)]
    found = run_local(build, TestSource(elements), epochs=epochs, parallelism=parallelism).output
    assert [kind for kind, _ in found].count("list") == len(range(8, 20)) + len(range(5, 20))
    counts = sorted(eval(text)[0] if kind == "list" else eval(text) for kind, text in found)
    assert [count for count in counts if count > 0] == sorted(n // 2 + 1 for n in range(20))
    assert sum(count < 0 for count in counts) == 20
