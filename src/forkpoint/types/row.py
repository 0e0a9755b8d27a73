"""`Row`: a record without a class, as in PyFlink."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any


class Row:
    """A record of values with optional field names.

    ``Row(1, "a")`` has positions only, ``Row(id=1, name="a")`` has names too. ``Person = Row("name", "age")`` followed
    by ``Person("Ann", 30)`` makes named rows. Fields are read and written by position, ``row[0]``, or by name,
    ``row["name"]`` or ``row.name``.

    Two rows are equal when their values are and, where both have names, the names are too.
    """

    __slots__ = ("_names", "_values")

    _names: tuple[str, ...] | None
    _values: list[Any]

    def __init__(self, *values: Any, **named: Any) -> None:
        if values and named:
            raise ValueError("a Row takes positions or names, not both")
        _set(self, "_names", tuple(named) if named else None)
        _set(self, "_values", list(named.values()) if named else list(values))

    @classmethod
    def of(cls, names: tuple[str, ...] | None, values: Sequence[Any]) -> Row:
        """Return a row with these names and values, one for one."""
        row = cls.__new__(cls)
        _set(row, "_names", names)
        _set(row, "_values", list(values))
        return row

    def __call__(self, *values: Any) -> Row:
        """Use this row's values as the names of a new one."""
        if len(values) > len(self._values):
            raise TypeError(f"{len(values)} values for the fields {self._values}")
        return Row.of(tuple(str(name) for name in self._values[: len(values)]), values)

    @property
    def field_names(self) -> tuple[str, ...] | None:
        """The names of the fields, or None."""
        return self._names

    def set_field_names(self, names: Sequence[str]) -> None:
        """Name the fields."""
        if len(names) != len(self._values):
            raise ValueError(f"{len(names)} names for {len(self._values)} values")
        _set(self, "_names", tuple(names))

    def get_fields_by_names(self, names: Sequence[str]) -> list[Any]:
        """Return the values in the order of `names`; in their own order if the row has no names."""
        if self._names is None or self._names == tuple(names):
            return self._values
        return [self[name] for name in names]

    def as_dict(self) -> dict[str, Any]:
        """Return the fields by name.

        Raises:
            TypeError: the row has no names.
        """
        if self._names is None:
            raise TypeError("a Row without field names has no dict form")
        return dict(zip(self._names, self._values, strict=True))

    def _index(self, key: int | str) -> int:
        if isinstance(key, int):
            return key
        try:
            return (self._names or ()).index(key)
        except ValueError:
            raise KeyError(key) from None

    def __getitem__(self, key: int | str) -> Any:
        return self._values[self._index(key)]

    def __setitem__(self, key: int | str, value: Any) -> None:
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
        return value in self._values

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Row):
            return NotImplemented
        named = self._names is not None and other._names is not None
        return self._values == other._values and (not named or self._names == other._names)

    def __hash__(self) -> int:
        return hash(tuple(self._values))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).of, (self._names, self._values)

    def __repr__(self) -> str:
        if self._names is None:
            return f"Row({', '.join(map(repr, self._values))})"
        return f"Row({', '.join(f'{n}={v!r}' for n, v in zip(self._names, self._values, strict=True))})"


_set = object.__setattr__
