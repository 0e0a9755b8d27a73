"""Values in state: each is what it was when it was handed over, wherever epochs are cut, or is refused there and then.

Every kind of state on a real backend and store. An epoch is what lies between ``begin`` and the commit of its changes.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pytest
import type_strategies as ts
from hypothesis import given
from hypothesis import strategies as st

import forkpoint as fp
from forkpoint.checkpoint.states import StateInfo
from forkpoint.runtime.state.keyed_backend import ChangeLog, KeyedBackend
from forkpoint.runtime.state.namespace import Namespace
from forkpoint.runtime.state.operator_state import OperatorState
from forkpoint.savepoint.format.entries import EntryTarget, as_binary, codec_of
from forkpoint.state import Changes, kg_of
from forkpoint.state.dict_store import DictStore
from forkpoint.types import Row, TypeInformation, Types, type_of

LONG_LIVED = fp.StateTtlConfig.new_builder(timedelta(days=10_000)).build()
WINDOWS = [b"\x92\x00\x05", b"\x92\x05\x0a"]  # (0, 5) and (5, 10), encoded


class Last(fp.AggregateFunction):
    """The accumulator is the last value, and so is the result: what is handed over is all there is."""

    def create_accumulator(self) -> Any:
        return None

    def add(self, value: Any, accumulator: Any) -> Any:
        return value

    def get_result(self, accumulator: Any) -> Any:
        return accumulator

    def merge(self, a: Any, b: Any) -> Any:
        return b


DESCRIPTORS: dict[str, Callable[[TypeInformation], Any]] = {
    "value": lambda of: fp.ValueStateDescriptor("s", of),
    "list": lambda of: fp.ListStateDescriptor("s", of),
    "map": lambda of: fp.MapStateDescriptor("s", str, of),
    "map key": lambda of: fp.MapStateDescriptor("s", of, int),
    "reducing": lambda of: fp.ReducingStateDescriptor("s", lambda a, b: b, of),
    "aggregating": lambda of: fp.AggregatingStateDescriptor("s", Last(), of),
}
KINDS = [
    *DESCRIPTORS,
    *(f"{kind} with ttl" for kind in DESCRIPTORS),
    *(f"window {kind}" for kind in ("value", "list", "reducing", "aggregating")),
    "operator list",
    "operator union",
    "broadcast",
    "broadcast key",
]


class Place:
    """A store, and states of one kind on it, opened anew as often as asked."""

    def __init__(self, kind: str, of: TypeInformation) -> None:
        self.kind, self.of, self.store = kind, of, DictStore()
        self.open()

    def open(self) -> None:
        """As a task that takes over: nothing but the committed bytes."""
        kind = self.kind
        self.keyed = not kind.startswith(("operator", "broadcast"))
        if not self.keyed:
            self.operator = OperatorState(self.store, "op", 0, restored=True)
            if kind == "operator list":
                self.state: Any = self.operator.get_list_state(fp.ListStateDescriptor("s", self.of))
            elif kind == "operator union":
                self.state = self.operator.get_union_list_state(fp.ListStateDescriptor("s", self.of))
            else:
                self.state = self.operator.broadcast(DESCRIPTORS[kind.replace("broadcast", "map")](self.of))
            return
        self.backend = KeyedBackend("op", type_of(str), 8, self.store)
        if kind.startswith("window "):
            namespace = Namespace(type_of(tuple[int, int]))
            self.state = self.backend.get(DESCRIPTORS[kind.removeprefix("window ")](self.of), namespace)
            namespace.current = WINDOWS[0]
        else:
            descriptor = DESCRIPTORS[kind.removesuffix(" with ttl")](self.of)
            if kind.endswith("ttl"):
                descriptor.enable_time_to_live(LONG_LIVED)
            self.state = self.backend.get(descriptor)

    def epoch(self, work: Callable[[], Any]) -> Any:
        if not self.keyed:
            found = work()
            self._commit(self.operator.collect())
            return found
        self.backend.begin(["key"], 0, lambda: 0)
        self.backend.enter(0)
        found = work()
        self.backend.leave()
        self._commit(self.backend.collect())
        return found

    def _commit(self, log: ChangeLog) -> None:
        self.store.apply(Changes(log.keys, log.values), self.store.version + 1, self.store.version)

    # -- the kinds' methods by one name

    def write(self, value: Any) -> None:
        state = self.state
        if self.kind.startswith(("map key", "broadcast key")):
            state.put(value, 1)
        elif self.kind.startswith(("map", "broadcast")):
            state.put("m", value)
        elif "list" in self.kind or "union" in self.kind:
            state.add(value)
        elif "value" in self.kind:
            state.update(value)
        else:
            state.add(value)

    def read(self) -> Any:
        state = self.state
        if self.kind.startswith(("map key", "broadcast key")):
            return list(state.keys())
        if self.kind.startswith(("map", "broadcast")):
            return list(state.values())
        if "list" in self.kind or "union" in self.kind:
            return list(state.get())
        found = state.value() if "value" in self.kind else state.get()
        return [] if found is None else [found]

    # -- a savepoint of it

    def saved_and_restored(self) -> list[Any]:
        """What is read of a store that was filled from a savepoint's columns."""
        record: StateInfo = self.backend.records[0] if self.keyed else self.operator.records[0]
        codec = codec_of(record)
        entries = list(self.store.scan(b"", b"\xff" * 8))
        keys, values = [k for k, _ in entries], [v for _, v in entries]
        groups = np.array([0 if record.is_operator_state else kg_of(k) for k in keys], np.int64)
        moved = EntryTarget(record.sid, record.ttl_ms is not None, 0, 5)
        table = codec.to_table(groups, keys, values)
        assert codec_of(record).table_of(groups, *as_binary((keys, values))).equals(table)
        got = codec.to_entries(table, moved)
        if record.kind != "list":
            assert [each.to_pylist() for each in codec.to_binary(table, moved)] == list(got)
        rest = codec.finish(moved)
        other = Place(self.kind, self.of)
        other.store.apply(Changes([*got[0], *rest[0]], [*got[1], *rest[1]]), 1, 0)
        other.open()
        found: list[Any] = other.epoch(other.read)
        return found


