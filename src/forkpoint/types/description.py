"""`from_description`: the inverse of `TypeInformation.describe`, without the user's classes."""

from __future__ import annotations

from msgspec import MsgspecError

from forkpoint.errors import TypeNotSupported
from forkpoint.types.information import Field, JsonObject, TypeInformation
from forkpoint.types.kinds.containers import MapType, OptionalType, SequenceType, UnionType
from forkpoint.types.kinds.decimals import decimal
from forkpoint.types.kinds.defaults import default_from_description
from forkpoint.types.kinds.enums import EnumType
from forkpoint.types.kinds.records import ARRAY_FLAVORS, MAP_FLAVORS, classless
from forkpoint.types.kinds.scalars import CLASSLESS_ANY, SPECS, scalar


def from_description(description: JsonObject) -> TypeInformation:
    """Return a type that is equal to the described type: it reads and writes the same bytes and columns.

    It reads NamedTuples as generated namedtuples, dataclasses, Structs and objects in ANY as `Row`, Enums as their values (or
    names), and members of Enums in ANY as their names.

    Raises TypeNotSupported if the description is invalid, or of a newer version.
    """
    try:
        return _make(description)
    except (KeyError, TypeError, ValueError, AttributeError, MsgspecError) as error:
        raise TypeNotSupported(f"not the description of a type ({error!r}): {description!r:.200}") from error


def _make(description: JsonObject) -> TypeInformation:
    kind = description["kind"]
    if kind == "any":
        return CLASSLESS_ANY
    if kind in SPECS:
        return scalar(kind)
    match kind:
        case "decimal":
            return decimal(description["precision"], description["scale"])
        case "optional":
            return OptionalType(_make(description["of"]))
        case "union":
            return UnionType(tuple(map(_make, description["members"])))
        case "list" | "tuple_of" | "set" | "frozenset":
            return SequenceType(kind, _make(description["element"]))
        case "map":
            return MapType(_make(description["key"]), _make(description["value"]))
        case "enum":
            members = tuple((name, value) for name, value in description["members"])
            return EnumType(_name(description), description["form"], members, None)
        case "record":
            return _record(description)
        case _:
            raise TypeNotSupported(
                f"unknown kind of type {kind!r}; it was saved by a newer version of forkpoint: upgrade to read it"
            )


def _record(description: JsonObject) -> TypeInformation:
    flavor, name = description["flavor"], _name(description)
    members = tuple(map(_field, description["fields"]))
    if len({member.name for member in members}) < len(members):
        raise ValueError("two fields have the same name")
    if flavor not in (*ARRAY_FLAVORS, *MAP_FLAVORS):
        raise TypeNotSupported(f"unknown flavor of record {flavor!r}; upgrade forkpoint to read it")
    return classless(flavor, name, members)


def _field(description: JsonObject) -> Field:
    of = _make(description["type"])
    default = default_from_description(of, description["default"]) if "default" in description else {}
    return Field(_name(description), of, **default, renamed_from=tuple(description.get("renamed_from", ())))


def _name(description: JsonObject) -> str:
    name = description["name"]
    if not isinstance(name, str):
        raise TypeError(f"{name!r} is not a name")
    return name
