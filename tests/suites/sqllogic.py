"""DuckDB's own tests: files of statements, which DuckDB executes, and queries, which it answers.

A query runs over the tables as they are at its place in the file. It is written in Flink's words where these mean the same.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
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
from forkpoint.sql.tokens import dialect
from suites.outcomes import Outcome, Refused, Rows, outcome, plain, result

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
_GENERATORS = ("RANGE", "GENERATE_SERIES")
_REAL_RESULTS = (exp.Avg, exp.Stddev, exp.StddevPop, exp.StddevSamp, exp.Variance, exp.VariancePop)


_CHANGING = re.compile(r"\b(INSERT|UPDATE|DELETE|CREATE|DROP|MERGE|COPY|ALTER)\b", re.I)


class _Flink(dialect()):  # type: ignore[misc]
    """In which DuckDB's queries are written: ``/`` is that of integers, NULL is less than all values."""

    TYPED_DIVISION = True
    SAFE_DIVISION = False
    NULL_ORDERING = "nulls_are_small"
    INDEX_OFFSET = 1


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


def outcomes(file: Path, name: str, directory: Path) -> Iterator[Outcome]:
    """Of the queries of a file. ``directory``: for tables."""
    with duckdb.connect(config={"threads": "1"}) as database:
        database.execute("SET TimeZone = 'UTC'")
        tables = Tables(database, directory)
        for line, kind, text in records(file.read_text(errors="replace")):
            if kind == "query":
                found = of_query(text, (name, line), tables)
                if found is not None:
                    yield found
                continue
            if re.search(r"\bCOLLATE\b|default_collation", text, re.I):
                return  # Flink has no order of texts but that of their characters
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
        answer = _answer(tables.database, text)
    except (duckdb.Error, ValueError, OverflowError):  # an error is asked for, or Python has no such value
        return None
    try:
        tree = sqlglot.parse_one(text, dialect="duckdb")
    except (SqlglotError, RecursionError):
        return Outcome("refused", *place, text, "sqlglot cannot read DuckDB's words")
    if not isinstance(tree, exp.Query):
        return None
    return outcome(_running(tree, tables), answer, place, text, _others(tree, answer, tables.database))


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


def _answer(database: duckdb.DuckDBPyConnection, query: str) -> Rows:
    rows = database.execute(query).fetchmany(MOST_ROWS + 1)
    if len(rows) > MOST_ROWS:
        raise ValueError("too many rows")
    return Counter(tuple(map(plain, row)) for row in rows)


def _running(tree: exp.Query, tables: Tables) -> Callable[[], Rows]:
    def run() -> Rows:
        words = in_words_of_flink(tree)
        env = fp.StreamExecutionEnvironment.get_execution_environment({"execution.engine": "local"})
        found = fp.StreamTableEnvironment.create(env)
        for node in list(words.find_all(exp.Table)):
            called = isinstance(node.this, exp.Func)
            of = node.this.sql("duckdb") if called else ".".join(part.name for part in node.parts)
            if called and node.this.name.upper() not in _GENERATORS and not isinstance(node.this, exp.GenerateSeries):
                raise Refused(f"the table function {node.this.sql_name()}")
            if called and not node.alias:
                raise Refused("a table function without a name")
            if not called and any(of.lower() == cte.alias.lower() for cte in words.find_all(exp.CTE)):
                continue
            name = tables.file(of)
            found.execute_sql(_ddl(name, tables.path(name)))
            alias = node.args.get("alias") or exp.TableAlias(this=exp.to_identifier(of.split("(")[0].rpartition(".")[2].lower()))
            node.replace(exp.Table(this=exp.to_identifier(name), alias=alias, joins=node.args.get("joins")))
        for identifier in words.find_all(exp.Identifier):
            identifier.set("quoted", True)
        return result(words.sql(dialect=_Flink, comments=False), found, plain)

    return run


def _export(database: duckdb.DuckDBPyConnection, of: str, into: Path) -> None:
    try:
        for _, type_name, *_ in database.execute(f"DESCRIBE SELECT * FROM {of}").fetchall():
            if re.match("BIT|GEOMETRY|UHUGEINT|VARIANT|UUID|TIME WITH|INTERVAL", type_name):
                raise Refused(f"a column of type {type_name}")
        found = database.execute(f"SELECT * FROM {of} LIMIT {MOST_ROWS + 1}").to_arrow_table()
    except duckdb.Error as error:
        raise Refused(f"DuckDB's table: {str(error).split(':')[0]}") from None
    if found.num_rows > MOST_ROWS:
        raise Refused("a table with many rows")
    columns = [_as_stored(column) for column in found.columns]
    for column in columns:
        _type(column.type)
    pq.write_table(pa.table(columns, [name.lower() for name in found.column_names]), into)


