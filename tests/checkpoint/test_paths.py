from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forkpoint.checkpoint import paths
from forkpoint.checkpoint.paths import EpochFile, JobPaths
from forkpoint.errors import ConfigError
from forkpoint.storage.base import check_path

names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=15)


@given(names)
def test_escaping_is_undone_and_safe(name: str) -> None:
    segment = paths.escape(name)
    assert paths.unescape(segment) == name
    assert check_path(segment) == segment
    assert segment.isascii()
    assert not segment.startswith(("_", "."))
    assert not set(segment) & set("/%=\\ ")


def test_plain_names_stay_readable() -> None:
    assert paths.escape("motion-alarm_v1.2") == "motion-alarm_v1.2"
    assert paths.escape("a b/ü") == "a!20b!2f!c3!bc"


@pytest.mark.parametrize("name", ["", "x" * 201, "ü" * 40, "\ud800"])
def test_names_that_make_no_segment(name: str) -> None:
    with pytest.raises(ConfigError):
        paths.escape(name)


def test_layout() -> None:
    job = JobPaths("my job")
    assert job.job_file == "jobs/my!20job/job.json"
    assert job.run_file("r1") == "jobs/my!20job/runs/r1/run.json"
    assert job.manifest(7) == "jobs/my!20job/checkpoints/000000000007.json"
    assert job.changelog(7, 1, 2, "3-0") == "jobs/my!20job/changelog/000000000007/1-2-3-0.arrow"
    assert job.snapshot(7, 2, "3-0") == "jobs/my!20job/snapshots/000000000007/2-3-0.arrow"
    assert job.staging(7, "out", "part") == "jobs/my!20job/staging/000000000007/out/part"
    assert job.savepoint("s1") == "savepoints/my!20job/s1"
    assert paths.state_part("counts", "sum", 0) == "operators/counts/sum/part-0.parquet"
    assert paths.timers_part("counts", 0) == "operators/counts/_timers/part-0.parquet"
    assert paths.state_part("counts", "_timers", 0) != paths.timers_part("counts", 0)
    assert paths.source_file("events", "position.json") == "sources/events/position.json"


@given(names, st.integers(0, paths.MAX_EPOCH), names)
def test_parse_knows_what_was_formatted(name: str, epoch: int, other: str) -> None:
    job = JobPaths(name)
    assert job.parse(job.manifest(epoch)) == EpochFile("manifest", epoch)
    assert job.parse(job.changelog(epoch, 1, 2, other)) == EpochFile("changelog", epoch)
    assert job.parse(job.snapshot(epoch, 2, other)) == EpochFile("snapshot", epoch)
    assert job.parse(job.staging(epoch, other, name)) == EpochFile("staging", epoch)
    assert paths.job_of(job.manifest(epoch)) == name
    if other != name:
        assert JobPaths(other).parse(job.manifest(epoch)) is None


@pytest.mark.parametrize(
    "inside",
    [
        "job.json",
        "runs/000000000001/run.json",
        "checkpoints/1.json",
        "checkpoints/000000000001.json.bak",
        "checkpoints/000000000001.json\n",
        "checkpoints/000000000001/x",
        "changelog/000000000001",
        "changelog/000000000001.json",
        "changelog/latest/x",
        "changelog/٠٠٠٠٠٠٠٠٠٠٠١/x",
    ],
)
def test_parse_leaves_other_files_alone(inside: str) -> None:
    assert JobPaths("j").parse(f"jobs/j/{inside}") is None


def test_manifests_sort_by_epoch() -> None:
    job = JobPaths("j")
    assert sorted(map(job.manifest, [10, 9, 100])) == [job.manifest(9), job.manifest(10), job.manifest(100)]
    with pytest.raises(ConfigError):
        job.manifest(paths.MAX_EPOCH + 1)
    with pytest.raises(ConfigError):
        job.manifest(-1)
