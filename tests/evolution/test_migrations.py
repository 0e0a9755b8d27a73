"""Registered migrations of values and keys, through the whole engine."""

from __future__ import annotations

from datetime import timedelta
from typing import NamedTuple

import pytest
from evolution_jobs import STOP, go_on, keeper, keyed, life, saved_then

import forkpoint as fp
from forkpoint.errors import GraphError, RestoreRefused

FIRST = [("a", 1), ("b", 2), ("a", 3)]
THEN = [("a", 10), ("b", 20), ("c", 30)]

# -- the example of the documentation: a reduce over (key, sum) that is to count, too


def sums(env, source):
    events = env.from_source(source, fp.WatermarkStrategy.no_watermarks(), "in").uid("in")
    pairs = events.map(lambda e: e, tuple[str, int])
    return pairs.key_by(lambda e: e[0], str).reduce(lambda a, b: (a[0], a[1] + b[1])).uid("sums")


def counted(env, source):
    events = env.from_source(source, fp.WatermarkStrategy.no_watermarks(), "in").uid("in")
    triples = events.map(lambda e: (*e, 1), tuple[str, int, int])
    return triples.key_by(lambda e: e[0], str).reduce(lambda a, b: (a[0], a[1] + b[1], a[2] + b[2])).uid("sums")


def migrated(env, source):
    return counted(env, source).migrate_state(1, lambda pair: (*pair, 0))


def test_a_reduce_of_another_type_is_refused_and_then_migrated(tmp_path):
    script = [*FIRST, STOP, *THEN]
    life(tmp_path, sums, script)
    with pytest.raises(RestoreRefused) as refused:
        life(tmp_path, counted, script, restore=go_on())
    for part in ("sums/state", "tuple[STRING, LONG] and", "tuple[STRING, LONG, LONG]", "migrate_state(1, …"):
        assert part in str(refused.value)
    run = life(tmp_path, migrated, script, restore=go_on(), parallelism=3)
    assert sorted(run.output) == [("a", 14, 1), ("b", 22, 1), ("c", 30, 1)]


def test_migrations_are_chained_by_version_and_run_once(tmp_path):
    script = [*FIRST, STOP, ("a", 0), STOP, ("a", 0), STOP, ("a", 0)]

    def job(of, *steps):
        def change(stream):
            for version, step in enumerate(steps, 1):
                stream = stream.migrate_state(version, step, state="s")
            return stream

        return keyed(keeper(fp.ValueStateDescriptor("s", of), put), change)

    def put(state, value):
        old = state.value()
        if old is None:
            state.update(value[1])
        return state.value()

    doubled = lambda n: n * 2  # noqa: E731
    first = life(tmp_path, job(int), script)
    assert dict(first.output)["a"] == 1
    assert life(tmp_path, job(int, doubled), script, restore=go_on()).output == [("a", 2)]
    # The type is the same, yet the version tells that the first step has been done.
    assert life(tmp_path, job(str, doubled, str), script, restore=go_on()).output == [("a", "2")]
    both = life(tmp_path, job(str, doubled, str), script, restore=first.savepoint)
    assert both.output == [("a", "2")]
    with pytest.raises(RestoreRefused, match="have version 3, the program's have version 1"):
        life(tmp_path, job(str), script, restore=go_on())


def test_a_step_that_is_missing_is_named(tmp_path):
    life(tmp_path, sums, [*FIRST, STOP, *THEN])
    with pytest.raises(RestoreRefused, match="no migration from version 1"):
        life(
            tmp_path,
            lambda env, s: counted(env, s).migrate_state(2, lambda pair: (*pair, 0)),
            [*FIRST, STOP, *THEN],
            restore=go_on(),
        )