def exact(values: Any) -> list[Any]:
    return [ts.exact(value) for value in values]


@st.composite
def typed_anything(draw: st.DrawFn) -> tuple[TypeInformation, Any]:
    """A type, with a value of it or of another."""
    annotation, values = draw(ts.types)
    _, others = draw(ts.types)
    odd = st.sampled_from([None, 2**63, 2**70, timedelta.max, "\ud800", float("nan"), object(), [1], (1, 2), Row(1)])
    return type_of(annotation), draw(values | others | odd)


@given(st.sampled_from(KINDS), typed_anything())
def test_what_a_state_accepts_can_be_saved_restored_and_read_back(kind: str, typed: tuple[TypeInformation, Any]) -> None:
    of, value = typed
    if "key" in kind and not hashable(of, value):
        return
    place = Place(kind, of)

    def handed_over() -> Any:
        try:
            place.write(value)
        except fp.TypeNotSupported:
            return None
        return exact(place.read())

    within = place.epoch(handed_over)
    if within is None:  # refused, and nothing is left of it
        assert place.epoch(place.read) == []
        return
    place.open()
    assert exact(place.epoch(place.read)) == within
    assert exact(place.saved_and_restored()) == within


def hashable(of: TypeInformation, value: Any) -> bool:
    try:
        hash(of.accept(value))
    except TypeError:
        return False
    except fp.TypeNotSupported:
        pass
    return True


# -- what happens to a value behind its handing over


@dataclass
class Basket:
    items: list[int]
    total: float = 0.0


class Pair(NamedTuple):
    name: str
    counts: dict[str, int]


class Frozen(msgspec.Struct, frozen=True):
    n: int


SAMPLES: list[tuple[TypeInformation, list[Any]]] = [
    (type_of(list[int]), [[1], [], [2, 3], (4, 5), [True]]),
    (type_of(dict[str, int]), [{}, {"b": 1, "a": 2}, {"z": np.int64(3)}]),
    (type_of(Basket), [Basket([1]), Basket([2], 5)]),
    (type_of(Pair), [Pair("a", {}), Pair("b", {"x": 1}), ("c", {"y": 2})]),
    (type_of(set[str]), [set(), {"a", "b"}, frozenset({"c"})]),
    (Types.ROW_NAMED(["a", "b"], [Types.INT(), Types.STRING()]), [Row(a=1, b="x"), (2, "y"), [3, "z"]]),
    (Types.TUPLE([Types.DOUBLE(), Types.INT()]), [(1, 2), [3, 4], (0.5, True)]),
    (Types.FLOAT(), [0.1, 1, 2.5]),
    (Types.DOUBLE(), [1, 0.1, np.float32(0.5)]),
    (type_of(int), [1, True, np.int64(4)]),
    (type_of(str), ["a", "b"]),
    (type_of(Frozen), [Frozen(1), Frozen(2)]),
    (Types.ANY(), [[1, [2]], {"a": [1]}, (1, [2]), 5, "text"]),
]


def change(value: Any) -> None:
    """Change a value in place, where it can be changed."""
    match value:
        case list():
            value.append(99)
        case dict():
            value["changed"] = 99
        case set():
            value.add("changed")
        case Basket():
            value.items.append(99)
            value.total += 1
        case Pair():
            value.counts["changed"] = 99
        case Row():
            value[0] = 99
        case tuple():
            for part in value:
                change(part)


OPERATIONS = ["write", "write and change", "read and change", "change what was written before", "clear", "add in place"]


