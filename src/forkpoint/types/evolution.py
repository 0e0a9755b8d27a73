"""How a type may change between two versions of a program, and how its values are converted. Pure.

``evolve`` compares a saved type's description with the declared type; it matches fields by name, not by position. Allowed
changes lose nothing but dropped fields. The conversion is plain data that is sent to tasks; there is none where the stored
bytes mean the same in both types.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
import pyarrow as pa

from forkpoint.errors import TypeNotSupported
from forkpoint.types.containers import MapType, OptionalType, SequenceType, UnionType, present
from forkpoint.types.description import from_description
from forkpoint.types.enums import EnumType
from forkpoint.types.information import Field, JsonObject, TypeInformation
from forkpoint.types.records import ARRAY_FLAVORS, RecordType


class Same(msgspec.Struct, frozen=True, tag=True):
    """The bytes stay as they are."""


class Number(msgspec.Struct, frozen=True, tag=True):
    """A number in a wider type; refused if it would not be exact."""


class FieldStep(msgspec.Struct, frozen=True):
    """A field of the new record: from the old field at ``source``, or, for -1, the default, encoded."""

    source: int
    step: Step
    default: bytes = b""


class Fields(msgspec.Struct, frozen=True, tag=True):
    """A record from a record."""

    fields: tuple[FieldStep, ...]


class Items(msgspec.Struct, frozen=True, tag=True):
    """The elements of a list or tuple."""

    step: Step


class Entries(msgspec.Struct, frozen=True, tag=True):
    """The values of a dict."""

    step: Step


Step = Same | Number | Fields | Items | Entries
SAME = Same()


@dataclass(frozen=True)
class Evolution:
    """How values of the old type become values of the new one. ``changes``: each change in words."""

    step: Step
    changes: tuple[str, ...]

    @property
    def identical(self) -> bool:
        """Whether stored values can stay as they are."""
        return isinstance(self.step, Same)


@dataclass(frozen=True)
class Misfit:
    """Why values need a migration."""

    why: str


def evolve(old: JsonObject, new: TypeInformation) -> Evolution | Misfit:
    """Compare the description of a saved type with the type that a program declares.

    Allowed, at any depth: fields added with a default (or Optional: None), dropped, reordered, renamed with RenamedFrom;
    BYTE < SHORT < INT < LONG < BIG_INT, FLOAT < DOUBLE, integers to FLOAT, DOUBLE or BIG_DEC where each value is exact;
    T to Optional[T]; Enum members and members at the end of a Union added; another class or kind of record.

    Raises TypeNotSupported if ``old`` is no description, or a default cannot be encoded.
    """
    changes: list[str] = []
    try:
        step = _step(from_description(old), new, "", changes)
    except _DoesNotFit as error:
        return Misfit(str(error))
    return Evolution(step, tuple(changes))


class _DoesNotFit(Exception):
    pass


_INTEGERS = ("byte", "short", "int", "long", "big_int")
_SAME_BYTES = {("float", "double"), ("char", "string")}
_EXACT_IN_FLOAT = ("byte", "short")


def _step(old: TypeInformation, new: TypeInformation, at: str, changes: list[str]) -> Step:
    if old == new:
        return SAME
    if isinstance(new, OptionalType):
        if not isinstance(old, OptionalType):
            changes.append(f"{_place(at)}may be None")
        return _step(present(old), new.of, at, changes)
    match old, new:
        case RecordType(), RecordType():
            return _record(old, new, at, changes)
        case SequenceType(), SequenceType():
            return _sequence(old, new, at, changes)
        case MapType(), MapType():
            if not isinstance(_step(old.key, new.key, f"{at}<key>", changes), Same):
                raise _misfit(old.key, new.key, f"{at}<key>", "keys of a dict cannot change")
            step = _step(old.value, new.value, f"{at}<value>", changes)
            return SAME if isinstance(step, Same) else Entries(step)
        case EnumType(), EnumType():
            return _enum(old, new, at, changes)
        case UnionType(), UnionType() if len(old.members) <= len(new.members):
            for before, after in zip(old.members, new.members, strict=False):
                if not isinstance(_step(before, after, at, changes), Same):
                    raise _misfit(old, new, at, "the first members of a Union must stay as they are")
            if len(old.members) < len(new.members):
                changes.append(f"{_place(at)}{old!r} → {new!r}")
            return SAME
    return _scalar(old, new, at, changes)


def _scalar(old: TypeInformation, new: TypeInformation, at: str, changes: list[str]) -> Step:
    before, after = old.kind, new.kind
    step: Step | None = None
    if before in _INTEGERS:
        wider = after in _INTEGERS and _INTEGERS.index(before) < _INTEGERS.index(after)
        if wider or before == after:
            step = SAME
        elif before != "big_int" and (
            after in ("double", "big_dec") or (after == "float" and before in _EXACT_IN_FLOAT)
        ):
            step = Number()
    elif (before, after) in _SAME_BYTES:
        step = SAME
    if step is None:
        raise _misfit(old, new, at)
    note = "; a value beyond 2**53 would be refused" if (before, after) == ("long", "double") else ""
    changes.append(f"{_place(at)}{old!r} → {new!r}{note}")
    return step


def _sequence(old: SequenceType, new: SequenceType, at: str, changes: list[str]) -> Step:
    if ("set" in old.form) != ("set" in new.form):
        raise _misfit(old, new, at)
    if old.form != new.form:
        changes.append(f"{_place(at)}{old.form} → {new.form}")
    step = _step(old.element, new.element, f"{at}[]", changes)
    if isinstance(step, Same):
        return SAME
    if "set" in old.form:
        raise _misfit(old.element, new.element, f"{at}[]", "elements of a set cannot change")
    return Items(step)


def _enum(old: EnumType, new: EnumType, at: str, changes: list[str]) -> Step:
    if old.form != new.form:
        raise _misfit(old, new, at, "its values are of another kind")
    which = 0 if old.form == "name" else 1  # the stored part of a member
    before, after = ({pair[which] for pair in each.members} for each in (old, new))
    if gone := before - after:
        shown = ", ".join(sorted(map(repr, gone)))
        raise _misfit(old, new, at, f"{shown} is no longer a member")
    if added := after - before:
        shown = ", ".join(sorted(map(repr, added)))
        changes.append(f"{_place(at)}member {shown} added")
    return SAME


def _record(old: RecordType, new: RecordType, at: str, changes: list[str]) -> Step:
    if old.is_positional and new.is_positional and len(old.members) != len(new.members):
        raise _misfit(old, new, at, "fields without names cannot be matched if their number changes")
    if old.flavor != new.flavor:
        changes.append(f"{_place(at)}{old.flavor} → {new.flavor}")
    places = {name: place for place, name in enumerate(old.names)}
    sources = _sources(places, new)
    found = [_field(old, field, sources.get(field.name), at, changes) for field in new.members]
    used = set(sources.values())
    changes.extend(f"{_inside(at, name)} dropped" for name, place in places.items() if place not in used)
    order = [step.source for step in found if step.source >= 0]
    if order != sorted(order):
        changes.append(f"{_place(at)}fields reordered")
    return SAME if _same_bytes(old, new, found) else Fields(tuple(found))


def _sources(places: dict[str, int], new: RecordType) -> dict[str, int]:
    """The old position of each new field that existed: by the same name, else by a former one."""
    sources = {name: places[name] for name in new.names if name in places}
    taken = set(sources.values())
    for field in new.members:
        if field.name in sources:
            continue
        for former in field.renamed_from:
            if former in places and places[former] not in taken:
                sources[field.name] = places[former]
                taken.add(places[former])
                break
    return sources


def _field(old: RecordType, field: Field, source: int | None, at: str, changes: list[str]) -> FieldStep:
    inside = _inside(at, field.name)
    if source is not None:
        before = old.members[source]
        if before.name != field.name:
            changes.append(f"{_inside(at, before.name)} renamed to {field.name}")
        return FieldStep(source, _step(before.type, field.type, inside, changes))
    if field.has_default:
        default = field.make_default()
    elif field.type.nullable:
        default = None
    else:
        raise _DoesNotFit(f"{inside} was added without a default")
    changes.append(f"{inside} added as {default!r}")
    try:
        return FieldStep(-1, SAME, field.type.encode(default))
    except (TypeError, ValueError, AttributeError, OverflowError, msgspec.MsgspecError) as error:
        raise field.type.encode_error(default, error) from error


def _same_bytes(old: RecordType, new: RecordType, fields: list[FieldStep]) -> bool:
    arrays = old.flavor in ARRAY_FLAVORS
    if arrays != (new.flavor in ARRAY_FLAVORS) or [step.source for step in fields] != list(range(len(old.members))):
        return False
    return (arrays or old.names == new.names) and all(isinstance(step.step, Same) for step in fields)


def _misfit(old: TypeInformation, new: TypeInformation, at: str, why: str = "") -> _DoesNotFit:
    return _DoesNotFit(f"{_place(at)}{old!r} cannot become {new!r}{f': {why}' if why else ''}")


def _place(at: str) -> str:
    return f"{at} " if at else ""


def _inside(at: str, name: str) -> str:
    return f"{at}.{name}" if at else name


def same_bytes(old: Any, new: Any) -> bool:
    """Whether two descriptions (None: no such part) are of types whose stored bytes mean the same."""
    if old == new:
        return True
    if old is None or new is None:
        return False
    try:
        found = evolve(old, from_description(new))
    except TypeNotSupported:
        return False
    return isinstance(found, Evolution) and found.identical


def same_keys(old: Any, new: Any) -> bool:
    """Whether keys of two described types are stored and hashed alike."""
    return old == new or (same_bytes(old, new) and _hashed_as_int(old) == _hashed_as_int(new))


def _hashed_as_int(description: Any) -> bool:
    return bool(pa.types.is_integer(from_description(description).arrow_type))
