"""One watermark out of several channels: what Flink's StatusWatermarkValve and WatermarkOutputMultiplexer gave."""

from __future__ import annotations

import java_combining
import pytest

from forkpoint.runtime.event_time.watermarks import MIN_MS, Channel, combined

CASES = java_combining.read()


class Epochs:
    """One step an epoch. ``falls_asleep``: a channel turns idle within its epoch rather than ahead of it."""

    def __init__(self, channels: int, *, union: bool, falls_asleep: bool) -> None:
        self.marks = [MIN_MS] * channels
        self.idle = [False] * channels
        self.last = MIN_MS
        self.union = union
        self.falls_asleep = falls_asleep

    def step(self, channel: int, mark: int | None) -> int:
        before, awake = list(self.marks), [not idle for idle in self.idle]
        self.idle[channel] = mark is None
        if mark is not None:
            self.marks[channel], awake[channel] = mark, True
        elif not self.falls_asleep:
            awake[channel] = False
        going = [
            Channel(start, end, active=active, waiting=not idle)
            for start, end, active, idle in zip(before, self.marks, awake, self.idle, strict=True)
        ]
        self.last = combined(going, self.last, union=self.union).end
        return self.last


def followed(*, union: bool, falls_asleep: bool) -> tuple[int, int]:
    """How many steps are as in Flink, and how often all were idle and Flink had not moved to the greatest."""
    same = flushed = 0
    for channels, steps, of_union, of_splits in CASES:
        mine = Epochs(channels, union=union, falls_asleep=falls_asleep)
        for step, flinks in zip(steps, of_union if union else of_splits, strict=True):
            found = mine.step(*step)
            if found == max(flinks, MIN_MS):
                same += 1
                continue
            # Flink 2.3 leaves it where it is if the last to turn idle had not caught up; later versions don't.
            assert union
            assert all(mine.idle)
            assert found == max(mine.marks) > flinks
            flushed += 1
            break
    return same, flushed


@pytest.mark.parametrize("falls_asleep", [False, True])
def test_splits_and_connected_inputs(falls_asleep: bool) -> None:
    assert followed(union=False, falls_asleep=falls_asleep) == (sum(len(steps) for _, steps, _, _ in CASES), 0)


@pytest.mark.parametrize("falls_asleep", [False, True])
def test_unions(falls_asleep: bool) -> None:
    same, flushed = followed(union=True, falls_asleep=falls_asleep)
    assert same > 2500
    assert flushed < 30


def test_a_union_is_not_as_splits_are() -> None:
    assert sum(of_union != of_splits for _, _, of_union, of_splits in CASES) > 50
