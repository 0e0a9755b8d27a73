"""label, gc and scheduled savepoints, on the command line."""

import json
import os
import shutil
import signal
from datetime import timedelta
from pathlib import Path

import pytest
from cli_process import Cli
from click.testing import CliRunner

from forkpoint.checkpoint.history import History
from forkpoint.checkpoint.paths import SINKS, JobPaths
from forkpoint.cli import main
from forkpoint.operations.jobs.cleanup import find_leftovers, remove_leftovers
from forkpoint.savepoint.format.opened_savepoint import open_savepoint, verify_files
from forkpoint.storage.base import LocalStorage


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """A job that was killed, and then one that was stopped with a savepoint."""
    cli = Cli(tmp_path_factory.mktemp("cli"))
    try:
        cli.json("run", "-d", "digits.py")
        cli.wait_epoch(3)
        path = cli.json("stop", "digits")["savepoint"]
    finally:
        cli.kill_all()
    return cli, path


@pytest.mark.slow
def test_labels_come_later_and_change(stopped):
    cli, path = stopped
    name = os.path.basename(path)
    assert cli.look("label", name, "spring", "--note", "before the change")["label"] == "spring"
    assert cli.look("show", "spring")["path"] == path
    shown = cli.look("show", path)["savepoint"]
    assert (shown["label"], shown["note"]) == ("spring", "before the change")
    (listed,) = cli.look("savepoints")["savepoints"]
    assert (listed["label"], listed["note"]) == ("spring", "before the change")
    (node,) = [each for each in cli.look("tree")["nodes"] if each["kind"] == "savepoint"]
    assert node["label"] == "spring"
    assert cli.look("label", "spring", "summer")["note"] == "before the change"
    assert cli.look("label", "summer", "--note", "")["note"] is None
    verify_files(open_savepoint(path))  # what is sealed has not changed
    assert cli.look("label", "summer", "--remove")["label"] is None
    refused = CliRunner().invoke(main, ["--state-root", str(cli.directory / ".forkpoint"), "show", "summer"])
    assert refused.exit_code == 5
    for wrong in (["latest"], ["a/b"], [], ["x", "--remove"]):
        assert CliRunner().invoke(main, ["label", path, *wrong]).exit_code in (1, 2)


def test_a_label_that_is_damaged_hinders_nobody(stopped, caplog):
    cli, path = stopped
    cli.look("label", path, "kept")
    label = Path(path, "label.json")
    label.write_bytes(label.read_bytes()[:-5])
    assert cli.look("show", path)["savepoint"]["label"] is None
    assert "label.json" in caplog.text
    cli.look("label", path, "--remove")


@pytest.mark.slow
def test_scheduled_savepoints(cli):
    started = cli.json("run", "-d", "--savepoint-every", "500ms", "--savepoint-keep-last", "2", "digits.py")
    for _ in range(100):
        made = cli.look("savepoints")["savepoints"]
        if made and made[0]["epoch"] > 20:
            break
        cli.wait_epoch(cli.jobs()[0]["epoch"] + 5)
    assert {each["schedule_ms"] for each in made} == {500}
    assert len(made) <= 4  # one in the making, one on its way out
    assert "(scheduled)" in cli("savepoints").stdout
    again = cli.json("stop", "digits")
    assert cli.look("savepoints")["savepoints"][-1]["path"] == again["savepoint"]
    noted = json.loads((cli.directory / ".forkpoint" / JobPaths("digits").program_file(started["run"])).read_bytes())
    assert noted["options"]["savepoint_schedule"]["keep_last"] == 2
    assert "need --savepoint-every" in cli("run", "--savepoint-keep-last", "2", "digits.py", code=2).stderr


def leave_things(root: Path, paths: JobPaths = JobPaths("digits")) -> list[Path]:  # noqa: B008
    """What a process leaves that dies in the middle of things."""
    made = [
        paths.savepoint("unfinished") + "/operators/a/b/part-0.parquet",
        paths.savepoint("unfinished") + "/label.json",
        paths.changelog(10**6, 1, 0, "dead"),
        paths.snapshot(10**6, 0, "dead"),
        paths.staging(10**6, "out", "x"),
        f"{paths.checkpoints}/.fp-tmp-1",
    ]
    for path in made:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(b"x" * 100)
    return [root / path for path in made]


