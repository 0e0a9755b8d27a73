"""Logs of Spark's sources in files of their own, beside the manifests that name them."""

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forkpoint.checkpoint.gc import needed_files, plan_gc
from forkpoint.checkpoint.manifest import MANIFEST, Manifest, SourcePosition
from forkpoint.checkpoint.paths import JobPaths
from forkpoint.errors import NotFound, SavepointCorrupt
from forkpoint.savepoint.format.source_logs import INLINE_BYTES, inline_logs, store_logs
from forkpoint.storage.base import open_storage

PATHS = JobPaths("j")
LONG = "v1\n" + "é" * INLINE_BYTES
_texts = st.sampled_from(["", "v1\n{}", "x" * INLINE_BYTES, "x" * (INLINE_BYTES + 1), LONG])


def position(**log):
    return SourcePosition(kind="spark", spark_offset="1", spark_log=log)


@pytest.fixture
def storage():
    return open_storage(f"memory://{uuid.uuid4().hex}")


@given(st.lists(st.dictionaries(st.sampled_from(["0", "9.compact", "a/b", "…"]), _texts), min_size=1))
def test_they_come_back_as_they_were(logs):
    storage, before = open_storage(f"memory://{uuid.uuid4().hex}"), {}
    for epoch, log in enumerate(logs, 1):
        given_positions = {"in": position(**log), "other": position(**{"0": "v1"})}
        before = store_logs(storage, PATHS, epoch, given_positions, before)
        assert all(len(text.encode()) <= INLINE_BYTES for each in before.values() for text in each.spark_log.values())
        assert inline_logs(storage, before) == given_positions
        assert store_logs(storage, PATHS, epoch + 1, before, before) == before  # a position without a new batch


def test_a_file_is_written_once(storage):
    first = store_logs(storage, PATHS, 1, {"in": position(**{"9.compact": LONG})}, {})
    second = store_logs(storage, PATHS, 2, {"in": position(**{"9.compact": LONG, "10": "v1"})}, first)
    assert second["in"].spark_log_files == first["in"].spark_log_files
    third = store_logs(storage, PATHS, 3, {"in": position(**{"9.compact": LONG + "."})}, second)
    assert len(storage.list(f"{PATHS.directory}/sources")) == 2
    assert {PATHS.parse(path).epoch for path in storage.list(f"{PATHS.directory}/sources")} == {1, 3}
    assert inline_logs(storage, third)["in"].spark_log == {"9.compact": LONG + "."}


def test_damaged_and_missing_files_are_told(storage):
    found = store_logs(storage, PATHS, 1, {"in": position(**{"9.compact": LONG})}, {})
    (path,) = storage.list(f"{PATHS.directory}/sources")
    storage.put(path, b"else")
    with pytest.raises(SavepointCorrupt, match=r"9\.compact"):
        inline_logs(storage, found)
    storage.delete(path)
    with pytest.raises(NotFound):
        inline_logs(storage, found)


def test_garbage_collection_keeps_what_retained_manifests_name(storage):
    manifests, before = {}, {}
    for epoch in range(1, 31):
        text = LONG + str(epoch // 10)  # compacted every ten epochs
        before = store_logs(storage, PATHS, epoch, {"in": position(compact=text)}, before)
        manifests[epoch] = Manifest(
            job="j",
            run="r",
            generation=1,
            epoch=epoch,
            kind="start" if epoch == 1 else "epoch",
            created_ms=0,
            processing_time_ms=0,
            parallelism=1,
            max_parallelism=8,
            sources=before,
        )
        storage.create(PATHS.manifest(epoch), MANIFEST.dump(manifests[epoch]))
    assert len(MANIFEST.dump(manifests[30])) < 2_000
    files = storage.list(PATHS.directory)
    plan = plan_gc("j", manifests.values(), files, num_retained=2, pinned=[5])
    logs = {path for path in files if (file := PATHS.parse(path)) is not None and file.area == "source"}
    assert len(logs) == 4
    kept = logs - set(plan.files)
    assert {PATHS.parse(path).epoch for path in kept} == {1, 20, 30}  # of epochs 5, 29 and 30
    assert kept <= {path for epoch in (5, 29, 30) for path in needed_files(manifests[epoch], manifests)}
