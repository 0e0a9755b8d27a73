"""State that belongs to subtasks, and word of finished checkpoints."""

from typing import ClassVar

import forkpoint as fp
from forkpoint.testing import ABORT, EOF, PAUSE, Eof, OperatorHarness, ProcessHarness, TestSource, run_local

NO_WATERMARKS = fp.WatermarkStrategy.no_watermarks()


class Buffer(fp.FlatMapFunction, fp.CheckpointedFunction):
    """Holds elements back until it has three; what it holds is operator state."""

    def initialize_state(self, context):
        self.list = context.get_operator_state_store().get_list_state(fp.ListStateDescriptor("held", int))
        self.held = list(self.list.get())
        self.restored = context.is_restored()

    def open(self, runtime_context):
        assert isinstance(self.held, list), "state is restored before open()"

    def flat_map(self, value):
        self.held.append(value)
        while len(self.held) >= 3:
            yield tuple(self.held[:3])
            self.held = self.held[3:]

    def snapshot_state(self, context):
        assert context.get_checkpoint_id() > 0
        self.list.update(self.held)


def buffered(env, source):
    return env.from_source(source, NO_WATERMARKS, "in").uid("in").flat_map(Buffer()).uid("buffer")


def test_what_was_held_is_there_after_epochs_deaths_and_stops(tmp_path):
    script = [1, 2, PAUSE, 3, 4, ABORT, PAUSE, 5, EOF, 6, ABORT, 7, 8, 9]
    first = run_local(buffered, script, parallelism=2, state_root=tmp_path)
    second = run_local(buffered, script, parallelism=2, state_root=tmp_path)
    assert first.output + second.output == [(1, 2, 3), (4, 5, 6), (7, 8, 9)]


def test_a_list_is_dealt_out_and_nothing_is_lost():
    with OperatorHarness(lambda s: s.flat_map(Buffer()), parallelism=2) as harness:
        for value in range(4):
            harness.process_element(value)
        saved = harness.snapshot()
        assert harness.output == []
    for parallelism in (1, 2, 3, 4):
        with OperatorHarness(lambda s: s.flat_map(Buffer()), parallelism=parallelism, restore=saved) as harness:
            for value in range(10, 10 + 3 * parallelism):
                harness.process_element(value)
            emitted = [v for group in harness.output for v in group]
            again = harness.snapshot()
        with OperatorHarness(lambda s: s.flat_map(Buffer()), parallelism=1, restore=again) as rest:
            held = [*rest._subtasks[0].inner._owner.held]
        assert sorted(emitted + held) == [0, 1, 2, 3, *range(10, 10 + 3 * parallelism)]


def test_a_list_is_dealt_out_by_a_savepoint(tmp_path):
    script = TestSource(
        *[
            [*split, Eof(savepoint=True), *more]
            for split, more in zip(([1, 2], [3, 4], [5], [6, 7]), ([], [8], [], [9, 10, 11, 12]), strict=True)
        ]
    )
    first = run_local(buffered, script, parallelism=3, state_root=tmp_path)
    second = run_local(buffered, script, parallelism=1, state_root=tmp_path, restore=first.savepoint)
    assert sorted(v for group in first.output + second.output for v in group) == list(range(1, 13))


class Known(fp.MapFunction, fp.CheckpointedFunction):
    """Every subtask adds its own to a union and knows all of it after a restore."""

    def initialize_state(self, context):
        self.union = context.get_operator_state_store().get_union_list_state(fp.ListStateDescriptor("union", str))
        self.all = sorted(self.union.get())
        self.mine = [] if not context.is_restored() else None

    def map(self, value):
        if self.mine is not None:
            self.mine.append(value)
        return value, tuple(self.all)

    def snapshot_state(self, context):
        if self.mine is not None:
            self.union.update(self.mine)


