"""Jobs that show the watermark each element sees, and generators for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import forkpoint as fp
from forkpoint.testing import Eof, LocalRun, TestSource, run_local

Build = Callable[..., Any]


class Event(NamedTuple):
    key: str
    ts: int
    mark: bool = False  # whether a punctuated generator emits at it
    split: int = 0


class Seen(fp.KeyedProcessFunction):
    """Each element with the watermark that it sees, and a timer three behind it."""

    late = fp.ValueStateDescriptor("late", int, 0)

    def process_element(self, value: Event, ctx: Any) -> Any:
        watermark = ctx.timer_service().current_watermark()
        if value.ts <= watermark:
            self.late.update((self.late.value() or 0) + 1)
        ctx.timer_service().register_event_time_timer(value.ts + 3)
        yield value.key, "element", value.ts, watermark, self.late.value()

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield ctx.get_current_key(), "timer", timestamp, self.late.value(), 0


class Bounded(fp.WatermarkGenerator):
    """What for_bounded_out_of_orderness does, by hand."""

    def __init__(self, bound: int) -> None:
        self.bound = bound
        self.newest: int | None = None

    def on_event(self, value: Any, event_timestamp: int, output: fp.WatermarkOutput) -> None:
        self.newest = event_timestamp if self.newest is None else max(self.newest, event_timestamp)
        output.emit_watermark(self.newest - self.bound - 1)

    def on_periodic_emit(self, output: fp.WatermarkOutput) -> None:
        pass


class Punctuated(fp.WatermarkGenerator):
    """Emits at marked elements alone; every other time one below, so that order and state count."""

    def __init__(self) -> None:
        self.marks = 0

    def on_event(self, value: Any, event_timestamp: int, output: fp.WatermarkOutput) -> None:
        if value.mark:
            self.marks += 1
            output.emit_watermark(event_timestamp - self.marks % 2)

    def on_periodic_emit(self, output: fp.WatermarkOutput) -> None:
        pass


class Periodic(fp.WatermarkGenerator):
    """Emits at the end of epochs alone."""

    def __init__(self) -> None:
        self.newest = fp.MIN_WATERMARK

    def on_event(self, value: Any, event_timestamp: int, output: fp.WatermarkOutput) -> None:
        self.newest = max(self.newest, event_timestamp)

    def on_periodic_emit(self, output: fp.WatermarkOutput) -> None:
        output.emit_watermark(self.newest)


def timed(strategy: fp.WatermarkStrategy) -> fp.WatermarkStrategy:
    return strategy.with_timestamp_assigner(lambda e, _: e.ts)


def seen_job(strategy: fp.WatermarkStrategy, *, assign: bool = False) -> Build:
    """The timestamps are assigned at the source, or behind it."""

    def build(env: Any, *sources: Any) -> Any:
        plain = fp.WatermarkStrategy.no_watermarks()
        streams = [
            env.from_source(s, plain if assign else timed(strategy), f"in-{i}").uid(f"in-{i}") for i, s in enumerate(sources)
        ]
        stream = streams[0].union(*streams[1:]) if len(streams) > 1 else streams[0]
        if assign:
            stream = stream.map(lambda e: e).assign_timestamps_and_watermarks(timed(strategy)).uid("time")
        return stream.key_by(lambda e: e.key, str).process(Seen()).uid("seen")

    return build


def by_key(*runs: LocalRun) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for run in runs:
        for value in run.output:
            found.setdefault(value[0], []).append(value[1:])
    return found


def stopped_and_restored(
    build: Build, events: list[Event], at: int, root: Any, *, before: int, after: int, rows: int
) -> dict[str, list[Any]]:
    """Stopped with a savepoint behind so many elements, and gone on from there at another parallelism."""
    script = [*events[:at], Eof(savepoint=True), *events[at:]]
    first = run_local(build, script, parallelism=before, state_root=root, epochs=rows)
    assert first.outcome == "stopped"
    second = run_local(build, script, parallelism=after, state_root=root, restore=first.savepoint, epochs=rows)
    return by_key(first, second)


def columnar(events: list[Event]) -> TestSource:
    return TestSource(events, type=Event, columnar=True, batch_rows=3)
