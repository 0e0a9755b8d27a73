"""Async I/O with retries, and a job that is looked at before it runs."""

import functools
import json

from pyflink.common import Time, Types
from pyflink.common.watermark_strategy import WatermarkStrategy
from pyflink.datastream import (
    AsyncDataStream,
    AsyncFunction,
    AsyncRetryStrategy,
    StreamExecutionEnvironment,
    async_retry_predicates,
)
from pyflink.datastream.connectors.number_seq import NumberSequenceSource


class Lookup(AsyncFunction[int, str]):
    def __init__(self):
        self.asked = set()

    async def async_invoke(self, value: int) -> list[str]:
        if value not in self.asked:
            self.asked.add(value)
            raise TimeoutError
        return [f"<{value}>"]


env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)
numbers = env.from_source(NumberSequenceSource(1, 3), WatermarkStrategy.no_watermarks(), "numbers", Types.LONG())
strategy = AsyncRetryStrategy.fixed_delay(
    max_attempts=2,
    backoff_time_millis=10,
    result_predicate=None,
    exception_predicate=functools.partial(async_retry_predicates.exception_type_predicate, expected_error_type=TimeoutError),
)
answers = AsyncDataStream.unordered_wait_with_retry(
    data_stream=numbers,
    async_function=Lookup(),
    timeout=Time.seconds(10),
    async_retry_strategy=strategy,
    capacity=2,
    output_type=Types.STRING(),
)
answers.print()
print([node["pact"] for node in json.loads(env.get_execution_plan())["nodes"]])
env.execute()
