from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forkpoint.checkpoint.manifest import SourcePosition
from forkpoint.errors import ConfigError, SavepointCorrupt
from forkpoint.spark.stream_checkpoint import CheckpointReader, craft, file_log_end, needed_log_files

_names = st.text(alphabet="abc019/", min_size=1, max_size=6).filter(
    lambda n: not n.startswith("/") and not n.endswith("/") and "//" not in n
)
_offsets = st.one_of(st.none(), st.integers(0, 9).map(str), st.just('{"topic":{"0":12}}'))
_text = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=20)


def position(offset: str | None, **log: str) -> SourcePosition:
    return SourcePosition(kind="spark", spark_offset=offset, spark_log=log)


@given(
    st.lists(
        st.builds(
            SourcePosition,
            kind=st.just("spark"),
            spark_offset=_offsets,
            spark_log=st.dictionaries(_names.map(lambda n: n.replace("/", "_")), _text, max_size=3),
        ),
        min_size=1,
        max_size=4,
    )
)
def test_what_was_crafted_is_read_back(tmp_path_factory: pytest.TempPathFactory, made: list[SourcePosition]) -> None:
    directory = tmp_path_factory.mktemp("craft") / "query"
    craft(directory, list(made))
    if all(p.spark_offset is None and not p.spark_log for p in made):
        assert list(directory.iterdir()) == []
    else:
        assert CheckpointReader(directory, len(made)).positions(0) == made


def test_every_crafted_directory_is_another_query(tmp_path: Path) -> None:
    ids = set()
    for i in range(2):
        craft(tmp_path / str(i), [position("1"), None])
        ids.add(json.loads((tmp_path / str(i) / "metadata").read_text())["id"])
        assert (tmp_path / str(i) / "offsets" / "0").read_text().split("\n")[2:] == ["1", "-"]
    assert len(ids) == 2


def test_crafting_replaces_what_was_there(tmp_path: Path) -> None:
    craft(tmp_path / "q", [position("1", **{"0": "old"})])
    craft(tmp_path / "q", [position("2")])
    assert not (tmp_path / "q" / "sources").exists()


def test_nested_logs_come_back_and_hidden_files_do_not(tmp_path: Path) -> None:
    craft(tmp_path, [SourcePosition(kind="spark", spark_offset="1", spark_log={"offsets/0": "v1"})])
    for name in (".0.crc", ".offsets.tmp", "x.tmp"):
        (tmp_path / "sources" / "0" / name).write_text("no")
    assert CheckpointReader(tmp_path, 1).positions(0)[0].spark_log == {"offsets/0": "v1"}


@pytest.mark.parametrize("name", ["../x", "/etc/x", "a/../../x"])
def test_a_log_cannot_write_outside_of_its_directory(tmp_path: Path, name: str) -> None:
    with pytest.raises(SavepointCorrupt, match="outside"):
        craft(tmp_path / "q", [SourcePosition(kind="spark", spark_offset="1", spark_log={name: "x"})])


def test_other_versions_and_numbers_of_sources_are_refused(tmp_path: Path) -> None:
    craft(tmp_path, [position("1")])
    with pytest.raises(ConfigError, match="lists 1 sources, the job has 2"):
        CheckpointReader(tmp_path, 2).positions(0)
    (tmp_path / "offsets" / "0").write_text("v2\n{}\na:1")
    with pytest.raises(ConfigError, match="version v2"):
        CheckpointReader(tmp_path, 1).positions(0)


def test_only_the_needed_part_of_a_file_log() -> None:
    names = [*map(str, range(9)), "9.compact", "10", "11", "19.compact", "20", ".21.tmp"]
    assert needed_log_files(names, 11) == ["10", "11", "9.compact"]
    assert needed_log_files(names, 8) == list(map(str, range(9)))
    assert set(needed_log_files(names, 20)) == {"19.compact", "20"}
    assert needed_log_files(["0", ".0.crc"], None) == ["0"]


def test_which_offsets_are_a_file_sources() -> None:
    assert file_log_end('{"logOffset":12}') == 12
    for other in ("12", '{"offset":1,"timestamp":2}', '{"logOffset":"a"}', "-", '{"logOffset":1,"x":2}'):
        assert file_log_end(other) is None