def run(kind: str, of: TypeInformation, steps: list[tuple[str, Any]], *, one_epoch: bool) -> list[Any]:
    place = Place(kind, of)
    written: list[Any] = []
    seen: list[Any] = []

    def work(what: str, sample: Any) -> None:
        value = copy.deepcopy(sample)
        match what:
            case "write":
                place.write(value)
                written.append(value)
            case "write and change":
                place.write(value)
                change(value)
            case "read and change":
                for found in place.read():
                    change(found)
            case "change what was written before":
                for earlier in written:
                    change(earlier)
            case "clear":
                place.state.clear()
            case "add in place":
                for found in place.read():
                    change(found)
                    place.write(found)
                    change(found)
        seen.append(exact(place.read()))

    if one_epoch:
        place.epoch(lambda: [work(*step) for step in steps])
    else:
        for step in steps:
            place.epoch(lambda step=step: work(*step))  # type: ignore[misc]
            place.open()  # as if the task had moved
    place.open()
    seen.append(exact(place.epoch(place.read)))
    return seen


@given(st.data())
def test_it_does_not_matter_where_epochs_are_cut(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from([k for k in KINDS if "key" not in k]))
    of, samples = data.draw(st.sampled_from(SAMPLES))
    steps = data.draw(st.lists(st.tuples(st.sampled_from(OPERATIONS), st.sampled_from(samples)), max_size=8))
    assert run(kind, of, steps, one_epoch=True) == run(kind, of, steps, one_epoch=False)


class Grow(fp.AggregateFunction):
    """Changes its accumulator, returns it, and gives it out as the result."""

    def create_accumulator(self) -> list[int]:
        return []

    def add(self, value: int, accumulator: list[int]) -> list[int]:
        accumulator.append(value)
        return accumulator

    def get_result(self, accumulator: list[int]) -> list[int]:
        return accumulator

    def merge(self, a: list[int], b: list[int]) -> list[int]:
        a.extend(b)
        return a


def extend(a: list[int], b: list[int]) -> list[int]:
    a.extend(b)
    return a


@pytest.mark.parametrize("one_epoch", [True, False])
def test_functions_that_work_in_place(one_epoch: bool) -> None:
    class InPlace(fp.KeyedProcessFunction):
        sums = fp.ReducingStateDescriptor("sums", extend, list[int])
        grown = fp.AggregatingStateDescriptor("grown", Grow(), list[int])
        counts = fp.ValueStateDescriptor("counts", dict[int, int])

        def process_element(self, e: int, ctx: Any) -> Any:
            given = [e]
            self.sums.add(given)
            given.append(-1)
            self.grown.add(e)
            shown = self.grown.get()
            assert shown is not None
            shown.append(-2)
            counts = self.counts.value() or {}
            counts[e] = counts.get(e, 0) + 1
            self.counts.update(counts)
            counts[-3] = 1
            yield str((self.sums.get(), self.grown.get(), self.counts.value()))

    from forkpoint.testing import KeyedProcessHarness

    with KeyedProcessHarness(InPlace(), key=lambda _: 1, key_type=int, output_type=str) as h:
        if one_epoch:
            h.process_elements([(e, None) for e in (1, 2, 1)])
        else:
            for e in (1, 2, 1):
                h.process_element(e)
        assert h.output == [
            "([1], [1], {1: 1})",
            "([1, 2], [1, 2], {1: 1, 2: 1})",
            "([1, 2, 1], [1, 2, 1], {1: 2, 2: 1})",
        ]


@pytest.mark.parametrize(
    ("of", "value"),
    [
        (int, None),
        (int, 2**63),
        (int, "1"),
        (int, 1.5),
        (timedelta, timedelta.max),
        (list[int], [1, None]),
        (Types.INT(), 2**40),
        (str, "\ud800"),
        (tuple[int, str], (1,)),
        (dict[str, int], {1: 1}),
    ],
    ids=repr,
)
@pytest.mark.parametrize("kind", [k for k in KINDS if "key" not in k])
def test_what_does_not_fit_is_refused_at_once_by_name(kind: str, of: Any, value: Any) -> None:
    if value is None and "list" not in kind and "union" not in kind:
        return  # empties a value, and is the value of a map's entry in Flink
    place = Place(kind, type_of(of))

    def work() -> None:
        with pytest.raises(fp.TypeNotSupported) as refused:
            place.write(value)
        for part in ("operator 'op'", "state 's'", repr(type_of(of)), *(("key 'key'",) if place.keyed else ())):
            assert part in str(refused.value)

    place.epoch(work)
    assert place.epoch(place.read) == []


@pytest.mark.parametrize("kind", ["reducing", "reducing with ttl", "window reducing", "aggregating", "window aggregating"])
def test_adding_none_empties(kind: str) -> None:
    place = Place(kind, type_of(int))

    def work() -> list[Any]:
        place.write(5)
        place.write(None)
        return [place.read()]

    assert place.epoch(work) == [[]]
    assert place.epoch(place.read) == []


@pytest.mark.parametrize("kind", ["map key", "map key with ttl", "broadcast key"])
def test_keys_of_a_map_are_what_is_stored_of_them(kind: str) -> None:
    def work(place: Place) -> list[Any]:
        for key in (1, 1.0, True, 0.0, -0.0, float("nan"), float("nan")):
            place.write(key)
        return exact(place.read())

    place = Place(kind, Types.DOUBLE())
    within = place.epoch(lambda: work(place))
    assert len(within) == 4
    place.open()
    assert exact(place.epoch(place.read)) == within
