"""Streams that reach a union from different stages: each key's results keep their order there."""

import pytest
from semantics_programs import by_key

import forkpoint as fp
from forkpoint.testing import run_local


class Reminders(fp.KeyedProcessFunction):
    """An element, and a timer behind it that others of the key overtake."""

    def process_element(self, value, ctx):
        ctx.timer_service().register_event_time_timer(value[1] + 3)
        yield (*value, "element")

    def on_timer(self, timestamp, ctx):
        yield ctx.get_current_key(), timestamp, "timer"


class Last(fp.CoProcessFunction):
    """Not keyed, so behind an exchange by split."""

    def process_element1(self, value, ctx):
        yield value

    def process_element2(self, value, ctx):
        return None


EVENTS = [("abcde"[i * 7 % 5], i * 2 - i % 3 * 5) for i in range(60)]


def job(env, source):
    strategy = fp.WatermarkStrategy.for_bounded_out_of_orderness(2).with_timestamp_assigner(lambda e, _: e[1])
    first = env.from_source(source, strategy, "in").key_by(lambda e: e[0], str).process(Reminders())
    second = first.key_by(lambda e: e[0], str).process(Reminders())
    return {
        "alone": first,
        "united": first.union(second.filter(lambda e: False)),
        "exchanged": first.connect(second).process(Last()),
    }


@pytest.mark.parametrize("parallelism", [2, 3])
@pytest.mark.parametrize("epochs", [None, 4])
def test_each_key_keeps_its_order(parallelism, epochs):
    found = run_local(job, EVENTS, parallelism=parallelism, epochs=epochs).outputs
    expected = by_key(run_local(job, EVENTS, parallelism=1).outputs["alone"])
    assert {name: by_key(found[name]) for name in found} == dict.fromkeys(found, expected)
    assert all(len(results) > 20 for results in expected.values())
