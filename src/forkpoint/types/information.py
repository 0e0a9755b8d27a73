"""`TypeInformation`: a type, and its values as bytes (msgpack) and in columns (Arrow)."""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from functools import cached_property
from typing import Any, Generic, TypeAlias

import pyarrow as pa
from msgspec import NODEFAULT

from forkpoint.errors import TypeNotSupported
from forkpoint.types.acceptance import Convert, Source
from forkpoint.types.variables import T
from forkpoint.types.wire import NativeClasses, pack, shown, unpacker

JsonObject = dict[str, Any]

REQUIRED: Any = NODEFAULT
"""The default of a `Field` without a default."""


class RenamedFrom:
    """Declares a field's former names, the latest first, so that values saved under them are found.

    ``total: Annotated[int, RenamedFrom("sum")]`` in a NamedTuple, dataclass or msgspec.Struct. Remove it once you no longer
    need a savepoint with the old name.
    """

    def __init__(self, *names: str) -> None:
        if not names or not all(isinstance(name, str) and name for name in names):
            raise TypeNotSupported(f"RenamedFrom{names!r}: give the field's former names as strings")
        self.names = names

    def __repr__(self) -> str:
        return f"RenamedFrom({', '.join(map(repr, self.names))})"


@dataclass(frozen=True)
class Field:
    """A field of a record: its name, its type, and its default.

    `default` is a value, `factory` creates a new value each time. Without the class, only the factory's name may be known, from
    the type's description: `factory_name`. `renamed_from`: the former names, the latest first; the description has them, so that
    a rename applies once, but they are not part of the type's identity. `rename`: the name that msgspec encodes, if different.
    """

    name: str
    type: TypeInformation
    default: Any = REQUIRED
    factory: Callable[[], Any] | None = None
    factory_name: str | None = None
    renamed_from: tuple[str, ...] = ()
    rename: str | None = None

    @property
    def encoded_name(self) -> str:
        """The field's name in JSON."""
        return self.rename or self.name

    @property
    def has_default(self) -> bool:
        """Whether the field has a default."""
        return self.default is not REQUIRED or self.factory is not None

    def make_default(self) -> Any:
        """Return the default; a factory creates it anew each time. Raises TypeNotSupported without a default."""
        if self.factory is not None:
            return self.factory()
        if self.default is REQUIRED:
            raise TypeNotSupported(f"the field {self.name!r} has no default")
        return self.default


