"""lookup_join: joins each element with the value that an external system holds for its key.

An epoch looks up all its distinct keys without a valid cache entry at once. The cache is keyed state. Outputs keep the order of
their elements.
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
from forkpoint.runtime.operators.requests.lookup_client import LookupClient
from forkpoint.runtime.state.guard import Encoded, Guard
from forkpoint.runtime.state.keyed_backend import KeyedBackend
from forkpoint.runtime.state.ttl import Expiry
from forkpoint.runtime.state.values import KeyCell
from forkpoint.types import TypeInformation
from forkpoint.types.kinds.containers import optional

OnMissing = Literal["null", "drop", "fail"]


@dataclass(frozen=True)
class LookupJoinSpec(KeyedSpec):
    """``fn``: the join function, None for pairs. ``value_type``: the type of a looked-up value. ``cache_ttl_ms``: None for no
    cache.
    """

    kind = "lookup_join"

    lookup: LookupFunction | AsyncLookupFunction
    fn: Any
    value_type: TypeInformation
    on_missing: OnMissing
    cache_ttl_ms: int | None
    cache_misses: bool
    timeout_ms: int
    retry: AsyncRetryStrategy

    @property
    def cache(self) -> ValueStateDescriptor[Any] | None:
        """The state that caches a key's value, None for a missing key."""
        if self.cache_ttl_ms is None:
            return None
        state = ValueStateDescriptor("cache", optional(self.value_type))
        return state.enable_time_to_live(timedelta(milliseconds=self.cache_ttl_ms))

    def states(self) -> list[DeclaredState]:
        return [] if self.cache is None else [DeclaredState.of(self.cache)]

    @property
    def declares_all_states(self) -> bool:
        return True

    def instance(self, info: TaskInfo, state: ManagedState) -> LookupJoin:
        return LookupJoin(info, state.keyed, self)


class Cache:
    """The cache of one subtask, with values in their kept form. ``misses``: whether it also caches missing keys."""

    def __init__(self, backend: KeyedBackend, descriptor: ValueStateDescriptor[Any], misses: bool) -> None:
        cell: KeyCell = backend.get(descriptor).cell
        assert cell.guard.expiry is not None
        self._cell, self._misses = cell, misses
        self._expiry: Expiry = cell.guard.expiry

    def read(self) -> tuple[list[Any], list[int]]:
        """The cached values of the epoch's keys, and the indices of the keys to look up."""
        cached: list[Any] = []
        unknown: list[int] = []
        dead, misses = self._expiry.dead, self._misses
        for index, entry in enumerate(self._cell.kept_values()):
            kept = None if entry is None else _kept(entry[0])
            if entry is None or dead(entry) or (kept is None and not misses):
                unknown.append(index)
                kept = None
            cached.append(kept)
        return cached, unknown

    def write(self, found: dict[int, Any]) -> None:
        """Cache looked-up values by the index of their key, None for a missing key."""
        stamp, cached = self._expiry.stamp(), self._cell.kept_values()
        entries = {i: None if kept is None and not self._misses else (kept, stamp) for i, kept in found.items()}
        self._cell.set_some({i: entry for i, entry in entries.items() if entry is not None or cached[i] is not None})


class LookupJoin(KeyedOperator):
    """Runs one lookup join."""

    def __init__(self, info: TaskInfo, backend: KeyedBackend, spec: LookupJoinSpec) -> None:
        super().__init__(info, backend)
        self._collector = Collector(info.operator)
        self._on_missing = spec.on_missing
        self._cache = None if spec.cache is None else Cache(backend, spec.cache, spec.cache_misses)
        self._current: Any = None  # the key of the value to check
        self._guard = Guard(
            optional(spec.value_type),
            f"operator {self._uid!r}, lookup",
            lambda: f" of key {shorten(self._current)}",
            "Return values of the type, or declare another type",
        )
        self._flat = is_flat(spec.fn)
        self._owner: Function | None = spec.fn if isinstance(spec.fn, Function) else None
        self._fn: Any = spec.fn if self._owner is None else self._owner.join  # type: ignore[attr-defined]
        metrics = info.metrics
        self._hits, self._loads = metrics.counter("hitCount"), metrics.counter("loadCount")
        self._missing = metrics.counter("missCount")
        self._client = LookupClient(info, spec.lookup, spec.timeout_ms, spec.retry)
        if self._owner is not None:
            try:
                self._owner.open(Context(info, None))
            except BaseException:
                self._client.close()
                raise

    def close(self) -> None:
        try:
            if self._owner is not None:
                self._owner.close()
        finally:
            self._client.close()

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
            seconds = list(map(found.__getitem__, key_of.tolist()))
        else:  # each element has a separate object
            seconds = [give(found[key]) for key in key_of.tolist()]
        if self._fn is None:  # elements and values have been taken, and user code does not see the pairs
            return Outputs(batch.with_values(list(zip(batch.values, seconds, strict=True)), self._type))
        return self._collector.outputs(self._joined(batch, seconds))

    def _look_up(self, keys: Sequence[Any]) -> list[Any]:
        """The value of each key in its kept form, None for a missing key."""
        cache = self._cache
        found, unknown = ([None] * len(keys), list(range(len(keys)))) if cache is None else cache.read()
        values = self._client.look_up([keys[index] for index in unknown])
        keep = self._guard.keep
        for index, value in zip(unknown, values, strict=True):
            if value is not None:
                self._current = keys[index]
                found[index] = _kept(keep(value))
        if cache is not None:
            cache.write({index: found[index] for index in unknown})
        self._hits.inc(len(keys) - len(unknown))
        self._loads.inc(len(unknown))
        return found

    def _with_missing(self, batch: Batch, groups: Groups, found: list[Any]) -> tuple[Batch, Longs]:
        """The elements to emit by ``on_missing``, and the indices of their keys."""
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
        present = np.flatnonzero(~missing[key_of])
        return batch.take(present), key_of[present]

    def _joined(self, batch: Batch, seconds: list[Any]) -> Batch:
        if not self._flat:
            out = results_for(batch, self._uid, self._collector.take_each(map(self._fn, batch.values, seconds)))
            return batch.with_values(out, self._type)
        out = []
        counts: list[int] = []
        extend, before = self._collector.into(out), 0
        with user_code(self._uid, lambda: batch.element(len(counts))):
            for results in map(self._fn, batch.values, seconds):
                if results is not None:
                    extend(results)
                counts.append(len(out) - before)
                before = len(out)
            check_all_done(len(counts), batch)
        return batch.expand(out, counts, self._type)


def _kept(kept: Any) -> Any:
    """A kept value, with None for a stored None."""
    return None if kept.__class__ is Encoded and kept == _NIL else kept


_NIL = b"\xc0"  # of msgpack
