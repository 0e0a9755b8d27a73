"""The job that is tormented: keyed counts with timers, event-time windows, two stages, operator state, four sinks.

Everything that could be lost or doubled shows in it: each element, timer, window and late element is a line of output of
its own, and state is in every line.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import forkpoint as fp
from forkpoint.graph.options import RestartStrategy

JOB = "chaos"
BOUND_MS = 200  # how far out of order elements may be
WINDOW_MS = 1000
SINKS = ("elements", "windows", "late", "ranks")


class Event(NamedTuple):
    id: int
    key: str
    amount: int
    ts: int


class Window(NamedTuple):
    key: str
    start: int
    count: int
    amount: int


LATE = fp.OutputTag("late", Event)


class Totals(fp.KeyedProcessFunction):
    """A running count and sum for each key; at each full second of a key's time, both so far."""

    total = fp.ValueStateDescriptor("total", tuple[int, int])

    def process_element(self, event: Event, ctx: fp.KeyedProcessFunction.Context) -> Iterator[str]:
        count, amount = self.total.value() or (0, 0)
        count, amount = count + 1, amount + event.amount
        self.total.update((count, amount))
        due = event.ts // WINDOW_MS * WINDOW_MS + WINDOW_MS
        if due > ctx.timer_service().current_watermark():
            ctx.timer_service().register_event_time_timer(due)
        yield f"element {event.id} {event.key} {count} {amount}"

    def on_timer(self, timestamp: int, ctx: fp.KeyedProcessFunction.OnTimerContext) -> Iterator[str]:
        count, amount = self.total.value() or (0, 0)
        yield f"timer {ctx.get_current_key()} {timestamp} {count} {amount}"


class Tally(fp.MapFunction, fp.CheckpointedFunction):
    """Counts what passes: over all subtasks, the number of lines."""

    def initialize_state(self, context: fp.FunctionInitializationContext) -> None:
        self._list = context.get_operator_state_store().get_list_state(fp.ListStateDescriptor("passed", int))
        self._passed = sum(self._list.get())

    def map(self, value: str) -> str:
        self._passed += 1
        return value

    def snapshot_state(self, context: fp.FunctionSnapshotContext) -> None:
        self._list.update([self._passed])


class Summed(fp.ProcessWindowFunction):
    def process(self, key: str, ctx: Any, elements: Any) -> Iterator[Window]:
        events = list(elements)
        yield Window(key, ctx.window().start, len(events), sum(event.amount for event in events))


class Ranks(fp.KeyedProcessFunction):
    """How many windows of the same time came before, in a second stage."""

    seen = fp.ValueStateDescriptor("seen", int)

    def process_element(self, window: Window, ctx: fp.KeyedProcessFunction.Context) -> Iterator[str]:
        seen = (self.seen.value() or 0) + 1
        self.seen.update(seen)
        yield f"rank {window.start} {seen}"


@dataclass(frozen=True)
class Program:
    """What of the job may differ from one start to the next."""

    directory: str
    output: str  # below the directory
    parallelism: int = 2
    rows: int = 10  # of an epoch, at most
    bounded: bool = False
    backend: str = "lmdb"
    restarts: int = 0


def build(program: Program) -> fp.StreamExecutionEnvironment:
    base = Path(program.directory)
    output = base / program.output
    env = fp.StreamExecutionEnvironment.get_execution_environment()
    env.set_state_root(str(base / "state")).set_parallelism(program.parallelism).set_max_epoch_rows(program.rows)
    env.set_max_parallelism(8)
    restart = RestartStrategy.fixed_delay(program.restarts, 10) if program.restarts else RestartStrategy.none()
    env.options = replace(env.options, restart=restart, state_backend=program.backend)  # type: ignore[arg-type]
    strategy = fp.WatermarkStrategy.for_bounded_out_of_orderness(BOUND_MS).with_timestamp_assigner(lambda e, _: e.ts)
    source = fp.FileSource.json(base / "input", Event, bounded=program.bounded)
    events = env.from_source(source, strategy, "events").uid("events")
    keyed = events.key_by(lambda e: e.key)
    lines = keyed.process(Totals(), str).uid("totals").map(Tally(), str).uid("tally")
    lines.sink_to(fp.FileSink.text(output / "elements")).uid("elements")
    windows = keyed.window(fp.TumblingEventTimeWindows.of(WINDOW_MS)).side_output_late_data(LATE)
    summed = windows.process(Summed(), Window).uid("windows")
    summed.sink_to(fp.FileSink.parquet(output / "windows", bucket=["start"])).uid("windows-files")
    summed.get_side_output(LATE).sink_to(fp.FileSink.json(output / "late")).uid("late-files")
    ranks = summed.key_by(lambda w: w.start).process(Ranks(), str).uid("ranks")
    ranks.sink_to(fp.FileSink.text(output / "ranks")).uid("ranks-files")
    return env
