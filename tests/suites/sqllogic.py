"""DuckDB's own tests: files of statements, which DuckDB executes, and queries, which it answers.

A query runs over the tables as they are at its place in the file. It is written in Flink's words where these mean the same.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import chdir
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from itertools import count
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

import forkpoint as fp
from suites.meanings import others
from suites.outcomes import Outcome, Refused, Rows, outcome, plain, result
from suites.words import in_words_of_flink, refuse_lost, text_of

MOST_ROWS = 20_000
_UNSUPPORTED = ("loop", "foreach", "concurrentloop")
_SKIPPED = ("restart", "load", "reconnect", "unzip")  # from here on, the file is about storage
_TYPES = {
    "int8": "TINYINT", "int16": "SMALLINT", "int32": "INT", "int64": "BIGINT", "float": "FLOAT", "double": "DOUBLE",
    "bool": "BOOLEAN", "string": "STRING", "date32[day]": "DATE", "timestamp[us]": "TIMESTAMP", "time64[us]": "TIME",
    "binary": "BYTES", "timestamp[us, tz=UTC]": "TIMESTAMP_LTZ", "null": "INT",
}  # fmt: skip
_WIDER = {"uint8": pa.int16(), "uint16": pa.int32(), "uint32": pa.int64(), "timestamp[ns]": pa.timestamp("us"),
          "timestamp[ms]": pa.timestamp("us"), "timestamp[s]": pa.timestamp("us")}  # fmt: skip
_LARGE = Decimal(10) ** 38
_GENERATORS = ("RANGE", "GENERATE_SERIES")
_CATALOGUE = ("duckdb_", "information_schema.", "pg_", "sqlite_", "main.pg_", "sys.")
_PLACES = re.compile(r"\{(?:TEST|TEMP|DATA)_DIR\}|__TEST_DIR__")
_SETTINGS = re.compile(r"\bCOLLATE\b|default_collation|integer_division", re.I)
"""Flink has no order of texts but that of their characters, and one meaning of ``/``."""
_CHANGING = re.compile(r"\b(INSERT|UPDATE|DELETE|CREATE|DROP|MERGE|COPY|ALTER)\b", re.I)


@dataclass
class Tables:
    """DuckDB's tables as files. ``files``: the name of the file of each, or of a call that has rows."""

    database: duckdb.DuckDBPyConnection
    directory: Path
    files: dict[str, str] = field(default_factory=dict)
    numbers: Iterator[int] = field(default_factory=count)

    def file(self, of: str) -> str:
        if of not in self.files:
            name = f"t{next(self.numbers)}"
            _export(self.database, of, self.path(name))
            self.files[of] = name
        return self.files[of]

    def path(self, name: str) -> Path:
        return self.directory / f"{name}.parquet"


def outcomes(file: Path, name: str, directory: Path, of: Callable[[str, tuple[str, int], Tables], Any]) -> Iterator[Any]:
    """Of the queries of a file, ``of`` each that DuckDB answers, if not None. ``directory``: for all that is written."""
    data = next((parent / "data" for parent in file.parents if (parent / "data").is_dir()), directory)
    statements = _PLACES.sub(lambda word: str(data if "DATA" in word[0] else directory), file.read_text(errors="replace"))
    with chdir(directory), duckdb.connect(config={"threads": "1"}) as database:
        database.execute("SET TimeZone = 'UTC'")
        tables = Tables(database, directory)
        for line, kind, text in records(statements):
            if kind == "query":
                found = of(text, (name, line), tables)
                if found is not None:
                    yield found
                continue
            if _SETTINGS.search(text):
                return
            tables.files.clear()
            try:
                database.execute(text)
            except duckdb.Error:
                return  # what follows needs it, or an extension


def of_query(text: str, place: tuple[str, int], tables: Tables) -> Outcome | None:
    """None if the query is to fail, is no SELECT, or its answer is too large."""
    if _CHANGING.search(text):
        tables.files.clear()
    try:
        answer = answer_of(tables.database, text)
    except (duckdb.Error, ValueError, OverflowError):  # an error is asked for, or Python has no such value
        return None
    try:
        tree = sqlglot.parse_one(text, dialect="duckdb")
    except (SqlglotError, RecursionError, IndexError):
        return Outcome("refused", *place, text, "sqlglot cannot read DuckDB's words")
    if not isinstance(tree, exp.Query):
        return None
    return outcome(_running(text, tree, answer, tables), answer, place, text, _others(text, tree, answer, tables.database))


