"""Table: a query as a program writes it. Each method adds SQL around the tables that it has, and the binder makes the plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from forkpoint import markup
from forkpoint.errors import ConfigError
from forkpoint.relational.changes import row_type
from forkpoint.relational.plan import Plan
from forkpoint.relational.types import precision_of
from forkpoint.sql.errors import Text, did_you_mean
from forkpoint.sql.statements import Query
from forkpoint.table.answers import cell
from forkpoint.table.api.expression import Expression, node_of
from forkpoint.table.api.nodes import FunctionCall, Name, Named, Node, Sql, Value, WindowProperty, Writer, expanded, named, quoted
from forkpoint.table.api.ordering import ordering_of
from forkpoint.table.api.pipelines import TablePipeline
from forkpoint.table.api.query_results import QueryResult
from forkpoint.table.api.resolved_schema import ResolvedSchema, TableSchema
from forkpoint.table.api.results import TableResult, check_ends, is_bounded, remaining
from forkpoint.table.api.row_windows import AT_ONCE, in_row_windows
from forkpoint.table.api.table_descriptor import TableDescriptor
from forkpoint.table.api.window import GroupWindow, OverWindow
from forkpoint.table.catalog import ProgramView
from forkpoint.table.data_types import DataType, data_type_of
from forkpoint.table.explanation import explained
from forkpoint.table.functions import PythonFunction
from forkpoint.table.schema import Computed, Physical, Schema
from forkpoint.table.session import Session
from forkpoint.types import Row

Call = Expression | PythonFunction
"""A call of a function; a function by itself takes the whole row."""
_SHOWN = 20
"""The rows that a notebook shows."""
_UNITS = {0: "s", 1: "ms", 2: "ms", 3: "ms"}
"""pandas' units of times with so many digits of seconds."""
SOURCE = "Table API"
"""The name of such text in messages."""


