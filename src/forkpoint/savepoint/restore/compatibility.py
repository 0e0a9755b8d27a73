"""Decides whether a saved state fits the declared state: unchanged, with an evolved value type, or through migrations.

Also checks at the restore, not at later reads, that the program's classes accept saved values: ``__post_init__`` may raise.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, cast

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

    ``source``: the kind of its position ("native", "spark", …) if it has a position. ``complete``: whether it declares all
    its states; False for a function that may request more at runtime, as in ``open()``: its undeclared saved states are
    kept. ``value_types``: of the declared states by name, with their classes, which carry more than descriptions.
    ``key_type``: the description of its keys. ``functions``: see OperatorSpec. Of an operator with state of a query,
    ``sources``: the uids of those that it reads, directly or not; ``changing``: of what it reads and whose rows change, operators
    with such state, and sources; of one that follows others (see OperatorSpec), those.
    """

    uid: str
    stateful: bool
    source: str | None = None
    complete: bool = True
    value_types: Mapping[str, TypeInformation] = field(default_factory=dict)
    key_type: Any = None
    migrations: Migrations = field(default_factory=Migrations)
    functions: frozenset[str] = frozenset()
    sources: frozenset[str] = frozenset()
    changing: frozenset[str] = frozenset()
    name: str = ""


@dataclass(frozen=True)
class Verdict(Conversion):
    """Whether a saved state fits; ``why`` gives the reason or the changes. ``dropped``: the fields that would be lost."""

    fits: bool
    why: str = ""
    dropped: tuple[str, ...] = ()


def compare_state(saved: StateInfo, wanted: StateInfo, program: ProgramOperator | None = None) -> Verdict:
    """Whether a saved state can become the declared one. ``program``: the operator that has it."""
    note = ""
    if saved.definition is not None or wanted.definition is not None:
        from forkpoint.relational.definitions.comparison import compare

        functions = frozenset() if program is None else program.functions
        refused, note = compare(saved.definition, wanted.definition, functions)
        if refused:
            return Verdict(False, refused)
    migrations = Migrations() if program is None else program.migrations
    # Key migrations apply to keyed state only.
    keys = () if wanted.key_type is None else chain(migrations.keys, saved.key_version, "keys")
    if isinstance(keys, str):
        return Verdict(False, keys)
    if not keys and not same_keys(saved.key_type, wanted.key_type):
        if wanted.key_type != _ANY or saved.key_type is None:
            return _type_changed("key", saved.key_type, wanted.key_type, f"migrate_key({saved.key_version}, …)")
        keys = (_same_key,)  # ANY accepts keys of every type, but encodes them differently
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
        step = found.step
        # A query does without what its result no longer needs.
        dropped = found.dropped if wanted.definition is None else ()
        notes += [note] if note else found.changes if wanted.definition is None else []
    if saved.ttl_ms is None and wanted.ttl_ms is not None:
        notes.append("now has a time to live: entries begin to age with this run")
    elif saved.ttl_ms is not None and wanted.ttl_ms is None:
        notes.append("no longer has a time to live")
    to_key_form = bool(wanted.canonical_keys and not saved.canonical_keys)
    if to_key_form:
        notes.append("equal keys now have one encoding")
    return Verdict(True, "; ".join(notes), dropped, step=step, values=values, keys=keys, to_key_form=to_key_form)


_ANY = Types.ANY().describe()


def _same_key(key: Any) -> Any:
    return key


def restored_as(saved: StateInfo, wanted: StateInfo) -> StateInfo:
    """The declared state as a restore writes it.

    The state of a changed query still has all that the old query needs, until the first epoch has emitted the difference.
    """
    if saved.definition is None or wanted.definition is None or saved.definition == wanted.definition:
        return wanted
    if wanted.kind == "map":  # the rows of a join, which its first epoch converts
        return wanted.replace(namespace_type=saved.namespace_type)
    old, new = cast("dict[str, Any]", saved.value_type), cast("dict[str, Any]", wanted.value_type)
    names = {field["name"] for field in new["fields"]}
    fields = [*new["fields"], *(field for field in old["fields"] if field["name"] not in names)]
    return wanted.replace(value_type={**new, "fields": fields})


def chain(functions: Mapping[int, Migration], version: int, what: str) -> tuple[Migration, ...] | str:
    """The migrations from a version to the program's version; an error text if some are missing."""
    newest = max(functions, default=0) + 1
    if version > newest:
        return (
            f"its {what} have version {version}, the program's have version {newest}; register the removed migrations again "
            f"(the migration from version {version - 1} is enough), or restore with a newer program"
        )
    if missing := [v for v in range(version, newest) if v not in functions]:
        return f"its {what} have version {version}, and there is no migration from version {missing[0]}; register one"
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
        return Verdict(False, f"its meaning has changed from {saved.fingerprint} to {wanted.fingerprint}")
    if saved.value_type == wanted.value_type:
        return Evolution(SAME, ())
    if saved.value_type is None or wanted.value_type is None:
        return _type_changed("value", saved.value_type, wanted.value_type)
    declared = None if program is None or wanted.definition is not None else program.value_types.get(wanted.name)
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
    """Why a described type cannot become another: a missing member of an Enum, or a changed field."""
    if old is None or new is None:
        return ""
    try:
        found = evolve(old, from_description(new))
    except TypeNotSupported:
        return ""
    return found.why if isinstance(found, Misfit) else ""


def type_text(description: Any) -> str:
    """A type's description for people."""
    if description is None:
        return "none"
    try:
        return repr(from_description(description))
    except TypeNotSupported:
        return str(description)


def validated(tables: Iterable[pa.Table], info: StateInfo, declared: bytes) -> Iterator[pa.Table]:
    """The tables of a state, after building each value once. ``declared``: the pickled type of the values.

    Raises RestoreRefused naming the key and the value if a class refuses a value.
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
    """The error for the first value that cannot be built."""
    for row in range(rows.count):
        try:
            of.from_columns([column.slice(row, 1) for column in columns])
        except Exception as error:
            value = shown(rows.objects("value")[row])
            key = f" of key {shown(rows.objects('key')[row])}" if rows.layout.has("key") else ""
            return RestoreRefused(
                f"{info.where}: the class that the program declares refuses the saved value {value}{key}: {error!r}; let "
                f"its __post_init__ accept the value, or convert it: migrate_state({info.version}, …, state={info.name!r})"
            )
    return None
