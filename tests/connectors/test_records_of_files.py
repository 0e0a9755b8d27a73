"""Lines of JSON and CSV are read at once as they are read one by one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from forkpoint import Types
from forkpoint.connectors.files.formats import CsvFormat
from forkpoint.connectors.files.parsers import CsvParser, JsonParser, LineParser, Stretch
from forkpoint.connectors.formats.records import RecordConverter

TYPE = Types.ROW_NAMED(["n", "x", "s", "at"], [Types.LONG(), Types.DOUBLE(), Types.STRING(), Types.SQL_TIMESTAMP()])
JSON_PIECES = st.sampled_from(
    [
        b'{"n":1}',
        b"{",
        b"}",
        b"\n",
        b"\n",
        b"\r\n",
        b" ",
        b'{"n":',
        b"1}",
        b'{"x":-0}',
        b'{"x":1}',
        b'{"x":NaN}',
        b'{"o":NaN}',
        b"\0",
        b'{"s":"',
        b'"}',
        b"\xff",
        b'{"o":"\xff"}',
        b'{"at":"2024-01-01"}',
        b'{"at":"2024-01-01 10:00:00"}',
        b"\xef\xbb\xbf",
        b'{"o":{}',
    ]
)
CSV_PIECES = st.sampled_from(
    [
        b"1,2,a,",
        b"\n",
        b"\n",
        b"\r\n",
        b"0x1,1,a,",
        b",,,",
        b'"',
        b'"a\n",',
        b"1",
        b",",
        b"nan",
        b"\0",
        b"\xff",
        b"1,inf,b,2024-01-01",
        b"1,-0,b,2024-01-01 10:00:00",
        b"1,1_0,b,",
        b"#",
        b" ",
    ]
)


def columns(parser: LineParser, stretch: Stretch, *, from_text: bool) -> list[dict[str, Any]] | None:
    """The rows that are read one by one, None if one of them is bad."""
    records = list(parser.records(stretch))
    out, problems = RecordConverter(TYPE, from_text=from_text).convert([r.raw for r in records if r.problem is None])
    assert isinstance(out, pa.RecordBatch)
    return None if problems or any(r.problem for r in records) else out.to_pylist()


@given(st.lists(JSON_PIECES, max_size=7).map(b"".join))
@example(b'{"n":1}{"n":1}\n\n')
@example(b'{"n":1}{"n":\n1}')
@example(b'{"x":NaN}\n')
@example(b'{"n":1}\r\n{"n":2}\r\n')
def test_lines_of_json(data: bytes) -> None:
    parser, stretch = JsonParser(TYPE), Stretch(Path("file"), data, 1)
    at_once = parser.parse([stretch])
    if at_once is not None:
        assert repr(at_once.to_pylist()) == repr(columns(parser, stretch, from_text=False))


@given(st.lists(CSV_PIECES, max_size=7).map(b"".join))
@example(b"0x10,1,a,\n")
@example(b'""1,2,a,')
@example(b'"1"2,2,a,\n')
@example(b"1,1,a,2024-01-01\n")
def test_lines_of_csv(data: bytes) -> None:
    parser, stretch = CsvParser(CsvFormat(header=False), TYPE), Stretch(Path("file"), data, 1)
    at_once = parser.parse([stretch])
    if at_once is not None:
        assert repr(at_once.to_pylist()) == repr(columns(parser, stretch, from_text=True))


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_good_lines_are_read_at_once(end: bytes) -> None:
    lines = [b'{"n":%d,"x":0.5,"other":[]}' % i for i in range(3)]
    assert JsonParser(TYPE).parse([Stretch(Path("file"), end.join(lines) + end, 1)]) is not None
    lines = [b'%d,0.5,"a ""b""",' % i for i in range(3)]
    assert CsvParser(CsvFormat(header=False), TYPE).parse([Stretch(Path("file"), end.join(lines), 1)]) is not None