class Table:
    """A query, which nothing has computed yet. Its methods return other tables; ``table.a`` is ``col("a")``.

    Made by a table environment: ``from_path``, ``from_elements``, ``from_data_stream``, ``sql_query``.
    """

    def __init__(self, session: Session, plan: Plan, order: tuple[Node, ...] = (), skipped: int = 0) -> None:
        self._session, self._rows, self._order, self._skipped = session, plan, order, skipped

    def __getattr__(self, name: str) -> Expression:
        if name.startswith("_"):
            raise AttributeError(name)
        if name not in self._types:
            raise AttributeError(f"the table has no column {name!r}; {did_you_mean(name, self._types)}")
        return Expression(Name(name))

    def __str__(self) -> str:
        """A name by which SQL can read the table: ``f"SELECT * FROM {table}"``."""
        return self._session.catalog.add_unnamed("unnamed_table", lambda name: ProgramView(self._plan))

    @property
    def _plan(self) -> Plan:
        if self._order or self._skipped:
            raise ConfigError("order_by() and offset() need fetch(): the changes of a result have no order")
        return self._rows

    @property
    def _types(self) -> dict[str, DataType]:
        return {field.name: data_type_of(field.type) for field in self._rows.schema}

    def _bound(self, text: str, writer: Writer | None = None, **tables: Table) -> Table:
        """The table of a query over others, by their names in it."""
        given = {name: table._plan for name, table in (*tables.items(), *(writer.tables.items() if writer else ()))}
        return Table(self._session, self._session.plan(Query(Text(text, SOURCE), 0, len(text)), given))

    def _writer(self, **known: Any) -> Writer:
        functions = self._session.catalog.functions
        return Writer(name_of=functions.name_of, system=functions.system, types=self._types, **known)

    # -- columns

    def select(self, *fields: Expression) -> Table:
        """The values of expressions for each row; with aggregates one row."""
        writer = self._writer()
        return self._bound(f"SELECT {_selected(fields, self._types, writer)} FROM `table`", writer, table=self)

    def add_columns(self, *fields: Expression) -> Table:
        """Add columns, whose names the table does not have."""
        for name, _ in named(_nodes(fields, self._types)):
            if name in self._types:
                raise ConfigError(f"column {name!r} exists already; use add_or_replace_columns()")
        return self.add_or_replace_columns(*fields)

    def add_or_replace_columns(self, *fields: Expression) -> Table:
        """Add columns, in place of those that have their names."""
        added = named(_nodes(fields, self._types))
        columns: dict[str, Node] = {name: Name(name) for name in self._types} | dict(added)
        return self.select(*(Expression(Named(node, (name,))) for name, node in columns.items()))

    def rename_columns(self, *fields: Expression) -> Table:
        """Give columns other names: ``rename_columns(col("a").alias("b"))``."""
        renamed: dict[str, str] = {}
        for node in map(node_of, fields):
            match node:
                case Named(Name(old), (new,)):
                    self._check_column(old)
                    renamed[old] = new
                case _:
                    raise ConfigError("rename_columns() takes columns with new names, such as col('a').alias('b')")
        return self._renamed([renamed.get(name, name) for name in self._types])

    def drop_columns(self, *fields: Expression) -> Table:
        """The table without some columns."""
        dropped = [name for name, _ in named(_nodes(fields, self._types))]
        for name in dropped:
            self._check_column(name)
        return self.select(*(Expression(Name(name)) for name in self._types if name not in dropped))

    def alias(self, field: str, *fields: str) -> Table:
        """Give the columns, from the first, other names."""
        given = [field, *fields]
        if len(given) > len(self._types):
            raise ConfigError(f"alias() has {len(given)} names, the table has {len(self._types)} columns")
        return self._renamed([*given, *list(self._types)[len(given) :]])

    def _renamed(self, names: Sequence[str]) -> Table:
        pairs = zip(self._types, names, strict=True)
        return self.select(*(Expression(Named(Name(old), (new,))) for old, new in pairs))

    def _check_column(self, name: str) -> None:
        if name not in self._types:
            raise ConfigError(f"there is no column {name!r}; {did_you_mean(name, self._types)}")

    # -- rows

    def where(self, predicate: Expression) -> Table:
        """The rows for which a condition is true."""
        writer = self._writer()
        return self._bound(f"SELECT * FROM `table` WHERE {writer.text(node_of(predicate))}", writer, table=self)

    filter = where

    def distinct(self) -> Table:
        """Each distinct row once."""
        return self._bound("SELECT DISTINCT * FROM `table`", table=self)

    def group_by(self, *fields: Expression) -> GroupedTable:
        """Group the rows with equal values of expressions, for ``select`` with aggregates."""
        return GroupedTable(self, _nodes(fields, self._types), {})

    def window(self, window: GroupWindow) -> GroupWindowedTable:
        """Put the rows in windows of time, or of a number of rows, for ``group_by``."""
        return GroupWindowedTable(self, window)

    def over_window(self, *over_windows: OverWindow) -> OverWindowedTable:
        """Windows around each row, for aggregates with ``over`` in ``select``."""
        return OverWindowedTable(self, over_windows)

    def order_by(self, *fields: Expression) -> Table:
        """The rows in an order, of which ``fetch`` takes the first."""
        return Table(self._session, self._plan, tuple(_nodes(fields, self._types)))

    def offset(self, offset: int) -> Table:
        """Without the first rows of the order, for ``fetch``."""
        return Table(self._session, self._rows, self._order, int(offset))

    def fetch(self, fetch: int) -> Table:
        """The first rows of the order."""
        writer = self._writer()
        order = f" ORDER BY {', '.join(map(writer.text, self._order))}" if self._order else ""
        text = f"SELECT * FROM `table`{order} LIMIT {int(fetch)} OFFSET {self._skipped}"
        return self._bound(text, writer, table=Table(self._session, self._rows))

    def limit(self, fetch: int, offset: int = 0) -> Table:
        """``offset(offset).fetch(fetch)``."""
        return self.offset(offset).fetch(fetch)

    # -- two tables

    def join(self, right: Table, join_predicate: Expression | None = None) -> Table:
        """The pairs of rows for which a condition is true, by default all."""
        return self._joined("JOIN", right, join_predicate)

    def left_outer_join(self, right: Table, join_predicate: Expression | None = None) -> Table:
        """As ``join``, with the rows of this table that have no pair."""
        return self._joined("LEFT JOIN", right, join_predicate)

    def right_outer_join(self, right: Table, join_predicate: Expression) -> Table:
        """As ``join``, with the rows of the other table that have no pair."""
        return self._joined("RIGHT JOIN", right, join_predicate)

    def full_outer_join(self, right: Table, join_predicate: Expression) -> Table:
        """As ``join``, with the rows of both tables that have no pair."""
        return self._joined("FULL JOIN", right, join_predicate)

    def _joined(self, kind: str, right: Table, condition: Expression | None) -> Table:
        both = [name for name in self._types if name in right._types]
        if both:
            raise ConfigError(f"both tables of the join have a column {both[0]!r}; rename one with rename_columns() or alias()")
        writer = self._writer()
        on = "TRUE" if condition is None else writer.text(node_of(condition))
        return self._bound(f"SELECT * FROM `left` {kind} `right` ON {on}", writer, left=self, right=right)

    def join_lateral(self, table_function_call: Call, join_predicate: Expression | None = None) -> Table:
        """Each row with the rows that a table function makes of it: ``join_lateral(split(col("a")).alias("word"))``. A function
        without arguments takes the Row."""
        joined = self._lateral("CROSS JOIN", table_function_call, "*")
        return joined if join_predicate is None else joined.where(join_predicate)

    def left_outer_join_lateral(self, table_function_call: Call) -> Table:
        """As ``join_lateral``, with the rows of which the function makes none."""
        return self._lateral("LEFT JOIN", table_function_call, "*")

    def _lateral(self, kind: str, given: Call, shown: str) -> Table:
        call, names = self._called(given)
        writer = self._writer()
        columns = f" ({', '.join(map(quoted, names))})" if names else ""
        alias = f"`rows`{columns}"
        on = " ON TRUE" if kind == "LEFT JOIN" else ""
        text = f"SELECT {shown} FROM `table` {kind} LATERAL TABLE({writer.text(call)}) AS {alias}{on}"
        return self._bound(text, writer, table=self)

    def _called(self, given: Call) -> tuple[Node, tuple[str, ...]]:
        """A call of a function, and the names of its columns. A function by itself takes the whole row."""
        if not isinstance(given, Expression):
            return FunctionCall(given, tuple(map(Name, self._types)), tuple(self._types)), given.columns
        match given._node:
            case Named(of, names):
                return of, names
            case FunctionCall(function):
                return given._node, function.columns
        return given._node, ()

    def map(self, func: Call) -> Table:
        """The result of a function for each row. A ROW becomes its fields. A function without arguments takes the Row."""
        call, names = self._called(func)
        return self.select(Expression(Named(call, ("$result",))))._fields("$result", names)

    def flat_map(self, func: Call) -> Table:
        """The rows that a table function makes of each row. A function without arguments takes the Row."""
        return self._lateral("CROSS JOIN", func, "`rows`.*")

    def aggregate(self, func: Call) -> AggregatedTable:
        """An aggregate function over all rows, for ``select``."""
        return self.group_by().aggregate(func)

    def flat_aggregate(self, func: Call) -> AggregatedTable:
        """A table aggregate function over all rows, for ``select``."""
        return self.group_by().flat_aggregate(func)

    def _elements(self, column: str, names: Sequence[str]) -> Table:
        """The table with the rows of an array of ROWs in place of it."""
        others = "".join(f"{quoted(name)}, " for name in self._types if name != column)
        columns = f" ({', '.join(map(quoted, names))})" if names else ""
        text = f"SELECT {others}`rows`.* FROM `table` CROSS JOIN UNNEST({quoted(column)}) AS `rows`{columns}"
        return self._bound(text, table=self)

    def _fields(self, column: str, names: Sequence[str]) -> Table:
        """The table with the fields of a ROW in place of it."""
        of = self._types[column]
        fields: list[Node] = [Name(column)]
        if of.name == "ROW":
            fields = [Sql((Name(column), f".{quoted(field)}")) for field in of.names]
        default = of.names if of.name == "ROW" else ["f0"]
        found: list[Node] = [Name(name) for name in self._types if name != column]
        found += [Named(node, (name,)) for node, name in zip(fields, names or default, strict=True)]
        return self.select(*map(Expression, found))

    def union_all(self, right: Table) -> Table:
        """The rows of both tables."""
        return self._combined("UNION ALL", right)

    def union(self, right: Table) -> Table:
        """The distinct rows of both tables."""
        return self._combined("UNION", right)

    def intersect(self, right: Table) -> Table:
        """The distinct rows that both tables have."""
        return self._combined("INTERSECT", right)

    def intersect_all(self, right: Table) -> Table:
        """The rows that both tables have, as often as both have them."""
        return self._combined("INTERSECT ALL", right)

    def minus(self, right: Table) -> Table:
        """The distinct rows that the other table does not have."""
        return self._combined("EXCEPT", right)

    def minus_all(self, right: Table) -> Table:
        """The rows without as many as the other table has."""
        return self._combined("EXCEPT ALL", right)

    def _combined(self, operator: str, right: Table) -> Table:
        return self._bound(f"SELECT * FROM `left` {operator} SELECT * FROM `right`", left=self, right=right)

    # -- results

    def execute(self) -> TableResult:
        """The changes of the result, which run when they are collected or printed."""
        ordering = ordering_of(self._plan, limited=False)
        stream = self._session.stream(self._plan if ordering is None else ordering.plan)
        check_ends(ordering, is_bounded(stream))
        return TableResult(self._plan.schema, stream, named=self._session.named_rows, ordering=ordering)

    def insert_into(self, table_path_or_descriptor: str | TableDescriptor, overwrite: bool = False) -> TablePipeline:
        """The table as the input of another one, for ``execute`` or a statement set."""
        return TablePipeline(self._session, self._plan, table_path_or_descriptor, overwrite)

    def execute_insert(self, table_path_or_descriptor: str | TableDescriptor, overwrite: bool = False) -> TableResult:
        """Start a job that writes the rows into a table."""
        return self.insert_into(table_path_or_descriptor, overwrite).execute()

    def to_pandas(self) -> Any:
        """The rows as a pandas DataFrame. Runs until the input ends."""
        import pyarrow as pa

        of = row_type(self._plan.schema)
        rows = [Row.of(of.names, values) for values in remaining(self.execute().collect())]
        types = [
            pa.timestamp(_UNITS.get(precision_of(each.type), "us"), column.tz) if pa.types.is_timestamp(column) else column
            for each, column in zip(self._plan.schema, of.arrow_schema.types, strict=True)
        ]
        columns = [found.cast(wanted) for found, wanted in zip(of.to_columns(rows), types, strict=True)]
        return pa.Table.from_arrays(columns, names=of.arrow_schema.names).to_pandas()

    def _repr_html_(self) -> str | None:
        """The first rows, in a notebook, if the input ends."""
        found = QueryResult.of(self._session, self._plan)
        if not found.ends:
            return None
        rows = found.rows()
        more = f"{len(rows)} rows" if len(rows) <= _SHOWN else f"the first {_SHOWN} of {len(rows)} rows"
        return markup.page(more, markup.table(found.columns, [list(map(cell, row)) for row in rows[:_SHOWN]]))

    def explain(self, *extra_details: Any) -> str:
        """The plan as text."""
        return explained(self._plan, ttl_ms=self._session.ttl_ms)

    def print_explain(self, *extra_details: Any) -> None:
        """Print the plan."""
        print(self.explain())

    def print_schema(self) -> None:
        """Print the columns and their types."""
        print(self.get_resolved_schema())

    def get_resolved_schema(self) -> ResolvedSchema:
        """The columns and their types."""
        return ResolvedSchema.of(self._rows.schema)

    def get_schema(self) -> TableSchema:
        """``get_resolved_schema`` by the names that Flink has replaced."""
        return TableSchema.of(self._rows.schema)


