"""Version 2: organic and paid posts separately. Everything that version 1 counted before paid posts came was organic.

    forkpoint fork before-paid examples/dashboard/dashboard_v2.py --name split -d -- EVENTS OUTPUT

For each event, it writes a line {"kind", "organic", "paid"} to OUTPUT/<name of the job>.
"""

import argparse
from collections.abc import Iterator
from datetime import timedelta
from typing import NamedTuple

import forkpoint as fp


class Event(NamedTuple):
    time: int  # ms
    post: int
    kind: str  # "view" or "click"
    paid: bool = False  # before the 11th, events don't say


class Totals(NamedTuple):
    organic: int
    paid: int


class Split(NamedTuple):
    kind: str
    organic: int
    paid: int


class Count(fp.KeyedProcessFunction):
    total = fp.ValueStateDescriptor("total", Totals, default_value=Totals(0, 0))

    def process_element(self, event: Event, ctx: fp.KeyedProcessFunction.Context) -> Iterator[Split]:
        organic, paid = self.total.value()
        totals = Totals(organic, paid + 1) if event.paid else Totals(organic + 1, paid)
        self.total.update(totals)
        yield Split(event.kind, *totals)


def build(env: fp.StreamExecutionEnvironment, events: str, output: str, *, bounded: bool = False) -> None:
    env.enable_checkpointing(timedelta(milliseconds=200))
    times = fp.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda event, _: event.time)
    posts = env.from_source(fp.FileSource.json(events, Event, bounded=bounded), times, "posts").uid("posts")
    counted = posts.key_by(lambda event: event.kind, str).process(Count()).uid("counts")
    counted.migrate_state(1, lambda total: Totals(organic=total, paid=0), state="total")
    counted.sink_to(fp.FileSink.json(f"{output}/{{job}}")).uid("dashboard")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("events")
    parser.add_argument("output")
    parser.add_argument("--bounded", action="store_true", help="end with the files that are there")
    arguments = parser.parse_args()
    env = fp.StreamExecutionEnvironment.get_execution_environment()
    build(env, arguments.events, arguments.output, bounded=arguments.bounded)
    env.execute("dashboard")


if __name__ == "__main__":
    main()
