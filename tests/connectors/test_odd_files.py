"""Files as people's disks have them: links in circles, names in other encodings, records nested without end."""

from __future__ import annotations

import gzip
import math
import os
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

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
    with pytest.raises(RecordParseError, match=r"deep\.json.*, line 1: .*JSON nested 100000 levels deep; 200 can be read"):
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
def test_a_file_that_cannot_be_cut_is_read_once_also_where_it_is_the_path_itself(tmp_path: Path, newlines: bool) -> None:
    """Its number of records is a guess, by which it must not be cut."""
    text = "n\n" + "".join(f"{n}\n" for n in range(5000))
    path = tmp_path / ("numbers.csv" if newlines else "numbers.csv.gz")
    path.write_bytes(text.encode() if newlines else gzip.compress(text.encode()))
    source = fp.FileSource.csv(path, fp.Types.ROW_NAMED(["n"], [fp.Types.INT()]), bounded=True, newlines_in_values=newlines)
    assert [row.n for row in read(source)] == list(range(5000))  # type: ignore[attr-defined]


def test_a_file_source_that_is_not_created_by_its_methods_says_which_there_are(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"create a FileSource with FileSource\.json\(\), csv\(\), parquet\(\), orc\(\) or text\(\)"
    ):
        fp.FileSource(tmp_path, "json", type=None)  # type: ignore[arg-type]


class Pair(NamedTuple):
    a: int
    b: str


class Number(NamedTuple):
    a: float


class Duration(NamedTuple):
    a: timedelta


@pytest.mark.parametrize("how", ["plain", "gz", "newlines"])
@pytest.mark.parametrize("before", [b"\n", b"\r\n", b" \t\n\n", b"\xef\xbb\xbf\n\n"])
def test_blank_lines_before_the_header_of_csv_are_skipped(tmp_path: Path, before: bytes, how: str) -> None:
    data = before + b"a,b\n1,x\n2\n"
    path = tmp_path / ("a.csv.gz" if how == "gz" else "a.csv")
    path.write_bytes(gzip.compress(data) if how == "gz" else data)
    newlines = how == "newlines"
    skipping = fp.FileSource.csv(path, Pair, bounded=True, newlines_in_values=newlines, on_parse_error="skip")
    assert read(skipping) == [Pair(1, "x")]
    with pytest.raises(RecordParseError, match=f"line {3 + before.count(10)}: "):
        read(fp.FileSource.csv(path, Pair, bounded=True, newlines_in_values=newlines))


def test_a_csv_file_of_blank_lines_has_no_records(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"\n\n")
    assert read(fp.FileSource.csv(tmp_path, Pair, bounded=True)) == []


@pytest.mark.parametrize("newlines", [False, True])
def test_a_field_that_two_csv_columns_are_named_after_is_a_bad_record(tmp_path: Path, newlines: bool) -> None:
    (tmp_path / "a.csv").write_bytes(b"a,x,x,b,b\n1,2,3,4,5\n")
    with pytest.raises(RecordParseError, match=r"line 2: .*the header names 'b' more than once"):
        read(fp.FileSource.csv(tmp_path, Pair, bounded=True, newlines_in_values=newlines))
    assert read(fp.FileSource.csv(tmp_path, Pair, bounded=True, on_parse_error="skip")) == []
    assert read(fp.FileSource.csv(tmp_path, Number, bounded=True)) == [Number(1.0)]  # others may have any names
    with pytest.raises(RecordParseError, match="names 'b', 'x' more than once"):
        read(fp.FileSource.csv(tmp_path, bounded=True))


@pytest.mark.parametrize("kind", ["csv", "json"])
@pytest.mark.parametrize("text", ["1e400", "-1e400", "1" * 400])
def test_a_number_beyond_a_float_is_not_infinite(tmp_path: Path, kind: str, text: str) -> None:
    (tmp_path / "a").write_text(f"a\n{text}\n1\n" if kind == "csv" else f'{{"a":{text}}}\n{{"a":1}}\n')
    source = getattr(fp.FileSource, kind)
    with pytest.raises(RecordParseError, match=f"cannot read .*{text[:50]}"):
        read(source(tmp_path, Number, bounded=True))
    assert read(source(tmp_path, Number, bounded=True, on_parse_error="skip")) == [Number(1.0)]


def test_a_number_that_is_written_as_infinite_is(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a\ninf\n-Infinity\n")
    assert read(fp.FileSource.csv(tmp_path, Number, bounded=True)) == [Number(math.inf), Number(-math.inf)]


def test_csv_has_durations_in_iso_8601_and_in_microseconds_as_it_was_once_written(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a\nPT1.5S\n-90000000\n")
    assert read(fp.FileSource.csv(tmp_path, Duration, bounded=True)) == [
        Duration(timedelta(seconds=1.5)),
        Duration(timedelta(seconds=-90)),
    ]
    (tmp_path / "a.csv").write_text(f"a\n{10**30}\n")
    with pytest.raises(RecordParseError, match="beyond a timedelta"):
        read(fp.FileSource.csv(tmp_path, Duration, bounded=True))


def test_csv_lines_that_end_with_cr_are_refused_unless_values_may_have_line_ends(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"a,b\r1,x\r2,y\r")
    with pytest.raises(RecordParseError, match=r"column names are not .*a CR outside of quotes.*newlines_in_values=True"):
        read(fp.FileSource.csv(path, Pair, bounded=True))
    assert read(fp.FileSource.csv(path, Pair, bounded=True, newlines_in_values=True)) == [Pair(1, "x"), Pair(2, "y")]


def test_a_cr_within_a_csv_line_does_not_end_it_even_where_a_blank_line_makes_up_for_it(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"a,b\n1,x\r2,y\n\n3,z\n")
    with pytest.raises(RecordParseError, match=r"line 2: .*a CR outside of quotes"):
        read(fp.FileSource.csv(path, Pair, bounded=True))
    assert read(fp.FileSource.csv(path, Pair, bounded=True, on_parse_error="skip")) == [Pair(3, "z")]
