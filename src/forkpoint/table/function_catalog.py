"""The user's functions of one environment."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from forkpoint.errors import ConfigError
from forkpoint.functions.sql import UserDefinedFunction
from forkpoint.relational.functions.user import Functions, UserFunction
from forkpoint.sql.errors import did_you_mean
from forkpoint.table.functions import as_python_function

_KEYWORDS = {
    *("ALL", "AND", "ANY", "ARRAY", "AS", "BETWEEN", "BY", "CASE", "CAST", "CUBE", "DESCRIPTOR", "ELSE", "EXCEPT", "EXISTS"),
    *("FILTER", "FROM", "GROUPING", "HAVING", "IN", "INTERSECT", "JOIN", "LIKE", "MAP", "NOT", "ON", "OR", "OVER", "PARTITION"),
    *("ROLLUP", "ROW", "SELECT", "SETS", "SOME", "TABLE", "THEN", "TRY_CAST", "UNION", "UNNEST", "USING", "VALUES", "WHEN"),
    *("WHERE", "WITH", "WITHIN"),
}
"""Words that a parenthesis may follow in a query. A function with such a name is called in backticks."""


@dataclass
class FunctionCatalog:
    """``system``: functions by name, which precede SQL's own. ``own``: by path. ``sources``: of those that are not temporary, the
    module and the name there, by path. ``called``: those that queries have called, by
    identity. ``unnamed``: functions that expressions call without a name, by names made for them."""

    system: dict[str, UserFunction] = field(default_factory=dict)
    own: dict[str, UserFunction] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    called: dict[str, UserFunction] = field(default_factory=dict)
    unnamed: dict[str, UserFunction] = field(default_factory=dict)
    _names: dict[tuple[Any, ...], tuple[str, Any]] = field(default_factory=dict)

    def name_of(self, given: Any, columns: tuple[str, ...] = ()) -> str:
        """The name in SQL of a function that an expression calls without one: its own, with a number if another one has it.
        ``columns``: if the function takes a Row of these."""
        function = as_python_function(given)
        key = id(function.given), repr(function.result_type), function.form, function.version, columns
        if key not in self._names:
            own = re.sub(r"\W+", "_", function.name).strip("_").lower() or "function"
            taken = {*self.unnamed, *self.system, *(path.rpartition(".")[2] for path in self.own)}
            name = next(name for number in count(1) if (name := own if number == 1 else f"{own}_{number}") not in taken)
            self.unnamed[name] = (function.of_rows(columns) if columns else function).bound(name)
            self._names[key] = name, function  # which keeps its id
        return self._names[key][0]

    @property
    def by_identity(self) -> dict[str, UserFunction]:
        """All functions of the program; of two with the same name and version the one that queries call."""
        return {each.identity: each for each in (*self.own.values(), *self.system.values(), *self.unnamed.values())} | self.called

    def names(self) -> Iterable[str]:
        return sorted({*self.system, *self.own})

    def reachable(self, path: Callable[[str], str], database: str) -> Functions:
        """The functions that a query in a database may call. ``path``: of a name in the query."""
        names = frozenset(each.rpartition(".")[2].upper() for each in (*self.names(), *self.unnamed)) - _KEYWORDS
        return Functions(
            {**self.system, **self.unnamed}, lambda name: self.own.get(path(name).lower()), names, self.called, database
        )

    def create(self, path: str, given: Any, *, system: bool, if_not_exists: bool = False) -> None:
        """Raises ConfigError."""
        path = path.lower()
        functions = self.system if system else self.own
        if "@" in path:  # which precedes versions
            raise ConfigError(f"a function's name has no @: {path!r}")
        if path not in functions:
            functions[path] = as_python_function(given).bound(path)
        elif not if_not_exists:
            raise ConfigError(f"there already is a function {path!r}; drop it first")

    def drop(self, path: str, *, system: bool) -> bool:
        """Whether there was such a function."""
        if not system:
            self.sources.pop(path.lower(), None)
        return (self.system if system else self.own).pop(path.lower(), None) is not None

    def unknown(self, path: str, *, system: bool) -> str:
        """What is wrong with the name of a function that does not exist."""
        known = self.system if system else self.own
        return f"there is no function {path.lower()!r}; {did_you_mean(path, known)}"


def imported(path: str) -> Any:
    """The function that ``module.attribute`` names; of a class, an instance. Raises ConfigError."""
    module, _, name = path.rpartition(".")
    if not module:
        raise ConfigError(f"{path!r} is no function's name; write 'module.function'")
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"{path!r} cannot be imported: {error}") from error
    return found() if isinstance(found, type) and issubclass(found, UserDefinedFunction) else found
