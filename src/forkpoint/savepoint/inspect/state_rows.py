"""States and their rows, read from a savepoint or from a job's checkpoints."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, Self, TypeVar

import pyarrow as pa

from forkpoint.checkpoint.states import StateInfo
from forkpoint.errors import ConfigError, TypeNotSupported
from forkpoint.extras import require
from forkpoint.savepoint.edit.rows import objects_of
from forkpoint.savepoint.edit.steps import entries_of
from forkpoint.savepoint.format.layout import Layout, layout_of
from forkpoint.savepoint.format.rows import Rows
from forkpoint.savepoint.inspect.names import TIMERS, no_domain, no_operator, no_state
from forkpoint.savepoint.inspect.query_limits import QueryLimits
from forkpoint.state import key_group, key_hash
from forkpoint.types import TypeInformation
from forkpoint.types.keys import has_other_forms, key_form

S = TypeVar("S", bound="StateRows")


class StateRows(ABC):
    """A state, or the timers of an operator, in columns (see ``savepoint.format.layout``).

    Records have a column for each field. Types that Arrow lacks are binary (msgpack) in tables; ``rows()`` and ``get()``
    return Python objects, records as NamedTuples or Rows.
    """

    def __repr__(self) -> str:
        first = self.infos[0]
        what = "timers" if first.is_timers else f"{first.kind} state {first.name!r}"
        return f"<{type(self).__name__} of the {what} of operator {first.uid!r}>"

    @property
    @abstractmethod
    def infos(self) -> tuple[StateInfo, ...]:
        """The state's description; for timers, a description per time domain."""

    @property
    @abstractmethod
    def max_parallelism(self) -> int:
        """The number of key groups."""

    @abstractmethod
    def tables(self) -> Iterator[pa.Table]:
        """The rows in pieces."""

    @abstractmethod
    def of_encoded(self, group: int, key: bytes) -> Iterator[pa.Table]:
        """The rows of an encoded key in this key group."""

    @abstractmethod
    def of_domain(self, infos: Sequence[StateInfo]) -> Self:
        """The timers of these time domains."""

    @abstractmethod
    def parquet_files(self, scratch: Path) -> Iterator[str]:
        """At least one file with the rows on the local disk, possibly below ``scratch``, which may not exist yet."""

    @property
    @abstractmethod
    def count(self) -> int | None:
        """The number of rows: entries, or for lists elements; None if unknown."""

    @property
    @abstractmethod
    def size(self) -> int | None:
        """The size of the state's files in bytes; None if it shares files."""

    @property
    def uid(self) -> str:
        """The operator's uid."""
        return self.infos[0].uid

    @property
    def name(self) -> str:
        """The state's name; "timers" for timers."""
        return "timers" if self.is_timers else self.infos[0].name

    @property
    def kind(self) -> str:
        """value, list, map, reducing, aggregating, operator-list, operator-union, broadcast or timers."""
        return "timers" if self.is_timers else self.infos[0].kind

    @property
    def is_timers(self) -> bool:
        """Whether the rows are timers."""
        return self.infos[0].is_timers

    @cached_property
    def layout(self) -> Layout:
        """The columns by role."""
        return layout_of(self.infos[0])

    @property
    def schema(self) -> pa.Schema:
        """The columns."""
        return self.layout.schema.remove_metadata()

    @property
    def key_type(self) -> TypeInformation | None:
        """The type of keys; None for operator state."""
        return self.layout.part("key").type if self.layout.has("key") else None

    @property
    def value_type(self) -> TypeInformation | None:
        """The type of values; None for timers."""
        return self.layout.part("value").type if self.layout.has("value") else None

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows as record batches."""
        for table in self.tables():
            yield from table.to_batches()

    def to_reader(self) -> pa.RecordBatchReader:
        """The rows as a stream, for DuckDB, Polars, or ``with_state`` of a writer."""
        return pa.RecordBatchReader.from_batches(self.schema, self.batches())

    def to_arrow(self) -> pa.Table:
        """All rows, in memory."""
        return pa.Table.from_batches(self.batches(), self.schema)

    def to_pandas(self) -> Any:
        """All rows, as a pandas DataFrame in memory. Raises ConfigError if pandas is not installed."""
        require("pandas", "to_pandas()")
        return self.to_arrow().to_pandas()

    def rows(self) -> Iterator[Any]:
        """The rows as NamedTuples of Python objects, with the state's parts: ``entry.key``, ``entry.value``, …"""
        for table in self.tables():
            yield from entries_of(self.layout, table)

    def get(self, key: Any) -> Any:
        """The content of a key: a value, a list or a dict; None if the key has no state. For windows a dict of contents by
        window, for timers the rows. Reads only files that may have the key. Raises TypeNotSupported for an invalid key."""
        tables = list(self.of_key(key))
        if self.is_timers:
            return [entry for table in tables for entry in entries_of(self.layout, table)]
        found: dict[str, list[Any]] = {}
        for table in tables:
            for role, objects in objects_of(self.layout, table).items():
                found.setdefault(role, []).extend(objects)
        return _content(self.kind, found)

    def of_key(self, key: Any) -> Iterator[pa.Table]:
        """The rows of a key. Raises like ``get``, and ConfigError for operator state."""
        of, info = self.key_type, self.infos[0]
        if of is None:
            raise ConfigError(f"{info.where} is operator state: it has no keys; use rows()")
        try:
            exact = of.decode(of.encode(key))  # encoders also accept similar values, such as an int for a float
            group, encoded = key_group(key_hash(exact, of), self.max_parallelism), of.encode(exact)
        except Exception as error:
            raise TypeNotSupported(f"{info.where}: {key!r} is not a key of type {of!r}: {error}") from error
        if not info.canonical_keys and has_other_forms(key, of):
            return self._equal_to(key, key_form(of))
        return self.of_encoded(group, encoded)

    def _equal_to(self, key: Any, of: TypeInformation) -> Iterator[pa.Table]:
        """The rows of a key that an earlier release may have saved in several encodings."""
        wanted = of.encode(of.accept(key))
        for table in self.tables():
            found = Rows(self.layout, table).objects("key")
            if rows := [row for row, each in enumerate(found) if of.encode(each) == wanted]:
                yield table.take(pa.array(rows))


