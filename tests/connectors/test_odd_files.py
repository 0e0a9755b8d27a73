"""Files as people's disks have them: links in circles, names in other encodings, records nested without end."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest

import forkpoint as fp
from forkpoint.errors import ConfigError, RecordParseError, StorageError
from forkpoint.testing import run_local

DEEP = "[" * 100_000 + "]" * 100_000


def read(source: fp.FileSource) -> list[object]:
    def build(env: fp.StreamExecutionEnvironment) -> fp.DataStream:
        return env.from_source(source, fp.WatermarkStrategy.no_watermarks(), "files")

    return run_local(build).output


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_json_nested_without_end_is_a_bad_record(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"deep.json{suffix}"
    data = f"{DEEP}\n[1]\n".encode()
    path.write_bytes(gzip.compress(data) if suffix else data)
    with pytest.raises(RecordParseError, match=r"deep\.json.*, line 1: .*JSON nested too deeply"):
        read(fp.FileSource.json(path, bounded=True))
    assert read(fp.FileSource.json(path, bounded=True, on_parse_error="skip")) == [[1]]


def test_json_nested_without_end_in_a_csv_field_is_a_bad_record(tmp_path: Path) -> None:
    path = tmp_path / "deep.csv"
    path.write_text(f'numbers\n"{DEEP}"\n"[1]"\n')
    rows = fp.FileSource.csv(
        path, fp.Types.ROW_NAMED(["numbers"], [fp.Types.LIST(fp.Types.INT())]), bounded=True, on_parse_error="skip"
    )
    assert [row.numbers for row in read(rows)] == [[1]]  # type: ignore[attr-defined]


def test_links_that_go_in_circles_are_not_followed(tmp_path: Path) -> None:
    inside = tmp_path / "data" / "deeper"
    inside.mkdir(parents=True)
    (inside / "a.txt").write_text("found\n")
    (tmp_path / "data" / "self").symlink_to(".")
    (inside / "up").symlink_to("../..")
    (tmp_path / "data" / "x").symlink_to("y")
    (tmp_path / "data" / "y").symlink_to("x")
    (tmp_path / "data" / "nowhere").symlink_to("not-there")
    assert read(fp.FileSource.text(tmp_path / "data", bounded=True)) == ["found"]


def test_a_link_to_a_directory_elsewhere_is_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "a.txt").write_text("found\n")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "link").symlink_to("../elsewhere")
    assert read(fp.FileSource.text(tmp_path / "data", bounded=True)) == ["found"]


def test_a_file_name_that_is_not_utf8_is_named(tmp_path: Path) -> None:
    with open(os.fsencode(tmp_path) + b"/caf\xe9.txt", "w") as file:
        file.write("bonjour\n")
    with pytest.raises(StorageError, match=r"b'caf\\xe9\.txt' is not UTF-8.*rename the file"):
        read(fp.FileSource.text(tmp_path, bounded=True))
    (tmp_path / "plain.log").write_text("found\n")
    assert read(fp.FileSource.text(tmp_path, bounded=True, pattern="*.log")) == ["found"]


@pytest.mark.parametrize("newlines", [False, True])
def test_a_file_that_cannot_be_cut_is_read_once_also_where_it_is_the_path_itself(
    tmp_path: Path, newlines: bool
) -> None:
    """Its number of records is a guess, by which it must not be cut."""
    text = "n\n" + "".join(f"{n}\n" for n in range(5000))
    path = tmp_path / ("numbers.csv" if newlines else "numbers.csv.gz")
    path.write_bytes(text.encode() if newlines else gzip.compress(text.encode()))
    source = fp.FileSource.csv(
        path, fp.Types.ROW_NAMED(["n"], [fp.Types.INT()]), bounded=True, newlines_in_values=newlines
    )
    assert [row.n for row in read(source)] == list(range(5000))  # type: ignore[attr-defined]


def test_a_file_source_that_is_not_created_by_its_methods_says_which_there_are(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"create a FileSource with FileSource\.json\(\), csv\(\), parquet\(\) or text\(\)"
    ):
        fp.FileSource(tmp_path, "json", type=None)  # type: ignore[arg-type]
