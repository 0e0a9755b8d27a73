"""The programs of ``src/*.java`` for forkpoint, by name. A program makes named outputs of a stream of Events.

Results are tuples with their key first.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import java_recorded
from java_inputs import Event
from java_recorded import ANY, EACH

import forkpoint as fp
from forkpoint.graph.transformations import Transformation
from forkpoint.testing import Eof, LocalRun, TestSource, run_local

Build = Callable[[fp.DataStream], Mapping[str, fp.DataStream]]
Found = dict[str, dict[Any, list[list[Any]]]]  # output → key → [[timestamp, value, …], …]

PROGRAMS: dict[str, Program] = {}
LATE = fp.OutputTag("late", Event)
UNTIMED = "untimed"  # an output whose timestamps have no order in Flink


@dataclass(frozen=True)
class Program:
    build: Build
    strategy: fp.WatermarkStrategy


def timestamp_of(event: Event, record_timestamp: int) -> int:
    return event.ts


def register(name: str, build: Build, bound: int = 0, strategy: fp.WatermarkStrategy | None = None) -> None:
    assert name not in PROGRAMS, name
    watermarks = strategy or fp.WatermarkStrategy.for_bounded_out_of_orderness(bound)
    PROGRAMS[name] = Program(build, watermarks.with_timestamp_assigner(timestamp_of))


def program(bound: int = 0, strategy: fp.WatermarkStrategy | None = None) -> Callable[[Build], Build]:
    """Registers a function under its name. ``bound``: how many ms its watermarks stay behind."""

    def registered(build: Build) -> Build:
        register(build.__name__, build, bound, strategy)
        return build

    return registered


def by_key(stream: fp.DataStream) -> fp.KeyedStream:
    return stream.key_by(lambda e: e.key, str)


def with_late(results: fp.DataStream) -> dict[str, fp.DataStream]:
    return {"main": results, "late": results.get_side_output(LATE).map(lambda e: (e.key, e.seq))}


def fields(events: fp.DataStream) -> fp.DataStream:
    return events.map(lambda e: (e.key, e.seq, e.value, e.kind))


def seqs(events: Iterable[Event]) -> list[int]:
    return [e.seq for e in events]


def mix(a: int, b: int) -> int:
    """Not commutative: shows the order."""
    return (a * 31 + b) % 1_000_003


def mixed(a: Event, b: Event) -> Event:
    return Event(mix(a.seq, b.seq), b.key, max(a.ts, b.ts), a.value + b.value, a.kind)


def run(
    names: Iterable[str], events: Sequence[Event], *, stop: int | None = None, **how: Any
) -> tuple[LocalRun, dict[str, Found]]:
    """What the programs give on the local engine, all in one job. ``stop``: with a savepoint, behind so many events."""
    chosen = sorted(names)
    strategies = strategies_of(chosen)

    def build(env: fp.StreamExecutionEnvironment, *sources: TestSource) -> Mapping[str, fp.DataStream]:
        return streams(env, chosen, dict(zip(strategies, sources, strict=True)))

    script = [*events]
    if stop is not None:
        script.insert(stop, Eof(savepoint=True))
    ran = run_local(build, *(TestSource(script, type=Event) for _ in strategies), **how)
    found = ((name, r.timestamp, r.value) for name, records in ran.records.items() for r in records)
    return ran, grouped(chosen, found)


def strategies_of(names: Iterable[str]) -> list[fp.WatermarkStrategy]:
    return list(dict.fromkeys(PROGRAMS[name].strategy for name in names))


def streams(
    env: fp.StreamExecutionEnvironment, names: Iterable[str], sources: Mapping[fp.WatermarkStrategy, fp.Source]
) -> dict[str, fp.DataStream]:
    """The programs' outputs by ``program.output``. Programs with the same watermarks read the same source."""
    inputs = {
        strategy: env.from_source(source, strategy, f"events-{i}").uid(f"events-{i}")
        for i, (strategy, source) in enumerate(sources.items())
    }
    found = {
        f"{name}.{output}": stream
        for name in names
        for output, stream in PROGRAMS[name].build(inputs[PROGRAMS[name].strategy]).items()
    }
    for place, stream in found.items():
        for edge in stream.edges:
            give_uids(edge.upstream, place)
    return found


def give_uids(operator: Transformation, place: str) -> None:
    """Uids for an output's operators, so that the job can be stopped with a savepoint."""
    if operator.uid is None:
        operator.uid = f"{place}-{operator.name}"
        for i, edge in enumerate(operator.inputs):
            give_uids(edge.upstream, f"{place}-{i}")


def grouped(names: Iterable[str], records: Iterable[tuple[str, int | None, Any]]) -> dict[str, Found]:
    """Results of ``program.output`` as they are recorded."""
    found: dict[str, Found] = {name: {} for name in names}
    for place, stamp, (key, *values) in records:
        name, output = place.split(".")
        row = [None if output == UNTIMED else stamp, *json.loads(json.dumps(values))]
        found[name].setdefault(output, {}).setdefault(key, []).append(row)
    return found


def expected(names: Iterable[str], given: str) -> dict[str, Found]:
    """What Flink gave where the watermark passes every millisecond, as it does here."""
    recorded = {name: java_recorded.read(name) for name in names}
    return {name: results.get((given, EACH)) or results.get((given, ANY), {}) for name, results in recorded.items()}


def added(first: Found, second: Found) -> Found:
    """The results of a run and of the one that went on behind it."""
    return {
        output: {
            key: first.get(output, {}).get(key, []) + second.get(output, {}).get(key, [])
            for key in {**first.get(output, {}), **second.get(output, {})}
        }
        for output in {**first, **second}
    }


def differences(found: Mapping[str, Found], wanted: Mapping[str, Found]) -> list[str]:
    """The first difference of each program, as text."""
    return [
        f"{name}: " + next(_different(found.get(name, {}), wanted.get(name, {})))
        for name in sorted({*found, *wanted})
        if found.get(name) != wanted.get(name)
    ]


def _different(found: Found, wanted: Found) -> Iterator[str]:
    for output in sorted({*found, *wanted}):
        for key in sorted({*found.get(output, {}), *wanted.get(output, {})}):
            mine, flinks = found.get(output, {}).get(key, []), wanted.get(output, {}).get(key, [])
            for i, (a, b) in enumerate(zip_longest(mine, flinks)):
                if a != b:
                    yield f"result {i} of {key!r} in {output!r} is {a}, Flink's is {b}"