def _others(text: str, tree: exp.Query, answer: Rows, database: duckdb.DuckDBPyConnection) -> dict[str, Callable[[Rows], bool]]:
    def asked(query: str) -> Rows | None:
        try:
            return answer_of(database, query)
        except (duckdb.Error, ValueError, OverflowError):
            return None

    return others(text, tree, answer, asked)


def records(text: str) -> Iterator[tuple[int, str, str]]:
    """The statements that are to succeed and the queries, with their lines. Those in loops are left out."""
    inside = 0
    for start, block in _blocks(text):
        head = block[0].split()
        if head[0] in _SKIPPED or (head[0] == "require" and head[1] not in ("vector_size", "noforcestorage", "skip_reload")):
            return
        if head[0] in _UNSUPPORTED:
            inside += 1
        if head[0] == "endloop":
            inside -= 1
        body = block[1:]
        if any(word.startswith("con") for word in head[2:]):  # of several connections
            return
        if inside or head[0] not in ("statement", "query") or head[1:2] == ["error"]:
            continue
        end = next((at for at, line in enumerate(body) if line.startswith("----")), len(body))
        yield start, head[0], "\n".join(body[:end]).strip().rstrip(";")


def _blocks(text: str) -> Iterator[tuple[int, list[str]]]:
    block: list[str] = []
    for number, line in enumerate([*text.split("\n"), ""], 1):
        if line.startswith("#") and not block:
            continue
        if line.strip():
            block.append(line)
            alone = line.split()[0] in (*_UNSUPPORTED, "endloop", "require", "mode", "load")
            if len(block) > 1 or not alone:
                continue
        if block:
            yield number - len(block), block
        block = []


def answer_of(database: duckdb.DuckDBPyConnection, query: str) -> Rows:
    rows = database.execute(query).fetchmany(MOST_ROWS + 1)
    if len(rows) > MOST_ROWS:
        raise ValueError("too many rows")
    return Counter(tuple(map(plain, row)) for row in rows)


def _running(text: str, tree: exp.Query, answer: Rows, tables: Tables) -> Callable[[], Rows]:
    def run() -> Rows:
        if any(isinstance(value, int) and abs(value) >= _LARGE for row in answer for value in row):
            raise Refused("a HUGEINT has 39 digits")
        placed, names = over_files(text, tree, tables)
        env = fp.StreamExecutionEnvironment.get_execution_environment({"execution.engine": "local"})
        found = fp.StreamTableEnvironment.create(env)
        for name in names:
            found.execute_sql(ddl(name, tables.path(name)))
        return _with_spans(result(text_of(in_words_of_flink(placed)), found, plain), answer)

    return run


def over_files(text: str, tree: exp.Query, tables: Tables) -> tuple[exp.Query, list[str]]:
    """A query whose tables, and calls of generators, are those that are in files, and their names. Raises Refused."""
    refuse_lost(text, tree)
    words, names = tree.copy(), []
    own = {cte.alias.lower() for cte in words.find_all(exp.CTE)}
    for node in list(words.find_all(exp.Table)):
        called = isinstance(node.this, exp.Func)
        of = node.this.sql("duckdb") if called else ".".join(part.name for part in node.parts)
        if called and node.this.name.upper() not in _GENERATORS and not isinstance(node.this, exp.GenerateSeries):
            raise Refused(f"the table function {node.this.sql_name()}")
        if called and not node.alias:
            raise Refused("a table function without a name")
        if not called and of.lower() in own:
            continue
        if of.lower().startswith(_CATALOGUE):
            raise Refused("a table of DuckDB's catalogue")
        if len(node.parts) > 1 and any(column.table == node.parts[0].name for column in words.find_all(exp.Column)):
            raise Refused("a schema before a column")
        names.append(tables.file(of))
        alias = node.args.get("alias") or exp.TableAlias(this=exp.to_identifier(of.split("(")[0].rpartition(".")[2].lower()))
        node.replace(exp.Table(this=exp.to_identifier(names[-1]), alias=alias, joins=node.args.get("joins")))
    return words, list(dict.fromkeys(names))


