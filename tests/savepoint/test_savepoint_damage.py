"""Savepoints that are damaged, cut short, foreign, unfinished or of a newer format: refused by name, and nothing changes."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from job_state import UID, Cluster, lists

from forkpoint.checkpoint.format import checksum
from forkpoint.checkpoint.manifest import Manifest
from forkpoint.checkpoint.paths import JobPaths
from forkpoint.errors import AlreadyExists, SavepointCorrupt, SavepointNotFound, StorageError
from forkpoint.savepoint.catalog.listing import list_savepoints
from forkpoint.savepoint.export.exporter import export_savepoint
from forkpoint.savepoint.format.directory import remove_partial
from forkpoint.savepoint.format.opened_savepoint import OpenedSavepoint, open_savepoint, verify_files
from forkpoint.savepoint.format.tasks import run_here
from forkpoint.savepoint.restore.compatibility import ProgramOperator
from forkpoint.savepoint.restore.importer import import_savepoint
from forkpoint.savepoint.restore.restore_plan import Saved, plan_restore
from forkpoint.storage.base import LocalStorage
from forkpoint.types import type_of


def make(root: Path) -> Manifest:
    """A small savepoint at root/s with all kinds of state, of a job in root/job."""
    storage = LocalStorage(str(root / "job"))
    cluster = Cluster(storage, "job", 2, 8, (type_of(int), type_of(tuple[int, str]), type_of(str)))
    for _ in range(2):
        cluster.epoch(
            {
                key: lambda s, k=key: (
                    s.value.update((k, "v")),
                    s.aged.update((k, "a")),
                    s.events.add((k, "e")),
                    s.aged_events.add((k, "f")),
                    s.table.put("x", (k, "t")),
                    s.aged_table.put("y", (k, "u")),
                    s.total.add(k),
                    s.mean.add(k),
                    s.timers.event.register(k),
                    s.timers.processing.register(-k),
                )
                for key in range(40)
            },
            {0: lambda state: lists(state)[0].update(["a", "b"]), 1: lambda state: lists(state)[1].update([("p", 1)])},
        )
    export_savepoint(
        storage=storage,
        manifest=cluster.manifest,
        target=LocalStorage(str(root / "s")),
        savepoint_id="s",
        label="first",
        run_tasks=run_here,
    )
    return cluster.manifest


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("original")
    make(root)
    return root


@pytest.fixture
def root(original: Path, tmp_path: Path) -> Path:
    shutil.copytree(original, tmp_path / "copy")
    return tmp_path / "copy"


def restore(opened: OpenedSavepoint, target: LocalStorage, max_parallelism: int = 8) -> Any:
    saved = Saved.of(opened.savepoint)
    plan = plan_restore(saved, [], [ProgramOperator(UID, True, source="native", complete=False)])
    return import_savepoint(
        opened=opened,
        storage=target,
        paths=JobPaths("new"),
        epoch=1,
        parallelism=3,
        max_parallelism=max_parallelism,
        states=plan.states,
        run_tasks=run_here,
    )


def files(root: Path) -> list[Path]:
    return sorted(path for path in (root / "s").rglob("*") if path.is_file())


def refuse(root: Path, *, restored: bool = True) -> str:
    """The message with which a savepoint is refused, by verification and, unless not restored, by a restore too."""
    with pytest.raises(SavepointCorrupt) as refused:
        verify_files(open_savepoint(str(root / "s")))
    if restored:
        for max_parallelism in (8, 16):
            target = LocalStorage(str(root / f"target{max_parallelism}"))
            with pytest.raises(SavepointCorrupt):
                restore(open_savepoint(str(root / "s")), target, max_parallelism)
            assert target.list() == []
    return str(refused.value)


def test_an_undamaged_one_is_accepted(root: Path) -> None:
    verify_files(open_savepoint(str(root / "s")))
    verify_files(open_savepoint(f"{root}/s/savepoint.json"))
    assert {ref.subtask for ref in restore(open_savepoint(str(root / "s")), LocalStorage(str(root / "t")))} == {0, 1, 2}


def test_every_flipped_bit_is_noticed(root: Path) -> None:
    dice = random.Random(1)
    for file in files(root):
        content = file.read_bytes()
        for _ in range(2):
            at, bit = dice.randrange(len(content)), 1 << dice.randrange(8)
            file.write_bytes(content[:at] + bytes([content[at] ^ bit]) + content[at + 1 :])
            message = refuse(root, restored="sources" not in file.parts)
            assert file.name in message
            file.write_bytes(content)


def test_every_cut_is_noticed(root: Path) -> None:
    dice = random.Random(2)
    for file in files(root):
        content = file.read_bytes()
        for length in (dice.randrange(len(content)), len(content) - 2):
            file.write_bytes(content[:length])
            message = refuse(root, restored="sources" not in file.parts)
            assert file.name in message
            if file.suffix == ".parquet":
                assert f"has {length} bytes" in message
                assert f"{len(content)} were recorded" in message
        file.write_bytes(content)


def test_missing_files_are_noticed_before_anything_is_read(root: Path) -> None:
    for file in files(root):
        moved = file.rename(root / "away")
        if file.name == "savepoint.json":
            with pytest.raises(SavepointNotFound, match="written last"):
                open_savepoint(str(root / "s"))
        else:
            assert file.name in refuse(root, restored="sources" not in file.parts)
        moved.rename(file)


def test_swapped_files_are_noticed(root: Path) -> None:
    parts = [file for file in files(root) if file.suffix == ".parquet"]
    for one, other in pairwise(parts):
        first, second = one.read_bytes(), other.read_bytes()
        if first != second:
            one.write_bytes(second)
            other.write_bytes(first)
            assert one.parent.name in refuse(root)
            one.write_bytes(first)
            other.write_bytes(second)


def test_a_strange_part_is_noticed_and_never_restored(root: Path) -> None:
    part = next(file for file in files(root) if file.suffix == ".parquet")
    (part.parent / "part-77.parquet").write_bytes(part.read_bytes())
    (part.parent / "_SUCCESS").write_bytes(b"")  # of other tools: none of our business
    assert "part-77.parquet: does not belong to this savepoint" in refuse(root, restored=False)
    before = sum(ref.entries for ref in restore(open_savepoint(str(root / "s")), LocalStorage(str(root / "a"))))
    (part.parent / "part-77.parquet").unlink()
    assert before == sum(ref.entries for ref in restore(open_savepoint(str(root / "s")), LocalStorage(str(root / "b"))))


def reseal(root: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change savepoint.json as somebody would who knows about checksums."""
    file = root / "s" / "savepoint.json"
    content = json.loads(file.read_bytes())
    change(content)
    data = json.dumps(content).encode()
    file.write_bytes(data)
    (root / "s" / "savepoint.json.sha256").write_text(f"{checksum(data)}  savepoint.json\n")


