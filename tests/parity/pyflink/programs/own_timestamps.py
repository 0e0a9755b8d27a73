"""Timestamps assigned by the program, over those the elements had; a bound that takes effect at the end alone."""

from parity_inputs import readings
from pyflink.common import Duration, Time, WatermarkStrategy
from pyflink.common.watermark_strategy import TimestampAssigner
from pyflink.datastream import ProcessWindowFunction
from pyflink.datastream.window import TumblingEventTimeWindows

INPUTS = {"readings": readings(seed=25)}


class Shifted(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return record_timestamp + (value[1] - record_timestamp) + 10_000 * (value[2] % 3)


class Contents(ProcessWindowFunction):
    def process(self, key, context, elements):
        yield key, context.window().start, [e[2] for e in elements]


def program(readings):
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_hours(1)).with_timestamp_assigner(Shifted())
    stream = readings.assign_timestamps_and_watermarks(strategy)
    return stream.key_by(lambda r: r[0]).window(TumblingEventTimeWindows.of(Time.seconds(5))).process(Contents())