def _with_spans(found: Rows, answer: Rows) -> Rows:
    """Months of intervals as the days that DuckDB's client makes of them, where it has intervals."""
    kinds = [next((each for each in column if each is not None), None) for column in zip(*answer, strict=True)]
    if not any(isinstance(value, timedelta | tuple) for value in kinds):
        return found
    rows: Rows = Counter()
    for row, count_of in found.items():
        rows[tuple(map(_as_span, row, kinds)) if len(row) == len(kinds) else row] += count_of
    return rows


def _as_span(value: Any, like: Any) -> Any:
    if isinstance(value, tuple) and isinstance(like, tuple) and like:
        return tuple(_as_span(each, like[0]) for each in value)
    return timedelta(days=30 * value) if isinstance(like, timedelta) and isinstance(value, int) else value


def _export(database: duckdb.DuckDBPyConnection, of: str, into: Path) -> None:
    try:
        for _, type_name, *_ in database.execute(f"DESCRIBE SELECT * FROM {of}").fetchall():
            if re.match("BIT|GEOMETRY|UHUGEINT|VARIANT|UUID|TIME WITH|INTERVAL", type_name):
                raise Refused(f"a column of type {type_name}")
        found = database.sql(f"SELECT * FROM {of} LIMIT {MOST_ROWS + 1}").to_arrow_table()
    except duckdb.Error as error:
        raise Refused(f"DuckDB's table: {str(error).split(':')[0]}") from None
    if found.num_rows > MOST_ROWS:
        raise Refused("a table with many rows")
    columns = [_as_stored(column) for column in found.columns]
    for column in columns:
        _type(column.type)
        if pa.types.is_map(column.type) and pa.types.is_null(column.type.key_type):
            raise Refused("a MAP without a type")
    try:
        pq.write_table(pa.table(columns, [name.lower() for name in found.column_names]), into)
    except pa.ArrowNotImplementedError:
        raise Refused("a column that Parquet cannot have") from None


def _as_stored(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column of a type that Flink has, if there is one for all of its values."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    stored = _WIDER.get(str(column.type), column.type)
    try:
        if pa.types.is_date(column.type) or pa.types.is_timestamp(column.type):
            column.to_pylist()  # years of Python's times are those of Flink's
        if pa.types.is_decimal(column.type) and any(each is not None and abs(each) >= _LARGE for each in column.to_pylist()):
            raise ValueError("a HUGEINT has 39 digits")
        return column if stored == column.type else column.cast(stored)
    except (pa.ArrowInvalid, ValueError, OverflowError):
        raise Refused(f"a column of type {column.type} with values that Flink has not") from None


def ddl(name: str, path: Path) -> str:
    schema = pq.read_schema(path)
    columns = ", ".join(f"`{each.name}` {_type(each.type)}" for each in schema)
    options = f"'connector' = 'filesystem', 'path' = '{path}', 'format' = 'parquet'"
    return f"CREATE TABLE IF NOT EXISTS {name} ({columns}) WITH ({options})"


def _type(of: pa.DataType) -> str:
    if pa.types.is_decimal(of):
        return f"DECIMAL({of.precision}, {of.scale})"
    if pa.types.is_map(of):
        return f"MAP<{_type(of.key_type)}, {_type(of.item_type)}>"
    if pa.types.is_list(of):
        return f"ARRAY<{_type(of.value_type)}>"
    if pa.types.is_struct(of):
        return f"ROW<{', '.join(f'`{each.name}` {_type(each.type)}' for each in of)}>"
    if str(of) not in _TYPES:
        raise Refused(f"a column of type {of}")
    return _TYPES[str(of)]


def files(directory: Path) -> list[Path]:
    return sorted(path for path in directory.rglob("*.test") if re.search(r"^query ", path.read_text(errors="replace"), re.M))
