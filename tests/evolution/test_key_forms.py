"""State of releases that told equal keys apart: each key is found again, and two that became one are refused.

Those releases stored keys as they were given, which is what happens without key forms.
"""

import struct
from contextlib import contextmanager
from decimal import Decimal
from typing import Any

import pytest

import forkpoint as fp
from forkpoint.errors import RestoreRefused
from forkpoint.operations import open_live
from forkpoint.savepoint.format.opened_savepoint import open_savepoint
from forkpoint.state_processor import SavepointReader
from forkpoint.storage.base import open_storage
from forkpoint.testing import Eof, TestSource, run_local
from forkpoint.types import Types

D = Decimal
GIVEN = ["2.50", "3.0", "7.1", "1E+2", "-0.00"]
LATER = ["2.5", "2.500", "3", "7.10", "100", "0"]
NAN = struct.unpack("<d", struct.pack("<Q", 0xFFF8000000000123))[0]

KINDS: dict[str, tuple[Any, Any, Any]] = {
    "decimal": (D, D, D),
    "any": (None, D, D),
    "tuple": (tuple[D, float], lambda text: (D(text), NAN), lambda text: (D(text), float("nan"))),
    "any in a tuple": (None, lambda text: ("a", D(text), NAN), lambda text: ("a", D(text), float("nan"))),
    "dict": (Types.MAP(Types.STRING(), Types.BIG_DEC()), lambda text: {"x": D(text)}, lambda text: {"x": D(text)}),
}


@contextmanager
def earlier_release():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("forkpoint.graph.transformations.key_form", lambda of: of)
        patch.setattr("forkpoint.functions.state.descriptors.key_form", lambda of: of)
        patch.setattr("forkpoint.types.keys.has_many_forms", lambda of: False)
        yield


def job(kind, declared):
    """Counts by key: in a value, a map by a Decimal, a list, and a timer. ``declared``: on the class, or when it opens."""

    class Kept(fp.KeyedProcessFunction):
        if declared:
            count, by_price = fp.ValueStateDescriptor("count", int), fp.MapStateDescriptor("by-price", D, int)
            numbers = fp.ListStateDescriptor("numbers", int)

        def open(self, runtime_context):
            if not declared:
                self.count = runtime_context.get_state(fp.ValueStateDescriptor("count", int))
                self.by_price = runtime_context.get_map_state(fp.MapStateDescriptor("by-price", D, int))
                self.numbers = runtime_context.get_list_state(fp.ListStateDescriptor("numbers", int))

        def process_element(self, value, ctx):
            self.count.update((self.count.value() or 0) + 1)
            self.by_price.put(value[1], (self.by_price.get(value[1]) or 0) + 1)
            self.numbers.add(value[2])
            ctx.timer_service().register_event_time_timer(10**6)
            yield (
                value[2],
                self.count.value(),
                [(str(k), n) for k, n in self.by_price.items()],
                list(self.numbers.get()),
            )

        def on_timer(self, timestamp, ctx):
            yield -1, self.count.value(), repr(ctx.get_current_key()), list(self.numbers.get())

    def build(env, source):
        times = fp.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda e, _: e[2])
        return env.from_source(source, times, "in").uid("in").key_by(lambda e: e[0], kind).process(Kept()).uid("kept")

    return build


def script(name, given=GIVEN, later=LATER):
    _, old, new = KINDS[name]
    before = [(old(text), D(text), n) for n, text in enumerate(given)]
    return [*before, Eof(savepoint=True), *((new(text), D(text), 100 + n) for n, text in enumerate(later))]


@pytest.mark.parametrize(
    ("name", "place", "declared"),
    [
        *((name, "savepoint", True) for name in KINDS),
        ("decimal", "savepoint", False),
        ("decimal", "checkpoint", True),
        ("any in a tuple", "checkpoint", False),
    ],
)
def test_keys_that_an_earlier_release_saved_are_found(tmp_path, name, place, declared):
    how = {"state_root": tmp_path, "epochs": 1}
    with earlier_release():
        before = run_local(job(KINDS[name][0], declared), TestSource(script(name)), parallelism=2, **how)
    restore = before.savepoint if place == "savepoint" else None
    after = run_local(job(KINDS[name][0], declared), TestSource(script(name)), parallelism=2, restore=restore, **how)
    found = {n: rest for n, *rest in after.output if n >= 0}
    assert found == {
        100: [2, [("2.5", 2)], [0, 100]],
        101: [3, [("2.5", 3)], [0, 100, 101]],
        102: [2, [("3", 2)], [1, 102]],
        103: [2, [("7.1", 2)], [2, 103]],
        104: [2, [("100", 2)], [3, 104]],
        105: [2, [("0", 2)], [4, 105]],
    }
    timers = sorted(rest[0] for n, *rest in after.output if n < 0)
    assert timers == sorted(map(len, ([0, 100, 101], [1, 102], [2, 103], [3, 104], [4, 105])))


def test_two_saved_keys_that_are_one_key_are_refused(tmp_path):
    both = script("decimal", ["2.50", "2.5"])
    with earlier_release():
        before = run_local(job(D, True), TestSource(both), state_root=tmp_path, epochs=1)
    with pytest.raises(RestoreRefused, match=r"the Decimals 2\.5 and 2\.50"):
        run_local(job(D, True), TestSource(both), state_root=tmp_path, restore=before.savepoint)


def test_what_this_release_saved_is_used_in_place(tmp_path, caplog):
    caplog.set_level("INFO")
    given = script("decimal")
    before = run_local(job(D, True), TestSource(given), state_root=tmp_path, epochs=1)
    run_local(job(D, True), TestSource(given), state_root=tmp_path, restore=before.savepoint)
    assert not [text for text in caplog.messages if "migrated" in text]


@pytest.mark.parametrize("kind", ["decimal", "tuple", "any in a tuple"])
def test_state_is_found_by_key_whichever_release_saved_it(tmp_path, kind):
    old, new = KINDS[kind][1:]
    with earlier_release():
        before = run_local(job(KINDS[kind][0], True), TestSource(script(kind)), state_root=tmp_path, epochs=1)
    of_savepoint = SavepointReader(open_savepoint(open_storage(before.savepoint))).state("kept", "numbers")
    of_job = open_live("test", state_root=str(tmp_path)).state("kept", "numbers")
    for state in (of_savepoint, of_job):
        assert [state.get(form("3.00")) for form in (old, new)] == [[1], [1]]
    run_local(job(KINDS[kind][0], True), TestSource([*script(kind), Eof(savepoint=True)]), state_root=tmp_path)
    state = open_live("test", state_root=str(tmp_path)).state("kept", "numbers")
    assert [state.get(form("3.00")) for form in (old, new)] == [[1, 102], [1, 102]]
