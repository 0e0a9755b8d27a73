"""docs/new-source.md to the letter: the page's classes make a source that reads, saves its position and restores it."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from cli_commands import cancel, forkpoint
from doc_blocks import ROOT, blocks

import forkpoint as fp

PAGE = ROOT / "docs" / "new-source.md"
SOURCE, ENUMERATOR, READER, APP, TEST = (block for block in blocks(PAGE) if block.info == "python")
(COMMANDS,) = (block.text.splitlines() for block in blocks(PAGE) if block.info == "console")


@pytest.fixture(autouse=True)
def _modules(tmp_path, monkeypatch):
    """``tail.py`` and ``app.py`` lie in one directory, where the page says so."""
    page = PAGE.read_text(encoding="utf-8")
    assert "\n`tail.py`:\n" in page
    assert "\n`app.py`, beside `tail.py`, " in page
    (tmp_path / "tail.py").write_text(SOURCE.text + ENUMERATOR.text + READER.text, encoding="utf-8")
    (tmp_path / "app.py").write_text(APP.text, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    for name in ("tail", "app"):
        sys.modules.pop(name, None)


def page_tests():
    names: dict = {}
    exec(compile(TEST.text, TEST.name, "exec", dont_inherit=True), names)
    return {name: thing for name, thing in names.items() if name.startswith("test_")}


@pytest.mark.parametrize(
    "name", ["test_each_line_counts_once_across_a_crash_and_a_savepoint", "test_a_replay_stops_at_a_saved_position"]
)
def test_the_page_s_own_tests_pass(name, tmp_path):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    page_tests()[name](scratch)


def test_the_page_has_no_other_tests():
    assert len(page_tests()) == 2


def test_a_file_that_shrank_is_refused(tmp_path):
    from tail import TailSource

    (tmp_path / "a.log").write_text("home 1\n")
    enumerator = TailSource(tmp_path).create_enumerator({"a.log": 14})
    with pytest.raises(fp.StorageError, match="truncated"):
        enumerator.plan(100)


def test_a_paused_file_is_left_out(tmp_path):
    from tail import TailSource

    for name in ("a.log", "b.log"):
        (tmp_path / name).write_text("home 1\n")
    enumerator = TailSource(tmp_path).create_enumerator({"a.log": 0, "b.log": 0})
    assert enumerator.pause_splits({"a.log"})
    assert [planned.split for planned in enumerator.plan(100)] == ["b.log"]
    enumerator.pause_splits(())
    assert [planned.split for planned in enumerator.plan(100)] == ["a.log"]


def test_the_page_s_commands(tmp_path):
    """Run, stop, restore at another parallelism, drain: each line is counted once, though lines come all the time."""
    assert [line.split()[:3] for line in COMMANDS] == [["$", "forkpoint", name] for name in ("run", "stop", "run", "stop")]
    (tmp_path / "logs").mkdir()
    written: Counter[tuple[str, int]] = Counter()

    def append(minutes: range) -> None:
        for name in ("a.log", "b.log"):
            with open(tmp_path / "logs" / name, "a") as log:
                for minute in minutes:
                    for page in ("home", "cart", "home"):
                        log.write(f"{page} {minute * 60_000}\n")
                        written[page, minute * 60_000] += 1

    try:
        append(range(5))
        forkpoint(COMMANDS[0][2:], tmp_path)
        while not counted(tmp_path / "out"):
            time.sleep(0.05)
        append(range(5, 8))
        forkpoint(COMMANDS[1][2:], tmp_path)
        append(range(8, 12))
        forkpoint(COMMANDS[2][2:], tmp_path)
        append(range(12, 15))
        while max(minute for _, minute in counted(tmp_path / "out")) < 13 * 60_000:  # the last one ends with the drain
            time.sleep(0.05)
        forkpoint(COMMANDS[3][2:], tmp_path)
    finally:
        cancel("visits", tmp_path)
    assert counted(tmp_path / "out") == written


def counted(directory: Path) -> Counter[tuple[str, int]]:
    """What the sink's files say, all rows added up: a row that came twice shows."""
    found: Counter[tuple[str, int]] = Counter()
    for file in directory.glob("part-*"):
        for row in map(json.loads, file.read_text().splitlines()):
            found[row["key"], row["minute"]] += row["visits"]
    return found
