"""Inputs that turn idle and come back: what operators behind unions and connected streams see, against small models."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import forkpoint as fp
from forkpoint.testing import PAUSE, Eof, TestSource, run_local


class Step(NamedTuple):
    """What an epoch brings: an element of one input, and the watermark behind it; None: the input turns idle."""

    n: int
    mark: int | None


class Marks(fp.WatermarkGenerator):
    def on_event(self, value: Step, event_timestamp: int, output: Any) -> None:
        if value.mark is None:
            output.mark_idle()
        else:
            output.emit_watermark(value.mark)

    def on_periodic_emit(self, output: Any) -> None:
        pass


class Valve:
    """Flink's StatusWatermarkValve, word by word; once all are idle, it moves to the greatest, whoever was the last."""

    def __init__(self, channels: int) -> None:
        self.marks = [fp.MIN_WATERMARK] * channels
        self.active = [True] * channels
        self.aligned = [True] * channels
        self.last = fp.MIN_WATERMARK

    def step(self, channel: int, mark: int | None) -> None:
        if mark is None:
            self.active[channel] = self.aligned[channel] = False
            if not any(self.active):
                self.last = max(self.last, *self.marks)
        else:
            self.active[channel], self.marks[channel] = True, mark
            self.aligned[channel] = self.aligned[channel] or mark >= self.last
        aligned = [m for m, counts in zip(self.marks, self.aligned, strict=True) if counts]
        self.last = max(self.last, min(aligned, default=self.last))


class Connected:
    """What an operator of two inputs, the first of them a union, makes of them: the least of those that are not idle."""

    def __init__(self) -> None:
        self.union, self.other, self.last = Valve(2), Valve(1), fp.MIN_WATERMARK

    def step(self, channel: int, mark: int | None) -> None:
        (self.union if channel < 2 else self.other).step(channel % 2, mark)
        inputs = [self.union, self.other]
        active = [i.last for i in inputs if any(i.active)]
        self.last = max(self.last, min(active) if active else max(i.last for i in inputs))


class Seen(fp.KeyedProcessFunction):
    def process_element(self, value: Step, ctx: Any) -> Any:
        yield value.n, ctx.timer_service().current_watermark()


class SeenByTwo(fp.KeyedCoProcessFunction):
    def process_element1(self, value: Step, ctx: Any) -> Any:
        yield value.n, ctx.timer_service().current_watermark()

    process_element2 = process_element1


def build(shape: str) -> Any:
    def job(env: Any, *sources: TestSource) -> Any:
        strategy = fp.WatermarkStrategy.for_generator(Marks)
        streams = [env.from_source(s, strategy, f"in-{i}").uid(f"in-{i}") for i, s in enumerate(sources)]
        if shape == "connected":
            one = streams[0].union(streams[1]).key_by(lambda e: e.n % 3)
            return one.connect(streams[2].key_by(lambda e: e.n % 3)).process(SeenByTwo()).uid("seen")
        united = streams[0].union(*streams[1:])
        if shape == "mapped":
            united = united.map(lambda e: e, Step)
        if shape == "two stages":
            united = united.key_by(lambda e: e.n % 2).map(lambda e: e, Step)
        return united.key_by(lambda e: e.n % 3).process(Seen()).uid("seen")

    return job


def script(seed: int) -> tuple[list[tuple[int, int | None]], int, int]:
    """Marks and idleness of three channels; where the run is stopped, and how many subtasks go on."""
    rng = random.Random(seed)
    marks = [0, 0, 0]
    steps: list[tuple[int, int | None]] = []
    for _ in range(rng.randint(8, 20)):
        channel = rng.randrange(3)
        if rng.random() < 1 / 3:
            steps.append((channel, None))
        else:
            marks[channel] += rng.choice([1, 2, 5, 20])
            steps.append((channel, marks[channel]))
    return steps, rng.randint(0, 20), rng.randint(1, 3)


TELLING = (0, 9, 10)  # scripts of which the last two alone found faults in how idle inputs are combined
BACK_BEHIND = ([(0, 20), (1, 5), (2, None), (1, None), (0, 22), (1, 7), (0, 25), (0, 30)], 20, 2)


def sources(steps: list[tuple[int, int | None]], stop: int) -> list[TestSource]:
    found: list[list[Any]] = [[], [], []]
    for n, (channel, mark) in enumerate(steps):
        found[channel].append(Step(n, mark))
        for items in found:
            items.append(Eof(savepoint=True) if n == stop else PAUSE)
    return [TestSource(items, type=Step) for items in found]


@pytest.mark.parametrize("shape", ["union", "mapped", "two stages", "connected"])
@pytest.mark.parametrize(
    "case",
    [BACK_BEHIND, *(pytest.param(script(n), marks=[] if n in TELLING else [pytest.mark.slow]) for n in range(12))],
)
def test_as_in_flink_also_when_stopped_and_restored(
    tmp_path: Path, shape: str, case: tuple[list[tuple[int, int | None]], int, int]
) -> None:
    steps, stop, parallelism = case
    model: Valve | Connected = Connected() if shape == "connected" else Valve(3)
    expected = []
    for n, step in enumerate(steps):
        expected.append((n, model.last))
        model.step(*step)
    root = tmp_path / "root"
    one = run_local(build(shape), *sources(steps, stop), parallelism=2, state_root=root)
    output = one.output
    if one.savepoint is not None:
        output += run_local(
            build(shape), *sources(steps, -1), parallelism=parallelism, state_root=root, restore=one.savepoint
        ).output
    assert sorted(output) == expected