@dataclass(frozen=True, eq=False, repr=False)
class TypeInformation(ABC, Generic[T]):
    """A type, which converts its values to bytes and Arrow columns, and has a description that outlives the program.

    Two types are equal if their descriptions are equal, with or without the Python class.

    `encode` and `decode` are cached callables. If msgspec knows the type, they are its C functions, which do not
    check the value against the type: `encode_error` explains why `encode` refused a value.
    """

    @property
    @abstractmethod
    def kind(self) -> str:
        """The kind of type, as in the description."""

    @abstractmethod
    def describe(self) -> JsonObject:
        """Return a JSON object from which `from_description` creates an equal type."""

    @property
    @abstractmethod
    def arrow_type(self) -> pa.DataType:
        """The type of the Arrow array that holds values of this type."""

    @abstractmethod
    def _to_array(self, values: list[Any]) -> pa.Array:
        """Convert values; raises any error of the conversion."""

    @abstractmethod
    def _to_values(self, array: pa.Array) -> list[Any]:
        """Convert an array of `arrow_type`, which has no nulls unless the type is nullable."""

    # -- bytes -------------------------------------------------------------------------------------------------------

    @property
    @abstractmethod
    def wire(self) -> Any:
        """The annotation by which msgspec decodes the type."""

    @cached_property
    def lower(self) -> Convert | None:
        """Value → the value that msgspec encodes; None if they are the same."""
        return None

    @cached_property
    def lift(self) -> Convert | None:
        """The value that msgspec decodes → value; None if they are the same."""
        return None

    @property
    def children(self) -> tuple[TypeInformation, ...]:
        """The inner types."""
        return ()

    @cached_property
    def native(self) -> NativeClasses:
        """The user's classes inside `wire`."""
        return {cls: wires for child in self.children for cls, wires in child.native.items()}

    @cached_property
    def encode(self) -> Callable[[Any], bytes]:
        """Value → msgpack bytes. Equal values of the declared type have equal bytes, regardless of the order of dicts."""
        lower = self.lower
        return pack if lower is None else lambda value: pack(lower(value))

    @cached_property
    def decode(self) -> Callable[[bytes], Any]:
        """Msgpack bytes → value."""
        unpack, lift = unpacker(self.wire, self.native), self.lift
        return unpack if lift is None else lambda data: lift(unpack(data))

    def encode_error(self, value: object, cause: BaseException) -> TypeNotSupported:
        """Return the error to raise after `encode(value)` raised `cause`; names the value and the remedy."""
        if isinstance(cause, TypeNotSupported):
            return cause
        return TypeNotSupported(f"{shown(value)} is not a value of {self!r}: {_why(value, cause)}")

    def kinds(self) -> set[str]:
        """The kinds of this type and of all inner types."""
        return {self.kind}.union(*(child.kinds() for child in self.children))

    # -- accepting ---------------------------------------------------------------------------------------------------

    @cached_property
    def immutable(self) -> bool:
        """Whether all values of this type are immutable."""
        return False

    @cached_property
    def accept(self) -> Convert:
        """Value from user code → value of this type that user code cannot change.

        Returns the same object if it is immutable and exactly a value of the type, else an independent object, equal to the
        result of `decode` after `encode`. It can be encoded, put into a column and read back. A dict keeps its order.

        Raises TypeNotSupported, naming value and type, if the value is not of the type.
        """
        if not self.immutable:
            return self._coerce
        source = Source()
        keep = f"value if {self._test('value', source)} else {source.bind(self._coerce)}(value)"
        return source.compiled(keep)  # type: ignore[no-any-return]

    @cached_property
    def accept_all(self) -> Callable[[list[Any]], list[Any]]:
        """`accept` for many values; the list itself if all objects stay the same."""
        accept = self.accept
        if not self.immutable:
            return lambda values: list(map(accept, values))
        exact = self.all_exact
        return lambda values: values if exact(values) else list(map(accept, values))

    @cached_property
    def all_exact(self) -> Callable[[Sequence[Any]], bool]:
        """Whether `accept` returns the same object for each value. Never raises."""
        if not self.immutable:
            return lambda values: not values
        source = Source()
        test = source.compiled(self._test("value", source))
        return lambda values: all(map(test, values))

    def specialized(self, text: str, **names: object) -> Any:
        """Return the function that ``text`` defines; ``EXACT(name)`` tests whether `accept` returns a variable unchanged.

        The inlined test saves a call per element. It is always false for a mutable type.
        """
        source = Source()
        source.names |= names

        def test(found: re.Match[str]) -> str:
            return f"({self._test(found[1], source)})" if self.immutable else "False"

        return source.defined(re.sub(r"EXACT\((\w+)\)", test, text))

    def _test(self, value: str, source: Source) -> str:
        """An expression that tests whether ``value`` is exactly a value of this immutable type; evaluates ``value`` once."""
        raise AssertionError(f"{self!r} is not immutable")

    @property
    @abstractmethod
    def _coerce(self) -> Convert:
        """Converts a value that fails `_test` to this type, or raises TypeNotSupported."""

    def _read_back(self, value: Any) -> Any:
        """The result of `decode` after `encode`."""
        try:
            return self.decode(self.encode(value))
        except Exception as error:
            raise self.encode_error(value, error) from error

    # -- columns -----------------------------------------------------------------------------------------------------

    @property
    def fields(self) -> tuple[Field, ...] | None:
        """The fields of a record; None for any other type."""
        return None

    @property
    def nullable(self) -> bool:
        """Whether None is a value, which columns hold as null."""
        return False

    @property
    def column_names(self) -> list[str]:
        """The names of the arrays of `to_columns`."""
        return ["value"]

    @cached_property
    def arrow_schema(self) -> pa.Schema:
        """The schema of `to_columns`."""
        return pa.schema([pa.field("value", self.arrow_type, self.nullable)])

    def to_arrow(self, values: Sequence[Any]) -> pa.Array:
        """Return the values as one array of `arrow_type`.

        Raises TypeNotSupported if a value does not fit, e.g. an int beyond 64 bits, or None if the type is not Optional.
        """
        if not isinstance(values, list):
            values = list(values)
        try:
            array = self._to_array(values)
        except TypeNotSupported:
            raise
        except (pa.ArrowException, ArithmeticError, AttributeError, TypeError, ValueError, KeyError) as error:
            raise self._misfit(values, error) from error
        if not isinstance(array, pa.Array):
            raise TypeNotSupported(f"{len(values)} values of {self!r} exceed the 2 GiB of one array; use smaller batches")
        if array.null_count and not self.nullable:
            raise self._misfit(values, TypeError(NO_NONE))
        return array

    def from_arrow(self, array: pa.Array | pa.ChunkedArray) -> list[Any]:
        """Return the values of an array; casts an array of another type if the cast is lossless.

        Raises TypeNotSupported if the array cannot be cast, or has nulls and the type is not Optional.
        """
        if isinstance(array, pa.ChunkedArray):
            array = array.combine_chunks() if array.num_chunks != 1 else array.chunk(0)
        if array.type != self.arrow_type:
            try:
                array = cast_exactly(array, self.arrow_type)
            except pa.ArrowException as error:
                raise TypeNotSupported(f"a column of {array.type} cannot be read as {self!r}: {error}") from error
        if array.null_count and not self.nullable:
            raise TypeNotSupported(
                f"a column of {self!r} holds {array.null_count} nulls; annotate it Optional[...] to read them as None"
            )
        return self._to_values(array)

    def to_columns(self, values: Sequence[Any]) -> list[pa.Array]:
        """Return an array per field of a record, or the single column "value". Raises like `to_arrow`."""
        return [self.to_arrow(values)]

    def from_columns(self, columns: Sequence[pa.Array | pa.ChunkedArray]) -> list[Any]:
        """The inverse of `to_columns`. Raises like `from_arrow`."""
        (column,) = columns
        return self.from_arrow(column)

    def _misfit(self, values: list[Any], cause: BaseException) -> TypeNotSupported:
        """The error for the first value that does not fit."""
        for value in values:
            try:
                null = value is None or self._to_array([value]).null_count > 0
            except Exception as error:
                return self.encode_error(value, error)
            if null and not self.nullable:
                return self.encode_error(value, TypeError(NO_NONE))
        return self.encode_error(values, cause)

    # -- identity ----------------------------------------------------------------------------------------------------

    @cached_property
    def has_renames(self) -> bool:
        """Whether a field has former names."""
        return any(child.has_renames for child in self.children)

    @cached_property
    def validates(self) -> bool:
        """Whether a class may refuse or change values at a restore."""
        return any(child.validates for child in self.children)

    def check_class(self, of: type) -> None:
        """Raise TypeNotSupported if objects of a subclass have fields that this type cannot store."""

    @property
    def python_class(self) -> type | None:
        """The class of this type's values, by which a Union distinguishes its members."""
        return None

    @property
    def sortable(self) -> bool:
        """Whether Python's own order is total over the values and agrees with equality."""
        return False

    @cached_property
    def _identity(self) -> str:
        return json.dumps(_without_renames(self.describe()), sort_keys=True)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return self._identity == other._identity if isinstance(other, TypeInformation) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._identity)

    def __getstate__(self) -> dict[str, Any]:
        return {field.name: self.__dict__[field.name] for field in fields(self)}  # not the cached C functions

    @abstractmethod
    def __repr__(self) -> str: ...


