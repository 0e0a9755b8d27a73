"""Whether a saved state fits a declared one: unchanged, with its value type evolved, or through migrations; and whether the
program's classes accept saved values, as ``__post_init__`` may raise. The restore says so, instead of each read later.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import pyarrow as pa

from forkpoint.checkpoint.states import OPERATOR_KINDS, TIMER_KINDS, StateInfo
from forkpoint.errors import RestoreRefused, TypeNotSupported
from forkpoint.graph.transformations import Migrations
from forkpoint.savepoint.format.layout import layout_of
from forkpoint.savepoint.format.rows import Rows
from forkpoint.savepoint.restore.evolution import Conversion, Migration
from forkpoint.types import Evolution, Misfit, Step, TypeInformation, Types, evolve, from_description, same_bytes, same_keys
from forkpoint.types.evolution import SAME
from forkpoint.types.wire import shown


@dataclass(frozen=True)
class ProgramOperator:
    """An operator of the new program.

    ``source``: the kind of its position ("native", "spark", …) if it has one. ``complete``: whether the declared states
    are all it can have; False for a function that may request more at runtime, as in ``open()``: its undeclared saved
    states are kept. ``value_types``: of the declared states by name, with their classes, which carry more than
    descriptions. ``key_type``: the description of its keys.
    """

    uid: str
    stateful: bool
    source: str | None = None
    complete: bool = True
    value_types: Mapping[str, TypeInformation] = field(default_factory=dict)
    key_type: Any = None
    migrations: Migrations = field(default_factory=Migrations)


@dataclass(frozen=True)
class Verdict(Conversion):
    """Whether a saved state fits; ``why`` says why not, or what changes. ``dropped``: the fields that would be lost."""

    fits: bool
    why: str = ""
    dropped: tuple[str, ...] = ()


def compare_state(saved: StateInfo, wanted: StateInfo, program: ProgramOperator | None = None) -> Verdict:
    """Whether a saved state can become the declared one. ``program``: the operator that has it."""
    migrations = Migrations() if program is None else program.migrations
    # Only keyed state takes part in migrations of keys.
    keys = () if wanted.key_type is None else chain(migrations.keys, saved.key_version, "keys")
    if isinstance(keys, str):
        return Verdict(False, keys)
    if not keys and not same_keys(saved.key_type, wanted.key_type):
        if wanted.key_type != _ANY or saved.key_type is None:
            return _type_changed("key", saved.key_type, wanted.key_type, f"migrate_key({saved.key_version}, …)")
        keys = (_same_key,)  # a key of any type is one without a type, too; it is only encoded in another way
    values = chain(migrations.states.get(saved.name, {}), saved.version, "values")
    if isinstance(values, str):
        return Verdict(False, values)
    step: Step = SAME
    dropped: tuple[str, ...] = ()
    notes = [
        f"{len(steps)} migration{'s' if len(steps) > 1 else ''} of {what}"
        for steps, what in ((keys, "keys"), (values, "values"))
        if steps
    ]
    if values:
        if not {saved.kind, wanted.kind}.isdisjoint((*TIMER_KINDS, *OPERATOR_KINDS)):
            return Verdict(False, f"{saved.kind} state cannot be migrated to {wanted.kind} state; give it a new name")
        if "map" not in (saved.kind, wanted.kind) and not same_bytes(saved.namespace_type, wanted.namespace_type):
            return _type_changed("namespace", saved.namespace_type, wanted.namespace_type)
    else:
        found = _evolution(saved, wanted, program)
        if isinstance(found, Verdict):
            return found
        step, dropped = found.step, found.dropped
        notes += found.changes
    if saved.ttl_ms is None and wanted.ttl_ms is not None:
        notes.append("has a time to live now: entries begin to age with this run")
    elif saved.ttl_ms is not None and wanted.ttl_ms is None:
        notes.append("has no time to live any more")
    to_key_form = bool(wanted.canonical_keys and not saved.canonical_keys)
    if to_key_form:
        notes.append("equal keys are saved alike now")
    return Verdict(True, "; ".join(notes), dropped, step=step, values=values, keys=keys, to_key_form=to_key_form)


_ANY = Types.ANY().describe()


def _same_key(key: Any) -> Any:
    return key


def chain(functions: Mapping[int, Migration], version: int, what: str) -> tuple[Migration, ...] | str:
    """The migrations from a version to the program's; if some are missing, a text that says so."""
    newest = max(functions, default=0) + 1
    if version > newest:
        return (
            f"its {what} are of version {version}, the program's of version {newest}; register the removed migrations again "
            f"(the one from version {version - 1} is enough), or restore with a newer program"
        )
    if missing := [v for v in range(version, newest) if v not in functions]:
        return f"its {what} are of version {version}, and there is no migration from version {missing[0]}; register one"
    return tuple(functions[v] for v in range(version, newest))


