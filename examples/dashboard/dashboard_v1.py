"""Version 1: how often posts have been viewed and clicked, all of them together.

    forkpoint run -d examples/dashboard/dashboard_v1.py -- EVENTS OUTPUT

For each event, it writes a line {"kind", "total"} to OUTPUT/<name of the job>.
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


class Total(NamedTuple):
    kind: str
    total: int


class Count(fp.KeyedProcessFunction):
    total = fp.ValueStateDescriptor("total", int, default_value=0)

    def process_element(self, event: Event, ctx: fp.KeyedProcessFunction.Context) -> Iterator[Total]:
        total = self.total.value() + 1
        self.total.update(total)
        yield Total(event.kind, total)


def build(env: fp.StreamExecutionEnvironment, events: str, output: str, *, bounded: bool = False) -> None:
    env.enable_checkpointing(timedelta(milliseconds=200))
    times = fp.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda event, _: event.time)
    posts = env.from_source(fp.FileSource.json(events, Event, bounded=bounded), times, "posts").uid("posts")
    counted = posts.key_by(lambda event: event.kind, str).process(Count()).uid("counts")
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
