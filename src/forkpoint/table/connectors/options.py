"""The options of a table, checked: each is read once, and unknown ones are errors."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence

from forkpoint.relational.changes import row_type
from forkpoint.relational.types import Field
from forkpoint.sql.errors import ENVIRONMENT, SqlError, did_you_mean
from forkpoint.sql.statements import CreateTable
from forkpoint.types.kinds.records import RecordType

TABLE_IDLE_TIMEOUT = "scan.watermark.idle-timeout"


class TableOptions:
    """``WITH (…)`` of one table. Values, which may be secrets, don't appear in messages unless an option allows few values.
    ``${env:NAME}`` in a value is the environment variable of the driver. ``nth``: tells apart a job's sinks of the table.
    ``overwrites``: whether the sink replaces its rows, those in the directory ``partition`` also if it gets none."""

    def __init__(self, table: CreateTable, nth: str = "", *, overwrites: bool = False, partition: str = "") -> None:
        self.table, self.nth, self.overwrites, self.partition = table, nth, overwrites, partition
        self._options: Mapping[str, str] = table.options
        self._known: set[str] = {"connector", TABLE_IDLE_TIMEOUT}

    @property
    def row_type(self) -> RecordType:
        """The type of the table's rows, all of whose columns may be NULL: of a removed row, some are not known."""
        return row_type(tuple(Field(each.name, each.type.with_null()) for each in self.table.schema))

    def get(self, name: str, default: str | None = None) -> str | None:
        self._known.add(name)
        return self._resolved(name) if name in self._options else default

    def _resolved(self, name: str) -> str:
        return ENVIRONMENT.sub(lambda found: self._variable(name, found[1]), self._options[name])

    def _variable(self, name: str, variable: str) -> str:
        value = os.environ.get(variable)
        if value is None:
            raise self.error(name, f"option {name!r} refers to the environment variable {variable}, which is not set")
        return value

    def required(self, *names: str) -> str:
        """The value of an option, which may have several names."""
        found = [value for value in map(self.get, names) if value is not None]
        if found:
            return found[0]
        connector = self._options.get("connector", "")
        raise self.error("", f"table {self.table.name!r}: connector {connector!r} needs the option {names[0]!r}")

    def choice(self, name: str, choices: Sequence[str], default: str) -> str:
        value = self.get(name, default) or default
        if value not in choices:
            raise self.error(name, f"option {name!r} is {self._options[name]!r}; use {' or '.join(map(repr, choices))}")
        return value

    def flag(self, name: str) -> bool:
        return self.choice(name, ("true", "false"), "false") == "true"

    def number(self, name: str, default: int | None = None) -> int | None:
        value = self.get(name)
        if value is None:
            return default
        if not value.isdigit():
            raise self.error(name, f"option {name!r} is {self._options[name]!r}; give a whole number")
        return int(value)

    def prefixed(self, prefix: str) -> dict[str, str]:
        """The options that begin with a prefix, without it."""
        found = [name for name in self._options if name.startswith(prefix)]
        self._known.update(found)
        return {name.removeprefix(prefix): self._resolved(name) for name in found}

    def ignore(self, *names: str) -> None:
        """Accept options of the table's other direction."""
        self._known.update(names)

    def refuse(self, reasons: Mapping[str, str]) -> None:
        """Raise SqlError for an option that Flink has and forkpoint does not need, with the reason."""
        for name, reason in reasons.items():
            if name in self._options:
                raise self.error(name, f"option {name!r} has no effect here: {reason}; leave it out")

    def unneeded(self, reasons: Mapping[str, str]) -> None:
        """Warn of options that Flink has, and that only say how it works, with the reason why they have no effect."""
        for name, reason in reasons.items():
            if self.get(name) is not None:
                warnings.warn(f"table {self.table.name!r}: option {name!r} has no effect here: {reason}", stacklevel=2)

    def check_metadata(self, types: Mapping[str, Sequence[str]]) -> None:
        """Raise SqlError for a metadata column that the connector does not have. ``types``: of each that it has."""
        for column in self.table.metadata:
            if column.key not in types:
                connector, suggestion = self._options["connector"], did_you_mean(column.key, types)
                raise self.error("", f"connector {connector!r} has no metadata {column.key!r}; {suggestion}")
            if column.type.plain.label not in types[column.key]:
                wanted = " or ".join(types[column.key])
                raise self.error("", f"metadata {column.key!r} is {wanted}, but column {column.name!r} is {column.type.label}")

    def finish(self) -> None:
        """Raise SqlError for an option that nothing has read."""
        for name in self._options:
            if name not in self._known:
                suggestion = did_you_mean(name, sorted(self._known))
                raise self.error(name, f"connector {self._options['connector']!r} has no option {name!r}; {suggestion}")

    def error(self, name: str, problem: str) -> SqlError:
        """The error at an option, or at the table's name."""
        offsets = self.table.offsets
        return self.table.source.error(offsets.get(name, offsets[""]), problem)
