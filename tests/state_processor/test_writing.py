"""New savepoints: from old ones, and from data; and that jobs go on from them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import pyarrow as pa
import pytest
from saved_job import EVENTS, Event, Everything, Mean, Total, build, saved

import forkpoint as fp
from forkpoint.checkpoint.lineage import build_lineage, savepoint_key
from forkpoint.savepoint.catalog.dispose import dependents
from forkpoint.savepoint.format.opened_savepoint import verify_files
from forkpoint.state_processor import SavepointReader, SavepointWriter, diff
from forkpoint.storage.base import LocalStorage
from forkpoint.testing import Eof, run_local
from programs import Python

edit = SavepointWriter.from_existing_savepoint
MORE = [Event(f"u{i % 7}", i, i * 100) for i in range(40, 60)]


@pytest.fixture(scope="module")
def savepoint(tmp_path_factory: pytest.TempPathFactory) -> SavepointReader:
    return saved(tmp_path_factory.mktemp("saved"), parallelism=3, max_parallelism=16)


def states_of(savepoint: SavepointReader) -> dict[tuple[str, str], list[Any]]:
    """All entries without their key groups, in no particular order."""
    return {
        (s.uid, s.name): sorted(repr({k: v for k, v in e._asdict().items() if k != "key_group"}) for e in s.rows())
        for s in savepoint.states
    }


def test_a_copy_is_the_same_and_stands_alone(savepoint: SavepointReader, tmp_path: Path) -> None:
    copy = edit(savepoint).write(tmp_path / "copy")
    found = diff(savepoint, copy)
    assert found.same
    assert len(found.states) == len(savepoint.states)
    assert states_of(copy) == states_of(savepoint)
    assert copy.verify().entries == savepoint.verify().entries
    assert (copy.positions, copy.watermarks) == (savepoint.positions, savepoint.watermarks)
    assert not [path for path in copy.opened.storage.list() if "_runs" in path]


def test_it_hangs_on_the_one_that_it_was_made_from(savepoint: SavepointReader, tmp_path: Path) -> None:
    copy = edit(savepoint).write(tmp_path / "copy", label="trimmed", note="why").metadata
    assert (copy.edited, copy.label, copy.note, copy.job) == (True, "trimmed", "why", savepoint.metadata.job)
    lineage = build_lineage([], [savepoint.metadata, copy])
    old = savepoint_key(savepoint.metadata.id)
    node = lineage.nodes[savepoint_key(copy.id)]
    assert (node.parent, node.line) == (old, old)
    assert [row.graph for row in lineage.rows() if row.node is not None and row.node.record is not None] == ["◆", "◆"]
    (dependent,) = dependents(savepoint.metadata.id, [], [savepoint.metadata, copy])
    assert "made from it" in dependent


def test_operators_and_states_go_and_get_other_names(savepoint: SavepointReader, tmp_path: Path) -> None:
    new = (
        edit(savepoint)
        .remove_operator("buffer")
        .remove_state("everything", "sum")
        .remove_timers("everything", "processing")
        .rename_state("everything", "amounts", "all amounts")
        .change_operator_identifier("everything", "Every/thing ü")
        .change_operator_identifier("events", "clicks")
        .write(tmp_path / "new")
    )
    new.verify()
    assert "buffer" not in new.operators
    assert set(new.positions) == {"clicks"}
    assert "Every/thing ü" in new.watermarks
    assert "everything" not in new.watermarks
    before = states_of(savepoint)
    found = states_of(new)
    assert found["Every/thing ü", "all amounts"] == before["everything", "amounts"]
    assert found["windows", "timers"] == before["windows", "timers"]
    assert ("Every/thing ü", "sum") not in found
    assert {e.domain for e in new.timers("Every/thing ü").rows()} == {"event"}
    assert new.query('SELECT count(*) AS n FROM "Every/thing ü"."all amounts"').to_pylist() == [{"n": len(EVENTS)}]


def test_filters_by_sql_and_by_function(savepoint: SavepointReader, tmp_path: Path) -> None:
    new = (
        edit(savepoint)
        .filter("everything", "sum > 110", "total")
        .filter("everything", lambda e: e.value % 2 == 1, "amounts")
        .filter("everything", "domain = 'event' AND timestamp < 12000", "timers")
        .filter("windows", "key <> 'u1'")
        .filter("buffer", "value = 'u1'", "seen")
        .write(tmp_path / "new")
    )
    new.verify()
    assert {e.key for e in new.state("everything", "total").rows()} == {
        e.key for e in savepoint.state("everything", "total").rows() if e.value.sum > 110
    }
    lists: dict[str, list[tuple[int, int]]] = {}
    for entry in new.state("everything", "amounts").rows():
        lists.setdefault(entry.key, []).append((entry.index, entry.value))
    for user, elements in lists.items():
        assert elements == list(enumerate(e.amount for e in EVENTS if e.user == user and e.amount % 2))
    assert {(e.domain, e.timestamp) for e in new.timers("everything").rows()} == {
        ("event", e.time + 10_000) for e in EVENTS if e.time < 2000
    }
    for state in (new.state("windows", "window-contents"), new.timers("windows")):
        assert {e.key for e in state.rows()} == {f"u{i}" for i in range(7)} - {"u1"}
    assert {e.value for e in new.state("buffer", "seen").rows()} == {"u1"}


class Average(NamedTuple):
    count: int
    mean: float


def test_values_get_other_types_and_kinds(savepoint: SavepointReader, tmp_path: Path) -> None:
    new = (
        edit(savepoint)
        .map(
            "everything",
            "total",
            lambda t: Average(t.count, t.sum / t.count),
            fp.ValueStateDescriptor("total", Average),
        )
        .map(
            "everything",
            "amounts",
            lambda a: {v: i for i, v in enumerate(a)},
            fp.MapStateDescriptor("amounts", int, int),
        )
        .map("everything", "by parity", lambda m: {k: v for k, v in m.items() if k == "odd"} or None)
        .map("everything", "sum", lambda s: None if s > 110 else -s, version=3)
        .write(tmp_path / "new")
    )
    new.verify()
    for user in ("u1", "u2"):
        amounts = [e.amount for e in EVENTS if e.user == user]
        assert new.state("everything", "total").get(user) == (len(amounts), sum(amounts) / len(amounts))
        assert new.state("everything", "amounts").get(user) == {v: i for i, v in enumerate(amounts)}
        assert new.state("everything", "by parity").get(user) == {"odd": sum(a % 2 for a in amounts)}
        assert new.state("everything", "sum").get(user) == (None if sum(amounts) > 110 else -sum(amounts))
    (info,) = (s.info for o in new.metadata.operators for s in o.states if s.info.name == "sum")
    assert info.version == 3


@pytest.mark.parametrize("max_parallelism", [3, 64])
def test_keys_get_other_places(savepoint: SavepointReader, tmp_path: Path, max_parallelism: int) -> None:
    new = edit(savepoint).re_key("everything", lambda user: int(user[1:]), int).with_max_parallelism(max_parallelism)
    made = new.write(tmp_path / "new")
    made.verify()
    assert made.metadata.max_parallelism == max_parallelism
    for i in range(7):
        for name in ("total", "amounts", "by parity", "anything"):
            assert made.state("everything", name).get(i) == savepoint.state("everything", name).get(f"u{i}")
        times = [t.timestamp for t in made.timers("everything").get(i)]
        assert times == [t.timestamp for t in savepoint.timers("everything").get(f"u{i}")]
        assert made.state("windows", "window-contents").get(f"u{i}") == savepoint.state("windows", "window-contents").get(f"u{i}")
    assert states_of(made)["buffer", "seen"] == states_of(savepoint)["buffer", "seen"]


def test_two_keys_that_become_one_are_refused(savepoint: SavepointReader, tmp_path: Path) -> None:
    with pytest.raises(fp.EditRefused, match="two entries for key 'one'"):
        edit(savepoint).re_key("everything", lambda user: "one").write(tmp_path / "new")
    assert not list((tmp_path / "new").rglob("*.parquet"))


# -- going on from what was written


def going_on(restore: str, root: Path, parallelism: int) -> dict[str, Any]:
    run = run_local(
        build,
        [*EVENTS, Eof(savepoint=True), *MORE],
        state_root=str(root),
        restore=restore,
        parallelism=parallelism,
        max_parallelism=16,
    )
    return {name: run.by_key(lambda value: value[0], name) for name in run.outputs}


@pytest.mark.parametrize("parallelism", [1, 4])
def test_a_job_goes_on_from_an_edited_savepoint(savepoint: SavepointReader, tmp_path: Path, parallelism: int) -> None:
    unchanged = going_on(savepoint.path, tmp_path / "a", 2)
    edited = (
        edit(savepoint)
        .with_max_parallelism(16)
        .filter("everything", "key <> 'u3'")
        .map("everything", "sum", lambda s: s + 1000)
        .write(tmp_path / "edited")
    )
    found = going_on(edited.path, tmp_path / "b", parallelism)
    assert found["windows"] == unchanged["windows"]
    for user in {e.user for e in EVENTS}:
        mine = [value for value in found["state"][user] if value[1] != "timer"]
        before = [value for value in unchanged["state"][user] if value[1] != "timer"]
        if user == "u3":  # begins anew
            assert [value[1].count for value in mine] == list(range(1, len(mine) + 1))
        else:
            assert [(*value[:5], value[5] - 1000, *value[6:]) for value in mine] == before
            timers = [[value for value in out["state"][user] if value[1] == "timer"] for out in (found, unchanged)]
            assert timers[0] == timers[1]


class Account(NamedTuple):
    owner: str
    balance: int


class Bank(fp.KeyedProcessFunction):
    """Five kinds of state, all bootstrapped."""

    account = fp.ValueStateDescriptor("account", Account)
    last = fp.ListStateDescriptor("last", int)
    limits = fp.MapStateDescriptor("limits", str, float)
    total = fp.ReducingStateDescriptor("total", lambda a, b: a + b, int)
    mean = fp.AggregatingStateDescriptor("mean", Mean(), Total)

    def process_element(self, value: tuple[int, int], ctx: Any) -> Iterator[Any]:
        self.last.add(value[1])
        self.total.add(value[1])
        self.mean.add(value[1])
        mean = self.mean.get()
        yield value[0], self.account.value(), list(self.last.get()), dict(self.limits.items()), self.total.get(), mean

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        yield ctx.get_current_key(), "timer", timestamp


def bank(env: Any, source: Any) -> Any:
    strategy = fp.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda e, _: e[1])
    payments = env.from_source(source, strategy, "payments", type_info=tuple[int, int]).uid("payments")
    return payments.key_by(lambda p: p[0], int).process(Bank()).uid("bank")


def bootstrapped(place: Path, keys: int = 40) -> SavepointReader:
    ids = list(range(keys))
    accounts = pa.table({"id": ids, "owner": [f"o{i}" for i in ids], "balance": [i * 10 for i in ids]})
    last = pd.DataFrame({"key": [i for i in ids for _ in range(i % 3)], "value": [i + n for i in ids for n in range(i % 3)]})
    limits = [{"key": i, "map_key": name, "value": float(i)} for i in ids for name in ("day", "week")]
    means = pa.table({"key": ids, "value": pa.array([{"count": 1, "sum": i} for i in ids])})
    timers = {"key": ids, "timestamp": [datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)] * keys}
    return (
        SavepointWriter.new_savepoint("bank", max_parallelism=32)
        .with_state("bank", Bank.account, accounts, key_type=int, columns={"key": "id"})
        .with_state("bank", Bank.last, last)
        .with_state("bank", Bank.limits, limits)
        .with_state(
            "bank",
            Bank.total,
            pa.RecordBatchReader.from_batches(
                pa.schema({"key": pa.int32(), "value": pa.int16()}),
                iter([pa.RecordBatch.from_pydict({"key": pa.array(ids, pa.int32()), "value": pa.array(ids, pa.int16())})]),
            ),
        )
        .with_state("bank", Bank.mean, means)
        .with_timers("bank", timers)
        .write(place)
    )


@pytest.mark.parametrize("parallelism", [1, 3])
def test_a_job_begins_with_state_from_tables(tmp_path: Path, parallelism: int) -> None:
    made = bootstrapped(tmp_path / "made")
    made.verify()
    assert made.metadata.parent.kind == "none"
    payments = [(i, 2000 + i) for i in (5, 7, 8, 5)]
    run = run_local(bank, payments, restore=made.path, parallelism=parallelism, max_parallelism=32)
    found = run.by_key(lambda value: value[0])
    for i in range(40):
        timer = (i, "timer", 1000)
        assert found[i][0] == timer or i in (5, 7, 8)
        assert timer in found[i]
    first = next(value for value in found[8] if value[1] != "timer")
    assert first == (8, Account("o8", 80), [8, 9, 2008], {"day": 8.0, "week": 8.0}, 8 + 2008, (8 + 2008) / 2)
    assert [value[2] for value in found[5] if value[1] != "timer"] == [[5, 6, 2005], [5, 6, 2005, 2005]]


def test_operator_lists_are_dealt_out(tmp_path: Path) -> None:
    made = (
        SavepointWriter.new_savepoint("test", parallelism=3)
        .with_operator_state("buffer", fp.ListStateDescriptor("seen", str), {"value": list("abcdefg")})
        .with_operator_state("buffer", fp.ListStateDescriptor("known", tuple[str, int]), {"f0": ["x"], "f1": [1]}, union=True)
        .write(tmp_path / "made")
    )
    made.verify()
    assert [(e.subtask, e.index, e.value) for e in made.state("buffer", "seen").rows()] == [
        (0, 0, "a"),
        (0, 1, "b"),
        (0, 2, "c"),
        (1, 0, "d"),
        (1, 1, "e"),
        (2, 0, "f"),
        (2, 1, "g"),
    ]
    root = tmp_path / "root"
    again = run_local(
        build, [Event("u", 1, 1), Eof(savepoint=True)], restore=made.path, state_root=str(root), parallelism=2
    ).savepoint
    assert again is not None
    read = SavepointReader.read(again)
    assert sorted(e.value for e in read.state("buffer", "seen").rows()) == [*"abcdefg", "u"]
    known = [(e.subtask, e.value) for e in read.state("buffer", "known").rows()]
    assert [value for _, value in known].count(("x", 1)) == 2


class Ruled(fp.KeyedBroadcastProcessFunction):
    rules = fp.MapStateDescriptor("rules", str, int)

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        yield value, sorted(ctx.get_broadcast_state(self.rules).items())

    def process_broadcast_element(self, value: Any, ctx: Any) -> None:
        ctx.get_broadcast_state(self.rules).put(value[0], value[1])


def test_broadcast_state_is_read_edited_and_made(tmp_path: Path) -> None:
    def ruled(env: Any, source: Any) -> Any:
        events = env.from_source(source, fp.WatermarkStrategy.no_watermarks(), "events").uid("events")
        rules = events.filter(lambda e: isinstance(e, tuple)).broadcast(Ruled.rules)
        keyed = events.filter(lambda e: isinstance(e, int)).key_by(lambda e: e % 3, int)
        return keyed.connect(rules).process(Ruled()).uid("ruled")

    events = [("b", 1), ("a", 2), ("c", 3), Eof(savepoint=True), 1, 2]
    saved_at = run_local(ruled, events, state_root=str(tmp_path), parallelism=3).savepoint
    assert saved_at is not None
    before = SavepointReader.read(saved_at)
    assert [(e.map_key, e.value) for e in before.state("ruled", "rules").rows()] == [("b", 1), ("a", 2), ("c", 3)]
    fewer = edit(before).filter("ruled", "map_key <> 'a'", "rules").write(tmp_path / "fewer")
    (state,) = (s for s in diff(before, fewer).states if s.name == "rules")
    assert (state.removed, state.samples[0].place, state.samples[0].before) == (1, {"map_key": "a"}, 2)
    data = {"map_key": ["z", "y"], "value": [26, 25]}
    other = edit(before).with_operator_state("ruled", Ruled.rules, data).write(tmp_path / "other")
    for savepoint, rules in ((fewer, [("b", 1), ("c", 3)]), (other, [("y", 25), ("z", 26)])):
        savepoint.verify()
        found = run_local(ruled, events, state_root=str(tmp_path / "root"), restore=savepoint.path, parallelism=2).output
        assert sorted(found) == [(1, rules), (2, rules)]
    with pytest.raises(fp.EditRefused, match="two entries for map_key 'z'"):
        edit(before).with_operator_state("ruled", Ruled.rules, {"map_key": ["z", "z"], "value": [1, 2]}).write(tmp_path / "no")


def test_object_stores_do_as_well() -> None:
    made = new_state({"key": [1, 2], "owner": ["a", "b"], "balance": [5, 6]}).write("memory://processor/made")
    found = made.query("SELECT owner FROM bank.account WHERE balance > 5").to_pylist()
    assert found == [{"owner": "b"}]
    again = edit("memory://processor/made").with_max_parallelism(7).write("memory://processor/again")
    assert again.state("bank", "account").get(2) == Account("b", 6)
    assert diff(made, again).same


def test_a_state_is_replaced_by_what_was_read_of_it(savepoint: SavepointReader, tmp_path: Path) -> None:
    writer = edit(savepoint)
    for state in savepoint.states:
        if state.uid == "everything" and not state.is_timers:
            writer.with_state("everything", getattr(Everything, state.name.replace(" ", "_")), state.to_reader())
    for domain in ("event", "processing"):
        writer.with_timers("everything", savepoint.timers("everything", domain).to_arrow(), domain=domain)
    contents = savepoint.state("windows", "window-contents").to_arrow()
    reducing = fp.ReducingStateDescriptor(
        "window-contents", lambda a, b: a, savepoint.state("windows", "window-contents").value_type
    )
    writer.with_state("windows", reducing, contents)
    new = writer.write(tmp_path / "new")
    new.verify()
    assert diff(savepoint, new).same
    assert going_on(new.path, tmp_path / "a", 2) == going_on(savepoint.path, tmp_path / "b", 2)


# -- positions


def test_positions_and_watermarks(savepoint: SavepointReader, tmp_path: Path) -> None:
    position = {"section": 0, "next": [0]}
    new = edit(savepoint).with_source_position("events", position).reset_watermarks().write(tmp_path / "new")
    assert new.positions["events"].position == position
    assert (new.watermarks, new.positions["events"].splits) == ({}, {})
    found = diff(savepoint, new)
    assert not found.same
    assert [each.uid for each in found.positions] == ["events"]
    assert {each.after for each in found.watermarks} == {None}
    run = run_local(build, EVENTS, state_root=str(tmp_path / "root"), restore=new.path)
    assert len([value for value in run.outputs["state"] if value[1] != "timer"]) == len(EVENTS)
    assert edit(savepoint).remove_source_position("events").write(tmp_path / "again").positions == {}
    made = SavepointWriter.new_savepoint("test").with_source_position("events", position).write(tmp_path / "made")
    assert made.positions["events"].position == position


# -- what is refused


def new_state(data: Any, descriptor: Any = Bank.account, key_type: Any = int, **more: Any) -> SavepointWriter:
    return SavepointWriter.new_savepoint("bank").with_state("bank", descriptor, data, key_type=key_type, **more)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"key": [1], "owner": ["a"]}, "no column 'balance' of type .*it has key, owner"),
        (
            {"key": [1], "owner": ["a"], "balance": ["1"]},
            "column 'balance' is string in the data and LONG in the state",
        ),
        ({"key": [1], "owner": ["a"], "balance": [1.5]}, "column 'balance' is double"),
        ({"key": [1], "owner": ["a"], "balance": [None]}, "column 'balance' has 1 nulls"),
        ({"key": [None], "owner": ["a"], "balance": [2]}, "column 'key' has 1 nulls"),
        ({"key": [1, 2], "value": [{"owner": "a", "balance": 1}, None]}, "column 'value' has 1 nulls, but .*Account"),
        (
            {"key": [1], "owner": ["a"], "balance": [1], "extra": [1]},
            "the column 'extra', which the state does not have",
        ),
        ({"key": [1, 1], "owner": ["a", "b"], "balance": [1, 2]}, "two entries for key 1"),
        ([1, 2], "int is not a table"),
        (7, "int is not a table"),
    ],
)
def test_data_that_does_not_fit_is_refused_by_column(tmp_path: Path, data: Any, message: str) -> None:
    with pytest.raises(fp.EditRefused, match=message):
        new_state(data).write(tmp_path / "new")
    assert not [path for path in (tmp_path / "new").rglob("*") if path.is_file()]


def test_what_cannot_be_is_refused_at_once(savepoint: SavepointReader, tmp_path: Path) -> None:
    accounts = {"key": [1], "owner": ["a"], "balance": [1]}
    with pytest.raises(fp.EditRefused, match="give key_type="):
        new_state(accounts, key_type=None)
    with pytest.raises(fp.EditRefused, match="no column 'id'"):
        new_state(accounts, columns={"id": "key"})
    with pytest.raises(fp.EditRefused, match="keys of type STRING"):
        edit(savepoint).with_state("everything", Bank.account, accounts, key_type=int)
    with pytest.raises(fp.StateNotFound, match="did you mean 'total'"):
        edit(savepoint).remove_state("everything", "totall")
    with pytest.raises(fp.StateNotFound, match="no operator 'nothing'"):
        edit(savepoint).remove_operator("nothing")
    with pytest.raises(fp.EditRefused, match=r"(?s)sume.*columns are key_group, key, count, sum"):
        edit(savepoint).filter("everything", "sume > 1", "total")
    with pytest.raises(fp.EditRefused, match="already has an operator 'windows'"):
        edit(savepoint).change_operator_identifier("everything", "windows")
    with pytest.raises(fp.StateNotFound, match="'events'"):
        edit(savepoint).remove_source_position("event")
    with pytest.raises(fp.StateNotFound, match="'events'"):
        edit(savepoint).with_source_position("event", {})
    with pytest.raises(fp.EditRefused, match="has no state with keys to filter"):
        edit(savepoint).filter("buffer", "key = 1")
    with pytest.raises(fp.EditRefused, match="no column 'balance'"):
        new_state(pa.table({"key": [1], "owner": ["a"]}))
    with pytest.raises(fp.EditRefused, match="from 1 to 32768"):
        edit(savepoint).with_max_parallelism(0)
    with pytest.raises(fp.EditRefused, match="max parallelism must be from 1 to 32768, not 40000"):
        SavepointWriter.new_savepoint("bank", max_parallelism=40_000)
    with pytest.raises(fp.EditRefused, match="parallelism must be from 1"):
        SavepointWriter.new_savepoint("bank", parallelism=0)
    with pytest.raises(fp.EditRefused, match="neither 'event' nor"):
        edit(savepoint).remove_timers("everything", "wall")
    with pytest.raises(fp.EditRefused, match="ZeroDivisionError"):
        edit(savepoint).map("everything", "sum", lambda s: s // 0).write(tmp_path / "new")
    with pytest.raises(fp.EditRefused, match="ZeroDivisionError"):
        edit(savepoint).filter("everything", lambda e: 1 // 0, "sum").write(tmp_path / "new")
    with pytest.raises(fp.EditRefused, match="'x'"):
        edit(savepoint).map("everything", "sum", lambda s: "x").write(tmp_path / "new")
    assert not [path for path in (tmp_path / "new").rglob("*") if path.is_file()]


def test_elements_keep_their_order_whatever_they_come_as(tmp_path: Path) -> None:
    items = [{"key": 1, "value": 1}, pa.table({"key": [1, 1], "value": [2, 3]}), {"key": 1, "value": 4}]
    writer = SavepointWriter.new_savepoint("lists")
    made = writer.with_state("op", fp.ListStateDescriptor("l", int), items, key_type=int).write(tmp_path / "made")
    assert made.state("op", "l").get(1) == [1, 2, 3, 4]


def test_batches_may_have_columns_of_different_types_and_orders(tmp_path: Path) -> None:
    narrow = pa.record_batch({"value": pa.array([1], pa.int8()), "key": pa.array([1], pa.int64())})
    items = [narrow, pa.table({"key": pa.array([2], pa.int32()), "value": [2]}), narrow.slice(0, 0)]
    writer = SavepointWriter.new_savepoint("values")
    made = writer.with_state("op", fp.ValueStateDescriptor("v", int), items, key_type=int).write(tmp_path / "made")
    assert [made.state("op", "v").get(key) for key in (1, 2)] == [1, 2]


@pytest.mark.parametrize("prefix", ["file:", "file://", ""])
def test_places_are_paths_or_urls(savepoint: SavepointReader, tmp_path: Path, prefix: str) -> None:
    edit(savepoint).write(f"{prefix}{tmp_path}/made")
    assert (tmp_path / "made" / "savepoint.json").exists()


def test_a_savepoint_is_never_written_over(savepoint: SavepointReader, tmp_path: Path) -> None:
    made = edit(savepoint).write(tmp_path / "made")
    with pytest.raises(fp.AlreadyExists):
        edit(savepoint).write(tmp_path / "made")
    assert diff(savepoint, made).same


def test_a_stream_is_read_once(tmp_path: Path) -> None:
    accounts = pa.table({"key": [1], "owner": ["a"], "balance": [1]})
    writer = new_state(accounts.to_reader())
    writer.write(tmp_path / "one")
    with pytest.raises(fp.EditRefused, match=r"another write\(\) has read"):
        writer.write(tmp_path / "two")


# -- killed


class Died(BaseException):
    """The process is gone: nothing that it does comes to pass any more."""


def test_death_at_any_step_leaves_nothing_that_counts(
    savepoint: SavepointReader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = {name: getattr(LocalStorage, name) for name in ("put", "create", "delete")}
    left = 0

    def patched(name: str) -> Any:
        def step(self: LocalStorage, *args: Any) -> Any:
            nonlocal left
            left -= 1
            if left < 0:
                raise Died
            return real[name](self, *args)

        return step

    for name in real:
        monkeypatch.setattr(LocalStorage, name, patched(name))
    writer = edit(savepoint).remove_operator("buffer").remove_operator("windows").filter("everything", "key = 'u1'")
    writer.re_key("everything", lambda user: f"{user}!").with_state(
        "other", Bank.account, {"key": [1, 2], "owner": ["a", "b"], "balance": [1, 2]}, key_type=int
    )
    left = whole = 10**6
    writer.write(tmp_path / "counted")
    steps = whole - left
    for step in (0, steps // 3, steps - 2, steps - 1):
        left = step
        with pytest.raises(Died):
            writer.write(tmp_path / "new")
        with pytest.raises(fp.SavepointNotFound):
            SavepointReader.read(tmp_path / "new")
    left = whole
    writer.write(tmp_path / "new")
    made = SavepointReader.read(tmp_path / "new")
    assert made.verify().entries == sum(state.count for state in made.states)
    assert made.state("everything", "amounts").get("u1!") == savepoint.state("everything", "amounts").get("u1")


WRITER = """
import sys
import pyarrow as pa
import forkpoint as fp
from forkpoint.savepoint.edit import data
from forkpoint.state_processor import SavepointWriter

data.RUN_ROWS = 1000

def batches():
    for start in range(0, 10**9, 1000):
        ids = pa.array(range(start, start + 1000))
        yield pa.RecordBatch.from_pydict({"key": ids, "value": ids})

writer = SavepointWriter.new_savepoint("job")
writer.with_state("op", fp.ValueStateDescriptor("small", int), {"key": [1], "value": [1]}, key_type=int)
writer.with_state("op", fp.ValueStateDescriptor("large", int), batches()).write(sys.argv[1])
"""


def test_killed_in_the_middle_leaves_nothing_that_counts(tmp_path: Path) -> None:
    place = tmp_path / "made"
    process = Python(["-c", WRITER, place])
    while not len(list(place.rglob("*.parquet"))) > 70:
        assert process.poll() is None
        time.sleep(0.02)
    process.kill()
    process.wait()
    assert list(place.rglob("*.parquet"))
    with pytest.raises(fp.SavepointNotFound):
        SavepointReader.read(place)
    made = new_state({"key": [1], "owner": ["a"], "balance": [1]}).write(place)
    assert verify_files(made.opened).entries == 1
    assert len(list(place.rglob("*.parquet"))) == 1
