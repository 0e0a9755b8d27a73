"""What a process that dies repeats, and what an epoch of a join writes."""

import numpy as np
import pytest
from join_jobs import Left, Right, rows, run, strategy

import forkpoint as fp
from forkpoint.graph.compile import compile_graph
from forkpoint.runtime.event_time.watermarks import MIN_MS, Window
from forkpoint.runtime.exchange.batch import Batch
from forkpoint.runtime.operators.base import Epoch, TaskInfo
from forkpoint.runtime.operators.instances import make_instance
from forkpoint.state.dict_store import DictStore
from forkpoint.testing import ABORT, Abort, TestSink, TestSource

LEFT = [Left("ab"[i % 2], i * 3 - i % 4, i) for i in range(12)]
RIGHT = [Right("ab"[i % 2], i * 4 - i % 3, i) for i in range(12)]


def pair(left, right):
    return left.id, right.id


def window(left, right):
    return left.join(right).where("key").equal_to("key").window(fp.SlidingEventTimeWindows.of(10, 5)).apply(pair)


def interval(left, right):
    near = left.key_by("key").interval_join(right.key_by("key")).between(-7, 3)
    return near.process(lambda left, right, ctx: [(left.id, right.id)])


def temporal(left, right):
    return left.key_by("key").temporal_join(right.key_by("key")).apply(pair)


@pytest.mark.parametrize("join", [window, interval, temporal])
@pytest.mark.parametrize("abort", [ABORT, Abort("committed")])
def test_a_process_that_dies_changes_nothing(join, abort):
    expected = rows(run(join, LEFT, RIGHT, epochs=100))
    for at in (1, 8):
        found = run(join, [*LEFT[:at], abort, *LEFT[at:]], [*RIGHT[:7], abort, *RIGHT[7:]], epochs=3)
        assert found.deaths == 2
        assert rows(found) == expected


@pytest.mark.parametrize(("join", "left_over"), [(interval, 0), (temporal, 1)])
def test_what_comes_and_goes_within_an_epoch_is_not_written(join, left_over):
    env = fp.StreamExecutionEnvironment.get_execution_environment()
    left = env.from_source(TestSource([], type=Left), strategy(), "left")
    right = env.from_source(TestSource([], type=Right), strategy(), "right")
    join(left, right).uid("join").sink_to(TestSink())
    operator = compile_graph(env.transformations, max_parallelism=128, require_uids=False).graph.by_uid["join"]
    instance, _ = make_instance(TaskInfo(operator, 0, 1, 128, {}), DictStore(), restored=False)

    def batch(kind, count):
        stamps = np.arange(count) * 5
        before = np.maximum.accumulate(np.concatenate(([MIN_MS], stamps[:-1] - 1)))
        values = [kind("a", ts, n) for n, ts in enumerate(stamps.tolist())]
        return Batch(count, 2 * before + 1, 0, np.arange(count), values=values, timestamps=stamps, type=None)

    outputs = instance.run([batch(Left, 200), batch(Right, 200)], Epoch(1, Window(MIN_MS, MIN_MS, 2000), 0))
    assert outputs.main.size >= 199
    assert len(instance.changes().keys) == left_over  # of a temporal join the last version stays
