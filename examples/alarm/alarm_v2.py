"""The alarm system, second version: for a while after the alarm was switched on, motion is tolerated.

    python examples/alarm/alarm_v2.py [EVENTS] [ALARMS]

It differs from alarm_v1.py in the tolerance. The uids are the same, so the rooms' states are restored.
"""

import sys
from collections.abc import Iterator
from datetime import timedelta
from typing import NamedTuple

import forkpoint as fp


class SensorEvent(NamedTuple):
    kind: str  # "activate", "deactivate" or "motion"
    room: int
    time: int  # ms


class Armed(NamedTuple):
    active: bool
    since: int  # ms


class Alarm(NamedTuple):
    room: int
    time: int


class MotionAlarm(fp.KeyedProcessFunction):
    """State of each room: whether its alarm is on, and since when it is on or off."""

    armed = fp.ValueStateDescriptor("armed", Armed)

    def __init__(self, tolerance: timedelta) -> None:
        self.tolerance_ms = tolerance // timedelta(milliseconds=1)

    def process_element(self, event: SensorEvent, ctx: fp.KeyedProcessFunction.Context) -> Iterator[Alarm]:
        match event.kind:
            case "activate" | "deactivate":
                self.armed.update(Armed(event.kind == "activate", event.time))
            case "motion":
                state = self.armed.value()
                if state is not None and state.active and event.time - state.since > self.tolerance_ms:
                    yield Alarm(event.room, event.time)


def build(env: fp.StreamExecutionEnvironment, events: str, alarms: str, tolerance: timedelta = timedelta(seconds=30)) -> None:
    env.enable_checkpointing(500)
    strategy = fp.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda event, _: event.time)
    (
        env.from_source(fp.FileSource.json(events, SensorEvent), strategy, "sensors")
        .uid("sensors")
        .key_by(lambda event: event.room)
        .process(MotionAlarm(tolerance))
        .uid("alarm")
        .sink_to(fp.FileSink.json(alarms))
        .uid("alarms")
    )


if __name__ == "__main__":
    environment = fp.StreamExecutionEnvironment.get_execution_environment()
    events, alarms = sys.argv[1:] or ("events", "alarms")
    build(environment, events, alarms)
    environment.execute("motion-alarm")
