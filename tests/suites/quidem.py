"""Calcite's own tests: files of queries with their results as tables of text, over small schemas.

``directory`` is a checkout of Calcite: the data is that of its files.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

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
        yield outcome(_running(text, tables), answer, (name, line), text, _others(text))


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


def _others(text: str) -> dict[str, Callable[[], Rows]]:
    return {}


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
