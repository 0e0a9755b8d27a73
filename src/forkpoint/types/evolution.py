"""Changes of a type between two versions of a program, and the conversion of its values. Pure.

``evolve`` compares a saved type's description with the declared type; it matches fields by name, not by position. Allowed
changes lose only dropped fields. The conversion is plain data, which is sent to tasks; it is empty if the stored bytes mean
the same in both types.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import msgspec
import pyarrow as pa

from forkpoint.errors import TypeNotSupported
from forkpoint.types.description import from_description
from forkpoint.types.information import Field, JsonObject, TypeInformation
from forkpoint.types.kinds.containers import MapType, OptionalType, SequenceType, UnionType, present
from forkpoint.types.kinds.enums import EnumType
from forkpoint.types.kinds.records import ARRAY_FLAVORS, RecordType


class Same(msgspec.Struct, frozen=True, tag=True):
    """The bytes stay the same."""


class Number(msgspec.Struct, frozen=True, tag=True):
    """A number in a wider type; refused if it is not exact."""


class FieldStep(msgspec.Struct, frozen=True):
    """A field of the new record: from the old field at ``source``, or, for -1, the encoded default."""

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


class Members(msgspec.Struct, frozen=True, tag=True):
    """The members of an Enum: pairs of the old and the new stored value."""

    stored: tuple[tuple[str | int, str | int], ...]


class Dynamic(msgspec.Struct, frozen=True, tag=True):
    """A value that is no longer typed."""


Step = Same | Number | Fields | Items | Entries | Members | Dynamic
SAME = Same()


@dataclass(frozen=True)
class Evolution:
    """How values of the old type become values of the new type. ``changes``: descriptions of the changes. ``dropped``: the fields
    whose values are lost, with a remedy if there is one."""

    step: Step
    changes: tuple[str, ...]
    dropped: tuple[str, ...] = ()

    @property
    def identical(self) -> bool:
        """Whether stored values need no conversion."""
        return isinstance(self.step, Same)


@dataclass(frozen=True)
class Misfit:
    """Why values need a migration."""

    why: str


def evolve(old: JsonObject, new: TypeInformation, *, renames_recorded: bool = True) -> Evolution | Misfit:
    """Compare the description of a saved type with the type that a program declares.

    Allowed, at any depth: fields added with a default (or Optional: None), dropped, reordered, renamed with RenamedFrom;
    BYTE < SHORT < INT < LONG < BIG_INT, FLOAT < DOUBLE, integers to FLOAT, DOUBLE or BIG_DEC if every value is exact;
    T to Optional[T]; Enum members added, or stored by another value; members added at the end of a Union; another class or
    kind of record; any type to ANY if its values have no classes. ``renames_recorded``: whether the description has the
    former names of fields; descriptions of old releases do not.

    Raises TypeNotSupported if ``old`` is not a valid description, or a default cannot be encoded.
    """
    found = _Comparison(renames_recorded)
    try:
        step = _step(from_description(old), new, "", found)
    except _DoesNotFit as error:
        return Misfit(str(error))
    return Evolution(step, tuple(found.changes), tuple(found.dropped))


@dataclass
class _Comparison:
    renames_recorded: bool
    changes: list[str] = dataclasses.field(default_factory=list)
    dropped: list[str] = dataclasses.field(default_factory=list)


class _DoesNotFit(Exception):
    pass


_INTEGERS = ("byte", "short", "int", "long", "big_int")
_SAME_BYTES = {("float", "double"), ("char", "string")}
_EXACT_IN_FLOAT = ("byte", "short")


def _step(old: TypeInformation, new: TypeInformation, at: str, found: _Comparison) -> Step:
    if old == new and not new.has_renames:
        return SAME
    if isinstance(new, OptionalType):
        if not isinstance(old, OptionalType):
            found.changes.append(f"{_prefix(at)}may be None")
        return _step(present(old), new.of, at, found)
    if new.kind == "any":
        return _dynamic(old, new, at, found)
    match old, new:
        case RecordType(), RecordType():
            return _record(old, new, at, found)
        case SequenceType(), SequenceType():
            return _sequence(old, new, at, found)
        case MapType(), MapType():
            if not isinstance(_step(old.key, new.key, f"{at}<key>", found), Same):
                raise _misfit(old.key, new.key, f"{at}<key>", "keys of a dict cannot change")
            step = _step(old.value, new.value, f"{at}<value>", found)
            return SAME if isinstance(step, Same) else Entries(step)
        case EnumType(), EnumType():
            return _enum(old, new, at, found)
        case UnionType(), UnionType() if len(old.members) <= len(new.members):
            for before, after in zip(old.members, new.members, strict=False):
                if not isinstance(_step(before, after, at, found), Same):
                    raise _misfit(old, new, at, "the first members of a Union must stay the same")
            if len(old.members) < len(new.members):
                found.changes.append(f"{_prefix(at)}{old!r} → {new!r}")
            return SAME
    return _scalar(old, new, at, found)


def _dynamic(old: TypeInformation, new: TypeInformation, at: str, found: _Comparison) -> Step:
    with_class = _with_class(old)
    if with_class is not None:
        raise _misfit(old, new, at, f"{with_class!r} is saved without its class; keep the type")
    found.changes.append(f"{_prefix(at)}{old!r} → {new!r}")
    return Dynamic()


def _with_class(type: TypeInformation) -> TypeInformation | None:
    """The type itself, or an inner type, whose values have a class of the program, which descriptions do not name."""
    if isinstance(type, EnumType) or (isinstance(type, RecordType) and type.flavor not in ("tuple", "row")):
        return type
    return next((inner for inner in map(_with_class, type.children) if inner is not None), None)


def _scalar(old: TypeInformation, new: TypeInformation, at: str, found: _Comparison) -> Step:
    before, after = old.kind, new.kind
    step: Step | None = None
    if before in _INTEGERS:
        wider = after in _INTEGERS and _INTEGERS.index(before) < _INTEGERS.index(after)
        if wider or before == after:
            step = SAME
        elif before != "big_int" and (after in ("double", "big_dec") or (after == "float" and before in _EXACT_IN_FLOAT)):
            step = Number()
    elif (before, after) in _SAME_BYTES:
        step = SAME
    if step is None:
        raise _misfit(old, new, at)
    note = "; a value beyond 2**53 would be refused" if (before, after) == ("long", "double") else ""
    found.changes.append(f"{_prefix(at)}{old!r} → {new!r}{note}")
    return step


def _sequence(old: SequenceType, new: SequenceType, at: str, found: _Comparison) -> Step:
    if ("set" in old.form) != ("set" in new.form):
        raise _misfit(old, new, at)
    if old.form != new.form:
        found.changes.append(f"{_prefix(at)}{old.form} → {new.form}")
    step = _step(old.element, new.element, f"{at}[]", found)
    if isinstance(step, Same):
        return SAME
    if "set" in old.form:
        raise _misfit(old.element, new.element, f"{at}[]", "elements of a set cannot change")
    return Items(step)


def _enum(old: EnumType, new: EnumType, at: str, found: _Comparison) -> Step:
    """Members are matched by name, not by value."""
    before, after = old.stored_members, new.stored_members
    stored: dict[Any, Any] = {}
    for name, value in before.items():
        target = after.get(name, _renamed(value, before, after))
        if target is None:
            if any(other in after for other, same in before.items() if same == value):
                continue  # an alias that still has another name
            raise _misfit(
                old, new, at, f"{name} ({value!r}) is no longer a member; if it is renamed, keep its old name as an alias"
            )
        if stored.setdefault(value, target) != target:
            raise _misfit(old, new, at, f"{name} is no longer an alias: {value!r} could be another member")
        if name in after and target != value:
            found.changes.append(f"{_prefix(at)}member {name} is stored as {target!r} instead of {value!r}")
    found.changes.extend(f"{_prefix(at)}member {name} added" for name in after if name not in before)
    if all(value == target for value, target in stored.items()) and old.form == new.form:
        return SAME
    if new.is_flag:
        raise _misfit(old, new, at, "the bits of a Flag must stay the same")
    return Members(tuple(stored.items()))


def _renamed(value: Any, before: dict[str, Any], after: dict[str, Any]) -> str | None:
    """The stored text of a member that was only renamed. Numbers are not matched, because they may be reassigned."""
    names = [name for name, other in after.items() if other == value]
    return value if names and isinstance(value, str) and before.keys().isdisjoint(names) else None


def _record(old: RecordType, new: RecordType, at: str, found: _Comparison) -> Step:
    if old.is_positional and new.is_positional and len(old.members) != len(new.members):
        raise _misfit(old, new, at, "fields without names cannot be matched if their number changes")
    if old.flavor != new.flavor:
        found.changes.append(f"{_prefix(at)}{old.flavor} → {new.flavor}")
    sources = _sources(old, new, at, found)
    steps = [_field(old, field, sources.get(field.name), at, found) for field in new.members]
    used = set(sources.values())
    added = [field for field in new.members if field.name not in sources]
    for index, field in enumerate(old.members):
        if index not in used:
            found.changes.append(f"{_inside(at, field.name)} dropped")
            found.dropped.append(_inside(at, field.name) + _rename_hint(field, added))
    order = [step.source for step in steps if step.source >= 0]
    if order != sorted(order):
        found.changes.append(f"{_prefix(at)}fields reordered")
    return SAME if _same_bytes(old, new, steps) else Fields(tuple(steps))


def _rename_hint(dropped: Field, added: list[Field]) -> str:
    """The remedy if the dropped field may be an added field with another name."""
    similar = [field.name for field in added if present(field.type) == present(dropped.type)]
    return f" (if it is {' or '.join(similar)} now, annotate that with RenamedFrom({dropped.name!r}))" if similar else ""


def _sources(old: RecordType, new: RecordType, at: str, found: _Comparison) -> dict[str, int]:
    """The old index of each new field that existed: by a former name that was not recorded when saved, else by its own name."""
    indexes = {name: index for index, name in enumerate(old.names)}
    sources: dict[str, int] = {}
    for field in new.members:
        former = next((name for name in _former_names(old, indexes, field) if name in indexes), None)
        if former is None:
            continue
        if field.name in indexes and not found.renames_recorded:
            raise _DoesNotFit(
                f"{_prefix(at)}has both {former} and {field.name}, and was saved by a forkpoint that did not record renames: "
                f"remove RenamedFrom({former!r}) if {field.name} was renamed before that, else migrate the state"
            )
        if indexes[former] in sources.values():
            raise _DoesNotFit(f"{_prefix(at)}has two fields that are renamed from {former}")
        sources[field.name] = indexes[former]
    taken = set(sources.values())
    for name in new.names:
        if name not in sources and name in indexes and indexes[name] not in taken:
            sources[name] = indexes[name]
    return sources


def _former_names(old: RecordType, indexes: dict[str, int], field: Field) -> tuple[str, ...]:
    """The former names of a field, up to the latest name that was already recorded when the value was saved."""
    names = field.renamed_from
    done = old.members[indexes[field.name]].renamed_from if field.name in indexes else ()
    return names[: next((number for number, name in enumerate(names) if name in done), len(names))]


def _field(old: RecordType, field: Field, source: int | None, at: str, found: _Comparison) -> FieldStep:
    inside = _inside(at, field.name)
    if source is not None:
        before = old.members[source]
        if before.name != field.name:
            found.changes.append(f"{_inside(at, before.name)} renamed to {field.name}")
        return FieldStep(source, _step(before.type, field.type, inside, found))
    if field.has_default:
        default = field.make_default()
    elif field.type.nullable:
        default = None
    else:
        raise _DoesNotFit(f"{inside} was added without a default")
    found.changes.append(f"{inside} added as {default!r}")
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
    return _DoesNotFit(f"{_prefix(at)}{old!r} cannot become {new!r}{f': {why}' if why else ''}")


def _prefix(at: str) -> str:
    return f"{at} " if at else ""


def _inside(at: str, name: str) -> str:
    return f"{at}.{name}" if at else name


def same_bytes(old: Any, new: Any) -> bool:
    """Whether the stored bytes of two described types (None: no such part) mean the same."""
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
    """Whether keys of two described types are stored and hashed in the same way."""
    return old == new or (same_bytes(old, new) and _hashed_as_int(old) == _hashed_as_int(new))


def _hashed_as_int(description: Any) -> bool:
    return bool(pa.types.is_integer(from_description(description).arrow_type))