def with_fields(table: Table, fields: Sequence[Expression | str]) -> Table:
    """A stream's table with the columns that a program names: by name if one is the stream's, else new names by position."""
    nodes = [node_of(col) for each in fields for col in (each.split(",") if isinstance(each, str) else [each])]
    nodes = [Name(node.value.strip()) if isinstance(node, Value) else node for node in nodes]
    if not nodes:
        return table
    names = [node.name if isinstance(node, Name) else "" for node in nodes]
    if any(isinstance(node, WindowProperty) for node in nodes):
        raise ConfigError("event time is declared in a Schema: .column_by_expression('ts', …).watermark('ts', …)")
    by_name = not all(names) or any(name in table._types for name in names)
    return table.select(*map(Expression, nodes)) if by_name else table.alias(*names)


def written_as(table: Table, schema: Schema) -> Table:
    """The columns of a table under the names and types of a schema, by position, without those that become metadata."""
    written = [column for column in schema._columns if not isinstance(column, Computed)]
    if len(written) != len(table._types):
        raise ConfigError(f"the schema has {len(written)} columns that are written, the table {len(table._types)}")
    pairs = [(name, column) for name, column in zip(table._types, written, strict=True) if isinstance(column, Physical)]
    casts = ", ".join(f"CAST({quoted(old)} AS {of.type}) AS {quoted(of.name)}" for old, of in pairs)
    return table._bound(f"SELECT {casts} FROM `table`", table=table)


