"""Connected streams and broadcast state on Spark give what they give on the local engine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession

import forkpoint as fp

pytestmark = pytest.mark.spark

LIMITS = fp.MapStateDescriptor("limits", str, int)


class Balance(fp.KeyedCoProcessFunction):
    """Adds the first input's numbers, takes the second's away; a timer tells the balance ten later."""

    balance = fp.ValueStateDescriptor("balance", int, 0)

    def process_element1(self, value: Any, ctx: fp.KeyedCoProcessFunction.Context) -> Iterator[tuple[str, int]]:
        self.balance.update((self.balance.value() or 0) + value[1])
        ctx.timer_service().register_event_time_timer(value[2] + 10)
        yield from ()

    def process_element2(self, value: Any, ctx: fp.KeyedCoProcessFunction.Context) -> Iterator[tuple[str, int]]:
        self.balance.update((self.balance.value() or 0) - value[1])
        yield ctx.get_current_key(), self.balance.value() or 0

    def on_timer(self, timestamp: int, ctx: fp.KeyedCoProcessFunction.OnTimerContext) -> Iterator[tuple[str, int]]:
        yield ctx.get_current_key(), self.balance.value() or 0


class Limit(fp.KeyedBroadcastProcessFunction):
    """Tells how often each key went below its limit; a new limit sets the counts back."""

    below = fp.ValueStateDescriptor("below", int, 0)

    def process_element(
        self, value: tuple[str, int], ctx: fp.KeyedBroadcastProcessFunction.ReadOnlyContext
    ) -> Iterator[tuple[str, int, int]]:
        limit = ctx.get_broadcast_state(LIMITS).get("all")
        if limit is not None and value[1] < limit:
            self.below.update((self.below.value() or 0) + 1)
            yield value[0], value[1], self.below.value() or 0

    def process_broadcast_element(self, value: Any, ctx: fp.KeyedBroadcastProcessFunction.Context) -> None:
        ctx.get_broadcast_state(LIMITS).put("all", value[1])
        ctx.apply_to_keyed_state(self.below, lambda key, below: below.clear())


def results(engine: str) -> dict[str, list[Any]]:
    env = fp.StreamExecutionEnvironment.get_execution_environment({"execution.engine": engine})
    env.set_parallelism(2).set_max_epoch_rows(60)
    strategy = fp.WatermarkStrategy.for_bounded_out_of_orderness(5).with_timestamp_assigner(lambda e, _: e[2])
    rows = [(f"k{i * 7 % 5}" if i % 40 else "limit", i % 9 - i // 100, i) for i in range(200)]
    stream = env.from_collection(rows, tuple[str, int, int]).assign_timestamps_and_watermarks(strategy)
    limits = stream.filter(lambda e: e[0] == "limit")
    plus = stream.filter(lambda e: e[0] != "limit" and e[1] % 2 == 0)
    minus = stream.filter(lambda e: e[0] != "limit" and e[1] % 2 == 1)
    balances = plus.connect(minus).key_by(0, 0).process(Balance())
    found: dict[str, list[Any]] = {}
    for value in balances.key_by(lambda v: v[0], str).connect(limits.broadcast(LIMITS)).process(Limit()).execute_and_collect():
        found.setdefault(value[0], []).append(value)
    return found


def test_the_same_results(session: SparkSession) -> None:
    found = results("spark")
    assert found == results("local")
    assert len(found) == 5
