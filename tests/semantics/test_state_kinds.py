"""Every kind of keyed state against plain Python containers, over epochs, with and without a time to live."""

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from semantics_programs import Mean, mix

import forkpoint as fp
from example_counts import examples
from forkpoint.testing import KeyedProcessHarness, run_local

TTL = 10
UPDATES = {"write": fp.StateTtlConfig.UpdateType.OnCreateAndWrite, "read": fp.StateTtlConfig.UpdateType.OnReadAndWrite}


class States(fp.KeyedProcessFunction):
    """Does one operation an element, and emits what it returned."""

    def __init__(self, ttl=None):
        self.ttl = ttl

    def open(self, runtime_context):
        def described(descriptor):
            return descriptor if self.ttl is None else descriptor.enable_time_to_live(self.ttl)

        c = runtime_context
        self.value = c.get_state(described(fp.ValueStateDescriptor("value", int)))
        self.items = c.get_list_state(described(fp.ListStateDescriptor("items", int)))
        self.table = c.get_map_state(described(fp.MapStateDescriptor("table", str, int)))
        self.reduced = c.get_reducing_state(described(fp.ReducingStateDescriptor("reduced", mix, int)))
        self.mean = c.get_aggregating_state(described(fp.AggregatingStateDescriptor("mean", Mean(), tuple[int, int])))

    def process_element(self, element, ctx):
        yield ctx.get_current_key(), self.apply(*element[1])

    def apply(self, kind, operation, *args):
        state = getattr(self, kind)
        result = getattr(state, operation)(*args)
        match operation:
            case "items":
                return sorted(result)
            case "keys" | "values":
                return sorted(result)
            case "get" if kind == "items":
                return list(result)
        return result


@dataclass
class Model:
    """The states of one key. Every entry is [value, stamp]; ``now`` is the clock that entries age by."""

    ttl: int | None
    on_read: bool
    now: Any = 0
    cells: dict = field(default_factory=dict)
    items: list = field(default_factory=list)
    table: dict = field(default_factory=dict)

    def alive(self, entry):
        return self.ttl is None or entry[1] + self.ttl > self.now

    def read(self, entry):
        if self.on_read:
            entry[1] = self.now
        return entry[0]

    def cell(self, name):
        entry = self.cells.get(name)
        return entry if entry is not None and self.alive(entry) else None

    def apply(self, kind, operation, *args):
        self.items = [e for e in self.items if self.alive(e)]
        self.table = {k: e for k, e in self.table.items() if self.alive(e)}
        return getattr(self, f"do_{kind}")(operation, *args)

    def do_value(self, operation, *args):
        match operation:
            case "value":
                return None if (e := self.cell("value")) is None else self.read(e)
            case "update":
                self.cells["value"] = None if args[0] is None else [args[0], self.now]
            case "clear":
                self.cells["value"] = None

    def do_items(self, operation, *args):
        match operation:
            case "get":
                return [self.read(e) for e in self.items]
            case "add":
                self.items.append([args[0], self.now])
            case "add_all":
                self.items += [[a, self.now] for a in args[0]]
            case "update":
                self.items = [[a, self.now] for a in args[0]]
            case "clear":
                self.items = []

    def do_table(self, operation, *args):
        match operation:
            case "get":
                return None if (e := self.table.get(args[0])) is None else self.read(e)
            case "contains":
                return args[0] in self.table and (self.read(self.table[args[0]]), True)[1]
            case "put":
                self.table[args[0]] = [args[1], self.now]
            case "put_all":
                self.table |= {k: [v, self.now] for k, v in args[0].items()}
            case "remove":
                self.table.pop(args[0], None)
            case "items":
                return sorted((k, self.read(e)) for k, e in self.table.items())
            case "keys":
                return sorted(k for k, e in self.table.items() if (self.read(e), True)[1])
            case "values":
                return sorted(self.read(e) for e in self.table.values())
            case "is_empty":
                return not self.table  # as in Flink, no read of its entries
            case "clear":
                self.table = {}

    def do_reduced(self, operation, *args):
        match operation:
            case "get":
                return None if (e := self.cell("reduced")) is None else self.read(e)
            case "add":
                e = self.cell("reduced")
                self.cells["reduced"] = [args[0] if e is None else mix(e[0], args[0]), self.now]
            case "clear":
                self.cells["reduced"] = None

    def do_mean(self, operation, *args):
        match operation:
            case "get":
                return None if (e := self.cell("mean")) is None else sum(self.read(e)) * 1000 // len(e[0])
            case "add":
                e = self.cell("mean")
                self.cells["mean"] = [[*([] if e is None else e[0]), args[0]], self.now]
            case "clear":
                self.cells["mean"] = None