class GroupedTable:
    """The rows of a table in groups."""

    def __init__(self, table: Table, keys: Sequence[Node], windows: Mapping[str, GroupWindow]) -> None:
        self._table, self._keys, self._windows = table, keys, windows

    def select(self, *fields: Expression) -> Table:
        """One row for each group: keys, aggregates, and the start and end of its window."""
        for name, window in self._windows.items():
            if window.rows:
                others = [key for key in self._keys if key != Name(name)]
                rows, keys = in_row_windows(self._table, window, others)
                return GroupedTable(rows, keys, {AT_ONCE.name: AT_ONCE}).select(*fields)
        windows = {name: (window.function, window.arguments()) for name, window in self._windows.items()}
        aliases = {key.names[0]: key.of for key in self._keys if isinstance(key, Named)}
        writer = self._table._writer(windows=windows, named=aliases)
        group = f" GROUP BY {', '.join(map(writer.text, self._keys))}" if self._keys else ""
        text = f"SELECT {_selected(fields, self._table._types, writer)} FROM `table`{group}"
        return self._table._bound(text, writer, table=self._table)

    def aggregate(self, func: Call) -> AggregatedTable:
        """An aggregate function over each group, for ``select`` with its columns and the keys."""
        found, names = self._result(func)
        return AggregatedTable(found._fields("$result", names))

    def flat_aggregate(self, func: Call) -> AggregatedTable:
        """A table aggregate function over each group, for ``select`` with its columns and the keys."""
        found, names = self._result(func)
        return AggregatedTable(found._elements("$result", names))

    def _result(self, func: Call) -> tuple[Table, tuple[str, ...]]:
        """The keys with the result of a function, and the names of its columns."""
        if self._windows:
            raise ConfigError("aggregate() of windows is not supported yet; call the function in select()")
        call, names = self._table._called(func)
        keys = [Expression(key) for key in self._keys]
        return self.select(*keys, Expression(Named(call, ("$result",)))), names


