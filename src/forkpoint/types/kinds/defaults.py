"""Defaults of a record's fields, in the description of its type and on the wire."""

from __future__ import annotations

import base64
import math
from dataclasses import dataclass
from typing import Any

import msgspec

from forkpoint.types.information import Field, JsonObject, TypeInformation


def wire_default(field: Field) -> Any:
    """Return the field's default, if any, in the form that `msgspec.defstruct` accepts."""
    if not field.has_default:
        return msgspec.field()
    lower, make = field.type.lower, field.make_default
    return msgspec.field(default_factory=make if lower is None else lambda: lower(make()))


_JSON_KINDS = ("boolean", "byte", "short", "int", "long", "big_int", "float", "double", "string", "char")
_KNOWN_FACTORIES = (list, dict, set, frozenset, tuple, str, int, float, bool, bytes)


def describe_field(field: Field) -> JsonObject:
    """Return the description of a field, with only the name of an unknown factory."""
    described: JsonObject = {"name": field.name, "type": field.type.describe()}
    name, factory = field.factory_name, field.factory
    if not (factory is None or factory in _KNOWN_FACTORIES or isinstance(factory, _Decoded)):
        name = getattr(factory, "__name__", "factory")
    if name is not None:
        described["default"] = {"factory": name}
    elif field.has_default:
        described["default"] = _describe_default(field.type, field.make_default())
    if field.renamed_from:
        described["renamed_from"] = list(field.renamed_from)
    return described


def _describe_default(of: TypeInformation, value: Any) -> Any:
    """Return a default as JSON if that is exact, else as its encoded bytes.

    The decision depends on the type, too: without its class an Enum's default is a str, and must have the same description.
    """
    kind = of.children[0].kind if of.kind == "optional" else of.kind
    exact = type(value) in (bool, str) or (type(value) is int and abs(value) < 2**53)
    exact = exact or (type(value) is float and math.isfinite(value))
    if value is None or (exact and kind in _JSON_KINDS):
        return value
    try:
        data = of.encode(value)
        of.decode(data)  # the description must be readable, and msgspec does not check what it encodes
        return {"msgpack": base64.b64encode(data).decode()}
    except (TypeError, ValueError, AttributeError, OverflowError, msgspec.MsgspecError) as error:
        raise of.encode_error(value, error) from error


def default_from_description(of: TypeInformation, described: Any) -> JsonObject:
    """Return the keyword arguments of a `Field` for the "default" of its description."""
    if not isinstance(described, dict):
        return {"default": described}
    if "factory" in described:
        return {"factory_name": described["factory"]}
    data = base64.b64decode(described["msgpack"])
    if of.children or of.kind == "any":
        return {"factory": _Decoded(of, data)}  # it may be mutable
    return {"default": of.decode(data)}


@dataclass(frozen=True)
class _Decoded:
    """Makes a mutable default by decoding it, a new one at each call."""

    of: TypeInformation
    data: bytes

    def __call__(self) -> Any:
        return self.of.decode(self.data)
