"""Objects of a program's classes inside values of `Types.ANY()`, encoded with the names of the class and the fields.

Supports classes whose objects consist of their fields: NamedTuples, dataclasses, msgspec Structs, attrs classes, pydantic
models, Enums. Decoding finds the class by name, and creates an object only if the class has one of these kinds; it calls
nothing else that a value names, because a value from an untrusted author can name anything.
"""

from __future__ import annotations

import dataclasses
import sys
import typing
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, Flag
from functools import cached_property, lru_cache
from typing import Any
from weakref import WeakKeyDictionary

from forkpoint.decoders import msgpack_decoder
from forkpoint.errors import TypeNotSupported
from forkpoint.types.information import RenamedFrom
from forkpoint.types.kinds.classes import absent, dataclass_build, flavor_of, struct_build
from forkpoint.types.kinds.records import attributes
from forkpoint.types.kinds.row import Row
from forkpoint.types.lookup import ALLOW_PICKLE, find_class, is_found
from forkpoint.types.wire import pack, shown, type_name

Make = Callable[[Sequence[Any]], Any]  # field values → object

_PYDANTIC = ("__pydantic_fields_set__", "__pydantic_extra__", "__pydantic_private__")
_HASH_OF_ATTRS = "_attrs_cached_hash"


def kind_of(cls: type) -> str | None:
    """Return the kind of a record class; None for other classes."""
    if hasattr(cls, "__attrs_attrs__"):
        return "attrs"
    base = getattr(sys.modules.get("pydantic"), "BaseModel", None)
    if base is not None and issubclass(cls, base):
        return "pydantic"
    return flavor_of(cls)


def is_carried(cls: type) -> bool:
    """Whether the objects of a class can be encoded by field, or as members of an Enum."""
    return issubclass(cls, Enum) or _why_not(cls) is None


def _why_not(cls: Any) -> str | None:
    """Why the objects of a class do not consist of their fields alone; None if they do."""
    kind = kind_of(cls)
    if kind is None:
        return "it is no dataclass"
    if kind == "dataclass":
        class_variable = dataclasses._FIELD_CLASSVAR  # type: ignore[attr-defined]
        declared = [field for field in cls.__dataclass_fields__.values() if field._field_type is not class_variable]
        if len(dataclasses.fields(cls)) < len(declared):
            return "it has an InitVar, which is not kept"
    if kind in ("dataclass", "attrs"):
        try:
            object.__new__(cls)
        except TypeError:
            return "it extends a class that is not made of fields"
    return None


def names_of(cls: Any, kind: str) -> tuple[str, ...]:
    """The attributes of which an object of a record class consists."""
    match kind:
        case "namedtuple":
            return tuple(cls._fields)
        case "struct":
            return tuple(cls.__struct_fields__)
        case "attrs":
            return tuple(field.name for field in cls.__attrs_attrs__)
        case "pydantic":
            return (*cls.model_fields, *_PYDANTIC)
    return tuple(field.name for field in dataclasses.fields(cls))


# -- creating objects --------------------------------------------------------------------------------------------------


def _make_of(cls: Any, kind: str, names: tuple[str, ...]) -> Make:
    if kind == "namedtuple":
        return lambda values: tuple.__new__(cls, values)
    if kind == "pydantic":
        return lambda values: _model(cls, dict(zip(names, values, strict=True)))
    if kind == "attrs":
        return _attrs_make(cls, names)
    _, build = (dataclass_build if kind == "dataclass" else struct_build)(cls, names)
    return lambda values: build(*values)


def _model(cls: Any, state: dict[str, Any]) -> Any:
    made = cls.__new__(cls)
    for name in _PYDANTIC:
        object.__setattr__(made, name, state.pop(name))
    object.__setattr__(made, "__dict__", state)
    return made


def _attrs_make(cls: Any, names: tuple[str, ...]) -> Make:
    post_init = getattr(cls, "__attrs_post_init__", None)
    caches = _HASH_OF_ATTRS in getattr(getattr(cls.__hash__, "__code__", None), "co_names", ())

    def fill(made: Any, values: Sequence[Any]) -> None:
        for name, value in zip(names, values, strict=True):
            object.__setattr__(made, name, value)

    def make(values: Sequence[Any]) -> Any:
        made = object.__new__(cls)
        fill(made, values)
        if caches:
            object.__setattr__(made, _HASH_OF_ATTRS, None)
        if post_init is not None:
            post_init(made)
            fill(made, values)  # __attrs_post_init__ may have changed them
        return made

    return make


