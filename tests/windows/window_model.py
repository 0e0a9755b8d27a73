"""Flink's WindowOperator in plain Python, for one split with a watermark behind every element.

Shares nothing with the engine: windows are tuples, a window keeps all its elements in a list, and what ``reduce`` and
``aggregate`` make of them is computed when it fires. The watermark passes every millisecond on its way.
"""

from __future__ import annotations

from typing import Any, NamedTuple

MIN = -(2**63)
MAX = 2**63 - 1


class Event(NamedTuple):
    key: str
    ts: int
    trace: str
    gap: int


class Setup(NamedTuple):
    """``assigner``, ``trigger`` and ``evictor`` as tuples: a kind and its numbers."""

    assigner: tuple
    trigger: tuple | None
    evictor: tuple | None
    lateness: int
    combine: str  # "process", "reduce", "aggregate"
    bound: int


class Model:
    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.kind = setup.assigner[0]
        self.event_time = self.kind not in ("global", "count")
        self.lateness = setup.lateness if self.event_time else 0
        default = {"global": ("never",), "count": ("purging", ("count", *setup.assigner[1:2]))}.get(self.kind, ("event",))
        self.trigger = setup.trigger or default
        self.watermark = MIN
        self.windows: dict[tuple, list[Event]] = {}  # (key, window) → elements
        self.alive: dict[str, set[tuple]] = {}  # sessions in flight
        self.counts: dict[str, int] = {}  # elements of a key, for count windows
        self.memory: dict[tuple, Any] = {}  # (key, window) → what the trigger remembers
        self.timers: set[tuple] = set()  # (time, key, window)
        self.out: list[tuple] = []  # key, window, trace, watermark, timestamp
        self.late: list[Event] = []

    # -- the stream

    def run(self, events: list[Event]) -> Model:
        for event in events:
            self.element(event)
            self.advance(event.ts - self.setup.bound - 1)
        self.advance(MAX)
        return self

    def advance(self, new: int) -> None:
        if new <= self.watermark:
            return
        moment = self.watermark + 1
        while self.timers and min(self.timers)[0] <= new:
            timer = min(self.timers)
            self.timers.discard(timer)
            self.watermark = moment = max(moment, timer[0])
            self.timer(*timer)
        self.watermark = new

    def end(self, window: tuple) -> int:
        return window[1] - 1 if self.event_time else MAX

    def expiry(self, window: tuple) -> int:
        return min(MAX, self.end(window) + self.lateness)

    # -- assigning

    def assign(self, event: Event) -> list[tuple]:
        match self.setup.assigner:
            case ("tumbling", size, offset):
                start = (event.ts - offset) // size * size + offset
                return [(start, start + size)]
            case ("sliding", size, slide, offset):
                first = (event.ts - size - offset) // slide * slide + offset + slide
                return [(s, s + size) for s in range(first, event.ts + 1, slide)][::-1]
            case ("session", gap):
                return [(event.ts, event.ts + gap)]
            case ("dynamic",):
                return [(event.ts, event.ts + event.gap)]
            case ("global",):
                return [()]
            case ("count", size, slide):
                index = self.counts.get(event.key, 0)
                self.counts[event.key] = index + 1
                return [(i,) for i in range(index + 1) if i * slide <= index < i * slide + size]
        raise AssertionError

    def element(self, event: Event) -> None:
        used = False
        for window in self.assign(event):
            if self.kind in ("session", "dynamic"):
                window = self.merge(event.key, window)
                if self.event_time and self.expiry(window) <= self.watermark:
                    self.alive[event.key].discard(window)
                    continue
            elif self.event_time and self.expiry(window) <= self.watermark:
                continue
            used = True
            at = (event.key, window)
            self.windows.setdefault(at, []).append(event)
            self.react(at, self.on_element(self.trigger, at, event))
            if self.expiry(window) < MAX:
                self.timers.add((self.expiry(window), *at))
        if not used and self.event_time and event.ts + self.lateness <= self.watermark:
            self.late.append(event)

    def merge(self, key: str, new: tuple) -> tuple:
        alive = self.alive.setdefault(key, set())
        touching = sorted(w for w in alive if w[0] <= new[1] and new[0] <= w[1])
        if not touching:
            alive.add(new)
            return new
        merged = (min(touching[0][0], new[0]), max(max(w[1] for w in touching), new[1]))
        if touching == [merged]:
            return merged
        elements = [e for w in touching for e in self.windows.pop((key, w), [])]
        memories = [m for w in touching if (m := self.memory.pop((key, w), None)) is not None]
        for window in touching:
            alive.discard(window)
            self.timers = {t for t in self.timers if t[1:] != (key, window)}
        alive.add(merged)
        if elements:
            self.windows[key, merged] = elements
        self.on_merge(self.trigger, (key, merged), memories)
        return merged

    # -- triggers: "", "fire", "purge"

    def on_element(self, trigger: tuple, at: tuple, event: Event) -> str:
        end = self.end(at[1])
        match trigger:
            case ("event",) | ("continuous", _):
                if end <= self.watermark:
                    return "fire"
                self.timers.add((end, *at))
                if trigger[0] == "continuous" and self.memory.get(at) is None:
                    self.next_fire(at, event.ts // trigger[1] * trigger[1], trigger[1])
            case ("count", size):
                self.memory[at] = self.memory.get(at, 0) + 1
                if self.memory[at] >= size:
                    del self.memory[at]
                    return "fire"
            case ("purging", inner):
                return "purge" if self.on_element(inner, at, event) else ""
            case ("delta", threshold):
                last = self.memory.setdefault(at, event)
                if abs(event.ts - last.ts) > threshold:
                    self.memory[at] = event
                    return "fire"
        return ""

    def next_fire(self, at: tuple, time: int, interval: int) -> None:
        self.memory[at] = time + interval if time >= self.end(at[1]) else min(time + interval, self.end(at[1]))
        self.timers.add((self.memory[at], *at))

    def on_time(self, trigger: tuple, at: tuple, time: int) -> str:
        match trigger:
            case ("event",) | ("continuous", _) if time == self.end(at[1]):
                return "fire"
            case ("continuous", interval) if time == self.memory.get(at):
                self.next_fire(at, time, interval)
                return "fire"
            case ("purging", inner):
                return "purge" if self.on_time(inner, at, time) else ""
        return ""

    def on_merge(self, trigger: tuple, at: tuple, memories: list[Any]) -> None:
        match trigger:
            case ("event",):
                if self.end(at[1]) > self.watermark:
                    self.timers.add((self.end(at[1]), *at))
            case ("continuous", _) if memories:
                self.memory[at] = min(memories)
                self.timers.add((self.memory[at], *at))
            case ("count", _) if memories:
                self.memory[at] = sum(memories)
            case ("purging", inner):
                self.on_merge(inner, at, memories)

    def timer(self, time: int, key: str, window: tuple) -> None:
        at = (key, window)
        if self.kind in ("session", "dynamic") and window not in self.alive.get(key, ()):
            return
        self.react(at, self.on_time(self.trigger, at, time))
        if self.event_time and time == self.expiry(window):
            self.windows.pop(at, None)
            self.memory.pop(at, None)
            self.alive.get(key, set()).discard(window)
            self.timers = {t for t in self.timers if t[1:] != at}

    # -- results

    def react(self, at: tuple, result: str) -> None:
        elements = self.windows.get(at)
        if result and elements:
            evictor = self.setup.evictor
            seen = elements if evictor is None or evictor[-1] else self.evict(elements)
            if seen or self.setup.combine != "reduce":
                trace = "".join(e.trace for e in seen)
                self.out.append((*at, trace, self.watermark, self.end(at[1])))
            if evictor is not None:
                self.windows[at] = self.evict(seen) if evictor[-1] else seen
        if result == "purge":
            self.windows.pop(at, None)

    def evict(self, elements: list[Event]) -> list[Event]:
        match self.setup.evictor:
            case ("count", n, _):
                return elements[-n:]
            case ("time", span, _):
                return [e for e in elements if e.ts > max(x.ts for x in elements) - span]
            case ("delta", threshold, _):
                return [e for e in elements if abs(e.ts - elements[-1].ts) < threshold]
        raise AssertionError
