"""The job behind the golden files of format 1: every kind of state, and every type that state can have.

What it saved has to fit it forever, so it does not change any more. A new kind of state goes into a job of its own.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import forkpoint as fp
from forkpoint.testing import PAUSE, Eof, LocalRun, Pause, run_local
from forkpoint.types import Types

JOB = "golden"
MAX_PARALLELISM = 4
EPOCH_ROWS = 12
LONG = timedelta(days=9999)  # behind the clock of run_local, which begins in 2000
USERS = ("ann", "ben", "eve")


class Colour(Enum):
    RED = 1
    BLUE = 2


@dataclass
class Place:
    name: str
    floors: list[int]
    note: str | None = None


class Event(NamedTuple):
    user: str
    amount: int
    time: int


class Rich(NamedTuple):
    """A field for each type."""

    price: Decimal
    local: datetime
    instant: fp.Instant
    day: date
    clock: time
    span: timedelta
    id: UUID
    data: bytes
    share: float
    yes: bool
    maybe: str | None
    colour: Colour
    place: Place
    pair: tuple[int, str]
    tags: set[str]
    counts: dict[str, int]
    event: Event
    dynamic: Any


class Total(NamedTuple):
    count: int
    sum: int


class Number(NamedTuple):
    start: int
    value: int
    steps: int


ROW = Types.ROW_NAMED(["name", "number", "nested"], [Types.STRING(), Types.INT(), Types.ROW([Types.SHORT()])])


def rich(e: Event) -> Rich:
    instant = datetime(2024, 2, 29, 12, 30, 15, 123_456, UTC) + timedelta(days=e.amount)
    moment = instant.replace(tzinfo=None)
    return Rich(
        price=Decimal(e.amount) / 8,
        local=moment,
        instant=instant,
        day=moment.date(),
        clock=moment.time(),
        span=timedelta(seconds=e.amount, microseconds=1),
        id=UUID(int=e.amount),
        data=bytes([e.amount % 256, 0, 255]),
        share=e.amount / 3,
        yes=e.amount % 2 == 0,
        maybe=None if e.amount % 3 else f"ü {e.amount}",
        colour=Colour.RED if e.amount % 2 else Colour.BLUE,
        place=Place(e.user, [e.amount, -1], None if e.amount % 2 else "ground"),
        pair=(e.amount, e.user),
        tags={e.user, "tag"},
        counts={e.user: e.amount},
        event=e,
        dynamic={"list": [1, (2, "three"), None], "day": moment.date()},
    )


class Sum(fp.AggregateFunction):
    def create_accumulator(self) -> Any:
        return Total(0, 0)

    def add(self, value: Any, accumulator: Any) -> Any:
        return Total(accumulator.count + 1, accumulator.sum + value)

    def get_result(self, accumulator: Any) -> Any:
        return accumulator.sum / accumulator.count

    def merge(self, a: Any, b: Any) -> Any:
        return Total(a.count + b.count, a.sum + b.sum)


class Everything(fp.KeyedBroadcastProcessFunction):
    """All keyed states with and without time to live, broadcast state, timers of both kinds."""

    total = fp.ValueStateDescriptor("total", Total)
    aged = fp.ValueStateDescriptor("aged", int).enable_time_to_live(LONG)
    rich = fp.ValueStateDescriptor("rich", Rich)
    row = fp.ValueStateDescriptor("row", ROW)
    perhaps = fp.ValueStateDescriptor("perhaps", int | None)
    anything = fp.ValueStateDescriptor("anything", Types.ANY())
    amounts = fp.ListStateDescriptor("amounts", int)
    pairs = fp.ListStateDescriptor("pairs", tuple[str, int]).enable_time_to_live(LONG)
    parities = fp.MapStateDescriptor("by parity", str, int)
    days = fp.MapStateDescriptor("days", date, Place).enable_time_to_live(LONG)
    sum = fp.ReducingStateDescriptor("sum", lambda a, b: a + b, int)
    mean = fp.AggregatingStateDescriptor("mean", Sum(), Total)
    rules = fp.MapStateDescriptor("rules", str, int)

    def process_element(self, e: Event, ctx: Any) -> Iterator[str]:
        before = self.total.value() or Total(0, 0)
        self.total.update(Total(before.count + 1, before.sum + e.amount))
        self.aged.update(e.amount)
        known = [self.rich.value(), self.row.value(), self.perhaps.value(), self.anything.value()]
        self.rich.update(rich(e))
        self.row.update(fp.Row(name=e.user, number=e.amount, nested=fp.Row(e.amount % 100)))
        self.perhaps.update(None if e.amount % 2 else e.amount)
        self.anything.update({"last": e.amount, "user": (e.user, None)})
        self.amounts.add(e.amount)
        self.pairs.add((e.user, e.amount))
        parity = "odd" if e.amount % 2 else "even"
        self.parities.put(parity, (self.parities.get(parity) or 0) + 1)
        self.days.put(date(2024, 1, 1 + e.amount % 5), Place(e.user, [e.amount]))
        self.sum.add(e.amount)
        self.mean.add(e.amount)
        ctx.timer_service().register_event_time_timer(e.time + 1_000)
        ctx.timer_service().register_processing_time_timer(e.time + 10**13)
        as_it_was = known[0] is None or known[0] == rich(known[0].event)
        yield repr(
            (
                tuple(self.total.value()),
                self.aged.value(),
                as_it_was,
                known[1:],
                sum(self.amounts.get()),
                list(self.pairs.get())[-2:],
                sorted(self.parities.items()),
                sum(p.floors[0] for p in self.days.values()),
                self.sum.get(),
                self.mean.get(),
                sorted(ctx.get_broadcast_state(self.rules).items()),
            )
        )

    def process_broadcast_element(self, e: Event, ctx: Any) -> Iterator[str]:
        ctx.get_broadcast_state(self.rules).put(e.user, e.amount)
        yield from ()

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[str]:
        yield repr((ctx.get_current_key(), "timer", timestamp, self.sum.get()))


class Buffer(fp.ProcessFunction, fp.CheckpointedFunction):
    """Operator state: a list, and a union."""

    def initialize_state(self, context: Any) -> None:
        store = context.get_operator_state_store()
        self.seen = store.get_list_state(fp.ListStateDescriptor("seen", str))
        self.known = store.get_union_list_state(fp.ListStateDescriptor("known", tuple[str, int]))

    def snapshot_state(self, context: Any) -> None:
        pass

    def process_element(self, value: Any, ctx: Any) -> Iterator[Event]:
        self.seen.add(value.user)
        if value.amount % 10 == 0:
            self.known.add((value.user, value.amount))
        yield value


class Visits(fp.ProcessWindowFunction):
    """Contents of a window, its own state, and its key's."""

    firings = fp.ValueStateDescriptor("firings", int)
    windows = fp.ValueStateDescriptor("windows", int)

    def process(self, key: Any, context: Any, elements: Any) -> Iterator[str]:
        firings = context.window_state().get_state(self.firings)
        firings.update((firings.value() or 0) + 1)
        self.windows.update((self.windows.value() or 0) + 1)
        window = context.window()
        found = sorted(e.amount for e in elements)
        yield repr((key, window.start, window.end, found, firings.value(), self.windows.value()))

    def clear(self, context: Any) -> None:
        context.window_state().get_state(self.firings).clear()


