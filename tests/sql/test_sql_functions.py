# ruff: noqa: DTZ001 (SQL has times without zone)
"""Scalar functions, each evaluated over columns with NULLs, other scripts, negative numbers and extremes.

Where DuckDB has a function of the same meaning, it gives the answer; otherwise the values are those of Flink's documentation.
"""

from __future__ import annotations

import math
import re
from datetime import date, datetime, time
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from forkpoint.errors import JobFailed
from forkpoint.relational.evaluation import evaluate
from forkpoint.relational.plan import Plan, Scan, Select
from forkpoint.relational.types import Field, SqlType
from forkpoint.sql.binding.queries import bind_query
from forkpoint.sql.errors import SqlError, Text
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
COLUMNS: dict[str, tuple[str, list[Any]]] = {
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
    # conditions
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
    "LEFT(s, 2), RIGHT(s, 2), LEFT(s, 0), RIGHT(s, 0), LPAD(s, 5, 'xy'), RPAD(s, 5, 'xy'), LPAD(s, 0, 'x')",
    "LPAD(s, ABS(i), r || '.'), RPAD(s, ABS(i), r || '.')",
    "POSITION('b' IN s), INSTR(s, 'b'), POSITION(s IN r), POSITION('' IN s)",
    "STARTSWITH(s, 'a'), ENDSWITH(s, 'c'), STARTSWITH(s, r)",
    "MD5(s), SHA1(s), SHA256(s), SHA2(s, 256), REGEXP(s, '[a-b].'), REGEXP_REPLACE(s, '[a-c]+', '-')",
    # times
    "YEAR(d), QUARTER(d), MONTH(d), WEEK(d), DAYOFMONTH(d), DAYOFYEAR(d), YEAR(t), WEEK(t), HOUR(t), MINUTE(t), SECOND(t)",
    "EXTRACT(YEAR FROM t), EXTRACT(QUARTER FROM t), EXTRACT(MONTH FROM t), EXTRACT(WEEK FROM t), EXTRACT(DAY FROM t)",
    "EXTRACT(DOY FROM t), EXTRACT(ISODOW FROM t), EXTRACT(HOUR FROM c), EXTRACT(MINUTE FROM c), EXTRACT(SECOND FROM c)",
    "FLOOR(t TO YEAR), FLOOR(t TO QUARTER), FLOOR(t TO MONTH), FLOOR(t TO DAY), FLOOR(t TO HOUR), FLOOR(t TO MINUTE)",
    "t - INTERVAL '1' DAY, t - INTERVAL '2' MONTH, t - INTERVAL '1' YEAR, t - INTERVAL '90' MINUTE, c + INTERVAL '2' HOUR",
    "TIMESTAMPDIFF(MONTH, u, t), TIMESTAMPDIFF(YEAR, u, t), TIMESTAMPDIFF(DAY, u, t), TIMESTAMPDIFF(HOUR, u, t)",
    "DATE_FORMAT(t, 'yyyy-MM-dd HH:mm:ss'), CAST(t AS DATE), CAST(d AS TIMESTAMP), t < u",
    "TO_DATE(DATE_FORMAT(t, 'dd/MM/yyyy'), 'dd/MM/yyyy')",
    # CAST
    "CAST(i AS BIGINT), CAST(b AS DOUBLE), CAST(i AS STRING), CAST(d AS STRING), CAST(i AS BOOLEAN)",
    "CAST(z AS INT), CAST(s AS BYTES)",
    "TRY_CAST(s AS INT), TRY_CAST(CAST(b AS STRING) AS INT), TRY_CAST(b AS SMALLINT), CAST(CAST(d AS STRING) AS DATE)",
    "CAST(CAST(t AS STRING) AS TIMESTAMP), CAST(CAST(x AS STRING) AS DOUBLE), CAST(CAST(z AS STRING) AS BOOLEAN)",
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
    "CAST(s AS BYTES)": "encode(s)",
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
        answer = [row[0] for row in duckdb.sql(f"SELECT {DUCKDB.get(expression, expression)} FROM t").fetchall()]
        if len(found) != len(answer) or not all(map(same, found, answer)):
            wrong.append((expression, found, answer))
    assert wrong == []


DOCUMENT = """'{"a": {"b": [1.50, true, "x", null, {"c": "ä"}]}, "d e": 7, "big": 12345678901234567890}'"""
VALUES: list[tuple[str, Any]] = [
    # numbers
    ("ROUND(1.005E0, 2)", 1.01),
    ("ROUND(2.5E0)", 3.0),
    ("ROUND(-2.5E0)", -3.0),
    ("ROUND(1234, -2)", 1200),
    ("ROUND(1250, -2)", 1300),
    ("TRUNCATE(42.345E0, 2)", 42.34),
    ("TRUNCATE(-42.345E0, 2)", -42.34),
    ("TRUNCATE(1299, -2)", 1200),
    ("TRUNCATE(42.324E0)", 42.0),
    ("ROUND(CAST('NaN' AS DOUBLE), 1) = 1", False),
    ("LOG(2, 8E0)", 3.0),
    ("LOG(1)", 0.0),
    ("E()", math.e),
    ("MOD(-7, 3)", -1),
    ("-7 / 2", -3),
    ("1e3+1 - 2.5E1-1e+1*2-ABS(-1e0-1)", 954.0),  # signs after exponents
    ("-7 % CAST(2 AS TINYINT)", -1),
    ("CAST(-2147483648 AS INT) % -1", 0),
    ("1E0 / 0", math.inf),
    ("BIN(4)", "100"),
    ("BIN(-1)", "1" * 64),
    ("HEX(20)", "14"),
    ("HEX(100)", "64"),
    ("HEX(-1)", "F" * 16),
    ("HEX('hello,world')", "68656C6C6F2C776F726C64"),
    ("GREATEST('b', 'ä', 'z')", "ä"),
    ("GREATEST(1, 2.5E0)", 2.5),
    ("GREATEST(FALSE, TRUE) AND NOT LEAST(TRUE, FALSE)", True),
    ("GREATEST(TO_TIMESTAMP_LTZ(2), TO_TIMESTAMP_LTZ(1)) = TO_TIMESTAMP_LTZ(2)", True),
    ("LEAST(3, 1, 2)", 1),
    ("LEAST(1, NULL)", None),
    ("NULLIF(1, NULL)", 1),
    ("NULL + 1", None),
    ("9007199254740993 = CAST(9007199254740993 AS DOUBLE)", True),  # as DOUBLE, it is one less
    # texts
    ("UPPER('straße')", "STRASSE"),
    ("LOWER('ÄB')", "äb"),
    ("INITCAP('hello WORLD-wide 2nd')", "Hello World-Wide 2nd"),
    ("CONCAT('AA', NULL, 'CC')", None),
    ("CONCAT_WS('~', 'AA', NULL, 'BB', '', 'CC')", "AA~BB~~CC"),
    ("CONCAT_WS(NULL, 'AA')", None),
    ("CONCAT_WS(',', CAST(NULL AS STRING))", ""),
    ("OVERLAY('xxxxxtest' PLACING 'xxxx' FROM 6)", "xxxxxxxxx"),
    ("OVERLAY('xxxxxtest' PLACING 'xxxx' FROM 6 FOR 2)", "xxxxxxxxxst"),
    ("OVERLAY('abc' PLACING 'x' FROM 4)", "abc"),
    ("REPLACE('hello world', 'world', 'flink')", "hello flink"),
    ("REPLACE('ababab', 'abab', 'z')", "zab"),
    ("REPLACE('ab', '', '-')", "-a-b-"),
    ("SUBSTRING('abc', 0)", "abc"),
    ("SUBSTRING('abc', 0, 2)", "ab"),
    ("SUBSTRING('abcde', -2)", "de"),
    ("SUBSTRING('abcde', -3, 2)", "cd"),
    ("SUBSTRING('abc', -5)", ""),
    ("SUBSTRING('abc', 9)", ""),
    ("SUBSTRING('abc', 1, -1)", None),
    ("LEFT('abc', -1)", ""),
    ("RIGHT('abc', -1)", ""),
    ("LPAD('hi', 4, '??')", "??hi"),
    ("LPAD('hi', 1, '??')", "h"),
    ("RPAD('hi', 5, 'ab')", "hiaba"),
    ("LPAD('hi', -1, '?')", None),
    ("LPAD('hi', 4, '')", None),
    ("REPEAT('ab.', 2)", "ab.ab."),
    ("REPEAT('a', -1)", ""),
    ("LOCATE('b', 'abcb')", 2),
    ("LOCATE('b', 'abcb', 3)", 4),
    ("LOCATE('x', 'abc')", 0),
    ("INSTR('abc', 'c')", 3),
    ("TRIM('ab' FROM 'abcba')", "c"),
    ("BTRIM('  x ')", "x"),
    ("BTRIM('xax', 'x')", "a"),
    ("RTRIM('abb', 'b')", "a"),
    ("TRIM(' \t ')", "\t"),
    ("SPLIT_INDEX('a,b,,d', ',', 1)", "b"),
    ("SPLIT_INDEX('a,b,,d', ',', 2)", ""),
    ("SPLIT_INDEX('a,b', ',', 2)", None),
    ("SPLIT_INDEX('a,b', ',', -1)", None),
    ("SPLIT_INDEX('', ',', 0)", None),
    ("REGEXP('a\nb', 'b$')", True),
    ("REGEXP('abc', '')", False),
    ("REGEXP('٣', '\\d')", False),  # Java's digits are ASCII
    ("REGEXP_REPLACE('foobar', 'oo|ar', '')", "fb"),
    ("REGEXP_REPLACE('ab', '(a)', '$1\\1')", "$1\\1b"),
    ("REGEXP_EXTRACT('foothebar', 'foo(.*?)(bar)', 2)", "bar"),
    ("REGEXP_EXTRACT('foothebar', 'foo(.*?)(bar)')", "foothebar"),
    ("REGEXP_EXTRACT('foothebar', 'foo(.*?)(bar)', 3)", None),
    ("REGEXP_EXTRACT('x', '(a)')", None),
    ("REGEXP_COUNT('abab', 'a|b')", 4),
    ("REGEXP_INSTR('hello world', 'o.*d')", 5),
    ("REGEXP_INSTR('abc', 'x')", 0),
    ("REGEXP_SUBSTR('foobar', 'o+')", "oo"),
    ("REGEXP_SUBSTR('foobar', 'x')", None),
    ("REGEXP_EXTRACT_ALL('a1b2', '([a-z])([0-9])', 2)", ["1", "2"]),
    ("REGEXP_EXTRACT_ALL('a1', 'a')", None),
    ("STR_TO_MAP('a=1,b,c=')", [("a", "1"), ("b", None), ("c", "")]),
    ("STR_TO_MAP('a:1;b:2;;', ';', ':')", [("a", "1"), ("b", "2")]),
    ("TRANSLATE('abcab', 'ab', 'x')", "xcx"),
    ("TRANSLATE('aa', 'aa', 'xy')", "xx"),
    ("SPLIT(',a,,b', ',')", ["", "a", "", "b"]),
    ("SPLIT('abc', '')", ["a", "b", "c"]),
    ("ELT(2, 'a', NULL, 'c')", None),
    ("ELT(3, 'a', NULL, 'c')", "c"),
    ("ELT(4, 'a', NULL, 'c')", None),
    # codes
    ("URL_ENCODE('a b~*/ä')", "a+b%7E*%2F%C3%A4"),
    ("URL_DECODE('a+b%C3%A4')", "a bä"),
    ("URL_DECODE('%zz')", None),
    ("ENCODE('ä', 'UTF-16')", b"\xfe\xff\x00\xe4"),
    ("DECODE(ENCODE('ä', 'UTF-16LE'), 'UTF-16LE')", "ä"),
    ("DECODE(ENCODE('ä', 'US-ASCII'), 'US-ASCII')", "?"),
    ("PARSE_URL('http://u:p@example.com:80/a/b?k=v&l=w#r', 'HOST')", "example.com"),
    ("PARSE_URL('http://u:p@example.com:80/a/b?k=v&l=w#r', 'AUTHORITY')", "u:p@example.com:80"),
    ("PARSE_URL('http://u:p@example.com:80/a/b?k=v&l=w#r', 'USERINFO')", "u:p"),
    ("PARSE_URL('http://u:p@example.com:80/a/b?k=v&l=w#r', 'FILE')", "/a/b?k=v&l=w"),
    ("PARSE_URL('http://u:p@example.com:80/a/b?k=v&l=w#r', 'QUERY', 'l')", "w"),
    ("PARSE_URL('http://example.com/a', 'REF')", None),
    ("PARSE_URL('no url', 'HOST')", None),
    ("JSON_UNQUOTE('\"a\\u00e4\\n\"')", "aä\n"),
    ('JSON_UNQUOTE(\'"a"b"\')', '"a"b"'),
    ("JSON_UNQUOTE('[1]')", "[1]"),
    # arrays and maps
    ("ARRAY_APPEND(ARRAY[1], NULL)", [1, None]),
    ("ARRAY_PREPEND(CAST(NULL AS ARRAY<INT>), 1)", None),
    ("ARRAY_REMOVE(ARRAY[1, NULL, 2, NULL], NULL)", [1, 2]),
    ("ARRAY_POSITION(ARRAY[ARRAY[1], ARRAY[2]], ARRAY[2])", 2),
    ("ARRAY_POSITION(ARRAY[1], 2)", 0),
    ("ARRAY_POSITION(ARRAY[1], NULL)", None),
    ("ARRAY_CONCAT(ARRAY[1], ARRAY[2.5E0], ARRAY[NULL, 3])", [1.0, 2.5, None, 3.0]),
    ("ARRAY_DISTINCT(ARRAY[2, NULL, 1, 2, NULL])", [2, None, 1]),
    ("ARRAY_UNION(ARRAY[2, 1, 2], ARRAY[3, 1])", [2, 1, 3]),
    ("ARRAY_EXCEPT(ARRAY[2, 1, 2, NULL], ARRAY[1])", [2, None]),
    ("ARRAY_INTERSECT(ARRAY[2, 1, 2, NULL], ARRAY[NULL, 2])", [2, None]),
    ("ARRAY_REVERSE(ARRAY[1, 2])", [2, 1]),
    ("ARRAY_SLICE(ARRAY['a', 'b', 'c', 'd'], 2, 3)", ["b", "c"]),
    ("ARRAY_SLICE(ARRAY['a', 'b', 'c', 'd'], -2)", ["c", "d"]),
    ("ARRAY_SLICE(ARRAY['a', 'b', 'c', 'd'], 0, -3)", ["a", "b"]),
    ("ARRAY_SLICE(ARRAY['a', 'b'], 2, 1)", []),
    ("ARRAY_SORT(ARRAY[3, NULL, 1])", [None, 1, 3]),
    ("ARRAY_SORT(ARRAY[3, NULL, 1], FALSE)", [3, 1, None]),
    ("ARRAY_SORT(ARRAY[3, NULL, 1], TRUE, FALSE)", [1, 3, None]),
    ("ARRAY_MAX(ARRAY[1, NULL, 5])", 5),
    ("ARRAY_MIN(ARRAY[CAST(NULL AS INT)])", None),
    ("ARRAY_JOIN(ARRAY['a', NULL, 'b'], '-')", "a-b"),
    ("ARRAY_JOIN(ARRAY['a', NULL], '-', '?')", "a-?"),
    ("MAP_KEYS(MAP['a', 1, 'b', NULL])", ["a", "b"]),
    ("MAP_VALUES(MAP['a', 1, 'b', NULL])", [1, None]),
    ("MAP_ENTRIES(MAP['a', 1])", [{"key": "a", "value": 1}]),
    ("MAP_FROM_ARRAYS(ARRAY['a', 'b'], ARRAY[1, 2])", [("a", 1), ("b", 2)]),
    ("MAP_UNION(MAP['a', 1], MAP['a', 2, 'b', 3])", [("a", 2), ("b", 3)]),
    ("ASCII('abc')", 97),
    ("ASCII('')", 0),
    ("CHR(97)", "a"),
    ("CHR(353)", "a"),
    ("CHR(-1)", ""),
    ("CHR(256)", "\0"),
    ("IS_DECIMAL('-1.5e3')", True),
    ("IS_DECIMAL('1x')", False),
    ("IS_DECIMAL(CAST(NULL AS STRING))", False),
    ("IS_DIGIT('123')", True),
    ("IS_DIGIT('1.2')", False),
    ("IS_DIGIT('')", False),
    ("IS_ALPHA('aß語')", True),
    ("IS_ALPHA('a1')", False),
    ("TO_BASE64('hello world')", "aGVsbG8gd29ybGQ="),
    ("FROM_BASE64('aGVsbG8gd29ybGQ=')", "hello world"),
    ("SHA224('a')", "abd37534c7d9a2efb9465de931cd7055ffdb8879563ae98078d6d6d5"),
    ("SHA2('a', 384) = SHA384('a') AND SHA2('a', 512) = SHA512('a')", True),
    # comparisons
    ("'Z' < 'a' AND 'z' < 'ä' AND '\uffff' < '😀'", True),  # code points, not UTF-16
    ("CAST('NaN' AS DOUBLE) = CAST('NaN' AS DOUBLE)", False),
    ("CAST('NaN' AS DOUBLE) > 1", False),
    ("CAST('NaN' AS DOUBLE) <> 1", True),
    ("'a.b' LIKE 'a.b' AND NOT 'axb' LIKE 'a.b'", True),
    ("'a\nb\n' LIKE 'a%b_'", True),
    ("'a\n' LIKE 'a'", False),
    ("'[x]*' LIKE '[x]*'", True),
    ("'10%' LIKE '10#%' ESCAPE '#'", True),
    ("'100' NOT LIKE '10#%' ESCAPE '#'", True),
    # times
    ("EXTRACT(DOW FROM DATE '2020-02-02')", 1),  # a Sunday
    ("DAYOFWEEK(DATE '1994-09-27')", 3),
    ("DAYOFMONTH(DATE '1994-09-27')", 27),
    ("WEEK(DATE '1994-09-27')", 39),
    ("EXTRACT(ISOYEAR FROM DATE '2021-01-03')", 2020),
    ("FLOOR(TIME '12:44:31' TO MINUTE)", time(12, 44)),
    ("CEIL(TIME '12:44:31' TO MINUTE)", time(12, 45)),
    ("FLOOR(DATE '2020-02-01' TO WEEK)", date(2020, 1, 26)),
    ("CEIL(DATE '2020-02-02' TO WEEK)", date(2020, 2, 2)),
    ("CEIL(DATE '2020-01-01' TO MONTH)", date(2020, 1, 1)),
    ("CEIL(DATE '2020-01-02' TO QUARTER)", date(2020, 4, 1)),
    ("CAST('2020-01-01 23:59:59.9999999' AS TIMESTAMP)", datetime(2020, 1, 1, 23, 59, 59, 999999)),  # as of a column
    ("TIME '23:59:58.9999999'", time(23, 59, 58, 999999)),
    ("CAST('2004' AS DATE)", date(2004, 1, 1)),
    ("CAST(' 2004-2 x' AS DATE)", date(2004, 2, 1)),
    ("CAST('7' AS TIME)", time(7)),
    ("TRY_CAST('7:' AS TIME)", None),
    ("TRY_CAST(MAP['3', 1, 'a', 2] AS MAP<INT, INT>) IS NULL", True),
    ("CEIL(TIMESTAMP '1960-02-01 00:00:00.1' TO SECOND)", datetime(1960, 2, 1, 0, 0, 1)),
    (
        "DATE_FORMAT(TIMESTAMP '2020-01-02 15:04:05.678', 'yy/M/d h:mm a, EEE EEEE MMM MMMM D SSS')",
        "20/1/2 3:04 PM, Thu Thursday Jan January 2 678",
    ),
    ("DATE_FORMAT(DATE '2020-01-02', 'd. ''o''''clock''')", "2. o'clock"),
    ("DATE_FORMAT('2020-01-02 15:04:05', 'yyyyMMdd')", "20200102"),
    ("TO_DATE('2020-2-3')", date(2020, 2, 3)),
    ("TO_DATE('2020-02-30')", None),
    ("TO_DATE('03.02.20', 'dd.MM.yy')", date(2020, 2, 3)),
    ("TO_TIMESTAMP('2020-02-03 04:05:06.7')", datetime(2020, 2, 3, 4, 5, 6, 700000)),
    ("TO_TIMESTAMP('2020-02-03')", datetime(2020, 2, 3)),
    ("TO_TIMESTAMP('Feb 3 2020 12 AM', 'MMM d yyyy h a')", datetime(2020, 2, 3)),
    ("TO_TIMESTAMP('yesterday')", None),
    ("TO_TIMESTAMP_LTZ(1500, 3) = CAST(TIMESTAMP '1970-01-01 00:00:01.5' AS TIMESTAMP_LTZ)", True),
    ("TO_TIMESTAMP_LTZ(-1, 0) = CAST(TIMESTAMP '1969-12-31 23:59:59' AS TIMESTAMP_LTZ)", True),
    ("UNIX_TIMESTAMP('1970-01-02 00:00:01')", 86401),
    ("UNIX_TIMESTAMP('02.01.1970', 'dd.MM.yyyy')", 86400),
    ("UNIX_TIMESTAMP('x')", -(2**63)),
    ("FROM_UNIXTIME(44)", "1970-01-01 00:00:44"),
    ("FROM_UNIXTIME(-1, 'yyyy')", "1969"),
    ("TIMESTAMPDIFF(DAY, TIMESTAMP '2003-01-02 10:00:00', TIMESTAMP '2003-01-03 10:00:00')", 1),
    ("TIMESTAMPDIFF(MONTH, DATE '2020-01-31', DATE '2020-02-29')", 1),
    ("TIMESTAMPDIFF(MONTH, DATE '2020-02-28', DATE '2020-01-31')", 0),
    ("TIMESTAMPDIFF(SECOND, DATE '2020-01-02', TIMESTAMP '2020-01-01 23:59:59.5')", 0),
    ("TIMESTAMPADD(WEEK, 1, DATE '2003-01-02')", date(2003, 1, 9)),
    ("TIMESTAMPADD(MONTH, 1, DATE '2020-01-31')", date(2020, 2, 29)),
    ("TIMESTAMPADD(HOUR, -1, TIMESTAMP '2020-01-01 00:00:00')", datetime(2019, 12, 31, 23)),
    ("TIMESTAMP '2020-01-31 00:00:00' + INTERVAL '1' MONTH", datetime(2020, 2, 29)),
    ("INTERVAL '1' DAY + DATE '2020-02-28'", date(2020, 2, 29)),
    ("DATE '2020-02-29' - INTERVAL '1-2' YEAR TO MONTH", date(2018, 12, 29)),
    ("TIMESTAMP '2020-01-01 00:00:00' + INTERVAL '10 00:00:00.004' DAY TO SECOND", datetime(2020, 1, 11, 0, 0, 0, 4000)),
    ("TIMESTAMP '2020-01-01 00:00:00' - INTERVAL '90:30' MINUTE TO SECOND", datetime(2019, 12, 31, 22, 29, 30)),
    ("TIMESTAMP '2020-01-01 00:00:00' + INTERVAL '-1' DAY", datetime(2019, 12, 31)),
    ("TIMESTAMP '2020-01-01 00:00:00' + INTERVAL '100' DAY(3)", datetime(2020, 4, 10)),
    ("TIME '23:30:00' + INTERVAL '1' HOUR", time(0, 30)),
    ("TIME '00:30:00' - INTERVAL '1' HOUR", time(23, 30)),
    # CAST
    ("CAST(' 12 ' AS INT)", 12),
    ("CAST('+1.9' AS INT)", 1),
    ("CAST(' -5' AS TINYINT)", -5),
    ("CAST(2.9E0 AS INT)", 2),
    ("CAST(-2.9E0 AS INT)", -2),
    ("CAST(TRUE AS STRING)", "TRUE"),
    ("CAST(' Yes ' AS BOOLEAN)", True),
    ("CAST('f' AS BOOLEAN)", False),
    ("CAST(' 1e3 ' AS DOUBLE)", 1000.0),
    ("CAST('-Infinity' AS DOUBLE)", -math.inf),
    ("CAST(1E0 AS STRING)", "1.0"),
    ("CAST(1E10 AS STRING)", "1.0E10"),
    ("CAST(1234567E0 AS STRING)", "1234567.0"),
    ("CAST(12345678E0 AS STRING)", "1.2345678E7"),
    ("CAST(0.001E0 AS STRING)", "0.001"),
    ("CAST(0.00012E0 AS STRING)", "1.2E-4"),
    ("CAST(CAST('-0' AS DOUBLE) AS STRING)", "-0.0"),
    ("CAST(CAST(0.1E0 AS FLOAT) AS STRING)", "0.1"),
    ("CAST(1E0 / 0 AS STRING)", "Infinity"),
    ("CAST(TIMESTAMP '2020-01-02 03:04:05' AS STRING)", "2020-01-02 03:04:05"),
    ("CAST(TIMESTAMP '2020-01-02 03:04:05.5' AS STRING)", "2020-01-02 03:04:05.5"),
    ("CAST(TIMESTAMP '2020-01-02 03:04:05.000001' AS STRING)", "2020-01-02 03:04:05.000001"),
    ("CAST(TIME '03:04:05' AS STRING)", "03:04:05"),
    ("CAST(TO_TIMESTAMP_LTZ(0) AS STRING)", "1970-01-01 00:00:00.000"),
    ("CAST('2020-1-2' AS DATE)", date(2020, 1, 2)),
    ("CAST(' 2020-01-02 03:04 ' AS TIMESTAMP)", datetime(2020, 1, 2, 3, 4)),
    ("CAST('2020-01-02T03:04:05' AS TIMESTAMP)", datetime(2020, 1, 2, 3, 4, 5)),
    ("CAST('3:4:5.6' AS TIME)", time(3, 4, 5, 600000)),
    ("CAST(TIMESTAMP '1969-12-31 23:59:59.9' AS TIME)", time(23, 59, 59, 900000)),
    ("CAST(TIMESTAMP '1969-12-31 23:59:59.9' AS DATE)", date(1969, 12, 31)),
    ("TRY_CAST('x' AS INT)", None),
    ("TRY_CAST(1E10 AS INT)", None),
    ("TRY_CAST(CAST('NaN' AS DOUBLE) AS INT)", None),
    ("TRY_CAST(300 AS TINYINT)", None),
    ("CAST(CAST('ä' AS BYTES) AS STRING)", "ä"),
    # JSON
    (f"JSON_VALUE({DOCUMENT}, '$.a.b[0]')", "1.5"),
    (f"JSON_VALUE({DOCUMENT}, 'lax $.a.b[1]')", "true"),
    (f"JSON_VALUE({DOCUMENT}, 'strict $[''a''].b[4].c')", "ä"),
    (f"JSON_VALUE({DOCUMENT}, '$[''d e'']')", "7"),
    (f"JSON_VALUE({DOCUMENT}, '$.big')", "12345678901234567890"),
    (f"JSON_VALUE({DOCUMENT}, '$.a')", None),
    (f"JSON_VALUE({DOCUMENT}, '$.a.b[3]')", None),
    (f"JSON_VALUE({DOCUMENT}, '$.x')", None),
    ("JSON_VALUE('{', '$.x')", None),
    (f"JSON_QUERY({DOCUMENT}, '$.a.b[4]')", '{"c":"ä"}'),
    (f"JSON_QUERY({DOCUMENT}, '$.a.b[2]')", None),
    (f"JSON_EXISTS({DOCUMENT}, '$.a.b[3]')", True),
    (f"JSON_EXISTS({DOCUMENT}, '$.a.b[5]')", False),
    ("JSON_EXISTS('{', '$')", False),
    ("JSON_EXISTS(CAST(NULL AS STRING), '$')", None),
    ("JSON_VALUE('{\"a\": 5.9}', '$.a' RETURNING INT)", 5),
    ("JSON_VALUE('{\"a\": true}', '$.a' RETURNING BOOLEAN)", True),
    ("JSON_VALUE('{\"a\": [0.998]}', '$.a[0]' RETURNING DOUBLE)", 0.998),
    ("JSON_VALUE('{\"a\": true}', 'lax $.b' RETURNING BOOLEAN DEFAULT FALSE ON EMPTY)", False),
    ("JSON_VALUE('{\"a\": true}', 'strict $.b' DEFAULT 'no' ON ERROR)", "no"),
    ("JSON_VALUE('{\"a\": true}', '$.b' DEFAULT 'no' ON EMPTY)", None),
    ("JSON_VALUE('{', 'lax $.b' DEFAULT 'empty' ON EMPTY DEFAULT 'error' ON ERROR)", "empty"),
    ("JSON_VALUE('{\"a\": null}', '$.a' DEFAULT 'empty' ON EMPTY DEFAULT 'error' ON ERROR)", "error"),
    ("JSON_VALUE('{\"a\": \"x\"}', '$.a' RETURNING INT DEFAULT (1 + 6) * 2 ON ERROR)", 14),
    ("JSON_VALUE(CAST(NULL AS STRING), '$.a' DEFAULT 'no' ON ERROR)", None),
    ("JSON_VALUE(JSON_QUERY('[{\"a\": 1}]', '$[0]' NULL ON ERROR), '$.a' ERROR ON ERROR ERROR ON EMPTY)", "1"),
    ("JSON_QUERY('{}', '$' WITH CONDITIONAL ARRAY WRAPPER)", "[{}]"),
    ("JSON_QUERY('[1, 2]', '$' WITH CONDITIONAL WRAPPER)", "[1,2]"),
    ("JSON_QUERY('[1, 2]', '$' WITH UNCONDITIONAL ARRAY WRAPPER)", "[[1,2]]"),
    ("JSON_QUERY('1', '$' WITH WRAPPER)", "[1]"),
    ("JSON_QUERY('1', '$' WITHOUT ARRAY WRAPPER EMPTY ARRAY ON ERROR)", "[]"),
    ("JSON_QUERY('{}', 'lax $.invalid' EMPTY OBJECT ON EMPTY)", "{}"),
    ("JSON_QUERY('[1, \"a\", null, {\"b\": true}, 1.5]', '$' RETURNING ARRAY<STRING>)", ["1", "a", None, '{"b":true}', "1.5"]),
    ("JSON_QUERY('{\"a\": 1}', '$.a' RETURNING ARRAY<STRING> WITH WRAPPER)", ["1"]),
    ("JSON_QUERY('{}', '$' RETURNING ARRAY<STRING> EMPTY ARRAY ON ERROR)", []),
    ("JSON_QUERY('{}', '$' RETURNING ARRAY<STRING>)", None),
    ("JSON_EXISTS('{\"a\": true}', 'strict $.b' TRUE ON ERROR)", True),
    ("JSON_EXISTS('{\"a\": true}', 'lax $.b' TRUE ON ERROR)", False),
    ("JSON_EXISTS('{', '$' UNKNOWN ON ERROR)", None),
    ("'1' IS JSON AND '\"x\"' IS JSON VALUE AND 'null' IS JSON SCALAR AND '[]' IS JSON ARRAY AND '{}' IS JSON OBJECT", True),
    ("'abc' IS JSON OR 'NaN' IS JSON OR '[]' IS JSON OBJECT OR CAST(NULL AS STRING) IS JSON", False),
    ("'{}' IS NOT JSON ARRAY", True),
    ("JSON_STRING('a\"ä\n/')", '"a\\"ä\\n/"'),
    ("JSON_QUOTE('a\"ä\n/')", '"a\\"\\u00e4\\n\\/"'),
    ("JSON_STRING(TIMESTAMP '2020-01-02 03:04:00.120')", '"2020-01-02T03:04:00.12"'),
    ("JSON_STRING(TO_TIMESTAMP_LTZ(1000, 3))", '"1970-01-01T00:00:01Z"'),
    (
        "JSON_ARRAY(DATE '2020-01-02', TIME '03:04:00', 1.50, 1E10, CAST('NaN' AS DOUBLE), TRUE, ENCODE('a', 'UTF-8'))",
        '["2020-01-02","03:04:00",1.50,1.0E10,"NaN",true,"YQ=="]',
    ),
    ("JSON_OBJECT('a' VALUE JSON('[1, 2]'), 'b' VALUE '[]', 'a' VALUE JSON_ARRAY())", '{"a":[],"b":"[]"}'),
    ("PRINTF('%s|%5s|%-5s|%.2s|%S|%b|%%|%2$s', 'abc', 1, 2, 'xyz', 'a', NULL)", "abc|    1|2    |xy|A|false|%|1"),
    ("PRINTF('%d|%05d|%+d|%,d|%(d|%-6d|% d', 7, -7, 7, 1234567, -7, 7, 7)", "7|-0007|+7|1,234,567|(7)|7     | 7"),
    ("PRINTF('%x|%X|%08x|%o|%x', 255, 255, 255, 8, -1)", "ff|FF|000000ff|10|ffffffff"),
    (
        "PRINTF('%f|%.2f|%8.1f|%,.1f|%e|%.1E', 1.5, 1.005E0, -2.25, 1234.56, 12345.678E0, 0.00999)",
        "1.500000|1.01|    -2.3|1,234.6|1.234568e+04|1.0E-02",
    ),
    ("PRINTF('%s %s %s', 1E10, 1.50, TRUE)", "1.0E10 1.50 true"),
    ("PRINTF('%s', CAST(NULL AS STRING))", "null"),
    ("PRINTF(CAST(NULL AS STRING), 1)", None),
    ("UNHEX('616263')", b"abc"),
    ("UNHEX('abc')", b"\n\xbc"),
    ("UNHEX('1 2')", None),
    ("TYPEOF(MAP['a', 1.5])", "MAP<STRING, DECIMAL(2, 1)> NOT NULL"),
    ("CONVERT_TZ('1970-01-01 00:00:00', 'UTC', 'America/Los_Angeles')", "1969-12-31 16:00:00"),
    ("CONVERT_TZ('1970-01-01 00:00:00', 'GMT-08:30', 'PST')", "1970-01-01 00:30:00"),
    ("CONVERT_TZ('today', 'UTC', 'UTC')", None),
    ("'abc' SIMILAR TO '(a|b)_c' AND 'a-b' SIMILAR TO '[[:ALPHA:]-]+' AND 'a|b%' SIMILAR TO 'a!|_!%' ESCAPE '!'", True),
    ("'abc' SIMILAR TO 'b' OR 'a.c' NOT SIMILAR TO 'a.c' OR 'abc' SIMILAR TO 'a.c'", False),
    ("(TIME '2:55:00', INTERVAL '1' HOUR) OVERLAPS (TIME '3:30:00', INTERVAL '2' HOUR)", True),
    ("(TIME '10:00:00', TIME '9:00:00') OVERLAPS (TIME '10:15:00', INTERVAL '3' HOUR)", False),
]


@pytest.mark.parametrize(("expression", "expected"), VALUES)
def test_functions_have_the_values_of_flink(expression: str, expected: Any) -> None:
    found = value(expression)
    assert (found, type(found)) == (expected, type(expected))


def test_arguments_may_be_columns() -> None:
    """Where the kernel for literals differs, the values are the same."""
    columns: dict[str, tuple[str, list[Any]]] = {
        "s": ("STRING", ["abc", "a%c", None, "xyz"]),
        "p": ("STRING", ["a", "%", "a", None]),
        "n": ("INT", [2, -1, 1, 9]),
    }
    batch = pa.record_batch({name: pa.array(values, SqlType(of).arrow_type) for name, (of, values) in columns.items()})
    schema = tuple(Field(name, SqlType(of)) for name, (of, _) in columns.items())
    for expression in (
        *("SUBSTRING(s, n)", "SUBSTRING(s, 1, n)", "REPLACE(s, p, 'z')", "STARTSWITH(s, p)", "ENDSWITH(s, p)", "s LIKE p"),
        *("CONCAT_WS('-', p, p)", "CONCAT_WS(s, p, p)"),
        *("TRIM(p FROM s)", "REGEXP(s, p)", "SPLIT_INDEX(s, p, n)", "ROUND(n * 1.25E0, n)", "s LIKE p ESCAPE '#'"),
    ):
        found = evaluated(expression, batch, schema)
        for row, values in enumerate(zip(*(values for _, values in columns.values()), strict=True)):
            literals = {
                name: "CAST(NULL AS STRING)" if each is None else f"'{each}'" if isinstance(each, str) else str(each)
                for name, each in zip(columns, values, strict=True)
            }
            literal = re.sub(r"\b[spn]\b", lambda match: literals[match[0]], expression.replace("'z'", "'zz'"))  # noqa: B023
            assert found[row] == value(literal.replace("'zz'", "'z'")), (expression, literal)


@pytest.mark.parametrize(
    ("expression", "type_name"),
    [
        ("b % CAST(2 AS TINYINT)", "TINYINT"),
        ("i / 2", "INT"),
        ("i + b", "BIGINT"),
        ("i + x", "DOUBLE"),
        ("LN(i)", "DOUBLE"),
        ("ROUND(i, 1)", "INT"),
        ("CHAR_LENGTH(s)", "INT"),
        ("POSITION('a' IN s)", "INT"),
        ("YEAR(d)", "BIGINT"),
        ("EXTRACT(SECOND FROM t)", "BIGINT"),
        ("TIMESTAMPDIFF(DAY, d, t)", "INT"),
        ("d + INTERVAL '1' DAY", "DATE"),
        ("COALESCE(s, 'x')", "STRING NOT NULL"),
        ("PI()", "DOUBLE NOT NULL"),
        ("s IS JSON", "BOOLEAN NOT NULL"),
        ("SUBSTRING('abc', 1, 2)", "STRING"),  # NULL for a negative length
    ],
)
def test_results_have_the_types_of_flink(expression: str, type_name: str) -> None:
    assert str(planned(expression).type) == type_name


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("i / 0", "divide by zero"),
        ("b % 0", "divide by zero"),
        ("9223372036854775807 + b", "overflow"),
        ("CAST(-2147483648 AS INT) - i", "overflow"),
        ("CAST(-2147483648 AS INT) / -1", "overflow"),
        ("ABS(CAST(-2147483648 AS INT))", "overflow"),
        ("-CAST(-2147483648 AS INT)", "overflow"),
        ("ROUND(2147483647, -1)", "too large"),
        ("CAST(x AS INT)", "10000000000.0 exceeds INT"),
        ("CAST(CAST('NaN' AS DOUBLE) AS BIGINT)", "nan exceeds BIGINT"),
        ("CAST(9223372036854775808E0 AS BIGINT)", "exceeds BIGINT"),
        ("CAST(b AS SMALLINT)", "-1000000000000000 exceeds SMALLINT"),
        ("CAST(s AS INT)", "'abc' is no INT"),
        ("CAST('0x10' AS INT)", "'0x10' is no INT"),
        ("CAST('128' AS TINYINT)", "'128' is no TINYINT"),
        ("CAST('2020-02-30' AS DATE)", "'2020-02-30' is no DATE"),
        ("CAST('maybe' AS BOOLEAN)", "'maybe' is no BOOLEAN"),
        ("REGEXP(s, r || '[')", "regular expression"),
        ("FROM_BASE64('a')", "'a' is not Base64"),
        ("JSON('{a}')", "'{a}' is not JSON"),
        ("PRINTF('%d', s)", "%d takes no str, such as 'abc'"),
        ("PRINTF('%s %s', s)", "has an argument 2, which is not given"),
        ("TIMESTAMPADD(DAY, 1, DATE '9999-12-31')", "years from 1 to 9999"),
        ("t + INTERVAL '1' YEAR", "years from 1 to 9999"),
    ],
)
def test_a_value_without_result_ends_the_job(expression: str, message: str) -> None:
    with pytest.raises(JobFailed, match=message) as error:
        evaluated(expression)
    assert str(error.value).startswith(str(planned(expression)))


