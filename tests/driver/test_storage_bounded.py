"""Whatever a job keeps, what it leaves on storage does not grow with its epochs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import forkpoint as fp
from forkpoint.api.execution import prepare
from forkpoint.api.launch import Launch
from forkpoint.checkpoint.gc import needed_files
from forkpoint.checkpoint.history import History
from forkpoint.checkpoint.paths import JobPaths
from forkpoint.driver.commit import garbage
from forkpoint.driver.run import epochs as driver_epochs
from forkpoint.graph.options import CheckpointOptions
from forkpoint.storage.base import open_storage
from threadless import AtOnce

RULES = fp.MapStateDescriptor("rules", int, int)


@pytest.fixture(autouse=True)
def short_chains(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_epochs, "SNAPSHOT_CHAIN", 8)
    monkeypatch.setattr(garbage, "EVERY_EPOCHS", 5)
    monkeypatch.setattr(garbage, "ThreadPoolExecutor", AtOnce)


class Never(fp.KeyedProcessFunction):
    """Has a state and never uses it."""

    unused = fp.ValueStateDescriptor("unused", int)

    def process_element(self, value: int, ctx: Any) -> Any:
        yield value


class Late(fp.KeyedProcessFunction):
    """Asks for its state when half of the elements have gone by."""

    def open(self, ctx: fp.RuntimeContext) -> None:
        self._ctx = ctx

    def process_element(self, value: int, ctx: Any) -> Any:
        if value > 100:
            self._ctx.get_state(fp.ValueStateDescriptor("late", int)).update(value)
        yield value


class Count(fp.MapFunction, fp.CheckpointedFunction):
    """Operator state alone."""

    def initialize_state(self, ctx: Any) -> None:
        self._state = ctx.get_operator_state_store().get_list_state(fp.ListStateDescriptor("count", int))
        self._count = sum(self._state.get())

    def snapshot_state(self, ctx: Any) -> None:
        self._state.update([self._count])

    def map(self, value: int) -> int:
        self._count += 1
        return value


class Ruled(fp.BroadcastProcessFunction):
    """Broadcast state alone."""

    def process_element(self, value: int, ctx: Any) -> Any:
        yield value

    def process_broadcast_element(self, value: int, ctx: Any) -> Any:
        ctx.get_broadcast_state(RULES).put(value % 7, value)
        yield value


def stateless(stream: fp.DataStream, other: fp.DataStream) -> fp.DataStream:
    return stream.map(lambda v: v + 1, int)


def shuffled(stream: fp.DataStream, other: fp.DataStream) -> fp.DataStream:
    return stream.rebalance().map(lambda v: v + 1, int)


def unused(stream: fp.DataStream, other: fp.DataStream) -> fp.DataStream:
    return stream.key_by(lambda v: v % 7).process(Never(), int).uid("never")


def late(stream: fp.DataStream, other: fp.DataStream) -> fp.DataStream:
    return stream.key_by(lambda v: v % 7).process(Late(), int).uid("late")


def one_key(stream: fp.DataStream, other: fp.DataStream) -> fp.DataStream:
    return stream.key_by(lambda v: 0).reduce(lambda a, b: a + b).uid("sum")


def operator_state(stream: fp.DataStream, other: fp.DataStream) -> fp.DataStream:
    return stream.rebalance().map(Count(), int).uid("count")


def broadcast(stream: fp.DataStream, other: fp.DataStream) -> fp.DataStream:
    return stream.connect(other.broadcast(RULES)).process(Ruled(), int).uid("ruled")


def run(root: Path, build: Callable[[fp.DataStream, fp.DataStream], fp.DataStream], rows: int, **settings: int) -> None:
    env = fp.StreamExecutionEnvironment.get_execution_environment()
    env.set_state_root(str(root)).set_parallelism(settings.get("parallelism", 2)).set_max_epoch_rows(2)
    if "max_parallelism" in settings:
        env.set_max_parallelism(settings["max_parallelism"])
    env.options = replace(env.options, checkpoint=CheckpointOptions(num_retained=2))
    numbers, other = (env.from_collection(list(range(rows)), int).uid(uid) for uid in ("numbers", "other"))
    build(numbers, other).sink_to(fp.DiscardSink()).uid("sink")
    other.sink_to(fp.DiscardSink()).uid("other-sink")
    env.launch = Launch(options={"engine": "local"})
    assert prepare(env, "job").begin()().outcome == "finished"


def files(root: Path) -> list[str]:
    return [path for path in open_storage(str(root)).list("jobs/job") if "/runs/" not in path]


@pytest.mark.parametrize(
    ("build", "settings"),
    [
        (stateless, {}),
        (shuffled, {}),
        (unused, {}),
        (late, {}),
        (one_key, {}),
        (one_key, {"parallelism": 5, "max_parallelism": 5}),
        (operator_state, {}),
        (operator_state, {"parallelism": 4, "max_parallelism": 4}),
        (broadcast, {}),
    ],
)
def test_what_is_left_on_storage_is_bounded(tmp_path: Path, build: Any, settings: dict[str, int]) -> None:
    counts = []
    for rows in (40, 120):  # 20 epochs, and three times as many
        root = tmp_path / str(rows)
        run(root, build, rows, **settings)
        counts.append(len(files(root)))
        history = History(open_storage(str(root)), JobPaths("job"))
        manifests = {epoch: history.load(epoch) for epoch in history.epochs()}
        assert max(manifests) > rows // 2
        assert needed_files(manifests[max(manifests)], manifests) <= set(files(root))
    assert counts[1] <= counts[0] + 10, counts
    assert counts[1] <= 70, counts
