import pytest

from forkpoint import MAX_WATERMARK, MIN_WATERMARK, Types
from forkpoint.cli import text


@pytest.mark.parametrize(
    ("ms", "shown"),
    [
        (None, "-"), (0, "0.0 s"), (9_940, "9.9 s"), (59_999, "59 s"), (60_000, "1 m 0 s"), (3_599_999, "59 m 59 s"),
        (3_660_000, "1 h 1 m"), (90_000_000, "1 d 1 h"),
    ],
)  # fmt: skip
def test_durations(ms, shown):
    assert text.duration(ms) == shown


@pytest.mark.parametrize(
    ("count", "shown"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (4_200_000, "4.2 MB"), (10**12, "1.0 TB"), (10**16, "10000.0 TB")],
)
def test_sizes(count, shown):
    assert text.size(count) == shown


@pytest.mark.parametrize(
    ("ms", "shown"),
    [
        (MAX_WATERMARK, "+∞"), (MIN_WATERMARK, "-∞"), (2**61, "+∞"), (-(2**61), "-∞"), (1_234, "1234"), (-5, "-5"),
        (1_700_000_000_123, "2023-11-14 22:13:20.123"), (2**59, str(2**59)),
    ],
)  # fmt: skip
def test_watermarks(ms, shown):
    assert text.watermark(ms) == shown


def test_places():
    assert text.place("file:///a/b%20c") == "/a/b c"
    assert text.place("s3://bucket/a") == "s3://bucket/a"


@pytest.mark.parametrize(
    ("type", "shown"),
    [
        (Types.STRING(), "string"),
        (Types.LIST(Types.LONG()), "list<long?>"),
        (Types.MAP(Types.STRING(), Types.DOUBLE()), "map<string, double?>"),
        (Types.ROW_NAMED(["a", "b"], [Types.INT(), Types.STRING()]), "Row(a: int?, b: string?)"),
    ],
)
def test_types(type, shown):
    assert text.type_name(type.describe()) == shown