NAMES, NUMBERS = ("", "a", "b", "ab"), (-3, 0, 1, 9)
OPERATIONS = [
    ("value", "value"),
    ("value", "update", None),
    *(("value", "update", n) for n in NUMBERS),
    ("items", "get"),
    *(("items", "add", n) for n in NUMBERS),
    *(("items", how, given) for how in ("add_all", "update") for given in ([], [1], [9, 0, 9])),
    *(("table", how, name) for how in ("get", "contains", "remove") for name in NAMES),
    *(("table", "put", name, n) for name in NAMES for n in (0, 9)),
    *(("table", "put_all", given) for given in ({}, {"a": 1}, {"b": 2, "ab": 3})),
    *(("table", how) for how in ("items", "keys", "values", "is_empty")),
    *((kind, how, *given) for kind in ("reduced", "mean") for how, *given in (("get",), ("add", 1), ("add", 5))),
    *((kind, "clear") for kind in ("value", "items", "table", "reduced", "mean")),
]
operations = st.sampled_from(OPERATIONS)
steps = st.sampled_from([0, 1, 3, TTL // 2, TTL - 1, TTL, TTL + 1])  # what expires does so at the very moment
epochs = st.lists(
    st.tuples(steps, st.lists(st.tuples(st.sampled_from("ab"), operations), min_size=2, max_size=16)),
    min_size=4,
    max_size=15,
)


@examples(20)
@given(epochs)
def test_states_are_what_plain_containers_are(epochs):
    check(epochs, None, event_time=False)


@pytest.mark.parametrize("update", ["write", "read"])
@pytest.mark.parametrize("event_time", [False, True], ids=["processing", "event"])
@examples(15)
@given(epochs=epochs)
def test_expired_entries_are_gone(update, event_time, epochs):
    check(epochs, config(update, event_time), event_time=event_time)


def config(update, event_time, visibility=fp.StateTtlConfig.StateVisibility.NeverReturnExpired):
    builder = fp.StateTtlConfig.new_builder(timedelta(milliseconds=TTL)).set_update_type(UPDATES[update])
    builder.set_state_visibility(visibility)
    return (builder.use_event_time() if event_time else builder.use_processing_time()).build()


def check(epochs, ttl, *, event_time):
    models = {k: Model(None if ttl is None else TTL, ttl is not None and ttl.updates_on_read) for k in "ab"}
    with KeyedProcessHarness(States(ttl), key=lambda e: e[0], key_type=str, parallelism=2) as harness:
        now = 0
        harness.process_watermark(now)
        for step, elements in epochs:
            now += step
            if event_time:
                harness.process_watermark(now)
            else:
                harness.set_processing_time(now)
            expected = {"a": [], "b": []}
            for key, operation in elements:
                models[key].now = now
                expected[key].append((key, models[key].apply(*operation)))
            harness.process_elements((element, None) for element in elements)
            found = harness.take()
            assert {key: [f for f in found if f[0] == key] for key in "ab"} == expected
        for key, model in models.items():
            model.now, model.on_read = now, False
            assert harness.state("items", key) == model.apply("items", "get")
            assert harness.state("table", key) == dict(model.apply("table", "items"))
            assert harness.state("mean", key) == model.apply("mean", "get")


@examples(12)
@given(
    st.lists(st.tuples(steps, operations), min_size=1, max_size=40),
    st.integers(1, 40),
    st.sampled_from(["write", "read"]),
)
def test_event_time_passes_within_an_epoch(steps, rows, update):
    """The clock of event time is the watermark just before the element; before the first one, the element's own time."""
    ts, elements = 0, []
    for step, operation in steps:
        ts += step
        elements.append(("a", operation, ts))

    def build(env, source):
        strategy = fp.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda e, _: e[2])
        return env.from_source(source, strategy, "in").key_by(lambda e: e[0], str).process(States(config(update, True)))

    model, expected, watermark = Model(TTL, update == "read"), [], None
    for _, operation, stamp in elements:
        model.now = stamp if watermark is None else watermark
        expected.append(("a", model.apply(*operation)))
        watermark = max(stamp - 1, stamp - 1 if watermark is None else watermark)
    assert run_local(build, elements, epochs=rows).output == expected


@examples(12)
@given(epochs)
def test_an_expired_value_that_may_be_seen_is_the_true_one_or_none(epochs):
    visible = fp.StateTtlConfig.StateVisibility.ReturnExpiredIfNotCleanedUp
    plain, fresh = Model(None, False), Model(TTL, False)
    with KeyedProcessHarness(States(config("write", False, visible)), key=lambda e: "k", key_type=str) as harness:
        now = 0
        for step, elements in epochs:
            now += step
            harness.set_processing_time(now)
            for _, operation in elements:
                if operation[0] not in ("value", "table") or operation[1] not in (
                    "value",
                    "update",
                    "get",
                    "put",
                    "contains",
                ):
                    continue
                plain.now = fresh.now = now
                allowed = (plain.apply(*operation), fresh.apply(*operation))
                harness.process_element(("k", operation))
                assert harness.take()[0][1] in allowed
                if allowed[1]:
                    continue


@pytest.mark.parametrize("kind", ["value", "items", "table", "reduced", "mean"])
def test_an_emptied_state_leaves_nothing_in_the_store(kind):
    fill = {
        "value": ("update", 1),
        "items": ("add", 1),
        "table": ("put", "a", 1),
        "reduced": ("add", 1),
        "mean": ("add", 1),
    }[kind]
    with KeyedProcessHarness(States(), key=lambda e: e[0], key_type=str) as harness:
        harness.process_element(("k", (kind, *fill)))
        assert harness.keys(kind) == ["k"]
        harness.process_element(("k", (kind, "clear")))
        assert harness.keys(kind) == []


def test_a_default_value_stands_for_an_empty_state():
    class Defaulted(fp.KeyedProcessFunction):
        count = fp.ValueStateDescriptor("count", int, 7)

        def process_element(self, value, ctx):
            yield self.count.value()
            self.count.update(value)

    with KeyedProcessHarness(Defaulted(), key=lambda e: 0, key_type=int) as harness:
        for value in (1, None, 0, 5):
            harness.process_element(value)
        assert harness.output == [7, 1, 7, 0]


@pytest.mark.parametrize("kind", ["value", "reduced", "mean", "items", "table"])
@pytest.mark.parametrize("epochs", [1, 100, [1], [2]])
def test_a_timer_sees_what_expires_only_later_in_its_epoch(kind, epochs):
    """The element that is next for the key comes when the value has expired; the timer is due ahead of it."""
    ttl = fp.StateTtlConfig.new_builder(10).use_event_time().build()

    class Reminder(fp.KeyedProcessFunction):
        value = fp.ValueStateDescriptor("value", int).enable_time_to_live(ttl)
        reduced = fp.ReducingStateDescriptor("reduced", max, int).enable_time_to_live(ttl)
        mean = fp.AggregatingStateDescriptor("mean", Mean(), tuple[int, int]).enable_time_to_live(ttl)
        items = fp.ListStateDescriptor("items", int).enable_time_to_live(ttl)
        table = fp.MapStateDescriptor("table", int, int).enable_time_to_live(ttl)

        def process_element(self, e, ctx):
            e = e[1]
            yield e, self.seen()
            state = getattr(self, kind)
            state.update(e) if kind == "value" else state.put(1, e) if kind == "table" else state.add(e)
            ctx.timer_service().register_event_time_timer(e + 5)

        def on_timer(self, timestamp, ctx):
            yield timestamp, self.seen()

        def seen(self):
            state = getattr(self, kind)
            match kind:
                case "value":
                    return state.value() is not None
                case "table":
                    return not state.is_empty()
                case "items":
                    return bool(state.get())
            return state.get() is not None

    def build(env, source):
        times = fp.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda e, _: e[1])
        return env.from_source(source, times, "in").key_by(lambda e: e[0], str).process(Reminder())

    found = run_local(build, [("a", 0), ("b", 30), ("a", 40)], epochs=epochs).output
    assert sorted(found) == [(0, False), (5, True), (30, False), (35, False), (40, False), (45, False)]


