"""What a type checker sees of each part of the API. mypy and pyright both read this; nothing runs it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, NamedTuple, assert_type
from uuid import UUID

import forkpoint as fp


class Event(NamedTuple):
    room: str
    value: int
    time: int


class Alarm(NamedTuple):
    room: str
    total: int


def time_of(event: Event, record_timestamp: int) -> int:
    return event.time


env = fp.StreamExecutionEnvironment.get_execution_environment()
events = env.from_collection([Event("hall", 1, 0)])
by_room = events.key_by(lambda e: e.room)
MINUTE = timedelta(minutes=1)


# -- types


def types() -> None:
    assert_type(fp.Types.STRING(), fp.TypeInformation[str])
    assert_type(fp.Types.LONG(), fp.TypeInformation[int])
    assert_type(fp.Types.DOUBLE(), fp.TypeInformation[float])
    assert_type(fp.Types.BOOLEAN(), fp.TypeInformation[bool])
    assert_type(fp.Types.BYTES(), fp.TypeInformation[bytes])
    assert_type(fp.Types.BIG_DEC(), fp.TypeInformation[Decimal])
    assert_type(fp.Types.INSTANT(), fp.TypeInformation[datetime])
    assert_type(fp.Types.DURATION(), fp.TypeInformation[timedelta])
    assert_type(fp.Types.UUID(), fp.TypeInformation[UUID])
    assert_type(fp.Types.ROW([fp.Types.INT()]), fp.TypeInformation[fp.Row])
    assert_type(fp.Types.TUPLE([fp.Types.INT()]), fp.TypeInformation[tuple[Any, ...]])
    assert_type(fp.Types.LIST(fp.Types.INT()), fp.TypeInformation[list[int]])
    assert_type(fp.Types.LIST(Event), fp.TypeInformation[list[Event]])
    assert_type(fp.Types.MAP(fp.Types.STRING(), float), fp.TypeInformation[dict[str, float]])


# -- sources and sinks


class Counting(fp.Source[int]):
    @property
    def bounded(self) -> bool:
        return True

    def output_type(self) -> fp.TypeInformation[int]:
        return fp.Types.LONG()

    def create_enumerator(self, position: Any) -> fp.SplitEnumerator:
        raise NotImplementedError

    def create_reader(self) -> fp.SourceReader[int]:
        return CountingReader()


class CountingReader(fp.SourceReader[int]):
    def read(self, stretch: fp.SplitRange) -> Iterator[list[int]]:
        yield [stretch.start]


class EventSink(fp.Sink[Event]):
    def create_writer(self, context: fp.SinkContext) -> fp.SinkWriter[Event]:
        return EventWriter()


class EventWriter(fp.SinkWriter[Event]):
    def write(self, batch: fp.SinkBatch[Event]) -> None:
        assert_type(batch.values, list[Event])

    def prepare_commit(self) -> list[Any]:
        return []


def sources() -> None:
    none: fp.WatermarkStrategy[Any] = fp.WatermarkStrategy.no_watermarks()
    assert_type(env.from_collection([1, 2]), fp.DataStream[int])
    assert_type(env.from_collection(["a"], fp.Types.STRING()), fp.DataStream[str])
    assert_type(env.from_collection([], Event), fp.DataStream[Event])
    assert_type(env.from_collection([("a", 1)], fp.Types.ROW([str, int])), fp.DataStream[fp.Row])
    assert_type(env.from_source(Counting(), none, "counting"), fp.DataStream[int])
    assert_type(env.from_source(fp.CounterSource(), none, "counter"), fp.DataStream[int])
    assert_type(env.from_source(fp.FileSource.json("in", Event), none, "files"), fp.DataStream[Event])
    assert_type(env.from_source(fp.FileSource.csv("in", Event, bounded=True), none, "files"), fp.DataStream[Event])
    assert_type(fp.FileSource.parquet("in"), fp.FileSource[dict[str, Any]])
    assert_type(fp.FileSource.text("in"), fp.FileSource[str])
    assert_type(env.from_source(Counting(), none, "typed", Event), fp.DataStream[Event])
    assert_type(env.from_dataframe(None), fp.DataStream[fp.Row])
    assert_type(env.from_dataframe(None, type=Event, timestamp="time"), fp.DataStream[Event])


def sinks() -> None:
    assert_type(events.sink_to(EventSink()), fp.DataStreamSink)
    assert_type(events.sink_to(fp.FileSink.json("out")), fp.DataStreamSink)
    assert_type(events.sink_to(EventSink()).uid("out"), fp.DataStreamSink)
    assert_type(events.execute_and_collect(), fp.CloseableIterator[Event])
    assert_type(events.execute_and_collect("job", 3), list[Event])
    assert_type(events.execute_and_collect(limit=3), list[Event])
    with events.execute_and_collect() as results:
        assert_type(next(results), Event)


# -- time


class Clocked(fp.TimestampAssigner[Event]):
    def extract_timestamp(self, value: Event, record_timestamp: int) -> int:
        return value.time


class Generator(fp.WatermarkGenerator[Event]):
    def on_event(self, value: Event, event_timestamp: int, output: fp.WatermarkOutput) -> None:
        output.emit_watermark(event_timestamp)

    def on_periodic_emit(self, output: fp.WatermarkOutput) -> None: ...


def watermarks() -> None:
    monotonous = fp.WatermarkStrategy[Event].for_monotonous_timestamps()
    assert_type(monotonous, fp.WatermarkStrategy[Event])
    strategy = monotonous.with_timestamp_assigner(lambda e, _: e.time)
    assert_type(strategy, fp.WatermarkStrategy[Event])
    assert_type(strategy.with_idleness(MINUTE), fp.WatermarkStrategy[Event])
    assert_type(monotonous.with_timestamp_assigner(Clocked()), fp.WatermarkStrategy[Event])
    assert_type(fp.WatermarkStrategy.for_generator(Generator), fp.WatermarkStrategy[Event])
    assert_type(events.assign_timestamps_and_watermarks(strategy), fp.DataStream[Event])
    assert_type(monotonous.with_timestamp_assigner(time_of), fp.WatermarkStrategy[Event])
    untyped = fp.WatermarkStrategy.for_bounded_out_of_orderness(MINUTE).with_timestamp_assigner(lambda e, _: e.time)
    assert_type(untyped, fp.WatermarkStrategy[Any])
    assert_type(events.assign_timestamps_and_watermarks(untyped), fp.DataStream[Event])


# -- one stream


class Parse(fp.MapFunction[str, Event]):
    def map(self, line: str) -> Event:
        return Event(line, 0, 0)


class Words(fp.FlatMapFunction[str, str]):
    def flat_map(self, line: str) -> Iterator[str]:
        yield from line.split()


class Loud(fp.FilterFunction[Event]):
    def filter(self, event: Event) -> bool:
        return event.value > 0


class Plain(fp.MapFunction):  # without parameters: anything goes
    def map(self, value: int) -> str:
        return str(value)


late = fp.OutputTag("late", Event)
problems = fp.OutputTag("problems", fp.Types.STRING())


class Sort(fp.ProcessFunction[Event, Alarm]):
    def process_element(self, event: Event, ctx: fp.ProcessFunction.Context) -> Iterator[Alarm | tuple[fp.OutputTag[str], str]]:
        assert_type(ctx.timestamp(), int | None)
        yield Alarm(event.room, event.value)
        yield problems, event.room


class Room(fp.KeySelector[Event, str]):
    def get_key(self, event: Event) -> str:
        return event.room


def streams() -> None:
    lines = env.from_collection(["hall 1"])
    assert_type(lines, fp.DataStream[str])
    assert_type(lines.map(len), fp.DataStream[int])
    assert_type(lines.map(lambda line: (line, len(line))), fp.DataStream[tuple[str, int]])
    assert_type(lines.map(Parse()), fp.DataStream[Event])
    assert_type(lines.map(Parse(), Event).uid("parse"), fp.DataStream[Event])
    assert_type(env.from_collection([1]).map(Plain()), fp.DataStream[Any])
    assert_type(lines.flat_map(str.split), fp.DataStream[str])
    assert_type(lines.flat_map(lambda line: [len(line)]), fp.DataStream[int])
    assert_type(lines.flat_map(Words()), fp.DataStream[str])
    assert_type(events.filter(lambda e: e.value > 1), fp.DataStream[Event])
    assert_type(events.filter(Loud()), fp.DataStream[Event])
    assert_type(events.union(events), fp.DataStream[Event])
    assert_type(lines.union(lines.map(len)), fp.DataStream[str | int])
    assert_type(events.rebalance().forward(), fp.DataStream[Event])
    assert_type(events.partition_custom(lambda key, n: key % n, lambda e: e.value), fp.DataStream[Event])
    assert_type(events.iterate(), fp.IterativeStream[Event])
    sorted_ = events.process(Sort())
    assert_type(sorted_, fp.DataStream[Alarm])
    assert_type(sorted_.get_side_output(problems), fp.DataStream[str])
    assert_type(sorted_.get_side_output(late), fp.DataStream[Event])
    assert_type(sorted_.get_side_output(fp.OutputTag("untyped")), fp.DataStream[Any])
    assert_type(events.get_type(), fp.TypeInformation[Event] | None)


def keyed_streams() -> None:
    assert_type(by_room, fp.KeyedStream[Event, str])
    assert_type(events.key_by(Room()), fp.KeyedStream[Event, str])
    assert_type(events.key_by("room", str), fp.KeyedStream[Event, str])
    assert_type(events.key_by("room"), fp.KeyedStream[Event, Any])
    assert_type(events.key_by(("room", "value")), fp.KeyedStream[Event, Any])
    assert_type(by_room.map(lambda e: e.value), fp.DataStream[int])
    assert_type(by_room.reduce(lambda a, b: a._replace(value=a.value + b.value)), fp.DataStream[Event])
    assert_type(by_room.reduce(Newest()), fp.DataStream[Event])
    assert_type(by_room.sum("value"), fp.DataStream[Event])
    assert_type(by_room.fold(0, lambda total, e: total + e.value), fp.DataStream[int])
    assert_type(by_room.map_with_state(lambda e, n: (e.room, (n or 0) + 1), int), fp.DataStream[str])
    assert_type(by_room.flat_map_with_state(lambda e, n: ([e.room], (n or 0) + 1), int), fp.DataStream[str])
    assert_type(by_room.agg(n=fp.Count()), fp.DataStream[Any])
    assert_type(by_room.sort_by_event_time(late), fp.DataStream[Event])


class Newest(fp.ReduceFunction[Event]):
    def reduce(self, a: Event, b: Event) -> Event:
        return a if a.time > b.time else b


# -- state


class Mean(fp.AggregateFunction[int, tuple[int, int], float]):
    def create_accumulator(self) -> tuple[int, int]:
        return 0, 0

    def add(self, value: int, accumulator: tuple[int, int]) -> tuple[int, int]:
        return accumulator[0] + value, accumulator[1] + 1

    def get_result(self, accumulator: tuple[int, int]) -> float:
        return accumulator[0] / accumulator[1]

    def merge(self, a: tuple[int, int], b: tuple[int, int]) -> tuple[int, int]:
        return a[0] + b[0], a[1] + b[1]


class Stateful(fp.KeyedProcessFunction[str, Event, Alarm]):
    last = fp.ValueStateDescriptor("last", Event)
    count = fp.ValueStateDescriptor("count", fp.Types.LONG(), 0)
    recent = fp.ListStateDescriptor("recent", fp.Types.STRING()).enable_time_to_live(MINUTE)
    seen = fp.MapStateDescriptor("seen", str, fp.Types.INT())
    total = fp.ReducingStateDescriptor("total", lambda a, b: a + b, int)
    mean = fp.AggregatingStateDescriptor("mean", Mean(), tuple[int, int])
    loose = fp.ValueStateDescriptor("loose", fp.Types.STRING())

    def open(self, runtime_context: fp.RuntimeContext) -> None:
        assert_type(runtime_context.get_state(fp.ValueStateDescriptor("x", int)), fp.ValueState[int])
        assert_type(runtime_context.get_list_state(fp.ListStateDescriptor("x", int)), fp.ListState[int])
        assert_type(runtime_context.get_map_state(self.seen), fp.MapState[str, int])
        assert_type(runtime_context.get_reducing_state(self.total), fp.ReducingState[int])
        assert_type(runtime_context.get_aggregating_state(self.mean), fp.AggregatingState[int, float])

    def process_element(self, event: Event, ctx: fp.KeyedProcessFunction.Context[str]) -> Iterator[Alarm]:
        assert_type(ctx.get_current_key(), str)
        assert_type(ctx.timer_service(), fp.TimerService)
        assert_type(self.last.value(), Event | None)
        assert_type(self.count.value(), int)
        assert_type(self.recent.get(), Iterable[str])
        assert_type(self.seen["a"], int | None)
        assert_type(self.total.get(), int | None)
        assert_type(self.mean.get(), float | None)
        handle: fp.ValueState[Event] = self.last
        handle.update(event)
        self.loose.update("anything")
        yield Alarm(event.room, self.count.value())

    def on_timer(self, timestamp: int, ctx: fp.KeyedProcessFunction.OnTimerContext[str]) -> Iterator[Alarm]:
        assert_type(ctx.get_current_key(), str)
        assert_type(ctx.time_domain(), fp.TimeDomain)
        yield Alarm(ctx.get_current_key(), 0)


class Bare(fp.KeyedProcessFunction):
    armed = fp.ValueStateDescriptor("armed", bool)

    def process_element(self, event: Event, ctx: fp.KeyedProcessFunction.Context) -> Iterator[Alarm]:
        assert_type(ctx.get_current_key(), Any)
        assert_type(self.armed.value(), bool | None)
        yield Alarm(event.room, 1)


class Buffered(fp.MapFunction[Event, int], fp.CheckpointedFunction):
    buffer = fp.ListStateDescriptor("buffer", Event)

    def map(self, event: Event) -> int:
        return event.value

    def initialize_state(self, context: fp.FunctionInitializationContext) -> None:
        assert_type(context.get_operator_state_store().get_list_state(self.buffer), fp.ListState[Event])

    def snapshot_state(self, context: fp.FunctionSnapshotContext) -> None: ...


def state() -> None:
    assert_type(by_room.process(Stateful()), fp.DataStream[Alarm])
    assert_type(by_room.process(Bare()), fp.DataStream[Any])
    assert_type(events.map(Buffered()), fp.DataStream[int])
    assert_type(Stateful.last.get_name(), str)


# -- windows


class Highest(fp.ProcessWindowFunction[Event, Alarm, str, fp.TimeWindow]):
    def process(
        self, key: str, context: fp.ProcessWindowFunction.Context[fp.TimeWindow], elements: Iterable[Event]
    ) -> Iterator[Alarm]:
        assert_type(context.window(), fp.TimeWindow)
        assert_type(context.global_state(), fp.RuntimeContext)
        yield Alarm(key, max(e.value for e in elements))


class Means(fp.WindowFunction[float, str, str, fp.TimeWindow]):
    def apply(self, key: str, window: fp.TimeWindow, inputs: Iterable[float]) -> Iterator[str]:
        yield f"{key}: {next(iter(inputs))}"


class All(fp.ProcessAllWindowFunction[Event, int, fp.TimeWindow]):
    def process(self, context: fp.ProcessAllWindowFunction.Context[fp.TimeWindow], elements: Iterable[Event]) -> list[int]:
        return [context.window().start]


class MeanOf(fp.AggregateFunction[Event, tuple[int, int], float]):
    def create_accumulator(self) -> tuple[int, int]:
        return 0, 0

    def add(self, event: Event, accumulator: tuple[int, int]) -> tuple[int, int]:
        return accumulator[0] + event.value, accumulator[1] + 1

    def get_result(self, accumulator: tuple[int, int]) -> float:
        return accumulator[0] / accumulator[1]

    def merge(self, a: tuple[int, int], b: tuple[int, int]) -> tuple[int, int]:
        return a[0] + b[0], a[1] + b[1]


class Always(fp.Trigger[Event, fp.TimeWindow]):
    count = fp.ValueStateDescriptor("count", int)

    def on_element(self, event: Event, timestamp: int, window: fp.TimeWindow, ctx: fp.TriggerContext) -> fp.TriggerResult:
        assert_type(ctx.get_partitioned_state(self.count), fp.ValueState[int])
        return fp.TriggerResult.FIRE

    def on_processing_time(self, time: int, window: fp.TimeWindow, ctx: fp.TriggerContext) -> fp.TriggerResult:
        return fp.TriggerResult.CONTINUE

    def on_event_time(self, time: int, window: fp.TimeWindow, ctx: fp.TriggerContext) -> fp.TriggerResult:
        return fp.TriggerResult.CONTINUE

    def clear(self, window: fp.TimeWindow, ctx: fp.TriggerContext) -> None: ...


class Days(fp.WindowAssigner[Event, fp.TimeWindow]):
    def assign_windows(self, event: Event, timestamp: int, context: fp.WindowAssignerContext) -> Collection[fp.TimeWindow]:
        return [fp.TimeWindow(0, event.time)]

    def get_default_trigger(self, env: object = None) -> fp.Trigger[Event, fp.TimeWindow]:
        return Always()

    def is_event_time(self) -> bool:
        return True


def windows() -> None:
    tumbling = by_room.window(fp.TumblingEventTimeWindows.of(MINUTE))
    assert_type(tumbling, fp.WindowedStream[Event, str, fp.TimeWindow])
    assert_type(tumbling.trigger(Always()), fp.WindowedStream[Event, str, fp.TimeWindow])
    purging = fp.PurgingTrigger.of(fp.CountTrigger.of(3))
    tumbling = tumbling.trigger(purging).evictor(fp.CountEvictor.of(1)).allowed_lateness(MINUTE)
    assert_type(tumbling, fp.WindowedStream[Event, str, fp.TimeWindow])
    assert_type(by_room.window(Days()), fp.WindowedStream[Event, str, fp.TimeWindow])
    assert_type(by_room.window(fp.GlobalWindows.create()), fp.WindowedStream[Event, str, fp.GlobalWindow])
    assert_type(by_room.count_window(3), fp.WindowedStream[Event, str, fp.CountWindow])
    assert_type(tumbling.reduce(lambda a, b: a), fp.DataStream[Event])
    assert_type(tumbling.reduce(Newest(), Highest()), fp.DataStream[Alarm])
    assert_type(tumbling.aggregate(MeanOf()), fp.DataStream[float])
    assert_type(tumbling.aggregate(MeanOf(), Means()), fp.DataStream[str])
    assert_type(tumbling.process(Highest()), fp.DataStream[Alarm])
    assert_type(tumbling.fold("", lambda text, e: text + e.room), fp.DataStream[str])
    assert_type(tumbling.sum("value"), fp.DataStream[Event])
    assert_type(tumbling.count(), fp.DataStream[tuple[str, int]])
    assert_type(tumbling.side_output_late_data(late).process(Highest()).get_side_output(late), fp.DataStream[Event])
    every = events.window_all(fp.TumblingEventTimeWindows.of(MINUTE))
    assert_type(every, fp.AllWindowedStream[Event, fp.TimeWindow])
    assert_type(every.process(All()), fp.DataStream[int])
    assert_type(every.aggregate(MeanOf()), fp.DataStream[float])
    assert_type(every.reduce(Newest(), All()), fp.DataStream[int])
    assert_type(every.count(), fp.DataStream[int])


# -- two streams

limits = env.from_collection([("hall", 3)])
by_limit = limits.key_by(lambda pair: pair[0])


class Either(fp.CoMapFunction[Event, tuple[str, int], str]):
    def map1(self, event: Event) -> str:
        return event.room

    def map2(self, limit: tuple[str, int]) -> str | None:
        return limit[0]


class Both(fp.CoProcessFunction[Event, tuple[str, int], int]):
    def process_element1(self, event: Event, ctx: fp.CoProcessFunction.Context) -> Iterator[int]:
        yield event.value

    def process_element2(self, limit: tuple[str, int], ctx: fp.CoProcessFunction.Context) -> Iterator[int]:
        yield limit[1]


class Limited(fp.KeyedCoProcessFunction[str, Event, tuple[str, int], Alarm]):
    limit = fp.ValueStateDescriptor("limit", int)

    def process_element1(self, event: Event, ctx: fp.KeyedCoProcessFunction.Context[str]) -> Iterator[Alarm]:
        assert_type(ctx.get_current_key(), str)
        yield Alarm(event.room, event.value)

    def process_element2(self, limit: tuple[str, int], ctx: fp.KeyedCoProcessFunction.Context[str]) -> None:
        self.limit.update(limit[1])


rules = fp.MapStateDescriptor("rules", str, int)


class Ruled(fp.BroadcastProcessFunction[Event, tuple[str, int], Alarm]):
    def process_element(self, event: Event, ctx: fp.BroadcastProcessFunction.ReadOnlyContext) -> Iterator[Alarm]:
        assert_type(ctx.get_broadcast_state(rules), fp.ReadOnlyBroadcastState[str, int])
        yield Alarm(event.room, 0)

    def process_broadcast_element(self, rule: tuple[str, int], ctx: fp.BroadcastProcessFunction.Context) -> None:
        assert_type(ctx.get_broadcast_state(rules), fp.BroadcastState[str, int])


class KeyedRuled(fp.KeyedBroadcastProcessFunction[str, Event, tuple[str, int], Alarm]):
    count = fp.ValueStateDescriptor("count", int)

    def process_element(self, event: Event, ctx: fp.KeyedBroadcastProcessFunction.ReadOnlyContext[str]) -> Iterator[Alarm]:
        assert_type(ctx.get_current_key(), str)
        yield Alarm(event.room, 0)

    def process_broadcast_element(self, rule: tuple[str, int], ctx: fp.KeyedBroadcastProcessFunction.Context[str]) -> None:
        def reset(key: str, count: fp.ValueState[int]) -> None:
            count.clear()

        ctx.apply_to_keyed_state(self.count, reset)


class Named(fp.JoinFunction[Event, tuple[str, int], Alarm]):
    def join(self, event: Event, limit: tuple[str, int]) -> Alarm:
        return Alarm(event.room, limit[1])


class Pairs(fp.CoGroupFunction[Event, tuple[str, int], int]):
    def co_group(self, events: list[Event], limits: list[tuple[str, int]]) -> list[int]:
        return [len(events) + len(limits)]


class Near(fp.ProcessJoinFunction[Event, tuple[str, int], Alarm]):
    def process_element(self, event: Event, limit: tuple[str, int], ctx: fp.ProcessJoinFunction.Context) -> Iterator[Alarm]:
        yield Alarm(event.room, ctx.get_left_timestamp())


def each(event: Event, limit: tuple[str, int]) -> Iterator[str]:
    yield event.room


def two_streams() -> None:
    connected = events.connect(limits)
    assert_type(connected, fp.ConnectedStreams[Event, tuple[str, int], Any])
    keyed = by_room.connect(by_limit)
    assert_type(keyed, fp.ConnectedStreams[Event, tuple[str, int], str])
    later = connected.key_by(lambda e: e.room, lambda pair: pair[0])
    assert_type(later, fp.ConnectedStreams[Event, tuple[str, int], str])
    assert_type(connected.key_by("room", 0), fp.ConnectedStreams[Event, tuple[str, int], Any])
    assert_type(connected.map(Either()), fp.DataStream[str])
    assert_type(connected.process(Both()), fp.DataStream[int])
    assert_type(keyed.process(Limited()), fp.DataStream[Alarm])


def broadcast_streams() -> None:
    spread = limits.broadcast(rules)
    assert_type(spread, fp.BroadcastStream[tuple[str, int]])
    assert_type(limits.broadcast(), fp.DataStream[tuple[str, int]])
    assert_type(events.connect(spread), fp.BroadcastConnectedStream[Event, tuple[str, int]])
    assert_type(events.connect(spread).process(Ruled()), fp.DataStream[Alarm])
    assert_type(by_room.connect(spread).process(KeyedRuled()), fp.DataStream[Alarm])


def joined_streams() -> None:
    tumbling = fp.TumblingEventTimeWindows.of(MINUTE)
    joined = events.join(limits).where(lambda e: e.room).equal_to(lambda pair: pair[0]).window(tumbling)
    assert_type(joined.apply(lambda e, pair: e.value + pair[1]), fp.DataStream[int])
    assert_type(joined.apply(Named()), fp.DataStream[Alarm])
    assert_type(joined.apply(each), fp.DataStream[str])
    grouped = events.co_group(limits).where("room").equal_to(0).window(tumbling)
    assert_type(grouped.apply(Pairs()), fp.DataStream[int])
    assert_type(grouped.apply(lambda es, ls: [len(es), len(ls)]), fp.DataStream[int])
    near = by_room.interval_join(by_limit).between(-MINUTE, MINUTE).lower_bound_exclusive()
    assert_type(near.process(Near()), fp.DataStream[Alarm])
    assert_type(near.process(lambda e, pair, ctx: [e.value + pair[1]]), fp.DataStream[int])
    versions = by_room.temporal_join(by_limit)
    assert_type(versions.apply(lambda e, pair: pair[1]), fp.DataStream[int])
    assert_type(versions.left_outer().apply(lambda e, pair: pair), fp.DataStream[tuple[str, int] | None])


# -- lookup joins


class Floors(fp.LookupFunction[str, int]):
    def lookup(self, keys: Sequence[str]) -> dict[str, int]:
        return dict.fromkeys(keys, 1)


class Ceilings(fp.AsyncLookupFunction[str, float]):
    async def async_lookup(self, keys: Sequence[str]) -> dict[str, float]:
        return dict.fromkeys(keys, 2.5)


def doors(rooms: Sequence[str]) -> dict[str, list[int]]:
    return {room: [1] for room in rooms}


async def windows_of(rooms: Sequence[str]) -> dict[str, int]:
    return dict.fromkeys(rooms, 2)


class WithFloor(fp.JoinFunction[Event, int | None, Alarm]):
    def join(self, first: Event, second: int | None) -> Alarm:
        return Alarm(first.room, second or 0)


def twice(event: Event, floor: int | None) -> Iterator[str]:
    yield event.room
    yield str(floor)


def total_of(event: Event, alarm: Alarm) -> int:
    return alarm.total


def lookup_joins() -> None:
    assert_type(events.lookup_join(Floors(), key="room"), fp.DataStream[tuple[Event, int | None]])
    assert_type(by_room.lookup_join(Ceilings()), fp.DataStream[tuple[Event, float | None]])
    assert_type(by_room.lookup_join(doors, cache_ttl=MINUTE), fp.DataStream[tuple[Event, list[int] | None]])
    assert_type(by_room.lookup_join(windows_of), fp.DataStream[tuple[Event, int | None]])
    assert_type(events.lookup_join(Floors(), WithFloor(), key=lambda e: e.room), fp.DataStream[Alarm])
    assert_type(events.lookup_join(Floors(), twice, key="room"), fp.DataStream[str])
    assert_type(
        events.lookup_join(Floors(), lambda e, floor: (e.room, floor), key="room"),
        fp.DataStream[tuple[str, int | None]],
    )
    people = fp.SqlLookup("sqlite:///shop.db", table="people", key="room", result_type=Alarm)
    assert_type(events.lookup_join(people, key="room"), fp.DataStream[tuple[Event, Alarm | None]])
    assert_type(by_room.lookup_join(people, on_missing="drop"), fp.DataStream[tuple[Event, Alarm]])
    assert_type(by_room.lookup_join(people, total_of, on_missing="fail"), fp.DataStream[int])
    levels = fp.HttpLookup("http://host/{key}", result_type=int)
    assert_type(by_room.lookup_join(levels), fp.DataStream[tuple[Event, int | None]])


# -- asynchronous


class Lookup(fp.AsyncFunction[Event, str]):
    async def async_invoke(self, event: Event) -> list[str]:
        return [event.room]


async def look_up(event: Event) -> list[int]:
    return [event.value]


def asynchronous() -> None:
    assert_type(fp.AsyncDataStream.ordered_wait(events, Lookup(), MINUTE), fp.DataStream[str])
    assert_type(fp.AsyncDataStream.unordered_wait(events, look_up, MINUTE, 10), fp.DataStream[int])