# -- writing -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Shape:
    """The encoding of a record class: ``header``, with the names of the class and its fields, then the field values."""

    kind: str
    cls: type
    names: tuple[str, ...]

    @cached_property
    def header(self) -> bytes:
        return with_length(pack((self.kind, self.cls.__module__, self.cls.__qualname__, self.names)))

    @cached_property
    def make(self) -> Make:
        return _make_of(self.cls, self.kind, self.names)

    @cached_property
    def values(self) -> Callable[[Any], Sequence[Any]]:
        """Object → the values of its fields."""
        if self.kind == "namedtuple":
            return tuple
        get = attributes(self.names)
        return get if self.kind in ("struct", "pydantic") else self._complete(get)

    def _complete(self, get: Callable[[Any], Sequence[Any]]) -> Callable[[Any], Sequence[Any]]:
        """Refuses objects with additional attributes, unless a post-init method restores them from the fields."""
        cls, fields = self.cls, len(self.names)
        restored = hasattr(cls, "__post_init__") or hasattr(cls, "__attrs_post_init__")
        if restored or not hasattr(cls, "__dict__") or not getattr(cls, "__dictoffset__", 0):
            return get

        def values(value: Any) -> Sequence[Any]:
            if len(vars(value)) > fields:
                self._check(value)
            return get(value)

        return values

    def _check(self, value: Any) -> None:
        more = [name for name in vars(value) if name not in self.names and name != "__orig_class__"]
        more = [name for name in more if not hasattr(self.cls, name)]  # such as a cached_property
        if more:
            raise TypeNotSupported(
                f"{shown(value)} has attributes that are no fields of {type_name(self.cls)}, and they would be lost: "
                f"{', '.join(more)}; declare them as fields"
            )


_shapes: WeakKeyDictionary[type, Shape] = WeakKeyDictionary()


def shape_of(cls: type) -> Shape | None:
    """The encoding of a class; None if its objects have no typed form, or the class is not found by its name."""
    shape = _shapes.get(cls)
    if shape is None:
        kind = kind_of(cls)
        if kind is None or _why_not(cls) is not None or not is_found(cls):
            return None
        shape = _shapes[cls] = Shape(kind, cls, names_of(cls, kind))
    return shape


_members: WeakKeyDictionary[type, dict[Any, bytes]] = WeakKeyDictionary()


def member_bytes(member: Enum) -> bytes:
    """Encodes a member with its class, its name, and its value if that is text; a combination of flags with its bits."""
    cls = type(member)
    known = _members.get(cls)
    if known is None:
        if not is_found(cls):
            raise TypeNotSupported(f"{shown(member)} cannot be written: {why_opaque(cls)}")
        known = _members[cls] = {}
    stored = member._value_ if isinstance(member, Flag) else member._name_
    data = known.get(stored)
    if data is None:
        text = member._value_ if isinstance(member._value_, str) else None
        data = known[stored] = pack((cls.__module__, cls.__qualname__, stored, text))
    return data


def why_opaque(cls: type) -> str:
    """Why objects of a class cannot be encoded, and the remedy."""
    if not is_carried(cls):
        why = _why_not(cls) if kind_of(cls) is not None else None
        reason = f": {why}" if why else ""
        return (
            f"objects of {type_name(cls)} have no typed form{reason}; make it a dataclass, NamedTuple, msgspec.Struct or Enum, "
            f"or convert the value, or have such objects pickled: {ALLOW_PICKLE}"
        )
    return (
        f"{type_name(cls)} is not found by its name; define it at the top level of a module, under its own name, or declare the "
        "type of the stream or state"
    )


def with_length(header: bytes) -> bytes:
    return len(header).to_bytes(4, "big") + header


def split_header(data: bytes) -> tuple[bytes, bytes]:
    """The header, with its length, and the rest."""
    end = 4 + int.from_bytes(data[:4], "big")
    return data[:end], data[end:]


# -- reading -----------------------------------------------------------------------------------------------------------