class StateCollection(ABC, Generic[S]):
    """The states of a job at an epoch, by operator and name."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.where}>"

    @property
    @abstractmethod
    def where(self) -> str:
        """The savepoint, or the job and epoch, for messages."""

    @property
    @abstractmethod
    def path(self) -> str:
        """The path or URL of the savepoint or manifest."""

    @property
    @abstractmethod
    def job(self) -> str:
        """The job's name."""

    @property
    @abstractmethod
    def epoch(self) -> int:
        """The epoch of the state."""

    @property
    @abstractmethod
    def operators(self) -> list[str]:
        """The uids of all operators."""

    @property
    @abstractmethod
    def states(self) -> list[S]:
        """All states, and the timers of operators that have timers."""

    def state(self, uid: str, name: str) -> S:
        """A state. Raises StateNotFound, which lists the operator's states."""
        if uid not in self.operators:
            raise no_operator(uid, self.operators, self.where)
        plain = [state for state in self.states if state.uid == uid and not state.is_timers]
        found = next((state for state in plain if state.name == name), None)
        if found is None:
            raise no_state(uid, name, [state.name for state in plain], self.where)
        return found

    def timers(self, uid: str, domain: str | None = None) -> S:
        """An operator's timers: "event", "processing", or None for both. Raises StateNotFound if the operator has no such
        timers, and ConfigError for another ``domain``."""
        if domain is not None and domain not in TIMERS:
            raise ConfigError(no_domain(domain))
        if uid not in self.operators:
            raise no_operator(uid, self.operators, self.where)
        found = next((state for state in self.states if state.uid == uid and state.is_timers), None)
        if found is None:
            with_timers = [state.uid for state in self.states if state.is_timers]
            raise no_state(uid, "timers", [f"timers of {other}" for other in with_timers], self.where)
        if domain is None:
            return found
        chosen = [info for info in found.infos if info.name == TIMERS[domain]]
        if not chosen:
            others = [f"{other} timers" for other in TIMERS if other != domain]
            raise no_state(uid, f"{domain} timers", others, self.where)
        return found.of_domain(chosen)

    def query(self, sql: str) -> pa.Table:
        """The result of a SELECT, in DuckDB's dialect, over the views ``"uid"."state"`` and ``"uid"."timers"``.

        ``views()`` lists the views, which have the states' columns. Raises EditRefused if the query is invalid.
        """
        require("duckdb", "SQL over savepoints")
        from forkpoint.savepoint.inspect.sql import query  # loads DuckDB

        return query(self, sql)

    def query_within(self, sql: str, limits: QueryLimits) -> tuple[pa.Table, bool]:
        """``query`` for untrusted SQL: the result, truncated at the limits, and whether it was truncated. Also raises
        EditRefused if the query needs more time or memory."""
        require("duckdb", "SQL over savepoints")
        from forkpoint.savepoint.inspect.sql import query_within

        return query_within(self, sql, limits)

    def views(self) -> dict[tuple[str, str], S]:
        """The views of ``query`` by schema (the uid) and name. SQL ignores case: a name already in use gets the suffix
        ``_2``."""
        require("duckdb", "SQL over savepoints")
        from forkpoint.savepoint.inspect.sql import views

        return views(self)


def _content(kind: str, found: Mapping[str, Sequence[Any]]) -> Any:
    values = found.get("value", ())
    if not values:
        return None
    if kind == "map":
        return dict(zip(found["map_key"], values, strict=True))
    if "namespace" not in found:
        return list(values) if kind == "list" else values[0]
    if kind != "list":
        return dict(zip(found["namespace"], values, strict=True))
    lists: dict[Any, list[Any]] = {}
    for namespace, value in zip(found["namespace"], values, strict=True):
        lists.setdefault(namespace, []).append(value)
    return lists
