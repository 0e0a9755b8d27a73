"""Scalar functions, each evaluated over columns with NULLs, other scripts, negative numbers and extremes.

Where DuckDB has a function of the same meaning, it gives the answer; otherwise the values are those of Flink's documentation.
"""

from __future__ import annotations

import math
from datetime import date, datetime, time
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from forkpoint.relational.evaluation import evaluate
from forkpoint.relational.plan import Plan, Scan, Select
from forkpoint.relational.types import Field, SqlType
from forkpoint.sql.errors import Text
from forkpoint.sql.queries import bind_query
from forkpoint.sql.statements import Query

TEXTS = ["abc", None, "", "ÄÖÜ straße", " b ", "a%b_c\nd", "日本語", "aXbXc", "a.b.c", "O'Neil"]
LONGS = [0, None, 1, -1, 7, -13, 1000, 255, -(10**15), 10**15]
SMALLS = [0, None, 1, -1, 2, -3, 5, 4, 3, 100]
REALS = [0.5, None, -0.5, 1.0, 2.5, -2.5, 1e10, 1.25e-5, 123456.789, -3.0]
POSITIVE = [0.5, None, 1.0, 2.0, 10.0, 1e10, 1e-10, 3.25, 7.0, 100.0]
FLAGS = [True, None, False, True, None, False, True, None, False, True]
DATES = [
    date(2020, 2, 29),
    None,
    date(1969, 12, 31),
    date(2021, 1, 3),
    date(2000, 1, 1),
    date(1900, 3, 1),
    *[date(2024, 12, 30)] * 4,
]
MOMENTS = [
    datetime(2020, 2, 29, 23, 59, 59, 999999),
    None,
    datetime(1969, 12, 31, 0, 0, 0, 500000),
    datetime(2021, 1, 31, 12),
    datetime(2000, 1, 1),
    datetime(1960, 5, 31, 1, 2, 3),
    datetime(2024, 12, 30, 13, 14, 15, 16),
    datetime(2020, 1, 5),
    datetime(9999, 12, 31, 23, 59, 59),
    datetime(1900, 1, 1),
]
CLOCKS = [time(1, 2, 3), None, time(23, 59, 59, 999999), time(0), time(12, 30), *[time(5)] * 5]
JSONS = [
    '{"a": {"b": [1, true, "x", {"c": null}]}, "d e": 1.5}',
    None,
    "[1, 2]",
    "not json",
    '"text"',
    '{"a": "ä"}',
    *["{}"] * 4,
]
COLUMNS = {
    "s": ("STRING", TEXTS),
    "r": ("STRING", [*TEXTS[3:], *TEXTS[:3]]),
    "j": ("STRING", JSONS),
    "i": ("INT", SMALLS),
    "b": ("BIGINT", LONGS),
    "x": ("DOUBLE", REALS),
    "p": ("DOUBLE", POSITIVE),
    "z": ("BOOLEAN", FLAGS),
    "d": ("DATE", DATES),
    "t": ("TIMESTAMP", MOMENTS),
    "u": ("TIMESTAMP", [*MOMENTS[4:8], *MOMENTS[:4], None, MOMENTS[0]]),
    "c": ("TIME", CLOCKS),
}
SCHEMA = tuple(Field(name, SqlType(of)) for name, (of, _) in COLUMNS.items())
BATCH = pa.record_batch({name: pa.array(values, SqlType(of).arrow_type) for name, (of, values) in COLUMNS.items()})


def planned(expression: str, schema: tuple[Field, ...] = SCHEMA) -> Any:
    query = f"SELECT {expression} FROM t"

    def lookup(name: str) -> Plan:
        return Scan("t", schema)

    plan = bind_query(Query(Text(query), 0, len(query)), lookup, lambda: ["t"])
    assert isinstance(plan, Select)
    return plan.items[0].of


def evaluated(expression: str, batch: pa.RecordBatch = BATCH, schema: tuple[Field, ...] = SCHEMA) -> list[Any]:
    """The values, which are of the type that was promised."""
    of = planned(expression, schema)
    found = evaluate(of, batch)
    assert found.type == of.type.arrow_type
    assert of.type.nullable or not found.null_count
    values: list[Any] = found.to_pylist()
    return values


def value(expression: str) -> Any:
    """The value of an expression without columns, the same in each row."""
    first, *others = evaluated(expression)
    assert all(other == first or other != other for other in others)
    return first


