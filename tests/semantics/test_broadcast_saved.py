"""Broadcast state in savepoints: one copy, what is removed is gone, types evolve; other kinds of state beside it."""

from typing import NamedTuple

import pyarrow.parquet as pq
import pytest
from test_broadcast import WATERMARKS, Touch, names_seen
from two_input_programs import RULES

import forkpoint as fp
from forkpoint.errors import RestoreRefused
from forkpoint.testing import PAUSE, Eof, run_local


def test_a_savepoint_has_one_copy_in_order(tmp_path):
    elements = [("one", 1), ("two", 2), ("one", 3), ("three", 4), ("a", 5), Eof(savepoint=True)]
    run = run_local(names_seen, elements, epochs=2, parallelism=3, state_root=tmp_path)
    (file,) = tmp_path.glob("savepoints/**/operators/names/rules/*.parquet")
    table = pq.read_table(file).to_pydict()
    assert {name: table[name] for name in ("map_key", "value")} == {
        "map_key": ["one", "two", "three"],
        "value": [3, 2, 4],
    }
    assert run.savepoint is not None


class Rewriter(fp.BroadcastProcessFunction):
    def process_element(self, value, ctx):
        yield len(list(ctx.get_broadcast_state(RULES).items()))

    def process_broadcast_element(self, value, ctx):
        state = ctx.get_broadcast_state(RULES)
        if value[0] == "clear":
            state.clear()
        state.put_all([("x", 1), ("y", 2)])
        del state["x"]
        state.remove("y")
        state.remove("never there")


def test_what_is_removed_is_gone_from_the_savepoint(tmp_path):
    def build(env, source):
        stream = env.from_source(source, WATERMARKS, "in").uid("in")
        rules = stream.filter(lambda v: v[0] != "look")
        return stream.filter(lambda v: v[0] == "look").connect(rules.broadcast(RULES)).process(Rewriter()).uid("rewrite")

    run = run_local(build, [("put", 1), PAUSE, ("clear", 2), ("look", 3), Eof(savepoint=True)], state_root=tmp_path)
    assert run.output == [0]
    (file,) = tmp_path.glob("savepoints/**/operators/rewrite/rules/*.parquet")
    assert pq.read_table(file).num_rows == 0


def test_cleared_for_all_keys_is_gone_from_the_savepoint(tmp_path):
    def build(env, source):
        stream = env.from_source(source, WATERMARKS, "in").uid("in")
        rules = stream.filter(lambda v: v[0] == "rule").broadcast(RULES)
        return stream.filter(lambda v: v[0] != "rule").key_by(0, str).connect(rules).process(Touch()).uid("touch")

    elements = [*((key, 0, "no") for key in "abcdefg"), PAUSE, ("rule", 1, "clear"), Eof(savepoint=True)]
    run_local(build, elements, parallelism=2, state_root=tmp_path)
    rows = [pq.read_table(f).num_rows for f in tmp_path.glob("savepoints/**/operators/touch/seen/*.parquet")]
    assert sum(rows) == 0


class Limit(NamedTuple):
    least: int


class WideLimit(NamedTuple):
    least: int
    most: int | None = None


def limits(value_type, migrate=False):
    descriptor = fp.MapStateDescriptor("limits", str, value_type)

    class Check(fp.KeyedBroadcastProcessFunction):
        count = fp.ValueStateDescriptor("count", int, 0)

        def process_element(self, value, ctx):
            self.count.update(self.count.value() + 1)
            yield ctx.get_current_key(), self.count.value(), sorted(ctx.get_broadcast_state(descriptor).items())

        def process_broadcast_element(self, value, ctx):
            ctx.get_broadcast_state(descriptor).put(value[0], value_type(value[1]))

    def build(env, source):
        stream = env.from_source(source, WATERMARKS, "in").uid("in")
        rules = stream.filter(lambda v: len(v[0]) > 1).broadcast(descriptor)
        of = (lambda v: v[0] + "!") if migrate else (lambda v: v[0])
        checked = stream.filter(lambda v: len(v[0]) == 1).key_by(of, str).connect(rules).process(Check()).uid("check")
        return checked.migrate_key(1, lambda key: key + "!") if migrate else checked

    return build


@pytest.mark.parametrize("migrate", [False, True])
def test_values_evolve_and_keys_migrate_beside_them(tmp_path, migrate):
    script = [("one", 1), ("a", 2), Eof(savepoint=True), ("two", 3), ("a", 4)]
    first = run_local(limits(Limit), script, state_root=tmp_path)
    second = run_local(limits(WideLimit, migrate), script, state_root=tmp_path, restore=first.savepoint)
    assert second.output == [("a!" if migrate else "a", 2, [("one", WideLimit(1)), ("two", WideLimit(3))])]


def test_an_unfit_type_is_refused(tmp_path):
    script = [("one", 1), Eof(savepoint=True)]
    first = run_local(limits(Limit), script, state_root=tmp_path)
    with pytest.raises(RestoreRefused, match=r"check/limits.*its value type was"):
        run_local(limits(str), script, state_root=tmp_path, restore=first.savepoint)


class Logged(fp.KeyedBroadcastProcessFunction, fp.CheckpointedFunction):
    """Operator state, broadcast state and state of the key in one function."""

    count = fp.ValueStateDescriptor("count", int, 0)

    def initialize_state(self, context):
        self.log = context.get_operator_state_store().get_union_list_state(fp.ListStateDescriptor("log", str))
        self.seen = list(self.log.get()) if context.is_restored() else []

    def snapshot_state(self, context):
        self.log.update(self.seen)

    def process_element(self, value, ctx):
        self.count.update(self.count.value() + 1)
        self.seen.append(value[0])
        yield value[0], self.count.value(), sorted(self.seen), list(ctx.get_broadcast_state(RULES))

    def process_broadcast_element(self, value, ctx):
        ctx.get_broadcast_state(RULES)[value[0]] = 1


def test_all_kinds_of_state_side_by_side(tmp_path):
    def build(env, source):
        stream = env.from_source(source, WATERMARKS, "in").uid("in")
        rules = stream.filter(lambda v: len(v[0]) > 1).broadcast(RULES)
        return stream.filter(lambda v: len(v[0]) == 1).key_by(0, str).connect(rules).process(Logged()).uid("logged")

    script = [("a", 0), ("one", 1), ("b", 2), Eof(savepoint=True), ("two", 3), ("a", 4)]
    first = run_local(build, script, parallelism=2, state_root=tmp_path)
    second = run_local(build, script, parallelism=3, state_root=tmp_path, restore=first.savepoint)
    assert second.output == [("a", 2, ["a", "a", "b"], ["one", "two"])]