class AggregatedTable:
    """The keys of groups, and the columns of an aggregate function."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def select(self, *fields: Expression) -> Table:
        """Expressions over the keys and the columns."""
        return self._table.select(*fields)


class GroupWindowedTable:
    """The rows of a table in windows."""

    def __init__(self, table: Table, window: GroupWindow) -> None:
        self._table, self._window = table, window

    def group_by(self, *fields: Expression) -> GroupedTable:
        """Group the rows of a window, which is one of the keys: ``group_by(col("w"), col("a"))``."""
        keys = [node_of(each) for each in fields]
        if Name(self._window.name) not in keys:
            raise ConfigError(f"group_by() needs the window as a key: col({self._window.name!r})")
        return GroupedTable(self._table, keys, {self._window.name: self._window})


class OverWindowedTable:
    """The rows of a table with windows around each of them."""

    def __init__(self, table: Table, windows: Sequence[OverWindow]) -> None:
        self._table, self._windows = table, windows

    def select(self, *fields: Expression) -> Table:
        """Expressions of each row, with aggregates over its windows: ``col("v").sum.over(col("w"))``."""
        overs = {window.name: window.text(self._table._writer()) for window in self._windows}
        writer = self._table._writer(overs=overs)
        text = f"SELECT {_selected(fields, self._table._types, writer)} FROM `table`"
        return self._table._bound(text, writer, table=self._table)


def _nodes(fields: Sequence[Expression], types: Mapping[str, DataType]) -> list[Node]:
    return list(expanded([node_of(each) for each in fields], types))


def _selected(fields: Sequence[Expression], types: Mapping[str, DataType], writer: Writer) -> str:
    """The list of a SELECT."""
    found = [(quoted(name), writer.text(node)) for name, node in named(_nodes(fields, types))]
    return ", ".join(text if text == name else f"{text} AS {name}" for name, text in found)
