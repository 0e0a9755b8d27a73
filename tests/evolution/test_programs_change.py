"""What else may change between two versions of a program: parallelism, uids, operators, sources. The whole engine, locally."""

from __future__ import annotations

import pytest
from evolution_jobs import STOP, go_on, life
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

import forkpoint as fp
from example_counts import examples
from forkpoint.errors import RestoreRefused
from forkpoint.testing import run_local

NAMES = [f"k{i}" for i in range(25)]
FIRST = [(name, i) for i, name in enumerate(NAMES)]
THEN = [(name, 1000) for name in NAMES]
SCRIPT = [*FIRST, STOP, *THEN]


class Sum(fp.KeyedProcessFunction):
    total = fp.ValueStateDescriptor("total", int)

    def process_element(self, value, ctx):
        self.total.update((self.total.value() or 0) + value[1])
        ctx.timer_service().register_event_time_timer(10**6 + value[1])
        yield ctx.get_current_key(), self.total.value()

    def on_timer(self, timestamp, ctx):
        yield ctx.get_current_key(), "timer", timestamp


def at_value(strategy=None):
    strategy = fp.WatermarkStrategy.for_monotonous_timestamps()
    return strategy.with_timestamp_assigner(lambda value, ts: value[1])


def summing(uid="sum"):
    def build(env, source):
        stream = env.from_source(source, at_value(), "in").uid("in")
        return stream.key_by(lambda v: v[0], str).process(Sum()).uid(uid)

    return build


def straight():
    events = [*FIRST, *THEN]
    return sorted(map(str, fp.testing.run_local(summing(), events, parallelism=1).output))


@examples(5, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(1, 4), st.integers(1, 5), st.integers(1, 40), st.integers(1, 40), st.booleans())
def test_parallelism_max_parallelism_and_uids_may_change(tmp_path_factory, p1, p2, max1, max2, renamed):
    root = tmp_path_factory.mktemp("root")
    one = life(root, summing("sum"), SCRIPT, parallelism=min(p1, max1), max_parallelism=max1)
    renames = {"sum": "totals"} if renamed else {}
    two = life(
        root,
        summing("totals" if renamed else "sum"),
        SCRIPT,
        parallelism=min(p2, max2),
        max_parallelism=max2,
        restore=go_on(renames=renames),
    )
    assert (one.outcome, two.outcome) == ("stopped", "finished")
    assert sorted(map(str, [*one.output, *two.output])) == straight()


def test_a_renamed_uid_without_its_mapping_is_refused(tmp_path):
    life(tmp_path, summing("sum"), SCRIPT)
    with pytest.raises(RestoreRefused, match="--map sum=NEW"):
        life(tmp_path, summing("totals"), SCRIPT, restore=go_on())


def branches(*names):
    def build(env, source):
        stream = env.from_source(source, at_value(), "in").uid("in")
        keyed = stream.key_by(lambda v: v[0], str)
        return {f"out-{name}": keyed.process(Sum()).uid(name) for name in names}

    return build


def test_operators_come_and_go(tmp_path):
    script = [("a", 1), STOP, ("a", 2), STOP, ("a", 3)]
    life(tmp_path, branches("one", "two"), script)
    with pytest.raises(RestoreRefused) as refused:
        life(tmp_path, branches("three", "one"), script, restore=go_on())
    assert "two/total" in str(refused.value)
    assert "one/total" not in str(refused.value)
    run = life(tmp_path, branches("three", "one"), script, restore=go_on(allow_non_restored=True))
    assert [value for _, value in run.outputs["out-one"]] == [3]
    assert [value for _, value in run.outputs["out-three"]] == [2]
    # What was dropped is in the first savepoint alone; an operator of that uid starts empty.
    run = life(tmp_path, branches("two", "three", "one"), script, restore=go_on())
    assert {name: run.outputs[f"out-{name}"][0][1] for name in ("one", "two", "three")} == {
        "one": 6,
        "two": 3,
        "three": 5,
    }


def joined(*names):
    """Sources of these names in this order, one sum over all of them."""

    def build(env, *sources):
        streams = [
            env.from_source(source, fp.WatermarkStrategy.no_watermarks(), name).uid(name)
            for name, source in zip(names, sources, strict=True)
        ]
        first, *more = [stream.map(lambda v: v, tuple[str, int]) for stream in streams]
        union = first.union(*more) if more else first
        return (
            union.key_by(lambda v: "all", str)
            .map_with_state(lambda v, seen: ([*(seen or []), v[1]], [*(seen or []), v[1]]), list[int])
            .uid("seen")
        )

    return build


def script(name, *parts):
    """A source's input over all runs of the test, stopped behind each part."""
    items = []
    for part in parts:
        items += [*((name, n) for n in part), STOP]
    return items


def test_sources_come_go_change_places_and_come_back_at_their_position(tmp_path):
    a = script("a", [1, 2], [3], [4], [5])
    b = script("b", [10, 20], [30, 40])  # there in the first run and the last
    c = script("c", [100], [200], [300])

    def seen(run):
        return sorted(max((value for value in run.output), key=len))

    assert seen(life(tmp_path, joined("a", "b"), a, b)) == [1, 2, 10, 20]
    assert seen(life(tmp_path, joined("c", "a"), c, a, restore=go_on())) == [1, 2, 3, 10, 20, 100]
    assert seen(life(tmp_path, joined("a"), a, restore=go_on())) == [1, 2, 3, 4, 10, 20, 100]
    # Both have been away: b for two savepoints, c for one. Neither begins anew.
    last = life(tmp_path, joined("b", "c", "a"), b, c, a, restore=go_on())
    assert seen(last) == [1, 2, 3, 4, 5, 10, 20, 30, 40, 100, 200]


def test_a_program_that_defines_its_classes_anew_in_one_process(tmp_path):
    """As a notebook does, or a worker that serves one run after another: types look the same, classes do not."""
    text = (
        "from typing import NamedTuple\nimport forkpoint as fp\n\n\nclass Total(NamedTuple):\n    count: int\n\n\n"
        "class Counts(fp.KeyedProcessFunction):\n    total = fp.ValueStateDescriptor('total', Total)\n\n"
        "    def process_element(self, value, ctx):\n        before = self.total.value() or Total(0)\n"
        "        self.total.update(Total(before.count + 1))\n        yield value, before.count + 1\n\n\n"
        "def build(env, source):\n"
        "    stream = env.from_source(source, fp.WatermarkStrategy.no_watermarks(), 'in').uid('in')\n"
        "    return stream.key_by(lambda v: v, str).process(Counts()).uid('counts')\n"
    )
    for attempt in range(2):
        scope: dict = {"__name__": f"program{attempt}"}
        exec(text, scope)
        found = run_local(scope["build"], ["a", "b", "a"], epochs=1, parallelism=1).output
        assert sorted(found) == [("a", 1), ("a", 2), ("b", 1)]