@pytest.mark.parametrize("epochs", [1, 2, 100])
@pytest.mark.parametrize("parallelism", [1, 3])
def test_an_int_given_for_a_float_is_that_float(epochs, parallelism):
    """As the key of the stream and as that of a map; a NaN is one key as well."""

    class Counts(fp.KeyedProcessFunction):
        elements = fp.ValueStateDescriptor("elements", int, 0)
        tenths = fp.MapStateDescriptor("tenths", float, int)

        def process_element(self, value, ctx):
            self.elements.update(self.elements.value() + 1)
            tenth = 0 if value != value else value // 10
            self.tenths.put(tenth, (self.tenths.get(tenth) or 0) + 1)
            yield repr(ctx.get_current_key()), self.elements.value(), self.tenths.get(tenth)

    def build(env, source):
        events = env.from_source(source, fp.WatermarkStrategy.no_watermarks(), "in")
        return events.key_by(lambda e: e % 10, float).process(Counts()).uid("counts")

    nan = [float("nan"), float("nan")]
    result = run_local(build, [1, 11.0, 1.0, 11, 2, nan[0], 2.0, nan[1]], epochs=epochs, parallelism=parallelism)
    assert sorted(result.output) == [
        ("1.0", 1, 1),
        ("1.0", 2, 1),
        ("1.0", 3, 2),
        ("1.0", 4, 2),
        ("2.0", 1, 1),
        ("2.0", 2, 2),
        ("nan", 1, 1),
        ("nan", 2, 2),
    ]
