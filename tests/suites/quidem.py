"""Calcite's own tests: files of queries with their results as tables of text, over small schemas.

``directory`` is a checkout of Calcite: the data is that of its files.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime
from hashlib import blake2b
from itertools import pairwise
from pathlib import Path
from typing import Any

import sqlglot

import forkpoint as fp
from suites.outcomes import Outcome, Rows, number, outcome, result

_VIEWS = re.compile(r'post\.add\("(\w+)",\s*ViewTable\.viewMacro\(post,\s*((?:"(?:[^"\\]|\\.)*"\s*\+?\s*)+),')
_ROWS = re.compile(r"INSERT INTO `(\w+)` VALUES\s*\((.*)\);")
_COLUMNS = {
    "DEPT": ("DEPTNO TINYINT", "DNAME STRING", "LOC STRING"),
    "EMP": ("EMPNO SMALLINT", "ENAME STRING", "JOB STRING", "MGR SMALLINT", "HIREDATE DATE", "SAL DECIMAL(7, 2)",
            "COMM DECIMAL(7, 2)", "DEPTNO TINYINT"),
}  # fmt: skip
_PLACES = {"DEPT": (0, 1, 2), "EMP": (0, 1, 2, 4, 5, 6, 7, 8)}
"""Of these columns, among those of the file."""
DIFFERENT = {
    "an aggregate without GROUP BY has no row until there is one": "1ee76976 26dfa0f5 3f0fe6f3 5d20a12e "
    "7e70bad4 81aef40f a825dbcd aaa08b3a "
    "c3f76cbe cdc63de8 cef5bf16 df382a34 e4c35cf5 e4e0492a e8f4bf7d",
    "a CAST to DECIMAL rounds half up": "0eb6240b 394bb5f9 75fd8c16 8c8f589d a7b249d9 b37f971e",
    "AVG and STDDEV of decimals have at least 6 digits after the point": "34f6e287 38db37bf 8b579752",
    "texts are not padded": "83eb8e7a",
    "times have microseconds, whatever precision is given": "565dbd27 a4277153",
    "rows are equal whose parts are NULL": "0e964891 0f95d8b2 3fe271ac 40028e8e 48179111 5660fba8 "
    "74febcf0 7c9e47cf 83db8e3c 843b2d3a de4d7d0f df6902b2",
    "LIMIT without ORDER BY takes any rows": "e90085a5",
    "rows of equal order are numbered in the order of their values": "2b70cddf",
}
"""Queries, by the digests of their texts."""
_QUOTED = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|--[^\n]*|/\*.*?\*/", re.DOTALL)


def schemas(checkout: Path) -> dict[str, list[str]]:
    """The views that each schema has, as statements."""
    java = (checkout / "testkit/src/main/java/org/apache/calcite/test/CalciteAssert.java").read_text()
    post = []
    for name, text in _VIEWS.findall(java):
        query = "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', text)).replace("\\n", "\n")
        post.append(f"CREATE VIEW {name} AS {upper(query).replace('UNKNOWN', 'CAST(NULL AS BOOLEAN)')}")
    rows: dict[str, list[str]] = {}
    for name, values in _ROWS.findall((checkout / "innodb/src/test/resources/scott.sql").read_text()):
        rows.setdefault(name, []).append(values)
    return {"blank": [], "post": post, "scott": [_view(name, of) for name, of in rows.items() if name in _COLUMNS]}


def _view(name: str, rows: list[str]) -> str:
    columns = [column.split(" ", 1) for column in _COLUMNS[name]]
    tuples = []
    for row in rows:
        values = [value.strip() for value in re.findall(r"(?:'[^']*'|[^,'])+", row)]
        parts = (f"CAST({values[at]} AS {of})" for at, (_, of) in zip(_PLACES[name], columns, strict=True))
        tuples.append(f"({', '.join(parts)})")
    names = ", ".join(column for column, _ in columns)
    return f"CREATE VIEW {name} AS SELECT * FROM (VALUES {', '.join(tuples)}) AS t ({names})"


def upper(query: str) -> str:
    """A query in Flink's words: names without quotes in capitals, quotes as backticks, no comments."""
    parts, at = [], 0
    for found in _QUOTED.finditer(query):
        text = found[0]
        parts.append(query[at : found.start()].upper())
        parts.append(text if text[0] == "'" else f"`{text[1:-1]}`" if text[0] == '"' else " ")
        at = found.end()
    return "".join([*parts, query[at:].upper()])


