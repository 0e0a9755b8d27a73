"""lookup_join: each element with what an external system has for its key.

An epoch's distinct keys are looked up at once, those without a valid entry in the cache, which is keyed state. Outputs take the
places of their elements.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

import numpy as np

from forkpoint.errors import JobFailed
from forkpoint.functions import AsyncLookupFunction, AsyncRetryStrategy, Function, LookupFunction, ValueStateDescriptor
from forkpoint.functions.joins import is_flat
from forkpoint.graph.specs import DeclaredState
from forkpoint.runtime.exchange.batch import Batch, Longs
from forkpoint.runtime.exchange.grouping import Groups, group_by_key
from forkpoint.runtime.operators.base import (
    Context,
    Epoch,
    KeyedOperator,
    Outputs,
    TaskInfo,
    check_all_done,
    results_for,
    shorten,
    user_code,
)
from forkpoint.runtime.operators.emission import Collector
from forkpoint.runtime.operators.instances import KeyedSpec, ManagedState
from forkpoint.runtime.operators.requests.lookup_client import Asking
from forkpoint.runtime.state.guard import Encoded, Guard
from forkpoint.runtime.state.keyed_backend import KeyedBackend
from forkpoint.runtime.state.ttl import Expiry
from forkpoint.runtime.state.values import KeyCell
from forkpoint.types import TypeInformation
from forkpoint.types.kinds.containers import optional

OnMissing = Literal["null", "drop", "fail"]


@dataclass(frozen=True)
class LookupJoinSpec(KeyedSpec):
    """``fn``: the join function, None for pairs. ``found_type``: the type of what is found for a key. ``cache_ttl_ms``: None for
    no cache.
    """

    kind = "lookup_join"

    lookup: LookupFunction | AsyncLookupFunction
    fn: Any
    found_type: TypeInformation
    on_missing: OnMissing
    cache_ttl_ms: int | None
    cache_misses: bool
    timeout_ms: int
    retry: AsyncRetryStrategy

    @property
    def cache(self) -> ValueStateDescriptor[Any] | None:
        """What was found for a key, None if that is nothing."""
        if self.cache_ttl_ms is None:
            return None
        state = ValueStateDescriptor("cache", optional(self.found_type))
        return state.enable_time_to_live(timedelta(milliseconds=self.cache_ttl_ms))

    def states(self) -> list[DeclaredState]:
        return [] if self.cache is None else [DeclaredState.of(self.cache)]

    @property
    def declares_all_states(self) -> bool:
        return True

    def instance(self, info: TaskInfo, state: ManagedState) -> LookupJoin:
        return LookupJoin(info, state.keyed, self)


class Cache:
    """The cache of one subtask: what was found, as the guard keeps it. ``misses``: whether it has the keys without anything."""

    def __init__(self, backend: KeyedBackend, descriptor: ValueStateDescriptor[Any], misses: bool) -> None:
        cell: KeyCell = backend.get(descriptor).cell
        assert cell.guard.expiry is not None
        self._cell, self._misses = cell, misses
        self._expiry: Expiry = cell.guard.expiry

    def read(self) -> tuple[list[Any], list[int]]:
        """For each key of the epoch what is known of it, and the indices of those of which nothing is."""
        known: list[Any] = []
        unknown: list[int] = []
        dead, misses = self._expiry.dead, self._misses
        for index, entry in enumerate(self._cell.kept_values()):
            kept = None if entry is None else _kept(entry[0])
            if entry is None or dead(entry) or (kept is None and not misses):
                unknown.append(index)
                kept = None
            known.append(kept)
        return known, unknown

    def write(self, found: dict[int, Any]) -> None:
        """What has been found for keys, by index; None for nothing."""
        stamp, known = self._expiry.stamp(), self._cell.kept_values()
        entries = {i: None if kept is None and not self._misses else (kept, stamp) for i, kept in found.items()}
        self._cell.set_some({i: entry for i, entry in entries.items() if entry is not None or known[i] is not None})


class LookupJoin(KeyedOperator):
    """Runs one lookup join."""

    def __init__(self, info: TaskInfo, backend: KeyedBackend, spec: LookupJoinSpec) -> None:
        super().__init__(info, backend)
        self._collector = Collector(info.operator)
        self._on_missing = spec.on_missing
        self._cache = None if spec.cache is None else Cache(backend, spec.cache, spec.cache_misses)
        self._current: Any = None  # the key whose answer is being checked
        self._guard = Guard(
            optional(spec.found_type),
            f"operator {self._uid!r}, lookup",
            lambda: f" of key {shorten(self._current)}",
            "Return what fits the type, or declare another",
        )
        self._flat = is_flat(spec.fn)
        self._owner: Function | None = spec.fn if isinstance(spec.fn, Function) else None
        self._fn: Any = spec.fn if self._owner is None else self._owner.join  # type: ignore[attr-defined]
        metrics = info.metrics
        self._hits, self._loads = metrics.counter("hitCount"), metrics.counter("loadCount")
        self._missing = metrics.counter("missCount")
        self._asking = Asking(info, spec.lookup, spec.timeout_ms, spec.retry)
        if self._owner is not None:
            try:
                self._owner.open(Context(info, None))
            except BaseException:
                self._asking.close()
                raise

    def close(self) -> None:
        try:
            if self._owner is not None:
                self._owner.close()
        finally:
            self._asking.close()

    def run(self, inputs: list[Batch], epoch: Epoch) -> Outputs:
        batch = inputs[0]
        self._collector.begin(epoch)
        groups = group_by_key(batch, self._key)
        self._backend.begin(groups.keys, epoch.processing_time_ms, lambda: epoch.window.start)
        if not batch.size:
            return self._collector.outputs(batch.with_values([], self._type))
        found = self._look_up(groups.keys)
        batch, key_of = self._with_missing(batch, groups, found)
        give = self._guard.give
        if self._guard.type.immutable:
            beside = list(map(found.__getitem__, key_of.tolist()))
        else:  # each element gets an object of its own
            beside = [give(found[key]) for key in key_of.tolist()]
        if self._fn is None:  # elements and what is beside them have been taken, and the pairs are forkpoint's own
            return Outputs(batch.with_values(list(zip(batch.values, beside, strict=True)), self._type))
        return self._collector.outputs(self._joined(batch, beside))

    def _look_up(self, keys: Sequence[Any]) -> list[Any]:
        """What is found for each key, as the guard keeps it; None for nothing."""
        cache = self._cache
        found, unknown = ([None] * len(keys), list(range(len(keys)))) if cache is None else cache.read()
        answers = self._asking.ask([keys[index] for index in unknown])
        keep = self._guard.keep
        for index, answer in zip(unknown, answers, strict=True):
            if answer is not None:
                self._current = keys[index]
                found[index] = _kept(keep(answer))
        if cache is not None:
            cache.write({index: found[index] for index in unknown})
        self._hits.inc(len(keys) - len(unknown))
        self._loads.inc(len(unknown))
        return found

    def _with_missing(self, batch: Batch, groups: Groups, found: list[Any]) -> tuple[Batch, Longs]:
        """The elements to emit, and the index of each one's key, as ``on_missing`` says."""
        key_of = np.empty(batch.size, dtype=np.int64)
        key_of[groups.order] = np.repeat(np.arange(len(groups.keys)), np.diff(groups.starts))
        missing = np.fromiter((kept is None for kept in found), bool, len(found))
        if not missing.any():
            return batch, key_of
        rows = np.flatnonzero(missing[key_of])
        self._missing.inc(len(rows))
        if self._on_missing == "fail":
            key = groups.keys[int(key_of[rows[0]])]
            raise JobFailed(
                f"operator {self._uid!r}: the lookup found nothing for key {shorten(key)} of element "
                f"{shorten(batch.element(int(rows[0])))}; add it to the external system, or use on_missing='null' or 'drop'"
            )
        if self._on_missing == "null":
            return batch, key_of
        stay = np.flatnonzero(~missing[key_of])
        return batch.take(stay), key_of[stay]

    def _joined(self, batch: Batch, beside: list[Any]) -> Batch:
        if not self._flat:
            out = results_for(batch, self._uid, self._collector.taking(map(self._fn, batch.values, beside)))
            return batch.with_values(out, self._type)
        out = []
        counts: list[int] = []
        extend, before = self._collector.into(out), 0
        with user_code(self._uid, lambda: batch.element(len(counts))):
            for results in map(self._fn, batch.values, beside):
                if results is not None:
                    extend(results)
                counts.append(len(out) - before)
                before = len(out)
            check_all_done(len(counts), batch)
        return batch.expand(out, counts, self._type)


def _kept(kept: Any) -> Any:
    """What a guard keeps; None also for a None that was stored."""
    return None if kept.__class__ is Encoded and kept == _NIL else kept


_NIL = b"\xc0"  # msgpack's
