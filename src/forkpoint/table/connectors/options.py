"""The options of a table, checked: each is read once, and unknown ones are errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from forkpoint.sql.errors import SqlError, did_you_mean
from forkpoint.sql.statements import CreateTable

TABLE_IDLE_TIMEOUT = "scan.watermark.idle-timeout"


class TableOptions:
    """``WITH (…)`` of one table. Values, which may be secrets, don't appear in messages unless an option allows few values."""

    def __init__(self, table: CreateTable) -> None:
        self.table = table
        self._options: Mapping[str, str] = table.options
        self._known: set[str] = {"connector", TABLE_IDLE_TIMEOUT}

    def get(self, name: str, default: str | None = None) -> str | None:
        self._known.add(name)
        return self._options.get(name, default)

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
            raise self.error(name, f"option {name!r} is {value!r}; use {' or '.join(map(repr, choices))}")
        return value

    def flag(self, name: str) -> bool:
        return self.choice(name, ("true", "false"), "false") == "true"

    def number(self, name: str, default: int | None = None) -> int | None:
        value = self.get(name)
        if value is None:
            return default
        if not value.isdigit():
            raise self.error(name, f"option {name!r} is {value!r}; give a whole number")
        return int(value)

    def prefixed(self, prefix: str) -> dict[str, str]:
        """The options that begin with a prefix, without it."""
        found = {name: value for name, value in self._options.items() if name.startswith(prefix)}
        self._known.update(found)
        return {name.removeprefix(prefix): value for name, value in found.items()}

    def ignore(self, *names: str) -> None:
        """Accept options of the table's other direction."""
        self._known.update(names)

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
