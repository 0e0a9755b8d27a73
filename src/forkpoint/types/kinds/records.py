"""Records: tuple, NamedTuple, Row, dataclass and msgspec.Struct.

On the wire a tuple, NamedTuple or Row is a msgpack array of its fields; a dataclass or Struct is a msgpack map from
field names to values, in the order of the fields. So a type without its class reads and writes the same bytes.

A restore of a dataclass or Struct with ``__post_init__`` builds the object from its fields, runs ``__post_init__`` (it may set
attributes that are not fields), and sets each field to its saved value again, because ``__post_init__`` may have changed it.
"""

from __future__ import annotations

import keyword
from collections import namedtuple
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import chain, repeat
from operator import attrgetter, itemgetter
from typing import Any

import msgspec
import pyarrow as pa

from forkpoint.errors import TypeNotSupported
from forkpoint.types.acceptance import Convert, Source
from forkpoint.types.information import Field, JsonObject, TypeInformation
from forkpoint.types.kinds.defaults import describe_field, wire_default
from forkpoint.types.kinds.row import Row, RowKind
from forkpoint.types.wire import NativeClasses, shown, type_name

ARRAY_FLAVORS = ("tuple", "namedtuple", "row")
MAP_FLAVORS = ("dataclass", "struct")


@dataclass(frozen=True, eq=False, repr=False)
class RecordType(TypeInformation):
    """A record. `cls` is None for plain tuples, and for dataclasses and Structs whose class is unknown.

    `plain`: msgspec encodes and builds objects of `cls` exactly like the class itself.
    """

    flavor: str
    name: str
    members: tuple[Field, ...]
    cls: type | None = None
    plain: bool = False
    build: Callable[..., Any] | None = None  # field values → object, for dataclass and struct with a class

    kind = "record"

    @property
    def fields(self) -> tuple[Field, ...]:
        return self.members

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of the fields."""
        return tuple(field.name for field in self.members)

    def get_field_names(self) -> list[str]:
        """The names of the fields, as in PyFlink's row types."""
        return list(self.names)

    def get_field_types(self) -> list[TypeInformation]:
        """The types of the fields, without Optional, which is implied for the fields of a ROW."""
        from forkpoint.types.kinds.containers import present  # imports this module indirectly

        return [present(field.type) for field in self.members]

    @property
    def is_positional(self) -> bool:
        """Whether the fields are named by position only."""
        return self.flavor in ("tuple", "row") and self.names == tuple(f"f{i}" for i in range(len(self.members)))

    @property
    def children(self) -> tuple[TypeInformation, ...]:
        return tuple(field.type for field in self.members)

    @cached_property
    def has_renames(self) -> bool:
        return any(field.renamed_from for field in self.members) or super().has_renames

    @cached_property
    def validates(self) -> bool:
        return (self.build is not None and hasattr(self.cls, "__post_init__")) or super().validates

    def describe(self) -> JsonObject:
        return {
            "kind": "record",
            "name": self.name,
            "fields": [describe_field(field) for field in self.members],
            "flavor": self.flavor,
        }

    # -- bytes -------------------------------------------------------------------------------------------------------

    @cached_property
    def _is_array(self) -> bool:
        return self.flavor in ARRAY_FLAVORS

    @cached_property
    def _lifts(self) -> bool:
        return any(child.lift is not None for child in self.children)

    @cached_property
    def _wires(self) -> dict[str, Any]:
        return {field.name: field.type.wire for field in self.members}

    @cached_property
    def _by_msgspec(self) -> bool:
        """Whether the class itself is the wire annotation."""
        return self.cls is not None and self.plain and not self._lifts

    @cached_property
    def native(self) -> NativeClasses:
        inner = dict(super().native)
        if self.cls is not None and self._by_msgspec:
            inner[self.cls] = self._wires
        return inner

    @cached_property
    def _stand_in(self) -> type:
        """A Struct with the same fields, for classes that msgspec does not handle field by field."""
        fields: list[Any] = [(field.name, field.type.wire, wire_default(field)) for field in self.members]
        return msgspec.defstruct(self.name, fields, kw_only=True)

    @cached_property
    def wire(self) -> Any:
        if self._by_msgspec:
            return self.cls
        if not self._is_array:
            return self._stand_in
        return tuple[tuple(self._wires.values())] if self.members else tuple[()]  # type: ignore[misc]

    @cached_property
    def lower(self) -> Convert | None:
        lowers = [(index, child.lower) for index, child in enumerate(self.children) if child.lower is not None]
        if self._is_array:
            row = self._row_values if self.flavor == "row" else None
            return _convert_some(lowers, row) if lowers or row else None
        if self.plain and self.cls is not None and not lowers:
            return None
        values = self._row_values if self.cls is None else attributes(self.names)
        convert, names, stand_in = _convert_some(lowers, values), self.names, self._stand_in
        return lambda value: stand_in(**dict(zip(names, convert(value), strict=True)))

    @cached_property
    def lift(self) -> Convert | None:
        if self._by_msgspec or (self.flavor == "tuple" and not self._lifts):
            return None
        lifts = [(index, child.lift) for index, child in enumerate(self.children) if child.lift is not None]
        convert = _convert_some(lifts, None if self._is_array else msgspec.structs.astuple)
        make = self._make
        return lambda value: make(convert(value))

    @cached_property
    def _make(self) -> Convert:
        """Sequence of field values → record."""
        if self.flavor == "tuple":
            return tuple
        if self.build is not None:
            build = self.build
            return lambda values: build(*values)
        cls, names = self.python_class, self.names
        if self.flavor == "namedtuple":
            return lambda values: tuple.__new__(cls, values)
        of = cls.of if issubclass(cls, Row) else Row.of
        return lambda values: of(names, values)

    def _row_values(self, value: Any) -> Sequence[Any]:
        """The field values of a Row, whose names may have any order, or of a tuple or list in its place."""
        if isinstance(value, Row):
            if value.get_row_kind() is not RowKind.INSERT:
                raise TypeNotSupported(
                    f"{shown(value)} is a row of kind {value.get_row_kind().name}, which {self!r} cannot store; "
                    "make the kind a field, or declare Types.ANY()"
                )
            value = value.get_fields_by_names(self.names)
        elif not isinstance(value, tuple | list):
            raise TypeNotSupported(f"{shown(value)} is not a Row or tuple for {self!r}")
        if len(value) != len(self.members):
            raise TypeNotSupported(f"{shown(value)} has {len(value)} fields, {self!r} has {len(self.members)}")
        return value  # type: ignore[no-any-return]

    @property
    def _from_rows(self) -> bool:
        """Whether the values are rows, or records without their class."""
        return self.flavor == "row" or (self.cls is None and not self._is_array)

    @cached_property
    def _gets(self) -> list[Convert]:
        """Getters per field: record or sequence of field values → value."""
        if self._from_rows or self._is_array:
            return list(map(itemgetter, range(len(self.members))))
        return list(map(attrgetter, self.names))

    # -- accepting ---------------------------------------------------------------------------------------------------

    @cached_property
    def immutable(self) -> bool:
        cls: Any = self.cls
        frozen = not self._from_rows
        if frozen and not self._is_array:
            frozen = cls.__struct_config__.frozen if self.flavor == "struct" else cls.__dataclass_params__.frozen
        return frozen and all(child.immutable for child in self.children)

    def _test(self, value: str, source: Source) -> str:
        (first, v), cls = source.once(value), source.bind(self.python_class)
        conditions = [f"type({first}) is {cls}"]
        if self._is_array:
            conditions.append(f"len({v}) == {len(self.members)}")
        for index, field in enumerate(self.members):
            # Not v.name: a name may be a keyword, or be mangled.
            part = f"{v}[{index}]" if self._is_array else f"{source.bind(getattr)}({v}, {field.name!r})"
            conditions.append(field.type._test(part, source))
        return f"({' and '.join(conditions)})"

    @cached_property
    def all_exact(self) -> Callable[[Sequence[Any]], bool]:
        if not self.immutable:
            return super().all_exact
        classes, width = {self.python_class}, len(self.members)
        parts = [(index, child.all_exact) for index, child in enumerate(self.children)]
        if self._is_array:

            def columns(values: Sequence[Any]) -> bool:
                if not classes.issuperset(map(type, values)) or not {width}.issuperset(map(len, values)):
                    return False
                flat = list(chain.from_iterable(values))
                return all(exact(flat[index::width]) for index, exact in parts)

            return columns
        return lambda values: (
            classes.issuperset(map(type, values)) and all(exact(list(map(self._gets[index], values))) for index, exact in parts)
        )

    @cached_property
    def _coerce(self) -> Convert:
        make, parts, source = self._make, self._parts, Source()
        accepts = [f"{source.bind(child.accept)}(value[{index}])" for index, child in enumerate(self.children)]
        accept: Convert = source.compiled(f"[{', '.join(accepts)}]")
        return lambda value: make(accept(parts(value)))

    @cached_property
    def _parts(self) -> Convert:
        """Record, or an accepted substitute → its field values, in order."""
        if self._from_rows:
            return self._row_values
        cls, width, read_back = self.python_class, len(self.members), self._read_back
        if self._is_array:
            return lambda value: value if isinstance(value, tuple | list) and len(value) == width else read_back(value)
        values, fits = attributes(self.names), self.check_class

        def parts(value: Any) -> Sequence[Any]:
            if type(value) is not cls:
                if not isinstance(value, cls):
                    value = read_back(value)
                fits(type(value))
            return values(value)  # type: ignore[no-any-return]

        return parts

    def check_class(self, of: type) -> None:
        if self.cls is None or of is self.cls or not issubclass(of, self.cls) or self._is_array:
            return
        more = [name for name in field_names(of) if name not in self.names]
        if more:
            raise TypeNotSupported(
                f"a {type_name(of)} has fields that {self!r} does not have, and they would be lost: {', '.join(more)}; declare "
                f"{of.__name__}, or {self.name} | {of.__name__} if there are values of both classes"
            )

    # -- columns -----------------------------------------------------------------------------------------------------

    @property
    def column_names(self) -> list[str]:
        return list(self.names) if self.members else super().column_names

    @cached_property
    def _arrow_fields(self) -> list[pa.Field]:
        return [pa.field(field.name, field.type.arrow_type) for field in self.members]

    @cached_property
    def arrow_type(self) -> pa.DataType:
        # A record without fields needs a column too: it carries the number of values.
        return pa.struct(self._arrow_fields) if self.members else pa.bool_()

    @cached_property
    def arrow_schema(self) -> pa.Schema:
        columns = [pa.field(f.name, f.type.arrow_type, f.type.nullable) for f in self.members]
        return pa.schema(columns or [pa.field("value", pa.bool_(), False)])

    def to_columns(self, values: Sequence[Any]) -> list[pa.Array]:
        if not isinstance(values, list):
            values = list(values)
        if not self.members:
            return [self.to_arrow(values)]
        if self._from_rows:
            values = list(map(self._row_values, values))
        elif self._is_array:
            self._check_lengths(values)
        else:
            for cls in set(map(type, values)):
                self.check_class(cls)
        columns: list[pa.Array] = []
        for field, get in zip(self.members, self._gets, strict=True):
            try:
                column = list(map(get, values))
            except AttributeError as error:
                raise TypeNotSupported(f"an element is not a {self!r}: {error}") from error
            try:
                columns.append(field.type.to_arrow(column))
            except TypeNotSupported as error:
                raise TypeNotSupported(f"{self.name}.{field.name}: {error}") from error
        return columns

    def _check_lengths(self, values: list[Any]) -> None:
        try:
            if {len(self.members)}.issuperset(map(len, values)):
                return
        except TypeError:
            pass
        wrong = next(v for v in values if not isinstance(v, tuple | list) or len(v) != len(self.members))
        raise TypeNotSupported(f"{shown(wrong)} is not a tuple of the {len(self.members)} fields of {self!r}")

    def from_columns(self, columns: Sequence[pa.Array | pa.ChunkedArray]) -> list[Any]:
        if not self.members:
            return super().from_columns(columns)
        if len(columns) != len(self.members):
            raise TypeNotSupported(f"{len(columns)} columns for the {len(self.members)} fields of {self!r}")
        lists: list[list[Any]] = []
        for field, column in zip(self.members, columns, strict=True):
            try:
                lists.append(field.type.from_arrow(column))
            except TypeNotSupported as error:
                raise TypeNotSupported(f"{self.name}.{field.name}: {error}") from error
        if self.flavor == "tuple":
            return list(zip(*lists, strict=True))
        if self.flavor == "namedtuple":
            return list(map(tuple.__new__, repeat(self.python_class), zip(*lists, strict=True)))
        if self.build is not None:
            return list(map(self.build, *lists))
        return list(map(self._make, zip(*lists, strict=True)))

    def _to_array(self, values: list[Any]) -> pa.Array:
        if not self.members:
            expected = self.python_class
            if not all(isinstance(value, expected) for value in values):
                raise TypeError(f"expected {expected.__name__}")
            return pa.array([True] * len(values), pa.bool_())
        return pa.StructArray.from_arrays(self.to_columns(values), fields=self._arrow_fields)

    def _to_values(self, array: pa.Array) -> list[Any]:
        if not self.members:
            return [self._make(()) for _ in range(len(array))]
        return self.from_columns(array.flatten())

    # -- identity ----------------------------------------------------------------------------------------------------

    @cached_property
    def python_class(self) -> type:
        if self.flavor == "tuple":
            return tuple
        if self.flavor == "row":
            return Row
        return self.cls or _row_class(self.name, self.names)

    @cached_property
    def sortable(self) -> bool:
        return self.flavor in ("tuple", "namedtuple") and all(child.sortable for child in self.children)

    def __reduce__(self) -> tuple[Any, ...]:
        from forkpoint.types.kinds.classes import restore_record  # imports this module
        from forkpoint.types.shipping import portable

        if self.flavor == "namedtuple" and self.cls is _namedtuple(self.name, self.names, self.children):
            return classless, (self.flavor, self.name, self.members)
        return restore_record, (self.flavor, self.name, self.members, portable(self.cls))

    def __repr__(self) -> str:
        if self.flavor == "tuple":
            return f"tuple[{', '.join(repr(child) for child in self.children)}]"
        return f"{self.name}({', '.join(f'{field.name}: {field.type!r}' for field in self.members)})"