@pytest.mark.parametrize(
    ("migration", "told"),
    [
        (lambda pair: pair[7], r"migration .* of value \('a', 4\) failed with IndexError"),
        (lambda pair: pair, r"state 'state' of operator 'sums'.*tuple\[STRING, LONG, LONG\]"),
    ],
)
def test_a_migration_that_fails_changes_nothing(tmp_path, migration, told):
    script = [("a", 1), ("a", 3), STOP, *THEN]
    life(tmp_path, sums, script)
    before = sorted(path for path in tmp_path.rglob("*") if path.is_file() and "runs" not in path.parts)
    with pytest.raises(RestoreRefused, match=told):
        life(tmp_path, lambda env, s: counted(env, s).migrate_state(1, migration), script, restore=go_on())
    assert sorted(path for path in tmp_path.rglob("*") if path.is_file() and "runs" not in path.parts) == before
    assert sorted(life(tmp_path, sums, script, restore=go_on()).output) == [("a", 14), ("b", 20), ("c", 30)]


# -- kinds of state


VALUE = fp.ValueStateDescriptor("s", int)
LIST = fp.ListStateDescriptor("s", str)
MAP = fp.MapStateDescriptor("s", str, float)
ADD = {
    VALUE: lambda state, v: state.update((state.value() or 0) + v[1]),
    LIST: lambda state, v: state.add(str(v[1])),
    MAP: lambda state, v: state.put(str(v[1]), float(v[1])),
}
READ = {
    VALUE: lambda state, v: state.value(),
    LIST: lambda state, v: list(state.get()),
    MAP: lambda state, v: dict(state.items()),
}


@pytest.mark.parametrize(
    ("before", "after", "migration", "expected"),
    [
        (VALUE, LIST, lambda n: [str(n), "!"], ["4", "!"]),
        (VALUE, MAP, lambda n: {"n": n / 2}, {"n": 2.0}),
        (LIST, VALUE, lambda items: sum(map(int, items)), 4),
        (LIST, MAP, lambda items: {item: float(item) for item in items}, {"1": 1.0, "3": 3.0}),
        (LIST, LIST, lambda items: [*reversed(items)], ["3", "1"]),
        (LIST, LIST, lambda items: [], []),
        (LIST, VALUE, lambda items: None, None),
        (MAP, LIST, sorted, ["1", "3"]),
        (MAP, VALUE, len, 2),
        (MAP, MAP, lambda table: {key + key: value for key, value in table.items()}, {"11": 1.0, "33": 3.0}),
        (MAP, MAP, lambda table: None, {}),
        (VALUE, VALUE, lambda n: None if n == 4 else n, None),
    ],
)
@pytest.mark.parametrize("how", [{}, {"max_parallelism": 7, "parallelism": 3}])
def test_the_kind_of_state_may_change(tmp_path, before, after, migration, expected, how):
    found = saved_then(
        tmp_path,
        keyed(keeper(before, ADD[before])),
        keyed(keeper(after, READ[after]), lambda stream: stream.migrate_state(1, migration, state="s")),
        first=FIRST,
        then=[("a", 0)],
        **how,
    )
    assert found == [("a", expected)]


def test_kinds_do_not_change_without_a_migration(tmp_path):
    with pytest.raises(RestoreRefused, match=r"was value state and is declared as list state.*migrate_state"):
        saved_then(tmp_path, keyed(keeper(VALUE, ADD[VALUE])), keyed(keeper(LIST, READ[LIST])), first=FIRST, then=THEN)


def test_entries_keep_their_age(tmp_path):
    clock = fp.testing.ManualClock()
    hour = fp.testing.Advance(timedelta(hours=1))
    script = [("a", 1), hour, ("a", 2), STOP, ("a", 0), hour, ("a", 0)]

    def job(of, on, change=lambda s: s):
        return keyed(keeper(fp.MapStateDescriptor("s", str, of).enable_time_to_live(timedelta(minutes=100)), on), change)

    life(tmp_path, job(int, lambda state, v: state.put(str(v[1]), v[1])), script, clock=clock)
    after = job(str, READ[MAP], lambda s: s.migrate_state(1, lambda t: {k: f"{v}!" for k, v in t.items()}, state="s"))
    run = life(tmp_path, after, script, clock=clock, restore=go_on())
    assert [value for _, value in run.output] == [{"1": "1!", "2": "2!"}, {"2": "2!"}]


# -- keys


