"""How much state a pattern keeps on forkpoint and on Flink 2.3 with RocksDB, after the same events, in bytes.

    python benchmarks/patterns/state_size.py [--only NAME …] [--sides NAME …] [--events N]

The events and patterns of against_flink.py, in one subtask, each side as it comes. ``savepoint``: forkpoint's, of the operator.
``store``: the most disk that its local store took, as lmdb and as rocksdb. ``canonical``: Flink's savepoint, which is not
compressed, unless ``execution.checkpointing.snapshot-compression`` is set, as for ``compressed``. ``native``: RocksDB's own
files, which are compressed, with what is not compacted yet. Each also per partial match.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path += [str(HERE.parent), str(HERE)]
import flink_in_turn  # noqa: E402
import program  # noqa: E402

import forkpoint as fp  # noqa: E402
from forkpoint.state_processor import SavepointReader  # noqa: E402
from forkpoint.testing import Eof, run_local  # noqa: E402

EVENTS = {"stages": 400_000, "loop": 200_000}


def size(directory: Path) -> int:
    """The disk that files take: those of stores have holes."""
    return sum(file.stat().st_blocks * 512 for file in directory.rglob("*") if file.is_file())


def run(pattern: str, events: int, backend: str, root: Path) -> tuple[str, int]:
    """A savepoint after the events, and the largest size of the local store, which the run removes."""

    def job(env: fp.StreamExecutionEnvironment, numbers: fp.Source[int]) -> dict[str, fp.DataStream[Any]]:
        source = env.from_source(numbers, fp.WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
        return {"found": program.matches(source, pattern)}

    tempfile.tempdir = str(root / "stores")
    Path(tempfile.tempdir).mkdir()
    largest, ended = 0, Event()

    def watch() -> None:
        nonlocal largest
        while not ended.wait(0.05):
            with suppress(OSError):  # a file has been removed
                largest = max(largest, size(root / "stores"))

    watching = Thread(target=watch)
    watching.start()
    try:
        options = {"state_backend": backend}
        numbers = [*range(events), Eof(savepoint=True)]
        # A store applies an epoch's changes when the next one begins.
        ends = [*range(100_000, events - 900, 100_000), events - 900, events - 600, events - 300]
        done = run_local(job, numbers, state_root=root / "root", parallelism=1, epochs=ends, options=options)
    finally:
        ended.set()
        watching.join()
        tempfile.tempdir = None
    assert done.savepoint is not None
    return done.savepoint, largest


def of_forkpoint(pattern: str, events: int, directory: Path) -> Iterator[tuple[str, int]]:
    for backend in ("lmdb", "rocksdb"):
        (directory / backend).mkdir()
        saved, store = run(pattern, events, backend, directory / backend)
        if backend == "lmdb":
            kept = [row.value for row in SavepointReader.read(saved).state("matches", "partial_matches").rows()]
            yield "partial matches", sum(len(each.partial) for each in kept)
            yield "keys with partial matches", len(kept)
            yield "savepoint", size(Path(saved.removeprefix("file://")) / "operators" / "matches")
        yield f"store, {backend}", store


def of_flink(pattern: str, events: int, directory: Path) -> Iterator[tuple[str, int]]:
    for compressed in (False, True):
        saved = directory / str(compressed)
        arguments = [pattern, str(events), "rocksdb", "1", (directory / "checkpoints").as_uri(), saved.as_uri(), str(compressed)]
        flink_in_turn.seconds(
            "flink", flink_in_turn.java_command("flink-patterns", HERE / "FlinkPatterns.java", *arguments), directory, 1
        )
        yield f"flink, {'compressed' if compressed else 'canonical'}", size(saved / "CANONICAL")
        if not compressed:
            yield "flink, native", size(saved / "NATIVE")


SIDES = {"forkpoint": of_forkpoint, "flink": of_flink}

if __name__ == "__main__":
    given = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    given.add_argument("--only", choices=EVENTS, nargs="+", default=list(EVENTS))
    given.add_argument("--sides", choices=SIDES, nargs="+", default=list(SIDES))
    given.add_argument("--events", type=int)
    arguments = given.parse_args()
    for pattern in arguments.only:
        partial_matches = 0
        for side in arguments.sides:
            with tempfile.TemporaryDirectory(prefix="pattern-state-") as name:
                for told, count in SIDES[side](pattern, arguments.events or EVENTS[pattern], Path(name)):
                    partial_matches = count if told == "partial matches" else partial_matches
                    each = f"{count / partial_matches:10.0f}" if partial_matches and "matches" not in told else ""
                    print(f"{pattern:10}{told:30}{count:14,}{each}", flush=True)