@pytest.mark.parametrize(
    "expression",
    [
        "CASE WHEN i <> 0 THEN 100 / i END",
        "IF(i = 0, -1, 100 / i)",
        "i <> 0 AND 100 / i > 20",
        "100 / i > 20 AND i <> 0",
        "i = 0 OR 100 / i > 20",
        "100 / i > 20 OR i = 0",
        "COALESCE(NULLIF(i, 0), 1 / (CASE WHEN i <> 0 THEN 0 ELSE 1 END))",
    ],
)
def test_a_condition_guards_what_would_fail(expression: str) -> None:
    """As in Flink, only the rows that a branch is for are computed. The order of AND and OR means nothing."""
    safe = expression.replace("100 / i", "100 / NULLIF(i, 0)").replace("THEN 0", "THEN 1")
    assert evaluated(expression) == evaluated(safe)


# ^ is below the first sign of what is wrong.
MISTAKES = [
    (
        "DATE_FORMAT(t, 'YYYY')",
        "               ^",
        "DATE_FORMAT: pattern 'YYYY': the letter 'Y' is not supported; there are y M d",
    ),
    ("TO_DATE(s, 'EEE')", "           ^", "TO_DATE: pattern 'EEE': the letter 'E' cannot be parsed"),
    ("TO_TIMESTAMP(s, 'yyyy''')", "                ^", "a quote is not closed"),
    ("REGEXP(s, '(')", "          ^", "REGEXP: regular expression '(': missing )"),
    ("REGEXP_EXTRACT(s, '[a&&b]')", "                  ^", "Possible set"),
    ("JSON_VALUE(j, '$..a')", "              ^", "JSON_VALUE: path '$..a': '..a' is not supported; a path is made of .key"),
    ("JSON_VALUE(j, 'a')", "              ^", "path 'a' must begin with $"),
    ("SHA2(s, 1)", "        ^", "SHA2: there are 224, 256, 384 and 512 bits, not 1"),
    ("EXTRACT(CENTURY FROM t)", "^", "EXTRACT has no unit CENTURY; there are YEAR, QUARTER"),
    ("EXTRACT(HOUR FROM d)", "^", "EXTRACT HOUR takes TIME or TIMESTAMP or TIMESTAMP_LTZ, not DATE"),
    ("TIMESTAMPADD(EON, 1, t)", "^", "TIMESTAMPADD has no unit EON; there are SECOND, MINUTE"),
    ("TIMESTAMPDIFF(DAY, t)", "^", "TIMESTAMPDIFF takes a unit and 2 arguments"),
    ("d + INTERVAL '1' HOUR", "^", "a DATE has no HOUR; CAST it AS TIMESTAMP"),
    ("i + INTERVAL '1' DAY", "^", "an interval can be added to a time, not to INT"),
    ("LEFT(s, s)", "^", "LEFT takes an integer as argument 2, not STRING"),
    ("LOG(s)", "^", "LOG takes numbers, not STRING"),
    ("LPAD(s, 3)", "^", "LPAD takes 3 arguments, not 2"),
    ("-NULL", " ^", "NEGATE takes no NULL without a type; CAST it"),
    ("YEAR(NULL)", "^", "EXTRACT YEAR takes no NULL without a type; CAST it"),
    ("SOUNDEX(s)", "^", "there is no function SOUNDEX; did you mean"),
    ("i BETWEEN SYMMETRIC 1 AND 2", "^", "BETWEEN SYMMETRIC is not supported yet"),
]


@pytest.mark.parametrize(("expression", "mark", "message"), MISTAKES)
def test_a_mistake_is_shown_where_it_is(expression: str, mark: str, message: str) -> None:
    with pytest.raises(SqlError) as error:
        planned(expression)
    first, _, below = str(error.value).split("\n")
    assert message in first
    assert below == f"  {' ' * len('SELECT ')}{mark}"


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("JSON_VALUE(s, '$.a' ERROR ON ERROR)", "the path finds no value"),
        ("JSON_QUERY(s, 'lax $' ERROR ON EMPTY)", "the path finds no value"),
        ("JSON_EXISTS(s, '$' ERROR ON ERROR)", "the path finds no value"),
        ("JSON_VALUE('{\"a\": \"x\"}', '$.a' RETURNING INT ERROR ON ERROR)", "'x' is no DECIMAL"),
    ],
)
def test_an_error_of_json_ends_the_job_if_it_should(expression: str, message: str) -> None:
    with pytest.raises(JobFailed, match=message):
        evaluated(expression)
