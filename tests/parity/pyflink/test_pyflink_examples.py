"""PyFlink's own examples with no line changed, where PyFlink is installed for recording."""

import flink_examples
import pytest

pytestmark = pytest.mark.skipif(
    flink_examples.directory() is None, reason="no PyFlink in .flink/venv; `make flink-parity` installs it"
)


@pytest.mark.parametrize("example", [*flink_examples.RUN, *flink_examples.REFUSED])
def test_an_example_runs_unchanged(example):
    assert flink_examples.on_forkpoint(example, "local") is None


@pytest.mark.spark
def test_an_example_runs_unchanged_on_spark():
    assert flink_examples.on_forkpoint("windowing/sliding_time_window", "spark") is None