def states(content: dict[str, Any]) -> Iterator[dict[str, Any]]:
    return iter(content["operators"][0]["states"])


def test_a_newer_format_is_told_as_such(root: Path) -> None:
    reseal(root, lambda content: content.update(format_version=3, novelty=True))
    for _ in range(2):
        with pytest.raises(SavepointCorrupt, match=r"format 3, this forkpoint reads formats up to 2; upgrade"):
            open_savepoint(str(root / "s"))
        (root / "s" / "savepoint.json.sha256").unlink(missing_ok=True)


def test_an_unknown_type_is_told_as_such(root: Path) -> None:
    reseal(root, lambda content: next(states(content)).update(value_type={"kind": "quaternion"}))
    with pytest.raises(SavepointCorrupt, match=r"'value' of operator 'counts by user': its value type .*quaternion"):
        open_savepoint(str(root / "s"))


@pytest.mark.parametrize("path", ["../../etc/passwd", "/etc/passwd", "a/./b", "a//b"])
def test_no_path_leads_outside(root: Path, path: str) -> None:
    reseal(root, lambda content: next(states(content))["files"][0].update(path=path))
    with pytest.raises(SavepointCorrupt, match="path"):
        open_savepoint(str(root / "s"))


def test_a_file_of_another_state_is_refused_even_with_its_checksum(root: Path) -> None:
    """Both are value states of one type; only the file itself says whose it is."""

    def exchange(content: dict[str, Any]) -> None:
        named = {state["name"]: state for state in states(content)}
        total, mean = named["total"], named["table"]
        total.update(files=mean["files"], entries=mean["entries"], bytes=mean["bytes"])
        mean.update(files=[], entries=0, bytes=0)

    reseal(root, exchange)
    assert "it belongs to another state" in refuse(root)


