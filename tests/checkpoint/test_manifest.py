"""Manifests and savepoints as files: round trips, damage, versions."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import ValidationError

from forkpoint.checkpoint.format import Format, Record, checksum, verify
from forkpoint.checkpoint.manifest import (
    JOB,
    MANIFEST,
    RUN,
    ChangesRef,
    Job,
    Manifest,
    OperatorInfo,
    Parent,
    Run,
    SnapshotRef,
    SourcePosition,
    SplitState,
)
from forkpoint.checkpoint.savepoint_manifest import (
    SAVEPOINT,
    Savepoint,
    SavepointFile,
    SavepointOperator,
    SavepointState,
    Versions,
    load_savepoint,
)
from forkpoint.checkpoint.states import StateInfo
from forkpoint.errors import AlreadyExists, SavepointCorrupt, SavepointNotFound
from forkpoint.storage.base import LocalStorage

SUM = checksum(b"data")


def changes(**fields: Any) -> ChangesRef:
    values: dict[str, Any] = {"path": "jobs/j/changelog/000000000003/0-0-a.arrow", **fields}
    return ChangesRef(stage=0, subtask=0, attempt="a", kg_start=0, kg_stop=64, entries=1, bytes=4, checksum=SUM, **values)


def manifest(**fields: Any) -> Manifest:
    values: dict[str, Any] = {
        "job": "j",
        "run": "r1",
        "generation": 1,
        "epoch": 3,
        "kind": "epoch",
        "created_ms": 1_700_000_000_000,
        "processing_time_ms": 1_700_000_000_000,
        "parallelism": 2,
        "max_parallelism": 128,
        **fields,
    }
    return Manifest(**values)


FULL = manifest(
    sources={
        "events": SourcePosition(
            kind="native",
            position={"p0": 17, "p1": None},
            splits={"p0": SplitState(watermark_ms=-(2**63), last_active_ms=5, count=3)},
        ),
        "old": SourcePosition(kind="spark", spark_offset='{"logOffset":1}', spark_log={"0": "v1\n{}"}, finished=True),
    },
    watermarks={"counts": 2**63 - 1},
    states=[StateInfo(sid=1, uid="counts", name="sum", kind="value", key_type={"kind": "string"}, ttl_ms=5)],
    operators=[OperatorInfo(uid="counts", name="Counts", kind="process", stage=1)],
    changes=[changes(), changes(path=None, inline="ZGF0YQ==")],
    snapshots=[
        SnapshotRef(subtask=0, attempt="a", kg_start=0, kg_stop=64, epoch=2, path="s/0", entries=1, bytes=4, checksum=SUM)
    ],
    sinks={"out": [{"file": "a.parquet", "rows": 10**30}]},
    parent=Parent(kind="checkpoint", job="j", run="r0", epoch=2),
    label="weekly",
    metadata={"note": [1.5, True]},
)

SAVED = Savepoint(
    id="s1",
    job="j",
    run="r1",
    epoch=3,
    created_ms=1,
    parent=Parent(kind="savepoint", savepoint_id="s0", savepoint_path="savepoints/j/s0"),
    versions=Versions(forkpoint="0.1.0", python="3.11.7"),
    max_parallelism=128,
    parallelism=2,
    sources=FULL.sources,
    operators=[
        SavepointOperator(
            uid="counts",
            name="Counts",
            kind="process",
            key_type={"kind": "string"},
            states=[
                SavepointState(
                    info=StateInfo.of("counts", "sum", "value"),
                    entries=1,
                    bytes=4,
                    files=[
                        SavepointFile(
                            path="operators/counts/sum/part-0.parquet",
                            kg_start=0,
                            kg_stop=128,
                            entries=1,
                            bytes=4,
                            checksum=SUM,
                        )
                    ],
                )
            ],
        )
    ],
)

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
texts = st.text(st.characters(exclude_categories=["Cs"]))


def test_what_is_written_is_read() -> None:
    assert MANIFEST.parse(MANIFEST.dump(FULL), "f") == FULL
    assert SAVEPOINT.parse(SAVEPOINT.dump(SAVED), "f") == SAVED
    job = Job(job="j", created_ms=1, generation=2, run="r2")
    assert JOB.parse(JOB.dump(job), "f") == job
    run = Run(job="j", run="r2", generation=2, started_ms=1, outcome="failed", reason="out of memory", options={"a": 1})
    assert RUN.parse(RUN.dump(run), "f") == run


@given(json_values.filter(lambda value: "\\ud" not in json.dumps(value)), texts, st.integers(-(2**63), 2**63 - 1))
def test_any_position_survives(value: Any, text: str, watermark: int) -> None:
    before = manifest(
        sources={text: SourcePosition(kind="native", position=value)},
        sinks={text: [value]},
        watermarks={text: watermark},
    )
    assert MANIFEST.parse(MANIFEST.dump(before), "f") == before


def test_numbers_that_json_lacks_survive() -> None:
    data = MANIFEST.dump(manifest(metadata={"x": [math.inf, -math.inf, math.nan]}))
    numbers: Any = MANIFEST.parse(data, "f").metadata["x"]
    assert numbers[:2] == [math.inf, -math.inf]
    assert math.isnan(numbers[2])


def test_inline_changes_are_bytes() -> None:
    assert FULL.changes[1].inline_data() == b"data"
    assert FULL.changes[0].inline_data() is None


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"epoch": -1}, "epoch"),
        ({"epoch": "3"}, "epoch"),
        ({"epoch": True}, "epoch"),
        ({"format_version": 2}, "format_version"),
        ({"sinks": {"out": [b"bytes"]}}, "sinks"),
        ({"sinks": {"out": [(1, 2)]}}, "sinks"),
        ({"parallelism": 0}, "parallelism"),
        ({"states": [StateInfo(sid=1, uid=uid, name="x", kind="value") for uid in "ab"]}, "sid 1 is used by a/x and"),
        ({"epoch": 1, "snapshots": FULL.snapshots}, "is of epoch 2, after epoch 1"),
    ],
)
def test_a_manifest_refuses(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MANIFEST.dump(manifest(**fields))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"inline": "ZGF0YQ=="}, "either a path or inline"),
        ({"path": None}, "either a path or inline"),
        ({"path": "/etc/passwd"}, "absolute"),
        ({"path": "a/../../b"}, r"'\.\.'"),
    ],
)
def test_changes_refuse(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        changes(**fields)


def test_other_refusals() -> None:
    state = SAVED.operators[0].states[0]
    with pytest.raises(ValueError, match="run backwards"):
        SavepointFile(path="p", kg_start=2, kg_stop=1, entries=0, bytes=0, checksum=SUM)
    with pytest.raises(ValidationError, match="checksum"):
        SavepointFile.from_content(state.files[0].content() | {"checksum": SUM.upper()})
    with pytest.raises(ValueError, match="has 2 entries in 4 bytes, its files 1 in 4"):
        state.replace(entries=2)
    with pytest.raises(ValueError, match="counts is a duplicate"):
        SAVED.replace(operators=[SAVED.operators[0]] * 2)
    for parent in ({"kind": "checkpoint", "job": "j", "epoch": 1}, {"kind": "savepoint"}):
        with pytest.raises(ValidationError, match="as parent needs"):
            Parent.from_content(parent)


def test_records_are_frozen() -> None:
    with pytest.raises(AttributeError, match="immutable"):
        FULL.epoch = 4  # type: ignore[misc]


@pytest.mark.parametrize(
    ("position", "message"),
    [
        ((1, 2), r"sources\.in\.position is \(1, 2\), which becomes \[1, 2\] in JSON"),
        ({"at": {3}}, r"sources\.in\.position\.at is \{3\}, which becomes \[3\]"),
        ([b"x"], r"sources\.in\.position\.0 is b'x', which becomes"),
        (object(), "sources.in.position is <object"),
    ],
)
def test_what_would_not_be_read_as_it_is_is_not_written(position: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MANIFEST.dump(manifest(sources={"in": SourcePosition(kind="native", position=position)}))


@pytest.mark.parametrize(("form", "record"), [(MANIFEST, FULL), (SAVEPOINT, SAVED)])
def test_a_file_cut_short_is_refused_wherever_the_cut(form: Format[Any], record: Record) -> None:
    data = form.dump(record)
    for cut in range(len(data)):
        with pytest.raises(SavepointCorrupt, match=rf"the/file\.json: {cut} bytes"):
            form.parse(data[:cut], "the/file.json")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\xff\xfe", "f: 2 bytes that are not complete JSON"),
        (b"[" * 100_000, "f: 100000 bytes that are not complete JSON"),
        (b"[1]", r"f: is not a savepoint.json: holds \[1\], expected a JSON object"),
        (b"{}", "f: is not a savepoint.json: format_version is None, expected a number up to 2"),
        (b'{"format_version": "1"}', "format_version is '1', expected a number up to 2"),
        (b'{"format_version": 7}', "f: has savepoint.json format 7, this forkpoint reads formats up to 2; upgrade"),
        (b'{"format_version": 0}', "f: has savepoint.json format 0, this forkpoint reads formats from 1 on"),
        (SAVEPOINT.dump(SAVED).replace(b'"epoch":3', b'"epoch":"x"'), "f: .* format 1: epoch is 'x'"),
        (SAVEPOINT.dump(SAVED).replace(b'"epoch":3', b'"epok":3'), "epok is 3: unknown field"),
        (
            SAVEPOINT.dump(SAVED).replace(b"operators/counts", b"../counts"),
            r"\.files\.0 is .*'\.\./counts/sum/part-0.parquet' has the segment",
        ),
    ],
)
def test_a_foreign_or_damaged_file_is_refused_naming_what_is_wrong(data: bytes, message: str) -> None:
    with pytest.raises(SavepointCorrupt, match=message):
        SAVEPOINT.parse(data, "f")


def test_messages_stay_short() -> None:
    data = MANIFEST.dump(FULL).replace(b'"job":"j"', b'"job":["' + b"x" * 10_000 + b'"]')
    with pytest.raises(SavepointCorrupt, match=r"job is .*…") as caught:
        MANIFEST.parse(data, "f")
    assert len(str(caught.value)) < 600


class Third(Record, frozen=True, kw_only=True):
    """A fake format that has come a long way: version 1 had `name`, version 2 `title`, version 3 a list of them."""

    format_version: Literal[3] = 3
    titles: list[str]


THIRD = Format(
    "third.json",
    Third,
    3,
    {1: lambda old: {"title": old["name"]}, 2: lambda old: {**old, "titles": [old["title"]], "title": None}},
)


def fixed_third() -> Format[Third]:
    return Format("third.json", Third, 3, {1: THIRD.upgrades[1], 2: lambda old: {"titles": [old["title"]]}})


def test_old_versions_are_upgraded_step_by_step() -> None:
    form = fixed_third()
    for old in ({"format_version": 1, "name": "x"}, {"format_version": 2, "title": "x"}):
        assert form.parse(json.dumps(old).encode(), "f") == Third(titles=["x"])
    assert form.parse(form.dump(Third(titles=["x"])), "f") == Third(titles=["x"])


def test_upgrades_that_go_wrong_are_reported() -> None:
    with pytest.raises(SavepointCorrupt, match=r"f: cannot be upgraded from third\.json format 1 to 2: KeyError\('name'\)"):
        fixed_third().parse(b'{"format_version": 1}', "f")
    with pytest.raises(SavepointCorrupt, match=r"f: is not a valid third\.json of format 3: title is None: unknown field"):
        THIRD.parse(b'{"format_version": 2, "title": "x"}', "f")
    with pytest.raises(SavepointCorrupt, match=r"f: has third\.json format 4, this forkpoint reads formats up to 3"):
        fixed_third().parse(b'{"format_version": 4}', "f")


def test_upgrades_must_reach_the_current_version() -> None:
    with pytest.raises(ValueError, match=r"upgrades \[1\] do not lead to version 3"):
        Format("third.json", Third, 3, {1: THIRD.upgrades[1]})


def test_savepoints_on_storage(tmp_path: Path) -> None:
    storage = LocalStorage(str(tmp_path))
    with pytest.raises(SavepointNotFound, match=r"/savepoints/j/s1 is not a savepoint: it has no savepoint\.json"):
        load_savepoint(storage, "savepoints/j/s1")
    storage.create("savepoints/j/s1/savepoint.json", SAVEPOINT.dump(SAVED))
    with pytest.raises(AlreadyExists):
        storage.create("savepoints/j/s1/savepoint.json", SAVEPOINT.dump(SAVED))
    (tmp_path / "savepoints" / "j").rename(tmp_path / "moved")  # a savepoint is found where it now is
    assert load_savepoint(storage, "moved/s1") == SAVED
    assert load_savepoint(LocalStorage(str(tmp_path / "moved" / "s1"))) == SAVED
    storage.put("moved/s1/savepoint.json", b"{")
    with pytest.raises(SavepointCorrupt, match=r"moved/s1/savepoint\.json: 1 bytes"):
        load_savepoint(storage, "moved/s1")


def test_verify_names_what_was_found_and_what_was_recorded() -> None:
    assert verify(b"data", SUM, 4, "f") == b"data"
    with pytest.raises(SavepointCorrupt, match="f: has 3 bytes, 4 were recorded"):
        verify(b"dat", SUM, 4, "f")
    with pytest.raises(SavepointCorrupt, match=f"f: has SHA-256 {checksum(b'dada')}, {SUM} was recorded"):
        verify(b"dada", SUM, 4, "f")
