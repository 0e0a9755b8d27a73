"""The inputs both sides read: made here from seeds, kept as CSV so that Flink and forkpoint see the same bytes."""

from __future__ import annotations

import csv
from pathlib import Path
from random import Random
from typing import NamedTuple

DIRECTORY = Path(__file__).parent / "inputs"


class Event(NamedTuple):
    seq: int
    key: str
    ts: int  # milliseconds
    value: int
    kind: str  # left, right or rule: which side of a join, or which input


def _events(seed: int, size: int, keys: str, start_ms: int, steps: list[int], behind: list[int]) -> list[Event]:
    random, now_ms, events = Random(seed), start_ms, []
    for seq in range(size):
        now_ms += random.choice(steps)
        ts = now_ms - random.choice(behind)
        kind = random.choice(["left"] * 4 + ["right"] * 4 + ["rule"])
        events.append(Event(seq, random.choice(keys), ts, random.randint(0, 9), kind))
    return events


def made() -> dict[str, list[Event]]:
    """All inputs by name."""
    return {
        "dense": _events(1, 90, "abc", 1_000, [0, 1, 2, 3, 5, 8], [0, 0, 0, 0, 5, 12, 30, 70]),
        "sparse": _events(2, 70, "ab", 10_000, [0, 1, 5, 30, 120], [0, 0, 0, 20, 90, 200]),
        "early": _events(3, 40, "ab", -300, [0, 3, 10, 25], [0, 0, 5, 30, 60, 100]),  # before 1970
    }


def write() -> None:
    DIRECTORY.mkdir(exist_ok=True)
    for name, events in made().items():
        with (DIRECTORY / f"{name}.csv").open("w", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows(events)


def read() -> dict[str, list[Event]]:
    """The inputs as they were recorded with."""
    found = {}
    for path in sorted(DIRECTORY.glob("*.csv")):
        with path.open(newline="") as file:
            found[path.stem] = [Event(int(s), key, int(ts), int(v), kind) for s, key, ts, v, kind in csv.reader(file)]
    return found


if __name__ == "__main__":
    write()
