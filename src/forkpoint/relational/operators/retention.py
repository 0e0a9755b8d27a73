"""Time to live of the state of queries: how long it is kept after the last write, and how expired entries are removed.

As in Flink, nothing is emitted when state expires: what the query has shown of it stays, and later rows start anew. A group
and a partition of OVER expire as a whole; the rows of a join expire one by one. The clock is the epoch's processing time, which
all tasks of an epoch share.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from forkpoint.functions import StateTtlConfig
from forkpoint.functions.state.descriptors import StateDescriptor
from forkpoint.relational.windows import duration
from forkpoint.runtime.state.keyed_backend import ChangeLog, KeyedBackend
from forkpoint.runtime.state.ttl import Stamps, Sweeper
from forkpoint.state import decode_state_key, state_key


@dataclass(frozen=True)
class Retention:
    """How long an operator keeps its state. ``ttl_ms``: of each input, None without limit. ``incomplete``: whether rows may be
    taken back that are not in the state, because they, or what they were computed from, have expired."""

    ttl_ms: tuple[int | None, ...] = ()
    incomplete: bool = False

    def of(self, ordinal: int) -> int | None:
        return self.ttl_ms[ordinal] if ordinal < len(self.ttl_ms) else None


FOREVER = Retention()


def kept_for(descriptor: StateDescriptor, ttl_ms: int | None) -> None:
    """Give a state a time to live, unless it is None."""
    descriptor.ttl = None if ttl_ms is None else StateTtlConfig.new_builder(ttl_ms).build()


def stamps_of(backend: KeyedBackend, ttl_ms: int | None) -> Stamps | None:
    """The stamps of a state's entries; None if it has no time to live."""
    return None if ttl_ms is None else Stamps(StateTtlConfig.new_builder(ttl_ms).build(), backend)


def sweeper(backend: KeyedBackend, sid: int, ttl_ms: int) -> Sweeper:
    """Removes expired entries, whichever keys an epoch has."""
    stamps = stamps_of(backend, ttl_ms)
    assert stamps is not None
    return Sweeper(backend, sid, stamps.expired)


def with_values_of(sweep: Sweeper, backend: KeyedBackend, others: Sequence[int]) -> Callable[[ChangeLog], None]:
    """Removes expired groups with all entries that the states ``others`` have of them."""

    def swept(log: ChangeLog) -> None:
        groups = _found(sweep, log)
        log.delete(groups)
        prefixes = [name[:2] + sid.to_bytes(4, "big") + name[6:] for name in groups for sid in others]
        if prefixes:
            log.delete(backend.store.scan_prefixes(prefixes).keys)

    return swept


def whole_keys(sweep: Sweeper, backend: KeyedBackend) -> Callable[[ChangeLog], None]:
    """Removes the entries of keys whose entries have all expired."""

    def swept(log: ChangeLog) -> None:
        parts = map(decode_state_key, _found(sweep, log))
        prefixes = list(dict.fromkeys(state_key(each.kg, sweep.sid, each.key) for each in parts))
        changed = set(log.keys)
        for prefix in prefixes:
            _, names, values = backend.store.scan_prefixes([prefix])
            if changed.isdisjoint(names) and all(map(sweep.expired, values)):
                log.delete(names)

    return swept


def _found(sweep: Sweeper, log: ChangeLog) -> list[bytes]:
    """The expired entries that the sweeper has come across, which the epoch has not changed."""
    found = ChangeLog(list(log.keys), [])
    sweep(found)
    return found.keys[len(log.keys) :]


def lifetime(ttl_ms: int | None) -> str:
    """How long state is kept, in words."""
    return "without limit" if ttl_ms is None else f"for {duration(ttl_ms)} after the last change"
