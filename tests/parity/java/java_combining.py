"""Steps of several channels, and what Flink makes of them: a line of steps, one of a union's watermarks, one of splits'."""

from __future__ import annotations

import random
from pathlib import Path

PATH = Path(__file__).parent / "recorded" / "combining.txt"


def steps() -> str:
    """A line for each case: the number of channels, then ``channel:watermark`` or ``channel:idle``."""
    rng = random.Random(6)
    return "".join(f"{' '.join(_case(rng))}\n" for _ in range(300))


def _case(rng: random.Random) -> list[str]:
    channels = rng.randint(1, 4)
    marks = [0] * channels
    case = [str(channels)]
    for _ in range(rng.randint(1, 30)):
        channel = rng.randrange(channels)
        if rng.random() < 0.3:
            case.append(f"{channel}:idle")
        else:
            marks[channel] += rng.choice((1, 2, 5, 20))
            case.append(f"{channel}:{marks[channel]}")
    return case


def to_text(given: str, found: list[str]) -> str:
    """The record: the steps and what ``java Combining`` printed for them."""
    return "".join(f"{case}\n{found[2 * i]}\n{found[2 * i + 1]}\n" for i, case in enumerate(given.splitlines()))


def read() -> list[tuple[int, list[tuple[int, int | None]], list[int], list[int]]]:
    """(channels, steps, a union's watermarks, those of splits) of each case; a step to None turns idle."""
    lines = PATH.read_text().splitlines()
    cases = []
    for case, union, splits in zip(*[iter(lines)] * 3, strict=True):
        channels, *words = case.split(" ")
        pairs = [word.split(":") for word in words]
        taken = [(int(channel), None if what == "idle" else int(what)) for channel, what in pairs]
        cases.append((int(channels), taken, [*map(int, union.split())], [*map(int, splits.split())]))
    return cases
