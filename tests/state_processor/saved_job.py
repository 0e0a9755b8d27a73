"""A job with every kind of state, and savepoints of it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import forkpoint as fp
from forkpoint.state_processor import SavepointReader
from forkpoint.testing import Eof, run_local


class Event(NamedTuple):
    user: str
    amount: int
    time: int


class Total(NamedTuple):
    count: int
    sum: int


class Mean(fp.AggregateFunction):
    def create_accumulator(self) -> Any:
        return Total(0, 0)

    def add(self, value: Any, accumulator: Any) -> Any:
        return Total(accumulator.count + 1, accumulator.sum + value)

    def get_result(self, accumulator: Any) -> Any:
        return accumulator.sum / accumulator.count

    def merge(self, a: Any, b: Any) -> Any:
        return Total(a.count + b.count, a.sum + b.sum)


class Everything(fp.KeyedProcessFunction):
    total = fp.ValueStateDescriptor("total", Total)
    aged = fp.ValueStateDescriptor("aged", int).enable_time_to_live(timedelta(days=9999))
    amounts = fp.ListStateDescriptor("amounts", int)
    by_parity = fp.MapStateDescriptor("by parity", str, int)
    sum = fp.ReducingStateDescriptor("sum", lambda a, b: a + b, int)
    mean = fp.AggregatingStateDescriptor("mean", Mean(), Total)
    anything = fp.ValueStateDescriptor("anything", fp.Types.ANY())

    def process_element(self, e: Event, ctx: Any) -> Iterator[Any]:
        before = self.total.value() or Total(0, 0)
        self.total.update(Total(before.count + 1, before.sum + e.amount))
        self.aged.update(e.amount)
        self.amounts.add(e.amount)
        parity = "odd" if e.amount % 2 else "even"
        self.by_parity.put(parity, (self.by_parity.get(parity) or 0) + 1)
        self.sum.add(e.amount)
        self.mean.add(e.amount)
        self.anything.update({"last": e.amount})
        ctx.timer_service().register_event_time_timer(e.time + 10_000)
        ctx.timer_service().register_processing_time_timer(e.time + 10**13)
        yield (
            e.user,
            self.total.value(),
            self.aged.value(),
            list(self.amounts.get()),
            sorted(self.by_parity.items()),
            self.sum.get(),
            self.mean.get(),
            self.anything.value(),
        )

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        yield ctx.get_current_key(), "timer", timestamp


class Buffer(fp.ProcessFunction, fp.CheckpointedFunction):
    """Operator state: a list, and a union."""

    def initialize_state(self, context: Any) -> None:
        store = context.get_operator_state_store()
        self.seen = store.get_list_state(fp.ListStateDescriptor("seen", str))
        self.known = store.get_union_list_state(fp.ListStateDescriptor("known", tuple[str, int]))

    def snapshot_state(self, context: Any) -> None:
        pass

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        self.seen.add(value.user)
        self.known.add((value.user, value.amount))
        yield value


def build(env: Any, source: Any) -> Any:
    strategy = fp.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda e, _: e.time)
    events = env.from_source(source, strategy, "events", type_info=Event).uid("events")
    buffered = events.process(Buffer(), Event).uid("buffer")
    keyed = buffered.key_by(lambda e: e.user, str)
    windows = (
        keyed.window(fp.TumblingEventTimeWindows.of(timedelta(seconds=1)))
        .reduce(lambda a, b: Event(a.user, a.amount + b.amount, max(a.time, b.time)))
        .uid("windows")
    )
    return {"state": keyed.process(Everything()).uid("everything"), "windows": windows}


EVENTS = [Event(f"u{i % 7}", i, i * 100) for i in range(40)]


def saved(root: Path, events: Any = EVENTS, **options: Any) -> SavepointReader:
    """A savepoint after these events."""
    run = run_local(build, [*events, Eof(savepoint=True)], state_root=str(root), **options)
    assert run.savepoint is not None
    return SavepointReader.read(run.savepoint)
