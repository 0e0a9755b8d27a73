"""Sliding windows with an offset and gaps between them (the slide is longer than the window), and a WindowFunction."""

from parity_inputs import readings
from pyflink.common import Time
from pyflink.datastream import WindowFunction
from pyflink.datastream.window import SlidingEventTimeWindows

INPUTS = {"readings": readings(seed=4)}


class Contents(WindowFunction):
    def apply(self, key, window, inputs):
        return [(key, window.start, window.end, sorted(i[3] for i in inputs))]


def program(readings):
    windows = SlidingEventTimeWindows.of(Time.seconds(3), Time.seconds(7), Time.milliseconds(1500))
    return readings.key_by(lambda r: r[0]).window(windows).apply(Contents())