_header = msgpack_decoder(tuple[str, str, str, tuple[str, ...]])
_member = msgpack_decoder(tuple[str, str, int | str, str | None])


@lru_cache(maxsize=4096)
def _parsed(header: bytes) -> tuple[str, str, str, tuple[str, ...]]:
    return _header(header[4:])


_makes: WeakKeyDictionary[type, dict[tuple[str, ...], Make]] = WeakKeyDictionary()


def object_of(header: bytes, values: Sequence[Any]) -> Any:
    """Decode an object. Raises TypeNotSupported if its class does not exist, or its fields do not fit."""
    _, module, qualname, names = _parsed(header)
    cls = find_class(module, qualname)
    known = None if cls is None else _makes.get(cls)
    make = None if known is None else known.get(names)
    if make is None:
        make = _make_from(cls, f"{module}.{qualname}", names)
        assert cls is not None
        _makes.setdefault(cls, {})[names] = make
    return make(values)


def _missing(name: str) -> TypeNotSupported:
    return TypeNotSupported(
        f"a saved value is of the class {name}, which the program does not have; keep it, if only as another name for the class "
        f"that it is now ({name.rpartition('.')[2]} = …), and import its module at the program's start, or convert the state "
        "with migrate_state"
    )


def _make_from(cls: type | None, name: str, saved: tuple[str, ...]) -> Make:
    if cls is None:
        raise _missing(name)
    kind = kind_of(cls)
    if kind is None or issubclass(cls, Enum) or _why_not(cls) is not None:
        raise TypeNotSupported(
            f"a saved value is of {name}, which is not a NamedTuple, dataclass, Struct, attrs class or pydantic model here, so "
            "it cannot be restored from saved fields; make it one, or convert the state with migrate_state"
        )
    names = names_of(cls, kind)
    make = _make_of(cls, kind, names)
    if saved == names:
        return make
    sources = [_source(cls, kind, field, saved, name) for field in names]
    used = {source for source in sources if isinstance(source, int)}
    dropped = [field for index, field in enumerate(saved) if index not in used and field not in _PYDANTIC]
    if dropped:
        raise TypeNotSupported(
            f"a saved {name} has fields that the class no longer has, and their values would be lost: {', '.join(dropped)}; keep "
            "them, annotate renamed ones with RenamedFrom, or convert the state with migrate_state"
        )
    return lambda values: make([values[source] if isinstance(source, int) else source() for source in sources])


def _source(cls: type, kind: str, field: str, saved: tuple[str, ...], name: str) -> int | Callable[[], Any]:
    """The source of a field's value: the index of a saved field, or a default."""
    if field in saved:
        return saved.index(field)
    hint: Any = _hints(cls).get(field)
    for extra in getattr(hint, "__metadata__", ()):
        if isinstance(extra, RenamedFrom):
            former = next((former for former in extra.names if former in saved), None)
            if former is not None:
                return saved.index(former)
            hint = hint.__origin__
    default = _default(cls, kind, field)
    if default is not None:
        return default
    if type(None) in typing.get_args(hint):
        return lambda: None
    raise TypeNotSupported(
        f"a saved {name} has no field {field}, which was added without a default; give it one, annotate it with RenamedFrom if "
        "it had another name, or convert the state with migrate_state"
    )


def _hints(cls: type) -> dict[str, Any]:
    try:
        return typing.get_type_hints(cls, include_extras=True)
    except Exception:  # annotations may refer to names that exist for type checkers only
        return {}


def _default(cls: Any, kind: str, field: str) -> Callable[[], Any] | None:
    """The factory of a field's default; None without a default."""
    if kind == "pydantic":
        if field in _PYDANTIC:
            return (lambda: set()) if field == "__pydantic_fields_set__" else lambda: None
        found = cls.model_fields[field]
        return None if found.is_required() else lambda: found.get_default(call_default_factory=True)
    if kind == "namedtuple":
        return (lambda: cls._field_defaults[field]) if field in cls._field_defaults else None
    if kind == "attrs":
        default = getattr(cls.__attrs_attrs__, field).default
        if type(default).__name__ == "Factory":
            return None if default.takes_self else default.factory
        return None if default is sys.modules["attr"].NOTHING else lambda: default
    if kind == "struct":
        import msgspec

        fields = {each.name: each for each in msgspec.structs.fields(cls)}
        default, factory = fields[field].default, fields[field].default_factory
    else:
        declared = cls.__dataclass_fields__[field]
        default, factory = declared.default, declared.default_factory
    if not absent(factory):
        return factory  # type: ignore[no-any-return]
    return None if absent(default) else lambda: default


