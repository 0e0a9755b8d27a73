"""The same on Spark, all programs in one job."""

from __future__ import annotations

import pytest
from java_programs import differences, expected, grouped, strategies_of, streams
from test_java_parity import INPUTS, compared

import forkpoint as fp

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("session")]


class Stamp(fp.ProcessFunction):
    def __init__(self, place):
        self.place = place

    def process_element(self, row, ctx):
        yield self.place, ctx.timestamp(), row


def test_on_spark():
    names, events = compared("dense"), INPUTS["dense"]
    env = fp.StreamExecutionEnvironment.get_execution_environment({"execution.engine": "spark"})
    env.set_parallelism(2).set_max_parallelism(8).set_max_epoch_rows(50 * len(strategies_of(names)))
    sources = {strategy: fp.CollectionSource(events, type(events[0])) for strategy in strategies_of(names)}
    stamped = [stream.process(Stamp(place)) for place, stream in streams(env, names, sources).items()]
    found = grouped(names, stamped[0].union(*stamped[1:]).execute_and_collect())
    assert differences(found, expected(names, "dense")) == []
