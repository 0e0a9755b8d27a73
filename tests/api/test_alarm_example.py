"""The example of the documentation: it builds, and everything about it is known before it runs."""

from datetime import timedelta
from typing import NamedTuple

import forkpoint as fp
from forkpoint.graph.compile import compile_graph
from forkpoint.graph.transformations import KeyBy


class SensorEvent(NamedTuple):
    kind: str  # "activate" | "deactivate" | "motion"
    room: int
    time: int  # ms


class Armed(NamedTuple):
    active: bool
    since: int


class MotionAlarm(fp.KeyedProcessFunction):
    armed = fp.ValueStateDescriptor("armed", Armed)

    def __init__(self, tolerance=timedelta(0)):
        self.tolerance = tolerance / timedelta(milliseconds=1)

    def process_element(self, e: SensorEvent, ctx):
        match e.kind:
            case "activate" | "deactivate":
                self.armed.update(Armed(e.kind == "activate", e.time))
            case "motion":
                state = self.armed.value()
                if state and state.active and e.time - state.since > self.tolerance:
                    yield ("ALARM", e.room, e.time)


def test_the_alarm_application_builds(tmp_path):
    (tmp_path / "events").mkdir()
    env = fp.StreamExecutionEnvironment.get_execution_environment()
    env.enable_checkpointing(1000)
    source = fp.FileSource.json(str(tmp_path / "events"), SensorEvent)
    events = env.from_source(source, fp.WatermarkStrategy.for_monotonous_timestamps(), "sensors").uid("sensors")
    (
        events.key_by(lambda e: e.room)
        .process(MotionAlarm())
        .uid("alarm")
        .sink_to(fp.FileSink.parquet(str(tmp_path / "alarms")))
        .uid("alarms")
    )

    graph = compile_graph(env.transformations, max_parallelism=128, require_uids=True).graph
    assert [(o.uid, o.kind, o.stage) for o in graph.operators] == [
        ("sensors", "source", 0),
        ("alarm", "keyed_process", 1),
        ("alarms", "sink", 1),
    ]
    alarm = graph.by_uid["alarm"]
    assert isinstance(alarm.key, KeyBy)
    assert (alarm.key.columns, alarm.key.single, alarm.key.key_type) == (("room",), True, fp.Types.LONG())
    assert graph.by_uid["sensors"].output_type is not None
    assert [f.name for f in graph.by_uid["sensors"].output_type.fields] == ["kind", "room", "time"]
    assert fp.ValueStateDescriptor.value is type(MotionAlarm.armed).value