def member_of(data: bytes) -> Enum:
    """Decode a member; finds a renamed member by its text."""
    module, qualname, stored, text = _member(data)
    cls = find_class(module, qualname)
    name = f"{module}.{qualname}"
    if cls is None:
        raise _missing(name)
    if not issubclass(cls, Enum):
        raise TypeNotSupported(f"a saved value is a member of {name}, which is no Enum here")
    if isinstance(stored, int):
        if not issubclass(cls, Flag):
            raise TypeNotSupported(f"a saved value is a combination of {name}, which is no Flag here")
        return cls(stored)
    found = cls.__members__.get(stored)
    if found is None and text is not None:
        found = next((member for member in cls if member._value_ == text), None)
    if found is None:
        raise TypeNotSupported(
            f"a saved value is {name}.{stored}, but the Enum has no such member; keep it, if only as another name for a member"
        )
    return found


# -- reading without the classes ---------------------------------------------------------------------------------------


class StandIn(Row):
    """A row for an object whose class is not looked up; encodes to the same bytes again."""

    __slots__ = ()
    header: bytes

    def with_values(self, values: Sequence[Any]) -> Row:
        return type(self).of(self.field_names, values)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, StandIn) and other.header != self.header:
            return False
        return super().__eq__(other)

    __hash__ = Row.__hash__

    def __reduce__(self) -> tuple[Any, ...]:
        return stand_in, (self.header, list(self))

    def as_dict(self, recursive: bool = False) -> dict[str, Any]:
        return {name: value for name, value in super().as_dict(recursive).items() if name not in _PYDANTIC}

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={value!r}" for name, value in self.as_dict().items())
        return f"{type(self).__name__}({fields})"


@lru_cache(maxsize=1024)
def _stand_in_class(header: bytes) -> type[StandIn]:
    qualname = _parsed(header)[2]
    return type(qualname.rpartition(".")[2], (StandIn,), {"__slots__": (), "__module__": __name__, "header": header})


def stand_in(header: bytes, values: Sequence[Any]) -> StandIn:
    """Decode an object to a row."""
    row = _stand_in_class(header).of(_parsed(header)[3], values)
    assert isinstance(row, StandIn)
    return row


class MemberName(str):
    """The name of a member of an Enum, or the bits of a combination, whose class is not looked up."""

    data: bytes

    @staticmethod
    def of(data: bytes) -> MemberName:
        """Decode a member to its name."""
        name = MemberName(_member(data)[2])
        name.data = data
        return name

    def __eq__(self, other: object) -> bool:
        if isinstance(other, MemberName):
            return self.data == other.data
        return str.__eq__(self, other) if isinstance(other, str) else NotImplemented

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__

    def __reduce__(self) -> tuple[Any, ...]:
        return MemberName.of, (self.data,)


class Pickled:
    """A pickle that is not loaded. ``name``: the name of the object's class."""

    def __init__(self, name: str, data: bytes) -> None:
        self.name = name
        self.data = data

    def __eq__(self, other: object) -> bool:
        return self.data == other.data if isinstance(other, Pickled) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.data)

    def __str__(self) -> str:
        return f"<pickle of {self.name}>"

    __repr__ = __str__


def with_parts(value: Any, convert_all: Callable[[list[Any]], list[Any]]) -> Any:
    """The object with converted field values; the same object if no value changes."""
    shape = None if isinstance(value, StandIn) else shape_of(type(value))
    if shape is None and not isinstance(value, StandIn):
        return value
    parts = list(value if shape is None else shape.values(value))
    results = convert_all(parts)
    if results is parts:
        return value
    return value.with_values(results) if shape is None else shape.make(results)


def header_and_values(value: Any) -> tuple[bytes, Iterable[Any]] | None:
    """The encoding of an object of a record class; None for other objects."""
    if isinstance(value, StandIn):
        return value.header, value
    shape = shape_of(type(value))
    return None if shape is None else (shape.header, shape.values(value))
