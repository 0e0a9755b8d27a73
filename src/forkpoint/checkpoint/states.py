"""Descriptions of states, in tasks, manifests and savepoints: the operator, name, kind and types."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Annotated, Any, Literal

from msgspec import Meta

from forkpoint.checkpoint.format import Record
from forkpoint.types.lookup import ALLOW_PICKLE, current_program

if TYPE_CHECKING:
    from forkpoint.types import TypeInformation

StateKind = Literal[
    "value",
    "list",
    "map",
    "reducing",
    "aggregating",
    "timers-event",
    "timers-processing",
    "operator-list",
    "operator-union",
    "broadcast",
]
TIMER_KINDS = ("timers-event", "timers-processing")
OPERATOR_KINDS = ("operator-list", "operator-union", "broadcast")

_REPLACED = "replaced "
EMITTED = {"emitted": True}
"""The definition of a replaced state once the difference to the new query has been emitted."""

_NUMBERS = 0xFFFF_FFFE  # store keys have 32 bits for a sid; one value after the last sid stays free


def state_id(uid: str, name: str) -> int:
    """A state's number in store keys. A manifest refuses two states with the same number."""
    return zlib.crc32(f"{uid}\0{name}".encode()) % _NUMBERS


class StateInfo(Record, frozen=True, kw_only=True):
    """One state of one operator. Types are descriptions (`TypeInformation.describe()`), or None if the state has no such
    part. `fingerprint` changes with the meaning of a window or aggregate. `definition`: of a query's state, the query (see
    forkpoint.relational.definitions.comparison), with which the state is compared to that of a changed query. `version` and
    `key_version`: of its values and keys, starting at 1 and incremented by each migration. `canonical_keys`: whether its
    keys, and those of its maps, are saved in their key form (see types/keys.py); None if every key has only one form, and for
    state of releases without a key form. `renames_recorded`: whether the types have the former names of fields; those of
    earlier releases do not. `pickles`: whether its values may hold pickles, which are loaded only if the job allows it."""

    sid: Annotated[int, Meta(ge=0, le=0xFFFF_FFFF)]
    uid: Annotated[str, Meta(min_length=1)]
    name: Annotated[str, Meta(min_length=1)]
    kind: StateKind
    key_type: Any = None
    value_type: Any = None
    namespace_type: Any = None
    ttl_ms: Annotated[int, Meta(gt=0)] | None = None
    fingerprint: str | None = None
    version: Annotated[int, Meta(ge=1)] = 1
    key_version: Annotated[int, Meta(ge=1)] = 1
    canonical_keys: Literal[True] | None = None
    renames_recorded: bool = False
    pickles: Literal[True] | None = None
    definition: Any = None

    @staticmethod
    def of(
        uid: str,
        name: str,
        kind: Any,
        key_type: TypeInformation | None = None,
        value_type: TypeInformation | None = None,
        namespace_type: TypeInformation | None = None,
        ttl_ms: int | None = None,
        fingerprint: str | None = None,
        *,
        version: int = 1,
        key_version: int = 1,
        definition: Any = None,
    ) -> StateInfo:
        """The state with this operator, name and types, as this release saves it."""
        from forkpoint.types.keys import has_many_forms

        key, value, namespace = (None if t is None else t.describe() for t in (key_type, value_type, namespace_type))
        keys = (key_type, namespace_type if kind in ("map", "broadcast") else None)
        pickled = current_program().allow_pickle and value_type is not None and "any" in value_type.kinds()
        return StateInfo(
            sid=state_id(uid, name),
            uid=uid,
            name=name,
            kind=kind,
            key_type=key,
            value_type=value,
            namespace_type=namespace,
            ttl_ms=ttl_ms,
            fingerprint=fingerprint,
            version=version,
            key_version=key_version,
            canonical_keys=True if any(t is not None and has_many_forms(t) for t in keys) else None,
            renames_recorded=True,
            pickles=True if pickled else None,
            definition=definition,
        )

    def named(self, uid: str, name: str) -> StateInfo:
        """The same state with another name."""
        return self.replace(sid=state_id(uid, name), uid=uid, name=name)

    def as_saved_now(self) -> StateInfo:
        """The same state as this release saves it."""
        from forkpoint.types import from_description
        from forkpoint.types.keys import has_many_forms

        keys: tuple[Any, ...] = (self.key_type, self.namespace_type if self.kind in ("map", "broadcast") else None)
        if self.canonical_keys or not any(t is not None and has_many_forms(from_description(t)) for t in keys):
            return self
        return self.replace(canonical_keys=True)

    def pickles_refused(self, wanted: StateInfo) -> str | None:
        """Why the state cannot become the wanted one, whose job does not load pickles; None if it can."""
        if not self.pickles or wanted.pickles:
            return None
        return (
            "it was saved with execution.allow-pickle and may hold pickles, which can run any code when they are loaded; if you "
            f"trust its author, set {ALLOW_PICKLE}"
        )

    def as_replaced(self, uid: str) -> StateInfo:
        """The state of a query that was replaced by one computed from its input again: it is kept beside the new query's state,
        under the operator with the new query's result, whose first epoch emits the difference of both results. The commit of
        that epoch makes its definition EMITTED."""
        return self.named(uid, _REPLACED + self.name)

    @property
    def is_replaced(self) -> bool:
        """Whether it is the state of a replaced query, and the difference has not been emitted yet."""
        return self.name.startswith(_REPLACED) and self.definition not in (None, EMITTED)

    @property
    def is_of_query(self) -> bool:
        """Whether it is the state of a query, which is right only if all rows so far are in it."""
        return self.definition is not None and "pattern" not in self.definition

    @property
    def is_shown(self) -> bool:
        """Whether a query's operator computes what it shows from this state."""
        return self.definition is not None and "view" in self.definition

    @property
    def where(self) -> str:
        """The state's name and operator, for messages."""
        return f"state {self.name!r} of operator {self.uid!r}"

    @property
    def is_operator_state(self) -> bool:
        return self.kind in OPERATOR_KINDS

    @property
    def is_timers(self) -> bool:
        return self.kind in TIMER_KINDS
