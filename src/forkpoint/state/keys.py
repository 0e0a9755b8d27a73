"""The layout of the keys of a store.

    state      >H key group | >I sid | >I len(key) | key | namespace
    timer      >H key group | >I sid | >Q timestamp + 2**63 | >I len(key) | key | namespace
    operator   >H 0xFFFF    | >I sid | >I subtask | >Q element

Numbers are big-endian, so byte order is the order of (key group, sid, time): a range of key groups is one range of keys, and
due timers come first. A sid is below 0xFFFFFFFF, so every range has an end.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

OPERATOR_KG = 0xFFFF

_TIME_SHIFT = 2**63
_TIME_END = 2**64
_PREFIX = struct.Struct(">HI")
_STATE = struct.Struct(">HII")
_TIMER = struct.Struct(">HIQI")
_TIME = struct.Struct(">HIQ")
_OPERATOR = struct.Struct(">HIIQ")
_SUBTASK = struct.Struct(">HII")


class StateKey(NamedTuple):
    kg: int
    sid: int
    key: bytes
    namespace: bytes


class TimerKey(NamedTuple):
    kg: int
    sid: int
    ts_ms: int
    key: bytes
    namespace: bytes


class OperatorKey(NamedTuple):
    sid: int
    subtask: int
    element: int


def state_key(kg: int, sid: int, key: bytes, namespace: bytes = b"") -> bytes:
    """The store key of a key's value. ``namespace``: a map key or a window."""
    return _STATE.pack(kg, sid, len(key)) + key + namespace


def state_keys(kgs: Sequence[int], sid: int, keys: Sequence[bytes]) -> list[bytes]:
    """`state_key` of several keys with their key groups, without namespaces."""
    groups = set(kgs)
    heads = {n: {kg: _STATE.pack(kg, sid, n) for kg in groups} for n in set(map(len, keys))}
    return [heads[len(key)][kg] + key for kg, key in zip(kgs, keys, strict=True)]


def decode_state_key(data: bytes) -> StateKey:
    kg, sid, length = _STATE.unpack_from(data)
    end = _STATE.size + length
    return StateKey(kg, sid, data[_STATE.size : end], data[end:])


def timer_key(kg: int, sid: int, ts_ms: int, key: bytes, namespace: bytes = b"") -> bytes:
    """The store key of a timer; -2**63 <= ts_ms < 2**63."""
    return _TIMER.pack(kg, sid, ts_ms + _TIME_SHIFT, len(key)) + key + namespace


def decode_timer_key(data: bytes) -> TimerKey:
    kg, sid, shifted, length = _TIMER.unpack_from(data)
    end = _TIMER.size + length
    return TimerKey(kg, sid, shifted - _TIME_SHIFT, data[_TIMER.size : end], data[end:])


def operator_key(sid: int, subtask: int, element: int) -> bytes:
    """The store key of one element (counted from 0) of a subtask's operator (non-keyed) state."""
    return _OPERATOR.pack(OPERATOR_KG, sid, subtask, element)


def decode_operator_key(data: bytes) -> OperatorKey:
    _, sid, subtask, element = _OPERATOR.unpack(data)
    return OperatorKey(sid, subtask, element)


def kg_of(data: bytes) -> int:
    """The key group of any store key; OPERATOR_KG for operator state."""
    return int.from_bytes(data[:2], "big")


def sid_of(data: bytes) -> int:
    """The state id of any store key."""
    return int.from_bytes(data[2:6], "big")


def prefix_stop(prefix: bytes) -> bytes:
    """The smallest byte string above all strings that start with `prefix` (which must not be all 0xFF)."""
    stem = prefix.rstrip(b"\xff")
    return stem[:-1] + bytes((stem[-1] + 1,))


def range_for(kg_start: int, kg_stop: int) -> tuple[bytes, bytes]:
    """The range (start, stop) of all store keys with kg_start <= key group < kg_stop.

    `range_for(OPERATOR_KG, OPERATOR_KG + 1)` is the range of operator state.
    """
    stop = kg_stop.to_bytes(2, "big") if kg_stop <= OPERATOR_KG else b"\xff" * _PREFIX.size
    return kg_start.to_bytes(2, "big"), stop


def sid_range(kg: int, sid: int) -> tuple[bytes, bytes]:
    """The range of all entries of one state (or timer service) in one key group."""
    return _PREFIX.pack(kg, sid), prefix_stop(_PREFIX.pack(kg, sid))


def timer_range(kg: int, sid: int, until_ms: int) -> tuple[bytes, bytes]:
    """The range of the timers with timestamp <= until_ms."""
    start, end = sid_range(kg, sid)
    shifted = until_ms + _TIME_SHIFT + 1
    return start, end if shifted >= _TIME_END else _TIME.pack(kg, sid, shifted)


def in_groups(groups: Iterable[int], of_one: tuple[bytes, bytes]) -> list[tuple[bytes, bytes]]:
    """The range ``of_one`` of one key group, in each of several key groups."""
    start, stop = of_one[0][2:], of_one[1][2:]
    return [(kg + start, kg + stop) for kg in (group.to_bytes(2, "big") for group in groups)]


@lru_cache(maxsize=1024)
def sid_ranges(kg_start: int, kg_stop: int, sid: int) -> tuple[tuple[bytes, bytes], ...]:
    """`sid_range` in each of several key groups, which some operators ask for in each epoch."""
    return tuple(in_groups(range(kg_start, kg_stop), sid_range(0, sid)))


def operator_range(sid: int, subtask: int | None = None) -> tuple[bytes, bytes]:
    """The range of an operator state, of one subtask or of all subtasks."""
    if subtask is None:
        return sid_range(OPERATOR_KG, sid)
    prefix = _SUBTASK.pack(OPERATOR_KG, sid, subtask)
    return prefix, prefix_stop(prefix)
