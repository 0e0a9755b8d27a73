"""The contracts of sources and sinks find connectors that do not keep them, and pass with those of the documentation: files."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import forkpoint as fp
from examples.doc_blocks import ROOT, blocks
from forkpoint.contract.source import SplitEnumerator, SplitRange
from forkpoint.testing import Row, SinkContract, SourceContract

COMMITTING = threading.Lock()


class Lines(fp.Sink):
    """Appends staged lines to a file. ``fault``: what it does wrong."""

    def __init__(self, file: Path, fault: str) -> None:
        self.file, self.fault = file, fault

    def create_writer(self, context: fp.SinkContext) -> Any:
        return Writer(self, context)

    def commit(self, committables: list[Any], epoch: int) -> None:
        with COMMITTING:
            done = [] if self.fault == "repeats" else read(self.file)
            append(self.file, [each for rows in committables for each in rows if tuple(each) not in done])


class Writer(fp.SinkWriter):
    def __init__(self, sink: Lines, context: fp.SinkContext) -> None:
        self.sink, self.context = sink, context
        self.rows: list[Row] = []

    def write(self, batch: fp.SinkBatch) -> None:
        self.rows += [(n, text.strip()) if self.sink.fault == "strips" else (n, text) for n, text in batch.values]

    def prepare_commit(self) -> list[Any]:
        if self.sink.fault == "early":
            append(self.sink.file, self.rows)
        return [self.rows]


def append(file: Path, rows: Sequence[Any]) -> None:
    with file.open("a") as out:
        out.writelines(json.dumps(row) + "\n" for row in rows)


def read(file: Path) -> list[Row]:
    return [(n, text) for n, text in map(json.loads, file.read_text().splitlines())]


class OfLines(SinkContract):
    fault = ""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def create(self) -> Path:
        file = self.directory / "lines"
        file.touch()
        return file

    def sink(self, target: Path) -> Lines:
        return Lines(target, self.fault)

    @staticmethod
    def element(row: Row) -> Row:
        return row

    def read(self, target: Path) -> list[Row]:
        return read(target)


@pytest.mark.parametrize(
    ("fault", "test"),
    [
        ("strips", SinkContract.test_every_text_arrives_as_it_is),
        ("early", SinkContract.test_nothing_is_visible_before_its_commit_nor_of_attempts_that_failed),
        ("repeats", SinkContract.test_commits_are_repeated),
        ("repeats", SinkContract.test_an_older_driver_that_wakes_up_changes_nothing),
        ("repeats", SinkContract.test_two_drivers_at_the_same_commits),
    ],
)
def test_a_sink_with_a_fault_fails(tmp_path: Path, fault: str, test: Any) -> None:
    places = [tmp_path / name for name in ("good", "bad")]
    for place in places:
        place.mkdir()
    test(OfLines(places[0]), places[0])
    bad = OfLines(places[1])
    bad.fault = fault
    with pytest.raises(AssertionError):
        test(bad, places[1])


class Numbers(fp.Source):
    """A file of numbers. ``fault``: what it does wrong."""

    def __init__(self, file: Path, fault: str) -> None:
        self.file, self.fault = file, fault

    @property
    def bounded(self) -> bool:
        return False

    def create_enumerator(self, position: Any) -> Any:
        return Enumerator(self, position or 0)

    def create_reader(self) -> Any:
        return Reader(self)


class Enumerator(SplitEnumerator):
    def __init__(self, source: Numbers, position: int) -> None:
        self.source, self.at = source, position

    def plan(self, max_rows: int, parallelism_hint: int = 2) -> list[SplitRange]:
        count = len(self.source.file.read_text().split())
        start, self.at = self.at, min(count, self.at + max_rows)
        return [SplitRange("file", 0, start, self.at, self.at - start)] if self.at > start else []

    @property
    def position(self) -> int:
        return self.at - 1 if self.source.fault == "behind" else self.at

    @property
    def finished(self) -> bool:
        return False


class Reader(fp.SourceReader):
    def __init__(self, source: Numbers) -> None:
        self.source = source

    def read(self, range: SplitRange) -> Iterator[list[int]]:
        yield list(map(int, self.source.file.read_text().split()[range.start : range.end]))
        if self.source.fault == "forgets":
            self.source.file.write_text(self.source.file.read_text().replace("0", "1"))

    def read_together(self, ranges: Sequence[SplitRange]) -> Iterator[Any]:
        for parts, run in super().read_together(ranges):
            yield parts, run[1:] if self.source.fault == "loses one of several" else run


class OfNumbers(SourceContract):
    fault = ""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def create(self) -> Path:
        file = self.directory / "numbers"
        file.touch()
        return file

    def produce(self, place: Path, numbers: Sequence[int]) -> None:
        with place.open("a") as out:
            out.writelines(f"{number}\n" for number in numbers)

    def source(self, place: Path) -> Numbers:
        return Numbers(place, self.fault)

    @staticmethod
    def number(element: int) -> int:
        return element


@pytest.mark.parametrize(
    ("fault", "test"),
    [
        ("forgets", SourceContract.test_a_range_is_read_again_as_it_was),
        ("loses one of several", SourceContract.test_a_range_is_read_again_as_it_was),
        ("behind", SourceContract.test_every_driver_dies_at_another_step),
        ("behind", SourceContract.test_a_job_is_stopped_with_a_savepoint_and_goes_on_at_another_parallelism),
    ],
)
def test_a_source_with_a_fault_fails(tmp_path: Path, fault: str, test: Any) -> None:
    places = [tmp_path / name for name in ("good", "bad")]
    for place in places:
        place.mkdir()
    test(OfNumbers(places[0]), places[0])
    bad = OfNumbers(places[1])
    bad.fault = fault
    with pytest.raises(AssertionError):
        test(bad, places[1])


def test_the_example_of_the_documentation(tmp_path: Path) -> None:
    (example,) = (block for block in blocks(ROOT / "docs" / "testing.md") if "SinkContract" in block.text)
    file = tmp_path / "test_files.py"
    file.write_text(example.text)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:schemathesis", str(file)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert "12 passed" in done.stdout, done.stdout