def old(root: Path) -> None:
    for file in root.rglob("*"):
        os.utime(file, (10**9, 10**9))


def test_leftovers_are_told_and_then_removed(stopped):
    cli, path = stopped
    root = cli.directory / ".forkpoint"
    left = leave_things(root)
    kinds = ["unfinished savepoint", "changelog", "snapshot", "staging", "temporary file"]
    assert cli.look("gc", "--dry-run")["leftovers"] == []  # too young
    old(root)
    told = cli.look("gc", "--dry-run")
    assert [each["kind"] for each in told["leftovers"]] == [*kinds[1:4], kinds[0], kinds[4]]
    assert (told["removed"], told["bytes"], told["skipped"]) == (False, 600, [])
    assert all(file.exists() for file in left)
    assert {each["kind"] for each in cli.look("gc", "digits", "--dry-run")["leftovers"]} == set(kinds[:4])
    assert "removed: 6 files, 600 B" in cli("gc").stdout
    assert not any(file.exists() for file in left)
    assert cli.look("gc")["leftovers"] == []
    verify_files(open_savepoint(path))
    assert cli("gc", "nobody", code=5)


def test_what_cannot_be_read_is_left_alone_and_all_else_cleared_away(stopped, tmp_path):
    root = tmp_path / "root"
    shutil.copytree(stopped[0].directory / ".forkpoint", root)
    damaged, claim = JobPaths("damaged"), root / SINKS / "claim.json"
    shutil.copytree(root / JobPaths("digits").directory, root / damaged.directory)
    kept, cleared = leave_things(root, damaged), leave_things(root)
    claim.parent.mkdir(parents=True, exist_ok=True)
    storage = LocalStorage(str(root))
    history = History(storage, damaged)
    for file in (root / history.paths.manifest(history.epochs()[0]), claim):
        file.write_bytes(b"{")
    old(root)
    found = find_leftovers(storage)
    assert list(found.skipped) == ["damaged"]
    assert "is damaged" in found.skipped["damaged"]
    remove_leftovers(storage, found)
    assert not any(path.exists() for path in cleared)
    assert all(path.exists() for path in [*kept[:-1], claim])


class Killed(BaseException):
    pass


def test_killed_while_it_clears_away(stopped, monkeypatch):
    cli, path = stopped
    root = cli.directory / ".forkpoint"
    left = leave_things(root)
    old(root)
    storage, deletions = LocalStorage(str(root)), 3
    delete = LocalStorage.delete

    def dying(self, path):
        nonlocal deletions
        deletions -= 1
        if deletions < 0:
            raise Killed
        delete(self, path)

    with monkeypatch.context() as patch:
        patch.setattr(LocalStorage, "delete", dying)
        with pytest.raises(Killed):
            remove_leftovers(storage, find_leftovers(storage))
    assert any(file.exists() for file in left)
    remove_leftovers(storage, find_leftovers(storage))
    assert not any(file.exists() for file in left)
    verify_files(open_savepoint(path))


@pytest.mark.slow
def test_a_live_job_is_left_alone_and_a_killed_one_goes_on_after_it(cli):
    started = cli.json("run", "-d", "digits.py")
    cli.wait_epoch(3)
    root = cli.directory / ".forkpoint"
    left = leave_things(root)
    for file in left:
        os.utime(file, (10**9, 10**9))
    told = cli.look("gc", "--older-than", "0s")
    assert told["skipped"] == [{"job": "digits", "why": f"run {started['run']} is running"}]
    assert {each["kind"] for each in told["leftovers"]} <= {"temporary file"}
    assert all(file.exists() for file in left[:-1])
    os.kill(started["pid"], signal.SIGKILL)
    storage = LocalStorage(str(root))
    found = find_leftovers(storage, older_than=timedelta(milliseconds=1))
    assert {"unfinished savepoint", "changelog", "snapshot", "staging", "endpoint"} <= {each.kind for each in found.found}
    before = History(storage, JobPaths("digits")).newest()
    remove_leftovers(storage, found)
    assert not any(file.exists() for file in left)
    again = cli.json("run", "-d", "digits.py")
    assert cli.wait_epoch(before.epoch + 3)["run"] == again["run"]
    position = cli.look("show", cli.json("stop", "digits")["savepoint"])["savepoint"]["sources"]["numbers"]["position"]["next"]
    assert position > before.sources["numbers"].position["next"]