ANSWERED = [
    # comparisons and conditions
    "i = b, i <> b, i < b, i <= b, i > b, i >= b, s < r, s >= r, d < DATE '2000-01-01', z = TRUE",
    "s = 'abc' OR i > 1, NOT z, z AND i > 0, z OR i > 0, z IS TRUE, z IS NOT TRUE, z IS FALSE, s IS NULL, s IS NOT NULL",
    "s IS DISTINCT FROM r, i IS NOT DISTINCT FROM b, i IN (1, 2), i IN (1, NULL), i NOT IN (1, 2), i NOT IN (1, NULL)",
    "i BETWEEN 0 AND 3, i NOT BETWEEN 0 AND 3, CASE WHEN i > 0 THEN 'p' WHEN i < 0 THEN 'n' END, CASE i WHEN 1 THEN b ELSE x END",
    "COALESCE(s, r, 'none'), IFNULL(i, b), NULLIF(i, 1), IF(i > 0, s, r)",
    "s LIKE 'a%', s LIKE '%b_c%', s NOT LIKE '%b%', s LIKE 'a.b%', s LIKE '%\\%%' ESCAPE '\\', s LIKE '', s LIKE r, s NOT LIKE r",
    # numbers
    "i + b, i - b, i * b, -i, ABS(i), ABS(x), x + i, x * 2, x / 4, SIGN(b), SIGN(x)",
    "CEIL(x), FLOOR(x), ROUND(x), ROUND(x, 2), ROUND(x, -2), ROUND(b, -1), ROUND(b, 2), ROUND(x, 1), TRUNCATE(x), TRUNCATE(x, 0)",
    "SQRT(p), EXP(i), LN(p), LOG10(p), LOG2(p), LOG(2, p), POWER(x, 2), POWER(p, 0.5E0)",
    "SIN(x), COS(x), TAN(x), COT(p), ATAN(x), ATAN2(x, p), SINH(i), COSH(i), TANH(x), DEGREES(x), RADIANS(x), PI()",
    "ASIN(CASE WHEN x BETWEEN -1 AND 1 THEN x END), ACOS(CASE WHEN x BETWEEN -1 AND 1 THEN x END)",
    "BIN(ABS(b)), HEX(ABS(b)), HEX(s)",
    # texts
    "s || r, CONCAT_WS(',', s, r, 'x'), LOWER(s), REVERSE(s), CHAR_LENGTH(s), REPLACE(s, 'b', 'yy'), REPEAT(s, i)",
    "TRIM(s), LTRIM(s), RTRIM(s), TRIM(BOTH 'a' FROM s), TRIM(LEADING 'a' FROM s), TRIM(TRAILING 'c' FROM s), LTRIM(s, 'ab')",
    "SUBSTRING(s, 2), SUBSTRING(s, 2, 2), SUBSTRING(s FROM 1 FOR 3), SUBSTRING(s, 4, 100), SUBSTRING(s, 1, 0)",
    "LEFT(s, 2), RIGHT(s, 2), LEFT(s, 0), RIGHT(s, 0), LPAD(s, 5, 'xy'), RPAD(s, 5, 'xy'), LPAD(s, 0, 'x'), LPAD(s, ABS(i), r || '.')",
    "POSITION('b' IN s), INSTR(s, 'b'), POSITION(s IN r), POSITION('' IN s), STARTSWITH(s, 'a'), ENDSWITH(s, 'c'), STARTSWITH(s, r)",
    "MD5(s), SHA1(s), SHA256(s), SHA2(s, 256), REGEXP(s, '[a-b].'), REGEXP_REPLACE(s, '[a-c]+', '-')",
    # times
    "YEAR(d), QUARTER(d), MONTH(d), WEEK(d), DAYOFMONTH(d), DAYOFYEAR(d), YEAR(t), WEEK(t), HOUR(t), MINUTE(t), SECOND(t), HOUR(c)",
    "EXTRACT(YEAR FROM t), EXTRACT(QUARTER FROM t), EXTRACT(MONTH FROM t), EXTRACT(WEEK FROM t), EXTRACT(DAY FROM t)",
    "EXTRACT(DOY FROM t), EXTRACT(ISODOW FROM t), EXTRACT(HOUR FROM c), EXTRACT(MINUTE FROM c), EXTRACT(SECOND FROM c)",
    "FLOOR(t TO YEAR), FLOOR(t TO QUARTER), FLOOR(t TO MONTH), FLOOR(t TO DAY), FLOOR(t TO HOUR), FLOOR(t TO MINUTE)",
    "t - INTERVAL '1' DAY, t - INTERVAL '2' MONTH, t - INTERVAL '1' YEAR, t - INTERVAL '90' MINUTE, c + INTERVAL '2' HOUR",
    "TIMESTAMPDIFF(MONTH, u, t), TIMESTAMPDIFF(YEAR, u, t), TIMESTAMPDIFF(DAY, u, t), TIMESTAMPDIFF(HOUR, u, t)",
    "DATE_FORMAT(t, 'yyyy-MM-dd HH:mm:ss'), CAST(t AS DATE), CAST(d AS TIMESTAMP), t < u, TO_DATE(DATE_FORMAT(t, 'dd/MM/yyyy'), 'dd/MM/yyyy')",
    # CAST
    "CAST(i AS BIGINT), CAST(b AS DOUBLE), CAST(i AS STRING), CAST(d AS STRING), CAST(i AS BOOLEAN), CAST(z AS INT), CAST(s AS BYTES)",
    "TRY_CAST(s AS INT), TRY_CAST(CAST(b AS STRING) AS INT), TRY_CAST(b AS SMALLINT), CAST(CAST(d AS STRING) AS DATE)",
    "CAST(CAST(t AS STRING) AS TIMESTAMP), CAST(CAST(x AS STRING) AS DOUBLE), CAST(CAST(z AS STRING) AS BOOLEAN)",
    # JSON
    "JSON_EXISTS(j, '$.a.b[0]'), JSON_EXISTS(j, '$.a'), JSON_EXISTS(j, '$[1]'), JSON_EXISTS(j, '$')",
    "JSON_QUERY(j, '$.a.b'), JSON_QUERY(j, '$.a'), JSON_VALUE(j, '$.a.b[2]'), JSON_VALUE(j, '$.a.b[1]'), JSON_VALUE(j, '$[''d e'']')",
]
"""Expressions that DuckDB answers; those of another spelling there are in ``DUCKDB``."""
DUCKDB = {
    "TRUNCATE(x)": "trunc(x)",
    "TRUNCATE(x, 0)": "trunc(x)",
    "STARTSWITH(s, 'a')": "starts_with(s, 'a')",
    "STARTSWITH(s, r)": "starts_with(s, r)",
    "ENDSWITH(s, 'c')": "ends_with(s, 'c')",
    "SHA2(s, 256)": "sha256(s)",
    "REGEXP(s, '[a-b].')": "regexp_matches(s, '[a-b].')",
    "REGEXP_REPLACE(s, '[a-c]+', '-')": "regexp_replace(s, '[a-c]+', '-', 'g')",
    "HEX(ABS(b))": "CASE WHEN b IS NOT NULL THEN hex(ABS(b)) END",
    **{f"FLOOR(t TO {unit})": f"date_trunc('{unit}', t)" for unit in ("YEAR", "QUARTER", "MONTH", "DAY", "HOUR", "MINUTE")},
    **{f"TIMESTAMPDIFF({unit}, u, t)": f"date_sub('{unit}', u, t)" for unit in ("YEAR", "MONTH", "DAY", "HOUR")},
    "DATE_FORMAT(t, 'yyyy-MM-dd HH:mm:ss')": "strftime(t, '%Y-%m-%d %H:%M:%S')",
    "TO_DATE(DATE_FORMAT(t, 'dd/MM/yyyy'), 'dd/MM/yyyy')": "t::DATE",
}


