"""Windows of an assigner of one's own: long ones for some keys, short ones for others, none for one."""

from parity_inputs import readings
from pyflink.datastream import ProcessWindowFunction, TimeWindow, Trigger, WindowAssigner
from pyflink.datastream.window import EventTimeTrigger, TimeWindowSerializer

INPUTS = {"readings": readings(seed=81)}


class ByKey(WindowAssigner):
    def assign_windows(self, element, timestamp, context: WindowAssigner.WindowAssignerContext):
        size = {"a": 10_000, "b": 4_000}.get(element[0])
        if size is None:
            return []
        start = TimeWindow.get_window_start_with_offset(timestamp, 500, size)
        return [TimeWindow(start, start + size)]

    def get_default_trigger(self, env) -> Trigger:
        return EventTimeTrigger.create()

    def get_window_serializer(self):
        return TimeWindowSerializer()

    def is_event_time(self):
        return True


class Contents(ProcessWindowFunction):
    def process(self, key, context: ProcessWindowFunction.Context, elements):
        yield key, context.window().start, context.window().end, [e[2] for e in elements]


def program(readings):
    return readings.key_by(lambda r: r[0]).window(ByKey()).process(Contents())