class Sessions(fp.ProcessWindowFunction):
    """Windows that merge have contents, and state of their key only."""

    windows = fp.ValueStateDescriptor("windows", int)

    def process(self, key: Any, context: Any, elements: Any) -> Iterator[str]:
        self.windows.update((self.windows.value() or 0) + 1)
        window = context.window()
        yield repr((key, window.start, window.end, sorted(e.amount for e in elements), self.windows.value()))


class Marks(fp.WatermarkGenerator):
    """A watermark at every fifth number."""

    def __init__(self) -> None:
        self.seen = 0

    def on_event(self, value: int, event_timestamp: int, output: Any) -> None:
        self.seen += 1
        if self.seen % 5 == 0:
            output.emit_watermark(event_timestamp)

    def on_periodic_emit(self, output: Any) -> None:
        pass


def collatz_step(n: Number) -> Number:
    return Number(n.start, 3 * n.value + 1 if n.value % 2 else n.value // 2, n.steps + 1)


def build(inputs: Path) -> Callable[[Any, Any], dict[str, Any]]:
    """The job over the files in a directory and a scripted source."""

    def job(env: Any, scripted: Any) -> dict[str, Any]:
        by_time = fp.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda e, _: e.time)
        out_of_order = fp.WatermarkStrategy.for_bounded_out_of_orderness(500).with_timestamp_assigner(lambda e, _: e.time)
        marked = fp.WatermarkStrategy.for_generator(Marks).with_timestamp_assigner(lambda n, _: n * 100)

        events = env.from_source(scripted, by_time, "events", type_info=Event).uid("events").process(Buffer(), Event)
        events = events.uid("buffer")
        keyed = events.key_by(lambda e: e.user, str)
        rules = events.filter(lambda e: e.amount % 5 == 0).uid("rules").broadcast(Everything.rules)
        lines = env.from_source(fp.FileSource.json(inputs, Event, bounded=True), out_of_order, "files", type_info=Event).uid(
            "files"
        )
        numbers = env.from_source(fp.CounterSource(60), marked, "numbers").uid("numbers")
        seeds = env.from_source(fp.CollectionSource(range(1, 13), int), fp.WatermarkStrategy.no_watermarks(), "seeds").uid(
            "seeds"
        )

        second = timedelta(seconds=1)
        gap = fp.EventTimeSessionWindows.with_gap(timedelta(milliseconds=350))
        tumbling = fp.TumblingEventTimeWindows.of(second)
        file_keys = lines.key_by(lambda e: e.user, str)
        loop = seeds.map(lambda n: Number(n, n, 0), Number).iterate().uid("loop")
        loop.close_with(loop.filter(lambda n: n.value != 1).map(collatz_step))
        return {
            "state": keyed.connect(rules).process(Everything(), str).uid("everything"),
            "sessions": keyed.window(gap).reduce(lambda a, b: Event(a.user, a.amount + b.amount, b.time)).uid("sessions"),
            "file sessions": file_keys.window(gap).allowed_lateness(second).process(Sessions(), str).uid("file sessions"),
            "visits": keyed.window(tumbling).process(Visits(), str).uid("visits"),
            "columns": keyed.window(tumbling).agg(total=fp.Sum("amount"), n=fp.Count()).uid("columns"),
            "counted": keyed.count_window(7).sum("amount").uid("counted"),
            "running": events.key_by(lambda e: Total(e.amount % 3, 1), Total)
            .agg(total=fp.Sum("amount"), least=fp.Min("amount"))
            .uid("running"),
            "last": keyed.reduce(lambda a, b: b).uid("last"),
            "sorted": file_keys.sort_by_event_time().uid("sorted"),
            "joined": keyed.interval_join(file_keys)
            .between(timedelta(milliseconds=-200), timedelta(milliseconds=200))
            .process(lambda a, b, ctx: [(a.user, a.amount, b.amount)], tuple[str, int, int])
            .uid("joined"),
            "numbers": numbers.key_by(lambda n: n % 2, int)
            .window(tumbling)
            .aggregate(Sum(), accumulator_type=Total)
            .uid("means"),
            "collatz": loop.filter(lambda n: n.value == 1).map(lambda n: (n.start, n.steps), tuple[int, int]),
        }

    return job


