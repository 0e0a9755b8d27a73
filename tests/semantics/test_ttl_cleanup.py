"""Expired entries go although nobody asks for them, and not before their time."""

from __future__ import annotations

import tempfile
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow.parquet as pq
import pytest

import forkpoint as fp
from forkpoint.api.launch import Launch
from forkpoint.driver.run.job_driver import JobDriver

HOUR_MS = 3_600_000
TTL = fp.StateTtlConfig.new_builder(timedelta(hours=1)).use_event_time().build()


class Remember(fp.KeyedProcessFunction):
    value = fp.ValueStateDescriptor("value", int).enable_time_to_live(TTL)
    items = fp.ListStateDescriptor("items", int).enable_time_to_live(TTL)
    table = fp.MapStateDescriptor("table", int, int).enable_time_to_live(TTL)

    def process_element(self, e: tuple[int, int], ctx: Any) -> None:
        self.value.update(e[1])
        self.items.add(e[1])
        self.table.put(e[0] % 3, e[1])


class SavepointAtEnd:
    """A savepoint of the state when the last element is done, before the final watermark lets everything expire."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.driver: JobDriver | None = None
        self.path: Any = None

    def attach(self, driver: JobDriver) -> Any:
        self.driver = driver
        return lambda ended: None

    def on_step(self, step: str, epoch: int) -> None:
        if step == "published" and epoch == self.epoch and self.driver is not None:
            self.path = self.driver.savepoint(stop=True).done


@pytest.mark.parametrize("background", [True, False])
def test_entries_expire_without_being_read(background: bool) -> None:
    function = Remember()
    if not background:
        for descriptor in (Remember.value, Remember.items, Remember.table):
            descriptor.enable_time_to_live(
                fp.StateTtlConfig.new_builder(timedelta(hours=1)).use_event_time().disable_cleanup_in_background().build()
            )
    try:
        left = _left_behind(function)
    finally:
        for descriptor in (Remember.value, Remember.items, Remember.table):
            descriptor.enable_time_to_live(TTL)
    # Entries are stamped with the watermark: that of 100, the first late element, is still the early ones'.
    expected = {101, 102} if background else {*range(50), 100, 101, 102}
    assert left == {"value": expected, "items": expected, "table": expected}


def _left_behind(function: Remember) -> dict[str, set[int]]:
    """50 keys of the first minutes, then three of two hours later; the keys that still have state an epoch behind."""
    early = [(key, key * 1000) for key in range(50)]
    late = [(key, 2 * HOUR_MS + key) for key in (100, 101, 102)]
    with tempfile.TemporaryDirectory() as root:
        env = fp.StreamExecutionEnvironment.get_execution_environment().set_state_root(root)
        env.set_parallelism(2).set_max_epoch_rows(53)
        strategy = fp.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda e, _: e[1])
        # The last element only lets an epoch pass, so that the watermark has moved on.
        elements = fp.CollectionSource([*early, *late, (102, 2 * HOUR_MS + 200)])
        stream = env.from_source(elements, strategy, "elements").uid("elements")
        stream.key_by(lambda e: e[0], int).process(function).uid("remember").sink_to(fp.DiscardSink()).uid("out")
        end = SavepointAtEnd(epoch=3)
        env.launch = Launch(options={"engine": "local"}, steps=end, on_driver=end.attach)
        env.execute("ttl")
        states = Path(urlsplit(end.path.result()).path) / "operators" / "remember"
        return {name: set(pq.read_table(states / name)["key"].to_pylist()) for name in ("value", "items", "table")}
