"""DECIMAL: the digits of results, exact arithmetic, sums of changing rows, and columns of files."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from decimal import ROUND_DOWN, ROUND_HALF_UP, Context, Decimal, InvalidOperation
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_sql_functions import evaluated, planned

import forkpoint as fp
from forkpoint.errors import JobFailed
from forkpoint.relational.aggregation.sums import with_added
from forkpoint.relational.types import Field, SqlType, decimal_type

LOCAL = {"execution.engine": "local"}


def of(precision: int, scale: int) -> str:
    return f"CAST(NULL AS DECIMAL({precision}, {scale}))"


# From the tests of Flink's LogicalTypeMerging, and the table in its source.
RESULTS = {
    f"{of(32, 8)} / {of(38, 8)}": (38, 6),
    f"{of(30, 20)} / {of(30, 20)}": (38, 8),
    f"{of(30, 10)} * {of(30, 10)}": (38, 6),
    f"{of(30, 20)} * {of(30, 20)}": (38, 17),
    f"{of(38, 2)} * {of(38, 3)}": (38, 5),
    f"{of(30, 10)} % {of(30, 10)}": (30, 10),
    f"{of(30, 20)} % {of(25, 20)}": (25, 20),
    f"{of(10, 10)} % {of(10, 10)}": (10, 10),
    f"{of(38, 8)} + {of(32, 8)}": (38, 7),
    f"{of(32, 8)} - {of(38, 8)}": (38, 7),
    f"{of(30, 20)} + {of(28, 20)}": (31, 20),
    f"{of(10, 10)} + {of(10, 10)}": (11, 10),
    f"{of(38, 5)} - {of(38, 4)}": (38, 5),
    f"ROUND({of(32, 8)}, 5)": (30, 5),
    f"ROUND({of(32, 8)}, 10)": (32, 8),
    f"ROUND({of(30, 20)}, 18)": (29, 18),
    f"TRUNCATE({of(10, 10)}, 2)": (3, 2),
    f"ROUND({of(5, 2)})": (4, 0),
    f"CEIL({of(5, 2)})": (5, 0),
    f"{of(5, 2)} + CAST(1 AS BIGINT)": (22, 2),
    f"{of(5, 2)} * 2": (16, 2),
    f"COALESCE({of(3, 2)}, CAST(1 AS BIGINT))": (21, 2),
    f"COALESCE({of(38, 0)}, {of(38, 38)})": (38, 0),
    "1.50": (3, 2),
    "-0.5": (2, 1),
    "123456789012345678901": (21, 0),
    f"ABS(-{of(7, 3)})": (7, 3),
    "CAST('1' AS DECIMAL)": (10, 0),
    "CAST('1' AS NUMERIC(5))": (5, 0),
}


def test_results_have_the_digits_that_flink_gives_them() -> None:
    assert {text: planned(text).type.digits for text in RESULTS} == RESULTS
    doubles = (f"{of(5, 2)} + 1E0", f"SQRT({of(5, 2)})", f"COALESCE({of(5, 2)}, CAST(1 AS FLOAT))")
    assert {planned(text).type.name for text in doubles} == {"DOUBLE"}


EXACT = Context(prec=200, rounding=ROUND_DOWN)
OPERATORS: dict[str, Callable[[Decimal, Decimal], Decimal]] = {
    "+": EXACT.add,
    "-": EXACT.subtract,
    "*": EXACT.multiply,
    "/": EXACT.divide,
    "%": EXACT.remainder,
}
DIGITS = [(5, 2), (10, 0), (18, 6), (19, 0), (25, 24), (38, 0), (38, 2), (38, 18), (38, 38)]


def rounded(value: Decimal, precision: int, scale: int) -> Decimal | None:
    """None if it does not fit."""
    try:
        return value.quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP, Context(prec=precision))
    except InvalidOperation:
        return None


def numbers(rng: random.Random, precision: int, scale: int) -> list[Decimal]:
    sizes = [rng.randrange(1, precision + 1) for _ in range(8)]
    found = [rng.randrange(-(10**size) + 1, 10**size) for size in sizes]
    return [Decimal(value).scaleb(-scale, EXACT) for value in (0, 1, -1, 10**precision - 1, 5, -5, *found)]


@pytest.mark.parametrize("operator", OPERATORS)
def test_arithmetic_is_exact_and_rounded_once(operator: str) -> None:
    rng = random.Random(operator)
    for left in DIGITS:
        for right in DIGITS:
            pairs = [(a, b) for a in numbers(rng, *left) for b in numbers(rng, *right) if b or operator in "+-*"]
            schema = tuple(Field(name, decimal_type(digits)) for name, digits in (("a", left), ("b", right)))
            result = planned(f"a {operator} b", schema).type
            expected = [rounded(OPERATORS[operator](a, b), *result.digits) for a, b in pairs]
            rows = [(*pair, value) for pair, value in zip(pairs, expected, strict=True) if value is not None]
            columns = zip(*rows, strict=True)
            batch = pa.record_batch(
                [pa.array([*next(columns), None], field.type.arrow_type) for field in schema], [field.name for field in schema]
            )
            assert evaluated(f"a {operator} b", batch, schema) == [*(value for *_, value in rows), None], (left, right)
            misfit = next((pair for pair, value in zip(pairs, expected, strict=True) if value is None), None)
            if misfit is not None:
                arrays = [pa.array([each], field.type.arrow_type) for each, field in zip(misfit, schema, strict=True)]
                with pytest.raises(JobFailed):
                    evaluated(f"a {operator} b", pa.record_batch(arrays, ["a", "b"]), schema)


SCHEMA = (
    Field("a", decimal_type((10, 2))),
    Field("b", decimal_type((38, 30))),
    Field("i", SqlType("INT")),
    Field("x", SqlType("DOUBLE")),
    Field("s", SqlType("STRING")),
)
VALUES: list[list[Any]] = [
    ["1.50", "-99999999.99", "0.05", None],
    ["0.000000000000000000000000000001", "99999999.5", "-2.5", None],
    [3, -9, 0, None],
    [1.005, -0.1, 1e20, None],
    ["1.005", " -12e2 ", "x", None],
]
BATCH = pa.record_batch(
    [
        pa.array([None if v is None or field.type.name != "DECIMAL" else Decimal(v) for v in values], field.type.arrow_type)
        if field.type.name == "DECIMAL"
        else pa.array(values, field.type.arrow_type)
        for field, values in zip(SCHEMA, VALUES, strict=True)
    ],
    [field.name for field in SCHEMA],
)
D = Decimal
FUNCTIONS: dict[str, list[Any]] = {
    "CAST(a AS INT)": [1, -99999999, 0],
    "TRY_CAST(a AS TINYINT)": [1, None, 0],
    "CAST(a AS DECIMAL(10, 1))": [D("1.5"), D("-100000000.0"), D("0.1")],
    "TRY_CAST(a AS DECIMAL(3, 2))": [D("1.50"), None, D("0.05")],
    "CAST(a AS STRING)": ["1.50", "-99999999.99", "0.05"],
    "CAST(b AS STRING)": [
        "0.000000000000000000000000000001",
        "99999999.500000000000000000000000000000",
        "-2." + "5".ljust(30, "0"),
    ],
    "CAST(a AS DOUBLE)": [1.5, -99999999.99, 0.05],
    "CAST(a AS BOOLEAN)": [True, True, True],
    "CAST(i AS DECIMAL(3, 2))": [D("3.00"), D("-9.00"), D("0.00")],
    "TRY_CAST(x AS DECIMAL(4, 2))": [D("1.01"), D("-0.10"), None],
    "TRY_CAST(s AS DECIMAL(6, 2))": [D("1.01"), D("-1200.00"), None],
    "TRY_CAST(REPEAT('9', 36 + i) AS DECIMAL(38, 0))": [None, D("9" * 27), D("9" * 36)],  # for which Arrow has a number
    "ROUND(b)": [D(0), D(100000000), D(-3)],
    "ROUND(a, -9)": [D(0), D(0), D(0)],
    "ROUND(a, i)": [D("1.50"), D("0.00"), D("0.00")],
    "TRUNCATE(b, 0)": [D(0), D(99999999), D(-2)],
    "CEIL(a)": [D(2), D(-99999999), D(1)],
    "FLOOR(a)": [D(1), D(-100000000), D(0)],
    "SIGN(a)": [D("1.00"), D("-1.00"), D("1.00")],
    "a = 1.5": [True, False, False],
    "a IN (1.500, 0.05)": [True, False, True],
    "a < b": [False, True, False],
    "a > x": [True, False, False],
    "GREATEST(a, i)": [D("3.00"), D("-9.00"), D("0.05")],
    "NULLIF(a, 1.5)": [None, D("-99999999.99"), D("0.05")],
    "CASE WHEN i > 0 THEN a ELSE i END": [D("1.50"), D("-9.00"), D("0.00")],
    "a BETWEEN 0.05 AND 1.5": [True, False, True],
    "a IS DISTINCT FROM 1.500": [False, True, True],
}


@pytest.mark.parametrize("expression", FUNCTIONS)
def test_functions(expression: str) -> None:
    found = evaluated(expression, BATCH, SCHEMA)
    assert found[:3] == FUNCTIONS[expression]
    assert found[3] is None or "DISTINCT" in expression


@pytest.mark.parametrize(
    "expression",
    [
        "CAST(a AS TINYINT)",
        "CAST(a AS DECIMAL(3, 2))",
        "CAST(s AS DECIMAL(6, 2))",
        "a / 0",
        "a % i",
        "a * CAST('9E34' AS DECIMAL(38, 0))",
    ],
)
def test_what_does_not_fit_is_an_error(expression: str) -> None:
    with pytest.raises(JobFailed):
        evaluated(expression, BATCH, SCHEMA)


# -- groups ------------------------------------------------------------------------------------------------------------

PAYMENT = fp.Types.ROW_NAMED(["k", "g", "v", "w"], [fp.Types.STRING(), fp.Types.DECIMAL(3, 1), fp.Types.DECIMAL(20, 4), Decimal])
ROWS = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", None]),
        st.sampled_from([D("1.0"), D("1"), D("-2.5"), None]),
        st.none() | st.decimals(-(10**15), 10**15, places=4),
        st.none() | st.decimals(-5, 5, places=1),
    ),
    max_size=40,
)
QUERIES = [
    "SELECT k, SUM(v), COUNT(v), MIN(v), MAX(v), SUM(v) FILTER (WHERE v > 0.5) FROM payments GROUP BY k",
    "SELECT g, COUNT(*), COUNT(DISTINCT w), SUM(DISTINCT w), MAX(w) FROM payments GROUP BY g",
    "SELECT SUM(s), MIN(s), MAX(g), SUM(DISTINCT g), COUNT(*) FROM "
    "(SELECT k, g, SUM(v) AS s FROM payments GROUP BY k, g) AS t HAVING COUNT(*) > 0",
    "SELECT p.g, SUM(q.w) FROM payments AS p JOIN payments AS q ON p.g = q.w GROUP BY p.g",
]


@pytest.mark.parametrize("query", QUERIES)
@settings(max_examples=5, deadline=None)
@given(ROWS, st.sampled_from([1, 7, 1000]))
def test_the_sums_of_changing_rows_are_exact(query: str, rows: list[Any], epoch_rows: int) -> None:
    env = fp.StreamExecutionEnvironment.get_execution_environment(LOCAL)
    env.set_max_epoch_rows(epoch_rows)
    tables = fp.StreamTableEnvironment.create(env)
    tables.create_temporary_view("payments", env.from_collection([fp.Row(*row) for row in rows], type_info=PAYMENT))
    found: Counter[Any] = Counter()
    for row in tables.execute_sql(query).collect():
        found[tuple(row)] += -1 if row.get_row_kind() is fp.RowKind.DELETE else 1
    types = [pa.string(), pa.decimal128(3, 1), pa.decimal128(20, 4), pa.decimal128(38, 18)]
    columns = [pa.array([row[at] for row in rows], of_column) for at, of_column in enumerate(types)]
    payments = pa.table(columns, ["k", "g", "v", "w"])  # noqa: F841 (DuckDB finds it by its name)
    assert +found == Counter(map(tuple, duckdb.sql(query).fetchall()))


def test_an_average_has_six_digits_after_the_point() -> None:
    env = fp.StreamExecutionEnvironment.get_execution_environment(LOCAL)
    tables = fp.StreamTableEnvironment.create(env)
    rows = [fp.Row("a", None, D(v), None) for v in ("1", "1", "0")]
    tables.create_temporary_view("payments", env.from_collection(rows, type_info=PAYMENT))
    averages = "SELECT AVG(v), AVG(CAST(v AS DECIMAL(10, 8))), AVG(w) FROM payments"
    assert [tuple(row) for row in tables.execute_sql(averages).collect()] == [(D("0.666667"), D("0.66666667"), None)]


@settings(max_examples=30)
@given(st.lists(st.tuples(st.integers(-(10**38) + 1, 10**38 - 1), st.integers(-(2**40), 2**40), st.integers(0, 2))))
def test_sums_of_large_numbers(rows: list[tuple[int, int, int]]) -> None:
    of_sum = pa.decimal128(38, 0)
    start = [5, -(10**30), None]
    expected = [(start[at] or 0) + sum(value * weight for value, weight, group in rows if group == at) for at in range(3)]
    values, weights, groups = (list(column) for column in zip(*rows, strict=True)) if rows else ([], [], [])
    arguments = (
        pa.array(start, of_sum),
        pa.array(groups, pa.int64()).to_numpy(),
        pa.array([None, *values], of_sum)[1:],
        pa.array(weights, pa.int64()).to_numpy(),
    )
    if all(abs(total) < 10**38 for total in expected):
        assert list(map(int, with_added(*arguments).to_pylist())) == expected
    else:
        with pytest.raises(pa.ArrowInvalid):
            with_added(*arguments)


# -- files -------------------------------------------------------------------------------------------------------------


def test_decimals_of_files_are_exact(tmp_path: Path) -> None:
    tables = fp.StreamTableEnvironment.create(fp.StreamExecutionEnvironment.get_execution_environment(LOCAL))

    def table(name: str, form: str, columns: str) -> None:
        options = f"'connector' = 'filesystem', 'path' = '{tmp_path / name}', 'format' = '{form}'"
        tables.execute_sql(f"CREATE TABLE {name} ({columns}) WITH ({options})")

    digits = "12345678901234567890.123456789"
    (tmp_path / "given").mkdir()
    lines = [f'{{"v": {digits}}}', '{"v": "2.5"}', '{"v": 1e2}', '{"v": 0.0000000005}', '{"v": null}']
    (tmp_path / "given" / "1.json").write_text("\n".join(lines) + "\n")
    table("given", "json", "v DECIMAL(38, 9)")
    for form in ("json", "csv", "parquet"):
        table(f"{form}s", form, "v DECIMAL(38, 9), w NUMERIC(30, 2)")
        table(f"{form}_again", "json", "v DECIMAL(38, 9), n INT")
        tables.execute_sql(f"INSERT INTO {form}s SELECT v, v FROM given").wait()
        tables.execute_sql(f"INSERT INTO {form}_again SELECT v, 1 FROM {form}s WHERE w > -1 OR w IS NULL").wait()
        texts = [file.read_text() for file in (tmp_path / f"{form}_again").glob("part-*")]
        found = [json.loads(line, parse_float=str)["v"] for text in texts for line in text.splitlines()]
        assert sorted(map(str, found)) == sorted([digits, "2.500000000", "100.000000000", "1E-9", "None"])
    written, *_ = (tmp_path / "parquets").glob("part-*")
    assert pq.read_schema(written).types == [pa.decimal128(38, 9), pa.decimal128(30, 2)]
