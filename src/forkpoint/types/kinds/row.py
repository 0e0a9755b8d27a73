"""`Row`: a record without a class, as in PyFlink."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum
from typing import Any


class RowKind(Enum):
    """The change of a table that a row represents, as in Flink's changelogs; INSERT by default.

    Only the row object has a kind: ROW types do not store it, and refuse rows of other kinds than INSERT.
    """

    INSERT = 0
    UPDATE_BEFORE = 1
    UPDATE_AFTER = 2
    DELETE = 3

    def __str__(self) -> str:
        return ("+I", "-U", "+U", "-D")[self.value]


class Row:
    """A record of values with optional field names.

    ``Row(1, "a")`` has positions only, ``Row(id=1, name="a")`` also has names. ``Person = Row("name", "age")`` followed
    by ``Person("Ann", 30)`` creates named rows. Read and write fields by position, ``row[0]``, or by name, ``row["name"]``
    or ``row.name``.

    Two rows are equal if their kinds and values are equal and, if both have names, the names are equal.
    """

    __slots__ = ("_kind", "_names", "_values")

    _kind: RowKind
    _names: tuple[str, ...] | None
    _values: list[Any]

    def __init__(self, *values: Any, **named: Any) -> None:
        if values and named:
            raise ValueError("a Row takes positions or names, not both")
        _set(self, "_kind", RowKind.INSERT)
        _set(self, "_names", tuple(named) if named else None)
        _set(self, "_values", list(named.values()) if named else list(values))

    @classmethod
    def of(cls, names: tuple[str, ...] | None, values: Sequence[Any], kind: RowKind = RowKind.INSERT) -> Row:
        """Return a row with these names and values, in the same order."""
        row = cls.__new__(cls)
        _set(row, "_kind", kind)
        _set(row, "_names", names)
        _set(row, "_values", list(values))
        return row

    def with_values(self, values: Sequence[Any]) -> Row:
        """A row with these values, and with the names and kind of this row."""
        return Row.of(self._names, values, self._kind)

    @staticmethod
    def of_kind(row_kind: RowKind, *values: Any, **named: Any) -> Row:
        """A row of this kind."""
        row = Row(*values, **named)
        row.set_row_kind(row_kind)
        return row

    def get_row_kind(self) -> RowKind:
        """Return the row's kind, INSERT by default."""
        return self._kind

    def set_row_kind(self, row_kind: RowKind) -> None:
        """Set the row's kind."""
        _set(self, "_kind", RowKind(row_kind))

    def __call__(self, *values: Any) -> Row:
        """Return a row with these values, named by this row's values."""
        if len(values) > len(self._values):
            raise TypeError(f"{len(values)} values for the fields {self._values}")
        return Row.of(tuple(str(name) for name in self._values[: len(values)]), values)

    @property
    def field_names(self) -> tuple[str, ...] | None:
        """The names of the fields, or None."""
        return self._names

    def set_field_names(self, field_names: Sequence[str]) -> None:
        """Name the fields."""
        if len(field_names) != len(self._values):
            raise ValueError(f"{len(field_names)} names for {len(self._values)} values")
        _set(self, "_names", tuple(field_names))

    def get_fields_by_names(self, names: Sequence[str]) -> list[Any]:
        """Return the values in the order of `names`; in the order of the row if it has no names."""
        if self._names is None or self._names == tuple(names):
            return self._values
        return [self[name] for name in names]

    def as_dict(self, recursive: bool = False) -> dict[str, Any]:
        """Return the fields by name. ``recursive``: also convert nested rows, including those in lists and dicts.

        Raises TypeError if the row, or a nested row, has no names.
        """
        if self._names is None:
            raise TypeError("a Row without field names has no dict form")
        return dict(zip(self._names, map(_as_dicts, self._values) if recursive else self._values, strict=True))

    def _index(self, key: Any) -> Any:
        if isinstance(key, int | slice):
            return key
        try:
            return (self._names or ()).index(key)
        except ValueError:
            raise KeyError(key) from None

    def __getitem__(self, key: int | slice | str) -> Any:
        return self._values[self._index(key)]

    def __setitem__(self, key: int | slice | str, value: Any) -> None:
        self._values[self._index(key)] = value

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # copy and pickle look for protocol methods before the slots are set
            raise AttributeError(name)
        try:
            return self._values[self._index(name)]
        except KeyError:
            raise AttributeError(f"no field {name!r} in {self!r}") from None

    def __setattr__(self, name: str, value: Any) -> None:
        try:
            self[name] = value
        except KeyError:
            raise AttributeError(f"no field {name!r} in {self!r}") from None

    def __iter__(self) -> Iterator[Any]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, value: object) -> bool:
        return value in (self._values if self._names is None else self._names)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Row):
            return NotImplemented
        named = self._names is not None and other._names is not None
        return self._values == other._values and self._kind is other._kind and (not named or self._names == other._names)

    def __hash__(self) -> int:
        return hash(tuple(self._values))

    def __reduce__(self) -> tuple[Any, ...]:
        kind = () if self._kind is RowKind.INSERT else (self._kind,)
        return type(self).of, (self._names, self._values, *kind)

    def __repr__(self) -> str:
        if self._names is None:
            return f"<Row({', '.join(map(repr, self._values))})>"
        return f"Row({', '.join(f'{n}={v!r}' for n, v in zip(self._names, self._values, strict=True))})"


_set = object.__setattr__


def _as_dicts(value: Any) -> Any:
    if isinstance(value, Row):
        return value.as_dict(True)
    if isinstance(value, list):
        return list(map(_as_dicts, value))
    if isinstance(value, dict):
        return {key: _as_dicts(each) for key, each in value.items()}
    return value
