"""What earlier releases saved is read forever: by restores, by the state reader, and by a job that goes on."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import golden_files
import golden_job
import pytest
from golden_files import GOLDEN, PLACES, current_versions, formats, versions_in

from forkpoint.state_processor import SavepointReader

golden = pytest.mark.parametrize("golden", GOLDEN, ids=lambda path: path.name)


def expected(golden: Path, what: str) -> Any:
    return json.loads((golden / "expected.json").read_bytes())[what]


@golden
@pytest.mark.parametrize("parallelism", [2, 3])
def test_a_savepoint_is_restored_and_its_job_goes_on(golden: Path, parallelism: int, tmp_path: Path) -> None:
    found = golden_job.run(tmp_path / "inputs", tmp_path / "state", restore=str(golden / "savepoint"), parallelism=parallelism)
    assert golden_job.outputs(found) == expected(golden, "rest")


@golden
def test_a_checkpoint_is_gone_on_from(golden: Path, tmp_path: Path) -> None:
    shutil.copytree(golden / "checkpoint", tmp_path / "state")
    found = golden_job.run(tmp_path / "inputs", tmp_path / "state")
    assert golden_job.outputs(found) == expected(golden, "rest")


@golden
def test_the_reader_finds_every_entry(golden: Path) -> None:
    reader = SavepointReader.read(golden / "savepoint")
    assert golden_files.entries(reader) == expected(golden, "entries")
    assert reader.verify().entries == sum(state.count for state in reader.states)


@golden
def test_a_savepoint_says_what_it_said(golden: Path) -> None:
    found = SavepointReader.read(golden / "savepoint").metadata.content()
    assert holds(found, expected(golden, "savepoint"))


@golden
def test_records_say_what_they_said(golden: Path) -> None:
    known = formats()
    for name, record in expected(golden, "records").items():
        (form,) = (known[of] for of, place in PLACES.items() if place == f"records/{name}")
        found = form.parse((golden / "records" / name).read_bytes(), name).content()
        assert holds(found, {key: value for key, value in record.items() if key != "format_version"})


def holds(found: Any, recorded: Any) -> bool:
    """Whether all that was recorded is there; a later release may know fields beyond it."""
    if isinstance(recorded, dict):
        return isinstance(found, dict) and all(key in found and holds(found[key], of) for key, of in recorded.items())
    if isinstance(recorded, list):
        return len(found) == len(recorded) and all(map(holds, found, recorded))
    return bool(found == recorded)


def test_every_current_format_has_golden_files() -> None:
    """A format that is written today is one that users keep: what it looks like is checked in before it is released."""
    covered = [versions_in(golden) for golden in GOLDEN]
    for name, version in current_versions().items():
        assert name in PLACES, f"the format {name!r} is new: say in golden_files.PLACES where golden files have it"
        assert any(versions.get(name) == version for versions in covered), (
            f"no golden file has version {version} of {name!r}. Make some of the current formats, once, and commit them with the "
            f"change: python tests/golden/make_golden.py tests/golden/format-{len(GOLDEN) + 1}"
        )


def test_golden_files_stay_small() -> None:
    size = sum(file.stat().st_size for golden in GOLDEN for file in golden.rglob("*") if file.is_file())
    assert size < 450_000 * len(GOLDEN)