def _as_stored(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column of a type that Flink has, if there is one for all of its values."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    try:
        if pa.types.is_date(column.type) or pa.types.is_timestamp(column.type):
            column.to_pylist()  # years of Python's times are those of Flink's
        if pa.types.is_decimal(column.type):
            column.validate(full=True)
        return column.cast(_WIDER.get(str(column.type), column.type))
    except (pa.ArrowInvalid, ValueError, OverflowError):
        raise Refused(f"a column of type {column.type} with values that Flink has not") from None


def _ddl(name: str, path: Path) -> str:
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


def in_words_of_flink(tree: exp.Query) -> exp.Query:
    """The query with what Flink writes in another way. ORDER BY without LIMIT is left out: rows are compared without order."""
    words = tree.copy()
    if words.args.get("order") is not None and words.args.get("limit") is None:
        words.set("order", None)
    for node in list(words.walk()):
        if isinstance(node, exp.Identifier):
            node.set("this", node.this.lower())
        elif isinstance(node, _REAL_RESULTS):
            of, key, value = (
                (node.this, "expressions", node.this.expressions[0])
                if isinstance(node.this, exp.Distinct)
                else (node, "this", node.this)
            )
            cast = exp.cast(value, "DOUBLE")
            of.set(key, [cast] if key == "expressions" else cast)
        elif isinstance(node, exp.WindowSpec) and node.args.get("exclude"):
            raise Refused("EXCLUDE in a frame")
        elif isinstance(node, exp.DataType) and node.this == exp.DataType.Type.VARBINARY:
            raise Refused("a text as BLOB, in which DuckDB reads escapes")
        elif isinstance(node, exp.IntDiv) and "INT128" in repr(tree):
            raise Refused("a division of HUGEINT")
        elif isinstance(node, exp.DataType) and node.this == exp.DataType.Type.INT128:
            node.replace(exp.DataType.build("DECIMAL(38, 0)"))
        elif isinstance(node, exp.IntDiv):
            node.replace(exp.Div(this=node.this, expression=node.expression, typed=True))
    return words


def _others(tree: exp.Query, answer: Rows, database: duckdb.DuckDBPyConnection) -> dict[str, Callable[[Rows], bool]]:
    """What a query means in Flink, in DuckDB's words, by the reason."""

    def asked(words: exp.Query) -> Rows:
        try:
            return _answer(database, words.sql(dialect="duckdb"))
        except (duckdb.Error, ValueError, OverflowError):
            return Counter()

    def no_row(found: Rows) -> bool:
        words = tree.copy()
        for select in words.find_all(exp.Select):
            own = (node for part in (*select.expressions, select.args.get("having")) if part for node in _own(part))
            if select.args.get("group") is None and any(isinstance(node, exp.AggFunc) for node in own):
                condition = exp.condition("COUNT(*) > 0")
                having = select.args.get("having")
                select.set("having", exp.Having(this=condition if having is None else exp.and_(having.this, condition)))
        return found == asked(words)

    def truncated(found: Rows) -> bool:
        words = tree.copy()
        for cast in words.find_all(exp.Cast):
            if cast.to.this in exp.DataType.INTEGER_TYPES:
                cast.set("this", exp.func("TRUNC", cast.this))
        return found == asked(words)

    def merged_first(found: Rows) -> bool:
        using = any(join.args.get("using") or join.method for join in tree.find_all(exp.Join))
        return using and tree.find(exp.Star) is not None and _unordered(found) == _unordered(answer)

    def any_rows(found: Rows) -> bool:
        queries = [node for node in tree.find_all(exp.Query) if node.args.get("limit")]
        free = any(not node.args.get("order") for node in queries)
        return free and sum(found.values()) == sum(answer.values())

    return {
        "an aggregate without GROUP BY has no row until there is one": no_row,
        "a CAST to an integer truncates": truncated,
        "* begins with the columns of USING": merged_first,
        "LIMIT without ORDER BY takes any rows": any_rows,
    }


def _unordered(rows: Rows) -> Rows:
    found: Rows = Counter()
    for row, of_row in rows.items():
        found[tuple(sorted(row, key=repr))] += of_row
    return found


def _own(part: Any) -> Iterator[Any]:
    """The nodes of an expression outside of its subqueries and of OVER."""
    return part.walk(prune=lambda node: isinstance(node, exp.Query | exp.Window))


def files(directory: Path) -> list[Path]:
    return sorted(path for path in directory.rglob("*.test") if re.search(r"^query ", path.read_text(errors="replace"), re.M))