def split(text: str) -> list[str]:
    """Expressions, which commas outside of parentheses and quotes separate."""
    found, depth, quoted = [""], 0, False
    for sign in text:
        quoted ^= sign == "'"
        depth += 0 if quoted else (sign == "(") - (sign == ")")
        if sign == "," and depth == 0 and not quoted:
            found.append("")
        else:
            found[-1] += sign
    return [each.strip() for each in found]


def same(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, int | float):
        return math.isclose(one, other, rel_tol=1e-12, abs_tol=1e-300) or (one != one and other != other)
    return bool(one == other)


@pytest.mark.parametrize("expressions", ANSWERED)
def test_functions_equal_duckdb(expressions: str) -> None:
    t = pa.Table.from_batches([BATCH])  # noqa: F841 (DuckDB finds it by its name)
    wrong = []
    for expression in split(expressions):
        found = evaluated(expression)
        try:
            answer = [row[0] for row in duckdb.sql(f"SELECT {DUCKDB.get(expression, expression)} FROM t").fetchall()]
        except duckdb.Error as error:
            answer = [str(error)]
        if len(found) != len(answer) or not all(map(same, found, answer)):
            wrong.append((expression, found, answer))
    for w in wrong:
        print(*w, sep="\n   ")
    assert wrong == []
