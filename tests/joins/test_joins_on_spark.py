"""Joins on Spark give what they give on the local engine."""

import pytest
from join_jobs import Left, Right, strategy

import forkpoint as fp

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("session")]

LEFT = [Left("abc"[i % 3], i * 3 - i % 4, i) for i in range(20)]
RIGHT = [Right("abc"[i % 3], i * 4 - i % 3, i) for i in range(20)]


def ids(left, right, *_):
    yield left.id, right.id


def all_joins(engine):
    """One job with every join: what came out of each."""
    env = fp.StreamExecutionEnvironment.get_execution_environment({"execution.engine": engine})
    env.set_parallelism(2).set_max_epoch_rows(12)
    left = env.from_collection(LEFT, Left).assign_timestamps_and_watermarks(strategy())
    right = env.from_collection(RIGHT, Right).assign_timestamps_and_watermarks(strategy())
    sessions, tumbling = fp.EventTimeSessionWindows.with_gap(4), fp.TumblingEventTimeWindows.of(10)
    keyed = left.key_by("key"), right.key_by("key")
    joined = {
        "join": left.join(right).where("key").equal_to("key").window(sessions).apply(ids),
        "co_group": left.co_group(right)
        .where("key")
        .equal_to("key")
        .window(tumbling)
        .apply(lambda a, b: [(sorted(e.id for e in a), sorted(e.id for e in b))]),
        "interval": keyed[0].interval_join(keyed[1]).between(-6, 6).process(ids),
        "temporal": keyed[0].temporal_join(keyed[1]).apply(ids),
    }
    named = [stream.map(lambda value, name=name: (name, value)) for name, stream in joined.items()]
    return sorted(map(repr, named[0].union(*named[1:]).execute_and_collect()))


def test_the_same_results():
    found = all_joins("spark")
    assert found == all_joins("local")
    assert all(sum(f"('{name}'" in row for row in found) >= 8 for name in ("join", "co_group", "interval", "temporal"))