def field_names(cls: Any) -> tuple[str, ...]:
    """The names of the fields of a dataclass or Struct."""
    return cls.__struct_fields__ if issubclass(cls, msgspec.Struct) else tuple(cls.__dataclass_fields__)


def tuple_type(types: Sequence[TypeInformation]) -> RecordType:
    """Return the type of a tuple of fixed length; its fields are f0, f1, …"""
    return RecordType("tuple", "tuple", tuple(Field(f"f{i}", of) for i, of in enumerate(types)))


def row_type(names: Sequence[str] | None, types: Sequence[TypeInformation]) -> RecordType:
    """Return the type of a Row; without names its fields are f0, f1, …

    Raises TypeNotSupported for duplicate names, or if the numbers of names and types differ.
    """
    names = [f"f{i}" for i in range(len(types))] if names is None else list(names)
    if len(set(names)) != len(names) or len(names) != len(types):
        raise TypeNotSupported(f"a Row needs one name for each of its {len(types)} fields, each once: {names}")
    return RecordType("row", "Row", tuple(map(Field, names, types)))


def classless(flavor: str, name: str, members: tuple[Field, ...]) -> RecordType:
    """Return the type of a record whose class is unknown: its values are tuples, namedtuples with that name, or `Row`s."""
    valid = all(field.name.isidentifier() and not keyword.iskeyword(field.name) for field in members)
    if flavor != "namedtuple" or not valid:
        return RecordType("row" if flavor == "namedtuple" else flavor, name, members)
    names, types = tuple(field.name for field in members), tuple(field.type for field in members)
    return RecordType(flavor, name, members, _namedtuple(name, names, types), True)


