"""What forkpoint keeps is for its owner alone; what it publishes is not."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from forkpoint.checkpoint.paths import AREAS
from forkpoint.errors import StorageError
from forkpoint.storage import private
from forkpoint.storage.base import LocalStorage

PROGRAM = """
import pathlib
import forkpoint as fp

env = fp.StreamExecutionEnvironment.get_execution_environment()
lines = env.from_source(fp.FileSource.text("in", bounded=True), fp.WatermarkStrategy.no_watermarks(), "in").uid("in")
counted = lines.key_by(lambda l: l, str).map_with_state(lambda l, n: (l, (n or 0) + 1), int, str).uid("count")
counted.sink_to(fp.FileSink.json(pathlib.Path("out"))).uid("out")
env.execute("private")
"""


@pytest.fixture(params=[0o000, 0o022, 0o077])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def mode(place: Path) -> int:
    return stat.S_IMODE(os.lstat(place).st_mode)


def modes(root: Path) -> tuple[set[int], set[int]]:
    """The modes of all directories below a place, which counts, and of all files."""
    directories, files = {mode(root)}, set()
    for place in root.rglob("*"):
        (directories if place.is_dir() else files).add(mode(place))
    return directories, files


def test_a_storages_files_are_private_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    storage = LocalStorage(str(tmp_path / "deep" / "root"))
    storage.put("a/b/c", b"1")
    storage.put("a/b/c", b"2")
    storage.create("d", b"3")
    assert modes(tmp_path / "deep") == ({0o700}, {0o600})


def test_a_directory_that_is_set_up_for_a_group_is_shared_with_it(tmp_path: Path, umask: int) -> None:
    root = tmp_path / "shared"
    root.mkdir()
    os.chmod(root, 0o2770)
    LocalStorage(str(root)).put("a/b/c", b"1")
    assert modes(root) == ({0o2770}, {0o660})


@pytest.mark.parametrize("given", [0o755, 0o775, 0o777, 0o2755])
def test_rights_that_come_of_a_umask_share_nothing(tmp_path: Path, given: int) -> None:
    root = tmp_path / "root"
    root.mkdir()
    os.chmod(root, given)
    LocalStorage(str(root)).put("a/b", b"1")
    assert (mode(root / "a") & 0o777, mode(root / "a/b")) == (0o700, 0o600)


def test_what_an_older_release_left_open_is_closed(tmp_path: Path) -> None:
    for name in (*AREAS, "somebody else's"):
        (tmp_path / name).mkdir()
        os.chmod(tmp_path / name, 0o755)
    storage = LocalStorage(str(tmp_path))
    storage.close_to_others(AREAS)
    assert {mode(tmp_path / name) for name in AREAS} == {0o700}
    assert mode(tmp_path / "somebody else's") == 0o755
    os.chmod(tmp_path, 0o2770)
    os.chmod(tmp_path / "jobs", 0o2770)
    storage.close_to_others(AREAS)
    assert mode(tmp_path / "jobs") == 0o2770


def test_local_stores_are_not_put_where_another_user_was_first(tmp_path: Path) -> None:
    common = tmp_path / "tmp"
    common.mkdir()
    os.chmod(common, 0o1777)
    private.make_own_directory(str(common / "stores" / "1" / "0"))
    assert modes(common / "stores") == ({0o700}, set())
    private.make_own_directory(str(common / "stores" / "2"))
    if os.geteuid() == 0:  # nobody else can give files away
        os.chown(common / "stores", 12345, -1)
        with pytest.raises(StorageError, match=r"stores belongs to another user \(id 12345\).*TMPDIR"):
            private.make_own_directory(str(common / "stores" / "3"))
        (common / "link").symlink_to(tmp_path)
        os.lchown(common / "link", 12345, -1)
        with pytest.raises(StorageError, match="link belongs to another user"):
            private.make_own_directory(str(common / "link" / "1"))


def test_a_run_keeps_its_state_to_itself_and_publishes_by_the_umask(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.txt").write_text("a\nb\na\n")
    (tmp_path / "app.py").write_text(PROGRAM)
    (tmp_path / ".forkpoint" / "jobs").mkdir(parents=True)
    env = {**os.environ, "FORKPOINT_ENGINE": "local", "PYTHONDONTWRITEBYTECODE": "1"}
    command = f"umask 0002; {sys.executable} -m forkpoint.cli run -d app.py"
    subprocess.run(["sh", "-c", command], cwd=tmp_path, env=env, check=True)
    root = tmp_path / ".forkpoint"
    found = {place: mode(place) for place in root.rglob("*")}
    assert {m for place, m in found.items() if place.is_dir()} == {0o700}
    assert {m for place, m in found.items() if place.is_file()} == {0o600}
    names = {place.name for place in found}
    assert {"program.zip", "program.json", "run.json"} <= names
    assert any(name.endswith(".log") for name in names)
    assert {mode(place) for place in (tmp_path / "out").glob("*.jsonl")} == {0o664}