def cast_exactly(array: pa.Array, to: pa.DataType) -> pa.Array:
    """``array.cast(to)``, but refuses to convert between times with and without a time zone. Raises ArrowException."""
    if not _same_zones(array.type, to):
        raise pa.ArrowInvalid(
            f"{array.type} and {to}: times with and without a time zone differ; declare Instant (Types.INSTANT()) for times with "
            "a zone, datetime for times without"
        )
    return array.cast(to)


def _same_zones(a: pa.DataType, b: pa.DataType) -> bool:
    if pa.types.is_timestamp(a) and pa.types.is_timestamp(b):
        return (a.tz is None) == (b.tz is None)
    if pa.types.is_map(a) and pa.types.is_map(b):
        return _same_zones(a.key_type, b.key_type) and _same_zones(a.item_type, b.item_type)
    if pa.types.is_nested(a) and pa.types.is_nested(b) and a.num_fields == b.num_fields:
        return all(_same_zones(a.field(i).type, b.field(i).type) for i in range(a.num_fields))
    return True


def _without_renames(description: Any) -> Any:
    if isinstance(description, dict):
        return {name: _without_renames(part) for name, part in description.items() if name != "renamed_from"}
    return list(map(_without_renames, description)) if isinstance(description, list) else description


TypeLike: TypeAlias = TypeInformation[T] | type[T]
"""``Types.*`` or a Python class. Other annotations (``int | None``) work too, but type checkers cannot infer from them."""

NO_NONE = "None where the type is not Optional; annotate Optional[...]"


def _why(value: object, cause: BaseException) -> str:
    """msgspec's message, or a clearer one with the remedy."""
    if isinstance(cause, OverflowError) and "int" in str(cause):
        return f"{cause}; an int holds 64 bits: declare Types.BIG_INT() for larger ones"
    if isinstance(cause, UnicodeEncodeError):
        return "UTF-8 cannot encode a lone surrogate; replace them, as .encode(errors='replace').decode() does"
    if isinstance(value, datetime) and re.search("`date`|RFC3339 encoded date$", str(cause)):
        return "it has a time of day; give its .date(), or declare datetime"
    return str(cause)
