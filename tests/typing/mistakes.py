"""Programs with mistakes that a type checker finds. Each line with one ends in ``# mistake``; there are no others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import NamedTuple

import forkpoint as fp


class Event(NamedTuple):
    room: str
    value: int


env = fp.StreamExecutionEnvironment.get_execution_environment()
events = env.from_collection([Event("hall", 1)])
by_room = events.key_by(lambda e: e.room)
windows = by_room.window(fp.TumblingEventTimeWindows.of(timedelta(minutes=1)))


def length(text: str) -> int:
    return len(text)


class Upper(fp.MapFunction[str, str]):
    def map(self, text: str) -> str:
        return text.upper()


class Wrong(fp.MapFunction[str, int]):
    def map(self, text: str) -> str:  # mistake
        return text


class ByNumber(fp.KeyedProcessFunction[int, Event, str]):
    count = fp.ValueStateDescriptor("count", int)

    def process_element(self, event: Event, ctx: fp.KeyedProcessFunction.Context[int]) -> Iterator[str]:
        self.count.update("one")  # mistake
        total: int = self.count.value()  # mistake
        yield event.room + str(total)


class Emits(fp.ProcessFunction[Event, str]):
    def process_element(self, event: Event, ctx: fp.ProcessFunction.Context) -> Iterator[str]:
        yield event.value  # mistake


class Numbers(fp.Sink[int]):
    def create_writer(self, context: fp.SinkContext) -> fp.SinkWriter[int]:
        raise NotImplementedError


class Means(fp.AggregateFunction[str, int, float]):
    def create_accumulator(self) -> int:
        return 0

    def add(self, value: str, accumulator: int) -> int:
        return accumulator + len(value)

    def get_result(self, accumulator: int) -> float:
        return accumulator

    def merge(self, a: int, b: int) -> int:
        return a + b


class Texts(fp.ProcessWindowFunction[str, str, str, fp.TimeWindow]):
    def process(
        self, key: str, context: fp.ProcessWindowFunction.Context[fp.TimeWindow], elements: Iterable[str]
    ) -> Iterable[str]:
        return elements


class ByCount(fp.ProcessWindowFunction[Event, str, str, fp.CountWindow]):
    def process(
        self, key: str, context: fp.ProcessWindowFunction.Context[fp.CountWindow], elements: Iterable[Event]
    ) -> Iterable[str]:
        return [key]


class Swapped(fp.CoMapFunction[str, Event, str]):
    def map1(self, text: str) -> str:
        return text

    def map2(self, event: Event) -> str:
        return event.room


events.map(length)  # mistake
events.map(Upper())  # mistake
events.map(lambda e: e.rom)  # mistake
events.filter(lambda e: e.value.upper())  # mistake
events.flat_map(lambda e: e.value)  # mistake
events.map(lambda e: e.value).map(str.upper)  # mistake
events.key_by(lambda e: e.rom)  # mistake
by_room.process(ByNumber())  # mistake
by_room.reduce(lambda a, b: a.value)  # mistake
events.sink_to(Numbers())  # mistake
windows.aggregate(Means())  # mistake
windows.process(Texts())  # mistake
windows.process(ByCount())  # mistake
events.connect(events).map(Swapped())  # mistake
by_room.interval_join(events.key_by(lambda e: e.value))  # mistake
env.from_collection(["hall"], fp.Types.INT())  # mistake
number: int = events.execute_and_collect()  # mistake
fp.WatermarkStrategy[Event].for_monotonous_timestamps().with_timestamp_assigner(lambda e, _: e.tim)  # mistake
events.assign_timestamps_and_watermarks(fp.WatermarkStrategy[str].no_watermarks())  # mistake
events.get_side_output(fp.OutputTag("late", int)).map(length)  # mistake
texts: fp.DataStream[str] = events  # mistake
names: list[str] = events.execute_and_collect(limit=3)  # mistake
