"""Nexmark's queries on forkpoint and on Flink 2.3 in Java, in turn on the same machine; writes nexmark.json.

    python benchmarks/nexmark/against_flink.py …/nexmark-flink/src/main/resources/queries [--rounds N] [--sides NAME …] [q0 q5 …]

Both sides run the same statements in the published texts over the same events, and drop the results; ``run.py`` compares them.
Each side is a process that runs all queries: a side's throughput is the difference in events over that in time between a long and
a short run, so that starts don't count. Flink has mini-batches on, and checkpoints each second; forkpoint commits each million
events, or each second if these take longer. The ratios are medians of the rounds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from pathlib import Path

from sides import FLINK, Side, running

from queries import QUERIES, program, source

PER_SECOND = 100_000
LONG = 2_000_000
EVENTS = {
    **dict.fromkeys(("q0", "q1", "q2", "q3", "q8", "q14", "q22"), 8_000_000),
    **dict.fromkeys(("q11", "q17", "q21"), 4_000_000),
    **dict.fromkeys(("q4", "q9", "q20"), 1_000_000),
}
WARM_UP = 500_000
PER_EPOCH = {
    **dict.fromkeys(("q4", "q7", "q15", "q20"), 500_000),
    **dict.fromkeys(("q5", "q16", "q18", "q19"), 300_000),
    "q9": 200_000,
}
"""Where a million events take longer than a second."""
NOT_HERE = {
    "q6": "Flink does not run it",
    "q10": "its sink of files is dropped",
    "q12": "its windows are those of the clock",
    "q13": "its side input is a table of SQLite, which Flink does not read",
    "q23": "most of its result is what one bidder has, squared",
}


def per_second(side: Side, query: str, texts: Path) -> float:
    events = EVENTS.get(query, LONG)
    short, long = (seconds(side, query, texts, count) for count in (events // 4, events))
    if long <= short:
        raise SystemExit(f"{query} on {side.name}: {events:,} events take no longer than a quarter of them; raise their number")
    return events * 3 / 4 / (long - short)


def seconds(side: Side, query: str, texts: Path, events: int) -> float:
    found = program(query, texts, source(events, PER_SECOND, per_epoch=PER_EPOCH.get(query, 1_000_000)), "")
    return sum(float(side.ask([*found.definitions, insert])[0]) for insert in found.inserts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path, help="of the published texts")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sides", nargs="+", default=["spark", *FLINK], choices=["spark", "local", *FLINK])
    parser.add_argument("--parallelism", type=int, default=2)
    parser.add_argument("--no-mini-batch", dest="mini_batch", action="store_false")
    parser.add_argument("--output", type=Path, default=Path("nexmark.json"))
    parser.add_argument("queries", nargs="*", default=[query for query in QUERIES if query not in NOT_HERE])
    given = parser.parse_intermixed_args()
    figures: list[dict[str, object]] = []
    print(f"{'':5}" + "".join(f"{side:>15}" for side in given.sides) + "".join(f"{'× ' + side:>17}" for side in given.sides[1:]))
    with (
        tempfile.TemporaryDirectory(prefix="nexmark-") as name,
        running(given.sides, given.parallelism, Path(name), mini_batch=given.mini_batch) as sides,
    ):
        for side in sides:
            seconds(side, "q0", given.directory, WARM_UP)
        for query in given.queries:
            found: dict[str, list[float]] = {side.name: [] for side in sides}
            for _ in range(given.rounds):
                for side in sides:
                    found[side.name].append(per_second(side, query, given.directory))
            first, *others = found
            ratios = {
                other: statistics.median(a / b for a, b in zip(found[first], found[other], strict=True)) for other in others
            }
            medians = {side: statistics.median(values) for side, values in found.items()}
            print(
                f"{query:5}"
                + "".join(f"{value:15,.0f}" for value in medians.values())
                + "".join(f"{ratio:17.2f}" for ratio in ratios.values()),
                flush=True,
            )
            figures += [
                {
                    "name": f"sql {query} on {first}",
                    "value": medians[first],
                    "unit": "events/s",
                    "reference": other,
                    "reference_value": medians[other],
                    "ratio": ratio,
                }
                for other, ratio in ratios.items()
            ]
    for other in given.sides[1:]:
        of = [figure["ratio"] for figure in figures if figure["reference"] == other]
        print(f"geometric mean × {other}: {statistics.geometric_mean(of):.2f}")  # type: ignore[type-var]
    given.output.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
