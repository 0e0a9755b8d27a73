"""The engine against an interpreter of Flink's semantics that shares nothing with it."""

from hypothesis import given
from hypothesis import strategies as st
from semantics_programs import Interpreter, Reference, by_key, inputs, programs, strategy

from example_counts import examples
from forkpoint.testing import KeyedProcessHarness, run_local


def run(events, timer_ops, bound, *, epochs=None, parallelism=1):
    def build(env, source):
        stream = env.from_source(source, strategy(bound), "in")
        return stream.key_by(lambda e: e.key, str).process(Interpreter(timer_ops))

    return run_local(build, events, epochs=epochs, parallelism=parallelism).output


@examples(20)
@given(inputs(), programs, st.integers(0, 10), st.integers(1, 12), st.integers(1, 3))
def test_random_programs_do_what_the_reference_says(events, timer_ops, bound, rows, parallelism):
    expected = by_key(Reference(timer_ops, bound).run(events))
    assert by_key(run(events, timer_ops, bound, epochs=max(rows, len(events) // 8), parallelism=parallelism)) == expected


@examples(15)
@given(inputs(size=15), programs, st.integers(0, 10))
def test_the_harness_does_what_the_reference_says(events, timer_ops, bound):
    expected = by_key(Reference(timer_ops, bound).run(events))
    with KeyedProcessHarness(Interpreter(timer_ops), key=lambda e: e.key, key_type=str, parallelism=2) as harness:
        for event in events:
            harness.process_element(event, event.ts)
            harness.process_watermark(event.ts - bound - 1)
        harness.process_watermark(2**63 - 1)
        assert by_key(harness.output) == expected
