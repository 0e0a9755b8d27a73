"""Windows on Spark give what they give on the local engine."""

import pytest
from test_window_functions import SALES, TEN, Average, Sale

import forkpoint as fp

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("session")]


class Named(fp.ProcessWindowFunction):
    windows = fp.ValueStateDescriptor("windows", int, 0)

    def process(self, key, context, elements):
        self.windows.update(self.windows.value() + 1)
        yield key, tuple(context.window()), self.windows.value(), *elements


def results(engine, windowed):
    env = fp.StreamExecutionEnvironment.get_execution_environment({"execution.engine": engine})
    env.set_parallelism(2).set_max_epoch_rows(3)
    strategy = fp.WatermarkStrategy.for_bounded_out_of_orderness(3).with_timestamp_assigner(lambda s, _: s.ts)
    stream = env.from_collection(SALES, Sale).assign_timestamps_and_watermarks(strategy).key_by(lambda s: s.shop)
    return sorted(map(repr, windowed(stream).execute_and_collect()))


@pytest.mark.parametrize(
    "windowed",
    [
        lambda stream: stream.window(TEN).aggregate(Average(), Named()),
        lambda stream: stream.window(fp.EventTimeSessionWindows.with_gap(8)).allowed_lateness(5).sum("amount"),
    ],
)
def test_the_same_results(windowed):
    found = results("spark", windowed)
    assert found == results("local", windowed)
    assert len(found) >= 4