def _evolution(saved: StateInfo, wanted: StateInfo, program: ProgramOperator | None) -> Evolution | Verdict:
    """How the values of a state without migrations are converted."""
    refused = saved.pickles_refused(wanted)
    if refused is not None:
        return Verdict(False, refused)
    remedy = f"migrate_state({saved.version}, …, state={saved.name!r})"
    if saved.kind != wanted.kind:
        return Verdict(
            False, f"was {saved.kind} state and is declared as {wanted.kind} state; give it a new name, or register {remedy}"
        )
    if not same_bytes(saved.namespace_type, wanted.namespace_type):
        what = "map key" if saved.kind in ("map", "broadcast") else "namespace"
        return _type_changed(what, saved.namespace_type, wanted.namespace_type, remedy if saved.kind == "map" else "")
    if saved.fingerprint != wanted.fingerprint:
        return Verdict(False, f"its meaning has changed: was {saved.fingerprint}, is {wanted.fingerprint}")
    if saved.value_type == wanted.value_type:
        return Evolution(SAME, ())
    if saved.value_type is None or wanted.value_type is None:
        return _type_changed("value", saved.value_type, wanted.value_type)
    declared = None if program is None else program.value_types.get(wanted.name)
    old: Any = saved.value_type
    new: Any = wanted.value_type
    found = evolve(old, declared or from_description(new), renames_recorded=saved.renames_recorded)
    if isinstance(found, Misfit):
        return _type_changed("value", saved.value_type, wanted.value_type, remedy, found.why)
    return found


def _type_changed(what: str, old: Any, new: Any, remedy: str = "", why: str = "") -> Verdict:
    why = why or _why_not(old, new)
    text = f"its {what} type was {type_text(old)} and is declared as {type_text(new)}"
    return Verdict(False, "".join((text, f" ({why})" if why else "", f"; register {remedy}" if remedy else "")))


def _why_not(old: Any, new: Any) -> str:
    """Why one described type cannot become the other: the member of an Enum that is missing, the field that has changed."""
    if old is None or new is None:
        return ""
    try:
        found = evolve(old, from_description(new))
    except TypeNotSupported:
        return ""
    return found.why if isinstance(found, Misfit) else ""


def type_text(description: Any) -> str:
    """A type's description in readable form."""
    if description is None:
        return "none"
    try:
        return repr(from_description(description))
    except TypeNotSupported:
        return str(description)


def validated(tables: Iterable[pa.Table], info: StateInfo, declared: bytes) -> Iterator[pa.Table]:
    """The tables of a state, after each of its values was built once. ``declared``: the pickled type of its values.

    Raises RestoreRefused, which names the key and the value, if a class refuses a value.
    """
    layout, of = layout_of(info), _loaded(declared)
    for table in tables:
        rows = Rows(layout, table)
        columns = [column.combine_chunks() for column in rows.parts["value"]]
        try:
            of.from_columns(columns)
        except Exception as error:
            raise _refused(rows, info, of, columns) or error from error
        yield table


@lru_cache(maxsize=64)
def _loaded(declared: bytes) -> TypeInformation[Any]:
    return pickle.loads(declared)  # type: ignore[no-any-return]  # written by this restore


def _refused(rows: Rows, info: StateInfo, of: TypeInformation[Any], columns: list[pa.Array]) -> RestoreRefused | None:
    """The error that names the first row that cannot be built."""
    for place in range(rows.count):
        try:
            of.from_columns([column.slice(place, 1) for column in columns])
        except Exception as error:
            value = shown(rows.objects("value")[place])
            key = f" of key {shown(rows.objects('key')[place])}" if rows.layout.has("key") else ""
            return RestoreRefused(
                f"{info.where}: the saved value {value}{key} is refused by the class that the program declares: {error!r}; let "
                f"its __post_init__ accept the value, or convert it: migrate_state({info.version}, …, state={info.name!r})"
            )
    return None