def test_of_a_union_every_subtask_gets_everything():
    with ProcessHarness(Known(), parallelism=3) as harness:
        for value in "abcde":
            harness.process_element(value)
        assert {seen for _, seen in harness.output} == {()}
        saved = harness.snapshot()
    with ProcessHarness(Known(), parallelism=2, restore=saved) as harness:
        for value in "xyz":
            harness.process_element(value)
        assert harness.output == [(v, ("a", "b", "c", "d", "e")) for v in "xyz"]


class CountingKeyed(fp.KeyedProcessFunction, fp.CheckpointedFunction):
    """Keyed and operator state in one function."""

    count = fp.ValueStateDescriptor("count", int)

    def initialize_state(self, context):
        self.list = context.get_operator_state_store().get_list_state(fp.ListStateDescriptor("total", int))
        self.total = sum(self.list.get())

    def process_element(self, value, ctx):
        self.count.update((self.count.value() or 0) + 1)
        self.total += 1
        yield value, self.count.value(), self.total

    def snapshot_state(self, context):
        self.list.update([self.total])


def test_keyed_and_operator_state_in_one_function():
    def build(env, source):
        return env.from_source(source, NO_WATERMARKS, "in").key_by(lambda v: v, str).process(CountingKeyed())

    run = run_local(build, ["a", "b", PAUSE, "a", ABORT, "b", "a"], parallelism=1)
    assert [value[:2] for value in run.output] == [("a", 1), ("b", 1), ("a", 2), ("b", 2), ("a", 3)]
    assert sorted(value[2] for value in run.output) == [1, 2, 3, 4, 5]  # keys take turns as a whole within an epoch


TOLD = []


class Listener(fp.MapFunction, fp.CheckpointListener):
    def map(self, value):
        return value

    def notify_checkpoint_complete(self, checkpoint_id):
        TOLD.append(("complete", checkpoint_id))

    def notify_checkpoint_aborted(self, checkpoint_id):
        TOLD.append(("aborted", checkpoint_id))


def test_a_listener_is_told_of_each_committed_epoch_once():
    for keyed in (False, True):
        TOLD.clear()

        def build(env, source, keyed=keyed):
            stream = env.from_source(source, NO_WATERMARKS, "in")
            return (stream.key_by(lambda v: 0, int) if keyed else stream).map(Listener())

        run = run_local(build, TestSource([1, 2, 3, PAUSE, 4, 5, 6, PAUSE, 7], batch_rows=1), parallelism=1)
        assert run.epochs == 3
        assert [told for told in TOLD if told[0] == "complete"] == [("complete", 2), ("complete", 3), ("complete", 4)]
        assert [told for told in TOLD if told[0] == "aborted"] == []


class NumberedWindows(fp.ProcessAllWindowFunction, fp.CheckpointedFunction, fp.CheckpointListener):
    """Numbers windows without keys; the number is operator state."""

    completed: ClassVar = []

    def initialize_state(self, context):
        self.list = context.get_operator_state_store().get_list_state(fp.ListStateDescriptor("number", int))
        self.number = sum(self.list.get())

    def process(self, context, elements):
        self.number += 1
        yield self.number, tuple(elements)

    def snapshot_state(self, context):
        self.list.update([self.number])

    def notify_checkpoint_complete(self, checkpoint_id):
        self.completed.append(checkpoint_id)


def test_a_window_function_without_keys_has_operator_state_and_hears_of_checkpoints(tmp_path):
    def numbered(env, source):
        values = env.from_source(source, NO_WATERMARKS, "in").uid("in")
        return values.window_all(fp.CountTumblingWindowAssigner.of(2)).process(NumberedWindows()).uid("windows")

    NumberedWindows.completed.clear()
    script = [1, 2, PAUSE, 3, ABORT, 4, EOF, 5, 6, PAUSE, 7, 8]
    first = run_local(numbered, script, state_root=tmp_path)
    second = run_local(numbered, script, state_root=tmp_path)
    assert first.output + second.output == [(1, (1, 2)), (2, (3, 4)), (3, (5, 6)), (4, (7, 8))]
    assert NumberedWindows.completed