class Alarms(fp.KeyedProcessFunction):
    total = fp.ValueStateDescriptor("total", int)
    events = fp.ListStateDescriptor("events", int)

    def process_element(self, value, ctx):
        self.total.update((self.total.value() or 0) + value[1])
        self.events.add(value[1])
        ctx.timer_service().register_processing_time_timer(10**12)

    def on_timer(self, timestamp, ctx):
        yield ctx.get_current_key(), self.total.value(), list(self.events.get())


class Place(NamedTuple):
    country: str
    city: str


@pytest.mark.parametrize("how", [{"parallelism": 1}, {"parallelism": 3}, {"parallelism": 2, "max_parallelism": 11}])
def test_keys_are_migrated_with_all_state_and_timers(tmp_path, how):
    names = [f"city{i}" for i in range(40)]
    first, then = [(name, i) for i, name in enumerate(names)], [(name, 100) for name in names]
    script = [*first, STOP, *then, fp.testing.Advance(10**12)]
    before = keyed(Alarms())
    by_place = (lambda v: Place("de", v[0]), Place)
    after = keyed(Alarms(), lambda stream: stream.migrate_key(1, lambda name: Place("de", name)), by_place)
    life(tmp_path, before, script)
    with pytest.raises(RestoreRefused, match=r"its key type was STRING and is declared as Place.*migrate_key\(1"):
        life(tmp_path, keyed(Alarms(), key=by_place), script, restore=go_on())
    found = life(tmp_path, after, [*script, ("city0", 0)], restore=go_on(), **how).output
    assert sorted(found) == sorted((Place("de", name), 100 + i, [i, 100]) for i, name in enumerate(names))


def test_two_keys_must_not_become_one(tmp_path):
    script = [("a", 1), ("A", 2), STOP, ("a", 3)]
    life(tmp_path, keyed(Alarms()), script)
    after = keyed(Alarms(), lambda stream: stream.migrate_key(1, str.upper), (lambda v: v[0].upper(), str))
    with pytest.raises(RestoreRefused, match="two keys that both have state become one"):
        life(tmp_path, after, script, restore=go_on())


def test_a_key_of_the_same_type_is_migrated_once(tmp_path):
    script = [("a", 1), STOP, ("a", 3), STOP, ("a", 5)]
    by_upper = (lambda v: v[0] + "!", str)
    on = lambda state, v: (state.update((state.value() or 0) + v[1]), state.value())[1]  # noqa: E731
    after = keyed(keeper(VALUE, on), lambda stream: stream.migrate_key(1, lambda key: key + "!"), by_upper)
    assert life(tmp_path, keyed(keeper(VALUE, on)), script).output == [("a", 1)]
    assert life(tmp_path, after, script, restore=go_on()).output == [("a!", 4)]
    assert life(tmp_path, after, script, restore=go_on()).output == [("a!", 9)]


def test_keys_of_the_same_bytes_need_no_migration(tmp_path):
    class Id(NamedTuple):
        name: str

    class Renamed(NamedTuple):
        name: str = "anonymous"

    def on(state, v):
        state.update((state.value() or 0) + v[1])
        return state.value()

    before = keyed(keeper(VALUE, on), key=(lambda v: Id(v[0]), Id))
    after = keyed(keeper(VALUE, on), key=(lambda v: Renamed(v[0]), Renamed))
    assert sorted(saved_then(tmp_path, before, after, first=FIRST, then=THEN)) == [
        (("a",), 14),
        (("b",), 22),
        (("c",), 30),
    ]


# -- registering


@pytest.mark.parametrize(
    ("say", "told"),
    [
        (lambda s: s.migrate_state(0, str), "version 1 or above, not 0"),
        (lambda s: s.migrate_state(1, "str"), "must be callable, not 'str'"),
        (lambda s: s.migrate_state(1, str).migrate_state(1, int), "two migrations of state 'state' from version 1"),
        (lambda s: s.migrate_key(1, str).migrate_key(1, int), "two migrations of the key from version 1"),
    ],
)
def test_migrations_that_make_no_sense(tmp_path, say, told):
    with pytest.raises(GraphError, match=told):
        life(tmp_path, lambda env, source: say(sums(env, source)), FIRST)
