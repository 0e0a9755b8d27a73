"""Windows that begin and end within an epoch cost no changelog: only what is open at its end is written."""

import numpy as np
import pytest
from window_jobs import windowed
from window_model import Event, Setup

from forkpoint.runtime.event_time.watermarks import MIN_MS, Window
from forkpoint.runtime.exchange.batch import Batch
from forkpoint.runtime.operators.base import Epoch
from forkpoint.testing import OperatorHarness


def changes(setup, events, end):
    """The changes of one epoch in which the watermark follows the elements and ends at ``end``."""
    with OperatorHarness(lambda stream: windowed(stream, setup), input_type=Event) as harness:
        instance = harness._subtasks[0].instance
        stamps = np.array([e.ts for e in events])
        before = np.maximum.accumulate(np.concatenate(([MIN_MS], stamps[:-1] - 1)))
        sequence = np.arange(len(events))
        batch = Batch(len(events), 2 * before + 1, 0, sequence, values=events, timestamps=stamps)
        outputs = instance.run([batch], Epoch(1, Window(MIN_MS, MIN_MS, end), 0))
        return outputs.main.size, len(instance.changes().keys)


@pytest.mark.parametrize(
    ("assigner", "open_at_the_end"),
    [(("tumbling", 10, 0), 2), (("sliding", 10, 5, 0), 4), (("session", 3), 3)],  # contents, a timer; a session's entry
)
@pytest.mark.parametrize("combine", ["process", "reduce", "aggregate"])
def test_only_open_windows_are_written(assigner, open_at_the_end, combine):
    events = [Event("k", ts, "x", 1) for ts in range(0, 1000, 5)]
    setup = Setup(assigner, None, None, 0, combine, 0)
    fired, written = changes(setup, events, 2000)
    assert (fired > 90, written) == (True, 0)
    _, written = changes(setup, events, 996)
    assert written == open_at_the_end
