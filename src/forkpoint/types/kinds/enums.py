"""Enums: stored by value or by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, Flag
from functools import cached_property
from operator import attrgetter
from typing import Any

import pyarrow as pa

from forkpoint.errors import TypeNotSupported
from forkpoint.types.acceptance import Convert, Source
from forkpoint.types.information import JsonObject, TypeInformation
from forkpoint.types.kinds.scalars import ScalarType, scalar
from forkpoint.types.wire import NativeClasses, shown


@dataclass(frozen=True, eq=False, repr=False)
class EnumType(TypeInformation):
    """An Enum: stored by value if all values are str or all are int, else by name.

    Without the class, members are read as the stored str or int.
    """

    name: str
    form: str  # "str", "int": by value; "name": by name
    members: tuple[tuple[str, Any], ...]  # (name, value), or (name, None) where the form is "name"; sorted
    cls: type[Enum] | None

    kind = "enum"
    immutable = True

    @staticmethod
    def of(cls: type[Enum]) -> EnumType:
        """Return the type of an Enum class."""
        members = sorted(cls.__members__.items())
        classes = {type(member._value_) for _, member in members}
        form = "str" if classes == {str} else "int" if classes == {int} else "name"
        listed = tuple((name, None if form == "name" else member._value_) for name, member in members)
        return EnumType(cls.__name__, form, listed, cls)

    def describe(self) -> JsonObject:
        return {"kind": "enum", "name": self.name, "form": self.form, "members": [list(pair) for pair in self.members]}

    @cached_property
    def stored_members(self) -> dict[str, str | int]:
        """The stored value of each member, by name."""
        return {name: name if self.form == "name" else value for name, value in self.members}

    @property
    def is_flag(self) -> bool:
        """Whether combinations of members are also values; False without the class."""
        return self.cls is not None and issubclass(self.cls, Flag)

    @property
    def _base(self) -> ScalarType:
        return scalar("long" if self.form == "int" else "string")

    @property
    def wire(self) -> Any:
        return self._base.wire if self.cls is None or self.form == "name" else self.cls

    @cached_property
    def native(self) -> NativeClasses:
        return {} if self.cls is None else {self.cls: None}

    @property
    def _by_name(self) -> bool:
        return self.form == "name" and self.cls is not None

    @cached_property
    def lower(self) -> Convert | None:
        return self._to_base if self._by_name else None

    @cached_property
    def lift(self) -> Convert | None:
        return self._from_base if self._by_name else None

    @cached_property
    def _to_base(self) -> Convert:
        return attrgetter("_name_" if self.form == "name" else "_value_")

    @cached_property
    def _from_base(self) -> Convert:
        cls = self.cls
        assert cls is not None
        if self.is_flag:
            return cls  # not a dict, because combinations are not members
        known = {self._to_base(member): member for member in cls.__members__.values()}

        def find(value: Any) -> Enum:
            member = known.get(value)
            return cls(value) if member is None else member  # the class's _missing_ may accept it

        return find

    @cached_property
    def _exact(self) -> bool:
        """Whether every object of the class can be decoded; a Flag may have bits without a name."""
        if self.cls is None or self.is_flag:
            return False
        return self.form == "name" or self._base.all_exact([member._value_ for member in self.cls])

    def _test(self, value: str, source: Source) -> str:
        if self.cls is None:
            return self._base._test(value, source)
        if self._exact:
            return f"type({value}) is {source.bind(self.cls)}"
        return f"{source.bind(self._reads_back)}({value})"

    def _reads_back(self, value: Any) -> bool:
        try:
            return type(value) is self.cls and self.from_arrow(self.to_arrow([value])) == [self._read_back(value)]
        except TypeNotSupported:
            return False

    @cached_property
    def all_exact(self) -> Callable[[Sequence[Any]], bool]:
        if self.cls is None:
            return self._base.all_exact
        if not self._exact:
            return super().all_exact
        classes = {self.cls}
        return lambda values: classes.issuperset(map(type, values))

    @cached_property
    def _coerce(self) -> Convert:
        if self.cls is None:
            return self._base._coerce
        source = Source()
        test = source.compiled(self._test("value", source))

        def coerce(value: Any) -> Any:
            result = self._read_back(value)
            if not test(result):
                raise TypeNotSupported(f"{shown(value)} is not a value of {self!r} that can be read back")
            return result

        return coerce

    @property
    def arrow_type(self) -> pa.DataType:
        return self._base.arrow_type

    def _to_array(self, values: list[Any]) -> pa.Array:
        return self._base._to_array(values if self.cls is None else list(map(self._to_base, values)))

    def _to_values(self, array: pa.Array) -> list[Any]:
        values = self._base._to_values(array)
        if self.cls is None:
            return values
        try:
            return list(map(self._from_base, values))
        except ValueError as error:
            raise TypeNotSupported(f"{error}; add the member to the Enum or map the column first") from error

    @property
    def python_class(self) -> type:
        return self._base.python_class if self.cls is None else self.cls

    def __repr__(self) -> str:
        return f"Enum {self.name}"
