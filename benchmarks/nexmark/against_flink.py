"""Nexmark's queries on forkpoint and on Flink 2.3, in turn on the same machine; writes nexmark.json.

    python benchmarks/nexmark/against_flink.py …/nexmark-flink/src/main/resources/queries [--rounds N] [--sides NAME …] [q0 q5 …]

Both run the same statements in the published texts over the same events, and drop the results; ``run.py`` compares them. Seven
queries are also programs of streams, on Spark and on the local engine: their references are the texts on Flink, and for three of
them the same programs on PyFlink, if ``make flink-parity`` has installed it.

Each side is a process that runs all queries: a side's throughput is the difference in events over that in time between a long and
a short run, so that starts don't count. Flink has mini-batches on, but for a few queries once more without, and checkpoints each
second; forkpoint commits each million events, or each second if these take longer. The ratios are medians of the rounds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from nexmark_queries import QUERIES, program, side_input, source, write_side_input
from sides import FLINK, ON_PYFLINK, PYFLINK, Figure, Side, running
from stream_programs import PROGRAMS

PER_SECOND = 100_000
LONG = 2_000_000
EVENTS = {
    **dict.fromkeys(("q0", "q1", "q2", "q3", "q8", "q14", "q22"), 8_000_000),
    **dict.fromkeys(("q11", "q17", "q21"), 4_000_000),
    **dict.fromkeys(("q4", "q9", "q20"), 1_000_000),
}
OF_PROGRAMS = {**dict.fromkeys(PROGRAMS, 2_000_000), "q4": 1_000_000, "q5": 1_000_000}
OF_PYFLINK = {**dict.fromkeys(ON_PYFLINK, 800_000), "q11": 80_000}
WARM_UP = 500_000
TRIES = 3
"""Of a run that takes no longer than its quarter, because the machine is busy."""
PER_EPOCH = {
    **dict.fromkeys(("q4", "q7", "q15", "q20"), 500_000),
    **dict.fromkeys(("q5", "q16", "q18", "q19"), 300_000),
    "q9": 200_000,
}
"""Where a million events take longer than a second."""
PER_EPOCH_OF_PROGRAMS = {**dict.fromkeys(PROGRAMS, 500_000), **dict.fromkeys(("q4", "q5"), 150_000)}
WITHOUT_MINI_BATCH = ("q4", "q5", "q11", "q15", "q17")
NOT_HERE = {
    "q6": "Flink does not run it",
    "q10": "its sink of files is dropped",
    "q12": "its windows are those of the clock",
    "q23": "most of its result is what one bidder has, squared",
}
REFERENCES = {
    "flink-heap": "Flink heap",
    "flink-rocksdb": "Flink RocksDB",
    "flink-heap-unbatched": "Flink heap, mini-batch off",
    "pyflink": "PyFlink",
}


@dataclass(frozen=True)
class Run:
    """What a side does for a query. ``events``: of the long run, of which the short has a quarter."""

    side: str
    query: str
    program: bool
    events: int

    @property
    def name(self) -> str:
        """Of a run of ours."""
        return f"{'datastream' if self.program else 'sql'} {self.query}{', local engine' if self.side == 'local' else ''}"

    def against(self, reference: Run) -> bool:
        """Whether one of ours is compared with one of Flink's."""
        if reference.side in ("pyflink", "flink-heap-unbatched"):
            return self.program == reference.program
        return reference.side in REFERENCES


def runs(query: str, sides: list[str], scale: float) -> Iterator[Run]:
    for side in sides:
        text = Run(side, query, False, int(EVENTS.get(query, LONG) * scale))
        if side in ("spark", "flink-heap", "flink-rocksdb") or (side in FLINK and query in WITHOUT_MINI_BATCH):
            yield text
        if side in ("spark", "local") and query in PROGRAMS:
            yield Run(side, query, True, int(OF_PROGRAMS[query] * scale))
        if side == "pyflink" and query in ON_PYFLINK:
            yield Run(side, query, True, int(OF_PYFLINK[query] * scale))


def per_second(side: Side, run: Run, texts: Path) -> float:
    for _ in range(TRIES):
        short, long = (seconds(side, run, texts, count) for count in (run.events // 4, run.events))
        if long > short:
            return run.events * 3 / 4 / (long - short)
    raise SystemExit(f"{run.query} on {side.name}: {run.events:,} events take no longer than a quarter; raise their number")


def seconds(side: Side, run: Run, texts: Path, events: int) -> float:
    per_epoch = PER_EPOCH_OF_PROGRAMS[run.query] if run.program else PER_EPOCH.get(run.query, 1_000_000)
    options = source(events, PER_SECOND, per_epoch=per_epoch), side_input(side.directory, on_flink=side.name in FLINK)
    found = program(run.query, texts, *options)
    if run.program:
        return float(side.ask([*found.definitions, f"STREAM {run.query} {events} {PER_SECOND} 1 {per_epoch}"])[0])
    return sum(float(side.ask([*found.definitions, insert])[0]) for insert in found.inserts)


def main() -> None:
    available = ["spark", "local", *FLINK, *(["pyflink"] if PYFLINK.exists() else [])]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path, help="of the published texts")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sides", nargs="+", default=available, choices=available)
    parser.add_argument("--parallelism", type=int, default=2)
    parser.add_argument("--scale", type=float, default=1, help="of the numbers of events; below 1 to see whether all runs")
    parser.add_argument("--output", type=Path, default=Path("nexmark.json"))
    parser.add_argument("queries", nargs="*", default=[query for query in QUERIES if query not in NOT_HERE])
    given = parser.parse_intermixed_args()
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory(prefix="nexmark-") as name, running(given.sides, given.parallelism, Path(name)) as sides:
        write_side_input(Path(name))
        by_name = {side.name: side for side in sides}
        for side in sides:
            seconds(side, Run(side.name, "q0", side.name in ("local", "pyflink"), 0), given.directory, WARM_UP)
        for query in given.queries:
            found: dict[Run, list[float]] = {run: [] for run in runs(query, given.sides, given.scale)}
            for _ in range(given.rounds):
                for run, values in found.items():
                    values.append(per_second(by_name[run.side], run, given.directory))
            for each in of_query(found):
                figures.append(each)
                compared = f"{each.reference:>28}{each.reference_value:12,.0f}{each.ratio:8.2f} ×"
                print(f"{each.name:30}{each.value:12,.0f} {each.unit}{compared}", flush=True)
            given.output.write_text(json.dumps([asdict(each) for each in figures], indent=2) + "\n")
    for kind in ("sql", "datastream"):
        for reference in REFERENCES.values():
            on_spark = [each for each in figures if each.reference == reference and each.name in (f"{kind} {q}" for q in QUERIES)]
            if on_spark:
                print(f"geometric mean of {kind} × {reference}: {statistics.geometric_mean(each.ratio for each in on_spark):.2f}")


def of_query(found: dict[Run, list[float]]) -> Iterator[Figure]:
    """The figures of the rounds."""
    for run, values in found.items():
        for reference, theirs in found.items():
            if run.side not in REFERENCES and run.against(reference):
                yield Figure.of(run.name, "events/s", values, REFERENCES[reference.side], theirs)


if __name__ == "__main__":
    main()
