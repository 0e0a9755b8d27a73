"""Tumbling windows of event time, reduced; late elements are dropped."""

from parity_inputs import readings
from pyflink.common import Time, Types
from pyflink.datastream.window import TumblingEventTimeWindows

INPUTS = {"readings": readings(seed=1)}


def program(readings):
    return (
        readings.map(lambda r: (r[0], r[2], r[3]), Types.TUPLE([Types.STRING(), Types.LONG(), Types.LONG()]))
        .key_by(lambda r: r[0], Types.STRING())
        .window(TumblingEventTimeWindows.of(Time.seconds(5)))
        .reduce(lambda a, b: (a[0], max(a[1], b[1]), a[2] + b[2]))
    )