EVENTS = [Event(USERS[i * i // 2 % 3], i, i * 100 + i * i % 7) for i in range(48)]
HALF = 24


def write_inputs(directory: Path) -> Path:
    """The files that the job reads, the same wherever and whenever they are written."""
    directory.mkdir(parents=True, exist_ok=True)
    for number in range(3):
        lines = [Event(USERS[i % 3], i, i * 90 - i * 13 % 400) for i in range(number * 20, number * 20 + 20)]
        file = directory / f"events-{number}.json"
        file.write_text("".join(f'{{"user": "{e.user}", "amount": {e.amount}, "time": {e.time}}}\n' for e in lines))
        seconds = 1_700_000_000 + number
        os.utime(file, (seconds, seconds))
    return directory


def run(inputs: Path, state_root: Path, *, stop: Eof | Pause = PAUSE, **more: Any) -> LocalRun:
    """Run the job to its end, or up to where ``stop`` stands in the middle of its events."""
    script = [*EVENTS[:HALF], stop, *EVENTS[HALF:]]
    options = {"parallelism": 2, "max_parallelism": MAX_PARALLELISM, "epochs": EPOCH_ROWS, "job_name": JOB, **more}
    return run_local(build(write_inputs(inputs)), script, state_root=state_root, **options)


def outputs(found: LocalRun) -> dict[str, list[str]]:
    """What came out, as texts that say the same in every release, in an order that no parallelism changes."""
    return {name: sorted(map(repr, values)) for name, values in sorted(found.outputs.items())}
