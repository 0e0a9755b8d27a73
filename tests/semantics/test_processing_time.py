"""Timers by the wall clock: when they fire, and that the driver is told of the next."""

import pytest

import forkpoint as fp
from forkpoint.testing import Advance, KeyedProcessHarness, ManualClock, run_local


class Alarm(fp.KeyedProcessFunction):
    """Registers a timer ``value`` ms from now; a negative value deletes that timer."""

    def process_element(self, value, ctx):
        timers = ctx.timer_service()
        at = timers.current_processing_time() + abs(value)
        if value < 0:
            timers.delete_processing_time_timer(at)
        elif value % 2:
            timers.register_processing_time_timer(at - 1000)
        else:
            timers.register_processing_time_timer(at)

    def on_timer(self, timestamp, ctx):
        yield timestamp, ctx.timestamp(), ctx.timer_service().current_processing_time()


@pytest.mark.parametrize(
    ("elements", "next_timer"),
    [([10], 510), ([10, 4], 504), ([10, 4, -4], 510), ([11], -489), ([0, 10], 500), ([10, -10], None), ([], None)],
)
def test_the_driver_is_told_when_the_next_timer_is_due(elements, next_timer):
    with KeyedProcessHarness(Alarm(), key=lambda v: 0, key_type=int, clock=ManualClock(500)) as h:
        h.process_elements((v, None) for v in elements)
        told = h._subtasks[0].instance.next_processing_timer_ms()
        assert (told is None) == (next_timer is None)
        assert told is None or told <= next_timer
        h.process_elements([])
        fired = [v[0] for v in h.output]
        assert fired == sorted(t for t in {500 + v if v % 2 == 0 else v - 500 for v in elements if v >= 0} if t <= 500)


def test_timers_fire_ahead_of_the_elements_of_their_epoch():
    def build(env, source):
        keyed = env.from_source(source, fp.WatermarkStrategy.no_watermarks(), "in").key_by(lambda v: 0, int)
        return keyed.process(Alarm())

    run = run_local(build, [100, 40, Advance(70), 2, Advance(100)], clock=ManualClock(0))
    assert run.output == [(40, 40, 70), (72, 72, 170), (100, 100, 170)]
