"""Jobs that go round, and what they must give, worked out without the engine.

Also a program of its own, which kills itself: ``python loop_jobs.py DIRECTORY [STEP TIMES PARALLELISM]``.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import forkpoint as fp
from forkpoint.api.launch import Launch

NO_WATERMARKS = fp.WatermarkStrategy.no_watermarks()


class Number(NamedTuple):
    start: int
    value: int
    steps: int


def collatz_step(n: Number) -> Number:
    return Number(n.start, 3 * n.value + 1 if n.value % 2 else n.value // 2, n.steps + 1)


def collatz(numbers: fp.DataStream) -> fp.DataStream:
    """Of each number, how many steps it takes to 1."""
    loop = numbers.map(lambda n: Number(n, n, 0), Number).iterate().uid("loop")
    at_one = loop.filter(lambda n: n.value == 1)
    loop.close_with(loop.filter(lambda n: n.value != 1).map(collatz_step))
    return at_one.map(lambda n: (n.start, n.steps), tuple[int, int])


def collatz_lengths(numbers: Iterable[int]) -> list[tuple[int, int]]:
    return sorted((n, _length(n)) for n in numbers)


def _length(n: int) -> int:
    steps = 0
    while n != 1:
        n, steps = 3 * n + 1 if n % 2 else n // 2, steps + 1
    return steps


class Message(NamedTuple):
    """A neighbour of a node, or a component's number that a neighbour tells it."""

    node: int
    kind: str
    value: int


class Components(fp.KeyedProcessFunction):
    """Each node keeps the least number it heard of, and passes it on when it changes."""

    neighbours = fp.MapStateDescriptor("neighbours", int, bool)
    component = fp.ValueStateDescriptor("component", int)

    def process_element(self, message: Message, ctx: fp.KeyedProcessFunction.Context) -> Any:
        node = message.node
        known = self.component.value()
        best = node if known is None else known
        if message.kind == "edge":
            self.neighbours.put(message.value, True)
            yield Message(message.value, "component", best)
        best = min(best, message.value) if message.kind == "component" else best
        if best != known:
            self.component.update(best)
            yield Message(node, "result", best)
            for neighbour in list(self.neighbours.keys()):
                yield Message(neighbour, "component", best)


def components(edges: fp.DataStream) -> fp.DataStream:
    """Every change of a node's component; the last one is the least node that it is connected with."""
    both = edges.flat_map(lambda e: [Message(e[0], "edge", e[1]), Message(e[1], "edge", e[0])], Message)
    loop = both.iterate().uid("loop")
    told = loop.key_by(lambda m: m.node, int).process(Components(), Message).uid("components")
    loop.close_with(told.filter(lambda m: m.kind == "component"))
    return told.filter(lambda m: m.kind == "result").map(lambda m: (m.node, m.value), tuple[int, int])


def least_connected(edges: Iterable[tuple[int, int]]) -> dict[int, int]:
    least = {node: node for edge in edges for node in edge}
    changed = True
    while changed:
        changed = False
        for a, b in edges:
            low = min(least[a], least[b])
            changed = changed or least[a] != low or least[b] != low
            least[a] = least[b] = low
    return least


def source_of(build: Callable[[fp.DataStream], fp.DataStream], type_: Any = None) -> Callable[..., fp.DataStream]:
    """The job on one source, as ``run_local`` builds it."""
    return lambda env, source: build(env.from_source(source, NO_WATERMARKS, "in", type_).uid("in"))


NUMBERS = list(range(1, 16))


class Killer:
    """Kills this process when it comes to a step for the nth time."""

    def __init__(self, step: str, times: int) -> None:
        self.step = step
        self.left = times

    def on_step(self, step: str, epoch: int) -> None:
        self.left -= step == self.step
        if self.left == 0 and step == self.step:
            os.kill(os.getpid(), signal.SIGKILL)


def run(directory: str, step: str = "never", times: int = 1, parallelism: int = 2) -> None:
    env = fp.StreamExecutionEnvironment.get_execution_environment({"execution.engine": "local"})
    env.set_state_root(f"{directory}/state").set_parallelism(parallelism).set_max_epoch_rows(4)
    numbers = env.from_collection(NUMBERS, int).uid("numbers")
    results = collatz(numbers).map(repr, str)
    results.sink_to(fp.FileSink.text(f"{directory}/output")).uid("files")
    env.launch = Launch(steps=Killer(step, times))
    env.execute("collatz")


if __name__ == "__main__":
    run(sys.argv[1], *sys.argv[2:3], *map(int, sys.argv[3:]))
