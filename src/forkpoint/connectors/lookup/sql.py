"""SqlLookup looks up rows of a database."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal, overload

from forkpoint.connectors.database.engine import CONNECT_SECONDS, READABLE, check_url, shown
from forkpoint.connectors.database.errors import raising_errors
from forkpoint.connectors.lookup.converter import Converter
from forkpoint.errors import ConfigError, JobFailed, SystemUnavailable
from forkpoint.functions import LookupFunction, RuntimeContext
from forkpoint.types import TypeInformation, TypeLike, Types, type_of
from forkpoint.types.variables import V

_CONNECT_ARGS: Mapping[str, Mapping[str, Any]] = {
    "postgresql": {"connect_timeout": CONNECT_SECONDS, "options": READABLE},
    "mysql": {"connect_timeout": CONNECT_SECONDS, "init_command": "SET time_zone = '+00:00'"},
}
_REMEDY = "Correct the query, the names of the table and its columns, or the type of the keys"


class SqlLookup(LookupFunction[Any, V]):
    """Looks up rows in a database, with one query for many keys. Needs the extra ``database``, ``postgres`` or ``mysql``.

    ``url`` has SQLAlchemy's form, such as ``"postgresql://user:password@host/database"``, ``"mariadb://…"`` or
    ``"sqlite:////path/to/file"``. ``key``: the column or columns of the key: ``SqlLookup(url, "SELECT id, name FROM
    customers WHERE id IN :keys", key="id")``, or ``SqlLookup(url, table="customers", key="id")`` with the ``columns`` to read, by
    default all. A key of several columns is a tuple: ``WHERE (a, b) IN :keys``, ``key=("a", "b")``.

    The result is a row: a dict, or a value of ``result_type``. That is a record type (a dataclass, a NamedTuple …) with fields of
    the columns' names, or any other type for the only column besides the key. With ``many``, the result is the list of all rows
    with the key.

    ``max_batch_size``: the maximum number of keys in a query. ``engine_options`` go to SQLAlchemy's ``create_engine``.

    Raises ConfigError for a wrong URL, and at run time if the database refuses the user.
    """

    @overload
    def __init__(
        self,
        url: str,
        query: str | None = None,
        *,
        key: str | Sequence[str],
        table: str | None = None,
        columns: Sequence[str] | None = None,
        result_type: TypeLike[V],
        many: Literal[False] = False,
        max_batch_size: int = 1000,
        engine_options: Mapping[str, Any] | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self: SqlLookup[Any],
        url: str,
        query: str | None = None,
        *,
        key: str | Sequence[str],
        table: str | None = None,
        columns: Sequence[str] | None = None,
        result_type: Any = None,
        many: bool = False,
        max_batch_size: int = 1000,
        engine_options: Mapping[str, Any] | None = None,
    ) -> None: ...
    def __init__(
        self,
        url: str,
        query: str | None = None,
        *,
        key: str | Sequence[str],
        table: str | None = None,
        columns: Sequence[str] | None = None,
        result_type: Any = None,
        many: bool = False,
        max_batch_size: int = 1000,
        engine_options: Mapping[str, Any] | None = None,
    ) -> None:
        self._url = check_url(url, "SqlLookup")
        self._single = isinstance(key, str)
        self._key: tuple[str, ...] = (key,) if isinstance(key, str) else tuple(key)
        if (query is None) == (table is None):
            raise ConfigError("SqlLookup takes either a query or a table; pass one of them")
        if columns is not None and table is None:
            raise ConfigError("SqlLookup(columns=…) is for a table; name the columns in the query instead")
        if not self._key:
            raise ConfigError("SqlLookup(key=()): name at least one column")
        self._query, self._table, self._columns = query, table, None if columns is None else tuple(columns)
        if query is not None:
            self._statement()  # checks it
        self._type = None if result_type is None else type_of(result_type)
        self._many = many
        self.max_batch_size = max_batch_size
        self._options = dict(engine_options or {})
        self._engine: Any = None
        self._connection: Any = None  # the driver's only connection
        self._querying = self._closed = False

    @property
    def where(self) -> str:
        """The database, as messages name it."""
        return f"the database {shown(self._url)}"

    def get_produced_type(self) -> TypeInformation[Any]:
        one = self._type or Types.MAP(Types.STRING(), Types.ANY())
        return Types.LIST(one) if self._many else one

    def open(self, runtime_context: RuntimeContext, /) -> None:
        import sqlalchemy as sa

        options: dict[str, Any] = {"pool_pre_ping": True, "isolation_level": "AUTOCOMMIT", **self._options}
        backend = "mysql" if self._url.startswith("mariadb") else sa.make_url(self._url).get_backend_name()
        options["connect_args"] = {**_CONNECT_ARGS.get(backend, {}), **options.get("connect_args", {})}
        self._prepared = self._statement()
        self._convert = Converter(self._type).convert
        try:
            self._engine = engine = sa.create_engine(self._url, **options)
        except (sa.exc.ArgumentError, TypeError) as error:
            raise ConfigError(f"SqlLookup(engine_options={sorted(self._options)}): {error}") from error
        sa.event.listen(engine, "do_connect", self._before_connect)
        sa.event.listen(engine, "connect", self._after_connect)

    def lookup(self, keys: Sequence[Any], /) -> Mapping[Any, V]:
        self._check_keys(keys)
        self._querying = True
        try:
            with raising_errors(self.where, _REMEDY), self._engine.connect() as connection:
                given = list(keys) if self._single else list(map(tuple, keys))
                rows = [dict(row) for row in connection.execute(self._prepared, {"keys": given}).mappings()]
        finally:
            self._querying = False
        return self._by_key(keys, rows)

    def close(self) -> None:
        self._closed = True
        if self._querying:  # a query hangs on another thread: end it
            _shut_down(self._connection)
        if self._engine is not None:
            self._engine.dispose()

    def _before_connect(self, *_: Any) -> None:
        if self._closed:
            raise SystemUnavailable(f"{self.where} did not answer in time")

    def _after_connect(self, connection: Any, _: Any) -> None:
        self._connection = connection

    # -- the query

    def _statement(self) -> Any:
        import sqlalchemy as sa

        keys = sa.bindparam("keys", expanding=True)
        if self._query is not None:
            text = sa.text(self._query)
            if set(text._bindparams) != {"keys"}:
                raise ConfigError(
                    f"SqlLookup({self._query!r}): the query has the parameters {sorted(text._bindparams)}; it takes one, as in "
                    "'SELECT id, name FROM customers WHERE id IN :keys' (write a colon in a literal as '\\:')"
                )
            return text.bindparams(keys)
        assert self._table is not None
        names = None if self._columns is None else list(dict.fromkeys((*self._key, *self._columns)))
        schema, _, name = self._table.rpartition(".")
        table = sa.table(name, *map(sa.column, names or self._key), schema=schema or None)
        parts = [table.c[column] for column in self._key]
        within = parts[0].in_(keys) if self._single else sa.tuple_(*parts).in_(keys)
        return sa.select(*(table.c if names else [sa.text("*")])).select_from(table).where(within)

    def _check_keys(self, keys: Sequence[Any]) -> None:
        for key in () if self._single else keys:
            if not isinstance(key, tuple) or len(key) != len(self._key):
                raise JobFailed(
                    f"key {key!r} is not a tuple of {len(self._key)} values, one for each of the columns "
                    f"{', '.join(self._key)}; correct the key of lookup_join, or that of SqlLookup"
                )

    # -- the result

    def _by_key(self, keys: Sequence[Any], rows: list[dict[str, Any]]) -> dict[Any, Any]:
        requested = {key if self._single else tuple(key): key for key in keys}
        found: dict[Any, Any] = {}
        values, problem = self._convert(list(map(self._value, rows)))
        if problem is not None:
            raise JobFailed(f"{self.where} returned a row that cannot be used: {problem}. Correct the result_type, or the query")
        for row, value in zip(rows, values, strict=True):
            key = self._key_of(row)
            if key not in requested:
                raise JobFailed(
                    f"{self.where} returned a row for key {key!r} ({type(key).__name__}), which was not requested: it "
                    "compares keys in another way, such as ignoring case. Let the query convert or compare them exactly"
                )
            key = requested[key]
            if self._many:
                found.setdefault(key, []).append(value)
            elif key in found:
                raise JobFailed(
                    f"{self.where} has several rows for key {key!r}; let the query return one, or pass many=True to SqlLookup"
                )
            else:
                found[key] = value
        return found

    def _key_of(self, row: dict[str, Any]) -> Any:
        try:
            parts = tuple(row[column] for column in self._key)
        except KeyError as error:
            raise JobFailed(
                f"{self.where} returned rows without the key's column {error}; they have {', '.join(row)}. Add it to the query, "
                "or correct key= of SqlLookup"
            ) from None
        return parts[0] if self._single else parts

    def _value(self, row: dict[str, Any]) -> Any:
        type = self._type
        if type is None:
            return row
        if type.fields is not None:
            for field in type.fields:
                _as_declared(row, field.name, field.type)
            return row
        others = [column for column in row if column not in self._key]
        if len(others) != 1:
            raise JobFailed(
                f"{self.where} returned rows with the columns {', '.join(row)}; for result_type={type}, which is no record, "
                f"select one besides the key ({', '.join(self._key)})"
            )
        _as_declared(row, others[0], type)
        return row[others[0]]


def _as_declared(row: dict[str, Any], column: str, type: TypeInformation) -> None:
    """Convert the 0 and 1 of SQLite and MySQL, which lack booleans."""
    if {"boolean"} <= type.kinds() <= {"boolean", "optional"} and row.get(column) in (0, 1):
        row[column] = bool(row[column])


def _shut_down(connection: Any) -> None:
    """Close a driver's connection while another thread waits for it. That thread's query then fails."""
    with suppress(Exception):
        descriptor = connection.fileno() if hasattr(connection, "fileno") else connection._sock.fileno()
        with socket.socket(fileno=os.dup(descriptor)) as copy:
            copy.shutdown(socket.SHUT_RDWR)
