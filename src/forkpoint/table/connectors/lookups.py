"""Tables of databases, and of packages, in lookup joins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from forkpoint.connectors.lookup.sql import SqlLookup
from forkpoint.functions import LookupFunction, RuntimeContext
from forkpoint.relational.changes import row_type
from forkpoint.relational.lookups import LookupTable
from forkpoint.table.connectors.jdbc import SCAN_OPTIONS, UNNEEDED, jdbc_url
from forkpoint.table.connectors.jdbc_values import readings
from forkpoint.table.connectors.options import TableOptions
from forkpoint.wording import parse_duration_ms

_FOR_EVER_MS = 2**53
_EXPIRY = "lookup.partial-cache.expire-after-write"
_REFUSED = {
    "lookup.partial-cache.max-rows": "the cache is state, of all keys until they expire",
    "lookup.partial-cache.expire-after-access": f"entries expire '{_EXPIRY}'",
}


def jdbc_lookup(options: TableOptions, key: tuple[str, ...]) -> LookupTable:
    table, columns = options.table, [field.name for field in options.table.schema]
    function = TableLookup(
        jdbc_url(options),
        table=options.required("table-name"),
        key=key[0] if len(key) == 1 else key,
        columns=columns,
        result_type=row_type(table.schema),
        many=True,
    )
    options.unneeded(UNNEEDED)
    options.ignore(*SCAN_OPTIONS)
    return lookup_table(options, function)


def lookup_table(options: TableOptions, function: LookupFunction[Any, Any]) -> LookupTable:
    """A function that finds rows of the table, with the cache and the retries of the options."""
    options.refuse(_REFUSED)
    expiry, caches = options.get(_EXPIRY), options.choice("lookup.cache", ("NONE", "PARTIAL"), "NONE") == "PARTIAL"
    if not caches and expiry is not None:
        raise options.error(_EXPIRY, f"option '{_EXPIRY}' is for a cache; add 'lookup.cache' = 'PARTIAL'")
    ttl_ms = parse_duration_ms(_EXPIRY, expiry) if expiry is not None else _FOR_EVER_MS
    misses = options.choice("lookup.partial-cache.cache-missing-key", ("true", "false"), "true") == "true"
    retries = options.number("lookup.max-retries", 3) or 0
    return LookupTable(function, options.table.schema, ttl_ms if caches else None, caches and misses, retries)


class TableLookup(SqlLookup[Any]):
    """Takes keys of several columns as rows. Values are those of a scan."""

    def lookup(self, keys: Sequence[Any], /) -> Mapping[Any, Any]:
        if self._single:
            return super().lookup(keys)
        by_key = super().lookup([tuple(key) for key in keys])
        return {key: by_key[parts] for key in keys if (parts := tuple(key)) in by_key}

    def open(self, runtime_context: RuntimeContext, /) -> None:
        assert self._type is not None
        self._read = readings(self._type)
        super().open(runtime_context)

    def _value(self, row: dict[str, Any]) -> Any:
        for name, read in self._read.items():
            row[name] = read(row[name])
        return row