@lru_cache(maxsize=1024)
def _namedtuple(name: str, names: tuple[str, ...], types: tuple[TypeInformation, ...]) -> type:
    """A class per description, because msgspec finds the fields' types by class."""
    return namedtuple(name, names, rename=True)


@lru_cache(maxsize=1024)
def _row_class(name: str, names: tuple[str, ...]) -> type[Row]:
    """A subclass of Row per description, so that a Union can distinguish records without classes."""

    def reduce(row: Row) -> tuple[Any, ...]:
        return _named_row, (name, names, list(row))

    return type(name, (Row,), {"__slots__": (), "__module__": __name__, "__reduce__": reduce})


def _named_row(name: str, names: tuple[str, ...], values: list[Any]) -> Row:
    return _row_class(name, names).of(names, values)


def attributes(names: tuple[str, ...]) -> Convert:
    """Object → sequence of these attributes."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda value: [getattr(value, name) for name in names]


def _convert_some(converts: list[tuple[int, Convert]], first: Convert | None) -> Convert:
    """Return a function that splits a record with `first` and converts the values at some indexes."""
    if not converts:
        return first or tuple

    def convert(value: Any) -> list[Any]:
        values = list(value if first is None else first(value))
        for index, function in converts:
            values[index] = function(values[index])
        return values

    return convert