def test_a_wrong_number_of_rows_is_named_with_both_values(root: Path) -> None:
    def more(content: dict[str, Any]) -> None:
        state = next(states(content))
        state["entries"] += 1
        state["files"][0]["entries"] += 1

    reseal(root, more)
    assert "rows, 41 were recorded" in refuse(root)


def test_foreign_directories_are_no_savepoints(tmp_path: Path) -> None:
    with pytest.raises(SavepointNotFound):
        open_savepoint(str(tmp_path / "nowhere"))
    (tmp_path / "savepoint.json").write_text('{"name": "something else"}')
    with pytest.raises(SavepointCorrupt, match="format_version"):
        open_savepoint(str(tmp_path))


class Killed(Exception):
    pass


def test_a_partial_export_is_no_savepoint_and_can_be_removed(original: Path, tmp_path: Path) -> None:
    storage = LocalStorage(str(original / "job"))
    manifest = make(tmp_path / "again")
    whole = LocalStorage(str(tmp_path / "again" / "s")).list()
    target = LocalStorage(str(tmp_path / "root" / "savepoints" / "job" / "x"))

    def export(run_tasks: Callable[[Any, Sequence[bytes]], list[bytes]]) -> None:
        export_savepoint(storage=storage, manifest=manifest, target=target, savepoint_id="x", run_tasks=run_tasks)

    def killed(function: Any, arguments: Sequence[bytes]) -> list[bytes]:
        run_here(function, arguments)
        raise Killed

    with pytest.raises(Killed):
        export(killed)
    assert target.list()
    with pytest.raises(SavepointNotFound):
        open_savepoint(target.url)
    (unfinished,) = list_savepoints(LocalStorage(str(tmp_path / "root")), "job")
    assert unfinished.unfinished
    target.put("mine.txt", b"of somebody else")
    assert "mine.txt" not in remove_partial(target)
    assert target.list() == ["mine.txt"]
    with pytest.raises(Killed):
        export(killed)
    export(run_here)
    assert [path for path in target.list() if path != "mine.txt"] == whole
    with pytest.raises(AlreadyExists, match="holds a savepoint already"):
        export(run_here)
    with pytest.raises(StorageError, match="dispose of it"):
        remove_partial(target)
    verify_files(open_savepoint(target.url))


def test_damaged_checkpoints_make_no_savepoint(original: Path, tmp_path: Path) -> None:
    shutil.copytree(original / "job", tmp_path / "job")
    storage = LocalStorage(str(tmp_path / "job"))
    cluster = Cluster(storage, "second", 1, 8, (type_of(int), type_of(int), type_of(str)))
    cluster.epoch({1: lambda s: s.value.update(1)}, inline=False)
    (path,) = [path for path in storage.list() if path.startswith(JobPaths("second").changelog_directory)]
    whole = storage.read(path)
    storage.put(path, whole[:300] + b"changed" + whole[307:])
    target = LocalStorage(str(tmp_path / "s"))
    with pytest.raises(SavepointCorrupt, match=r"changelog.*checksum"):
        export_savepoint(storage=storage, manifest=cluster.manifest, target=target, savepoint_id="x", run_tasks=run_here)
    assert not target.exists("savepoint.json")


def test_import_can_be_cancelled(root: Path) -> None:
    target = LocalStorage(str(root / "target"))

    def progress(done: int, total: int) -> None:
        if done == total:
            raise Killed

    opened = open_savepoint(str(root / "s"))
    plan = plan_restore(Saved.of(opened.savepoint), [], [ProgramOperator(UID, True, complete=False)])
    for max_parallelism in (8, 16):
        with pytest.raises(Killed):
            import_savepoint(
                opened=opened,
                storage=target,
                paths=JobPaths("new"),
                epoch=1,
                parallelism=3,
                max_parallelism=max_parallelism,
                states=plan.states,
                run_tasks=run_here,
                progress=progress,
            )
        assert target.list() == []
