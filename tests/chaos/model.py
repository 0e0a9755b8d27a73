"""What the job gives, computed from its input alone: element by element, in plain Python, without forkpoint."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

BOUND_MS = 200
WINDOW_MS = 1000
Line = tuple[Any, ...]


@dataclass
class Expected:
    """Lines of output and how often each, by sink; what is in state: by operator, then by key."""

    lines: dict[str, Counter[Line]] = field(
        default_factory=lambda: {sink: Counter() for sink in ("elements", "windows", "late", "ranks")}
    )
    totals: dict[str, tuple[int, int]] = field(default_factory=dict)
    timers: set[tuple[str, int]] = field(default_factory=set)
    windows: dict[tuple[str, int], list[int]] = field(default_factory=dict)  # (key, start): ids
    seen: dict[int, int] = field(default_factory=dict)
    passed: int = 0
    read: int = 0


def expected(events: Sequence[dict[str, Any]], *, drained_after: int | None = None) -> Expected:
    """All of the job's results after these events, if the end of time came after so many of them."""
    found = Expected()
    amounts: dict[int, int] = {}
    watermark = -(2**63)
    newest = -(2**63)

    def emit(sink: str, line: Line) -> None:
        found.lines[sink][line] += 1
        if sink == "elements":
            found.passed += 1

    def advance(to: int) -> None:
        for timer in sorted(found.timers, key=lambda t: t[1]):
            if timer[1] <= to:
                found.timers.remove(timer)
                emit("elements", ("timer", *timer, *found.totals[timer[0]]))
        for window in sorted(found.windows, key=lambda w: w[1]):
            key, start = window
            if start + WINDOW_MS - 1 <= to:
                ids = found.windows.pop(window)
                emit("windows", (key, start, len(ids), sum(amounts[i] for i in ids)))
                found.seen[start] = found.seen.get(start, 0) + 1
                emit("ranks", ("rank", start, found.seen[start]))

    for number, event in enumerate(events):
        if number == drained_after:
            watermark = 2**63 - 1
            advance(watermark)
        id, key, amount, ts = event["id"], event["key"], event["amount"], event["ts"]
        amounts[id] = amount
        count, total = found.totals.get(key, (0, 0))
        found.totals[key] = (count + 1, total + amount)
        emit("elements", ("element", id, key, count + 1, total + amount))
        start = ts // WINDOW_MS * WINDOW_MS
        if start + WINDOW_MS > watermark:
            found.timers.add((key, start + WINDOW_MS))
        if start + WINDOW_MS - 1 <= watermark:
            emit("late", (id, key, amount, ts))
        else:
            found.windows.setdefault((key, start), []).append(id)
        found.read += 1
        newest = max(newest, ts)
        watermark = max(watermark, newest - BOUND_MS - 1)
        advance(watermark)
    if drained_after == len(events):
        advance(2**63 - 1)
    return found


def random_events(rng: random.Random, number: int, *, first: int = 0) -> list[dict[str, Any]]:
    """In order of time but for a little disorder, and now and then one that is late."""
    keys = [f"k{n}" for n in range(rng.randint(3, 12))]
    events = []
    for i in range(first, first + number):
        ts = i * 60 + rng.randrange(BOUND_MS)
        if rng.random() < 0.04:
            ts = max(0, ts - rng.randrange(2 * WINDOW_MS, 5 * WINDOW_MS))
        events.append({"id": i, "key": rng.choice(keys), "amount": rng.randrange(100), "ts": ts})
    return events


def write_events(place: Path, number: int, events: Sequence[dict[str, Any]]) -> None:
    """A file of the input, complete when it appears."""
    import os

    place.mkdir(parents=True, exist_ok=True)
    hidden = place / f".{number:04d}.json"
    hidden.write_text("".join(json.dumps(event) + "\n" for event in events))
    os.utime(hidden, (1_700_000_000 + number,) * 2)
    hidden.rename(place / f"{number:04d}.json")