def outcomes(file: Path, name: str, views: dict[str, list[str]]) -> Iterator[Outcome]:
    schema, tables = "", None
    for line, kind, text, table in records(file.read_text()):
        if kind == "use":
            schema, tables = text, None
            continue
        if schema not in views:
            continue
        if tables is None:
            env = fp.StreamExecutionEnvironment.get_execution_environment({"execution.engine": "local"})
            tables = fp.StreamTableEnvironment.create(env)
            tables.execute_sql("CREATE DATABASE `scott`")
            for view in views[schema]:
                tables.execute_sql(view)
            for view in views["scott"]:
                tables.execute_sql(view.replace("VIEW ", "VIEW `scott`.", 1))
        if ";" in text.strip()[:-1] or not re.match(r"[\s(]*(SELECT|WITH|VALUES)\b", upper(text)):
            continue
        answer = rows_of(table)
        yield outcome(_running(text, tables), answer, (name, line), text, _others(text, answer, tables))


def _running(text: str, tables: fp.StreamTableEnvironment) -> Callable[[], Rows]:
    def run() -> Rows:
        query = upper(text).strip().rstrip(";")
        if not re.search(r"\b(LIMIT|OFFSET|FETCH)\b", query):  # rows are compared without order
            query = re.sub(r"\bORDER\s+BY\s+[^()]*$", "", query)
        return result(query, tables, _text)

    return run


def _text(value: Any) -> Any:
    """A value as Calcite prints it."""
    if value is None:
        return ""
    if isinstance(value, datetime):
        return value.isoformat(" ").removesuffix("000")
    return number(_inner(value).strip())


def _inner(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    if isinstance(value, fp.Row):
        return f"{{{', '.join(map(_inner, value))}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(_inner, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_inner(key)}={_inner(of)}' for key, of in value.items())}}}"
    return str(value)


def _others(text: str, answer: Rows, tables: fp.StreamTableEnvironment) -> dict[str, Callable[[Rows], bool]]:
    """Why Flink may have another result than Calcite, and whether it is that one."""

    def nulls_last(found: Rows) -> bool:
        """The query with Calcite's order of NULL in Flink's words has the answer."""
        query = sqlglot.parse_one(text.strip().rstrip(";"), dialect=_Calcite).sql(dialect=_Lower)
        return "NULLS" in query and _running(query, tables)() == answer

    def by_reason(reason: str) -> Callable[[Rows], bool]:
        return lambda found: _digest(text) in DIFFERENT[reason].split()

    return {**{reason: by_reason(reason) for reason in DIFFERENT}, "NULL is less than all values": nulls_last}


def _digest(query: str) -> str:
    return blake2b(" ".join(query.split()).encode(), digest_size=4).hexdigest()


class _Calcite(sqlglot.Dialect):
    NULL_ORDERING = "nulls_are_large"


class _Lower(sqlglot.Dialect):
    NULL_ORDERING = "nulls_are_small"


def rows_of(table: list[str]) -> Rows:
    """The rows of a printed table."""
    lines = [line for line in table if line.startswith("|")]
    border = next(line for line in table if line.startswith("+"))
    ends = [at for at, sign in enumerate(border) if sign == "+"]
    rows: Rows = Counter()
    for line in lines[1:]:
        cells = (line[start + 1 : end].strip() for start, end in pairwise(ends))
        rows[tuple(number("" if cell == "null" else cell) for cell in cells)] += 1
    return rows


def records(text: str) -> Iterator[tuple[int, str, str, list[str]]]:
    """The queries whose result is given, with their lines, and the names of schemas."""
    lines = text.split("\n")
    at, start, block, inside = 0, 0, [], 0
    while at < len(lines):
        line = lines[at]
        at += 1
        if line.startswith("!if"):
            inside += 1
        elif line.startswith("!}"):
            inside -= 1
        elif line.startswith("!use"):
            yield at, "use", line.split()[1], []
        elif line.startswith("!ok") and block and not inside:
            table = next((i for i, each in enumerate(block) if each.startswith("+-")), None)
            if table is not None:
                yield start, "query", "\n".join(block[:table]), block[table:]
        if line.startswith("!"):
            block = []
            continue
        if not block and (line.startswith("#") or not line.strip()):
            continue
        if line.startswith("#"):
            continue
        if not block:
            start = at
        block.append(line)
