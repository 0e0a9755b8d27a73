"""Counts readings by room in windows: generic classes, a source and a sink made by builders, event time."""

import argparse
from collections.abc import Iterable

from pyflink.common import Encoder, Time, Types, WatermarkStrategy
from pyflink.common.watermark_strategy import TimestampAssigner
from pyflink.datastream import ProcessWindowFunction, StreamExecutionEnvironment
from pyflink.datastream.connectors.file_system import (
    BucketAssigner,
    FileSink,
    FileSource,
    OutputFileConfig,
    RollingPolicy,
    StreamFormat,
)
from pyflink.datastream.window import TimeWindow, TumblingEventTimeWindows


class SecondField(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp) -> int:
        return value[1]


class Count(ProcessWindowFunction[tuple, tuple, str, TimeWindow]):
    def process(self, key: str, context: ProcessWindowFunction.Context[TimeWindow], elements: Iterable[tuple]) -> Iterable[tuple]:
        return [(key, context.window().start, len(list(elements)))]


def parse(line):
    room, time = line.split()
    return room, int(time)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--input")
    parser.add_argument("--output")
    given = parser.parse_args()

    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    lines = env.from_source(
        FileSource.for_record_stream_format(StreamFormat.text_line_format(), given.input).process_static_file_set().build(),
        WatermarkStrategy.no_watermarks(),
        "lines",
    )
    files = OutputFileConfig.builder().with_part_prefix("rooms").with_part_suffix(".out").build()
    sink = (
        FileSink.for_row_format(base_path=given.output, encoder=Encoder.simple_string_encoder())
        .with_output_file_config(files)
        .with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
        .with_rolling_policy(RollingPolicy.default_rolling_policy())
        .build()
    )
    readings = lines.map(parse, output_type=Types.TUPLE([Types.STRING(), Types.LONG()]))
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(SecondField())
    (
        readings.assign_timestamps_and_watermarks(strategy)
        .key_by(lambda reading: reading[0], key_type=Types.STRING())
        .window(TumblingEventTimeWindows.of(Time.milliseconds(10)))
        .process(Count(), Types.TUPLE([Types.STRING(), Types.LONG(), Types.INT()]))
        .sink_to(sink=sink)
    )
    env.execute()
