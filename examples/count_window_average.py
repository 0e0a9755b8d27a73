"""The mean of every two numbers of a key: the smallest program with state. Prints (1, 4) and (1, 5).

python examples/count_window_average.py
"""

from collections.abc import Iterator

import forkpoint as fp


class CountWindowAverage(fp.FlatMapFunction):
    """State: how many numbers there were since the last mean, and their sum."""

    sum = fp.ValueStateDescriptor("sum", tuple[int, int], default_value=(0, 0))

    def flat_map(self, value: tuple[int, int]) -> Iterator[tuple[int, int]]:
        count, total = self.sum.value()
        count, total = count + 1, total + value[1]
        if count < 2:
            self.sum.update((count, total))
        else:
            yield value[0], total // count
            self.sum.clear()


def averages(env: fp.StreamExecutionEnvironment) -> fp.DataStream:
    return (
        env.from_collection([(1, 3), (1, 5), (1, 7), (1, 4), (1, 2)])
        .uid("numbers")
        .key_by(lambda pair: pair[0])
        .flat_map(CountWindowAverage())
        .uid("average")
    )


if __name__ == "__main__":
    environment = fp.StreamExecutionEnvironment.get_execution_environment()
    averages(environment).print().uid("out")
    environment.execute("count-window-average")
