"""Entries that cannot be read: earlier versions committed values that do not fit their type.

Which ones they are is found by halving a block that cannot be converted, so the readable ones cost next to nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from msgspec import MsgspecError, Raw, msgpack

from forkpoint.checkpoint.states import StateInfo
from forkpoint.errors import ForkpointError, SavepointCorrupt
from forkpoint.runtime.state.ttl import STAMP_BYTES, pack_stamp, unpack_stamp
from forkpoint.savepoint.entries import Codec, Ints, codec_of
from forkpoint.state import decode_operator_key, decode_state_key, decode_timer_key
from forkpoint.types import Types
from forkpoint.types.wire import pack, shown

SHOWN = 20  # entries named for each state

_split = msgpack.Decoder(list[Raw]).decode
_STAMPS = Types.LIST(Types.LONG())


@dataclass(frozen=True)
class Unreadable:
    """An entry of a state: where it is in words, and why it cannot be read."""

    key: str
    why: str


@dataclass
class LeftOut:
    """What of a state could not be read: how much, and some of it by name."""

    uid: str
    state: str
    entries: int = 0
    examples: list[Unreadable] = field(default_factory=list)

    def add(self, found: Unreadable) -> None:
        self.entries += 1
        if len(self.examples) < SHOWN:
            self.examples.append(found)


Block = tuple[Ints, list[bytes], list[bytes]]
"""Key groups, store keys and values of entries, one for one."""


def readable(info: StateInfo, block: Block, left_out: LeftOut) -> Block:
    """The entries of a block that can be read, of lists the elements; the others are noted."""
    kept: list[tuple[int, bytes, bytes]] = []

    def sift(some: Block) -> None:
        groups, keys, values = some
        if _failure(info, some) is None:
            kept.extend(zip(groups.tolist(), keys, values, strict=True))
        elif len(keys) > 1:
            half = len(keys) // 2
            sift((groups[:half], keys[:half], values[:half]))
            sift((groups[half:], keys[half:], values[half:]))
        elif (rest := _readable_part(info, some, left_out)) is not None:
            kept.append((int(groups[0]), keys[0], rest))

    sift(block)
    groups, keys, values = zip(*kept, strict=True) if kept else ((), (), ())
    return np.array(groups, np.int64), list(keys), list(values)


def _failure(info: StateInfo, block: Block) -> str | None:
    try:
        codec_of(info).to_table(*block)
    except SavepointCorrupt as error:
        return str(error.__cause__ or error)
    return None


def _readable_part(info: StateInfo, entry: Block, left_out: LeftOut) -> bytes | None:
    """What can be read of an entry that as a whole cannot: of a list's chunk the other elements."""
    groups, keys, values = entry
    place = _place(info, codec_of(info), keys[0])
    try:
        elements = list(_elements(info, values[0])) if info.kind == "list" else []
    except (MsgspecError, ValueError):
        elements = []  # not even a list
    if not elements:
        left_out.add(Unreadable(place, _failure(info, entry) or ""))
        return None
    good: list[tuple[bytes, int]] = []
    for number, element in enumerate(elements):
        why = _failure(info, (groups, keys, [_chunk(info, [element])]))
        if why is None:
            good.append(element)
        else:
            left_out.add(Unreadable(f"{place}, element {number} of those added together", why))
    return _chunk(info, good) if good else None


def _elements(info: StateInfo, value: bytes) -> Iterator[tuple[bytes, int]]:
    """The elements of a list's chunk, encoded, with their stamps."""
    if info.ttl_ms is None:
        yield from ((bytes(element), 0) for element in _split(value))
        return
    length = unpack_stamp(value)
    stamps = _STAMPS.decode(value[STAMP_BYTES : STAMP_BYTES + length])
    yield from zip(map(bytes, _split(value[STAMP_BYTES + length :])), stamps, strict=True)


def _chunk(info: StateInfo, elements: Sequence[tuple[bytes, int]]) -> bytes:
    raw = pack([Raw(element) for element, _ in elements])
    if info.ttl_ms is None:
        return raw
    stamps = _STAMPS.encode([stamp for _, stamp in elements])
    return pack_stamp(len(stamps)) + stamps + raw


def _place(info: StateInfo, codec: Codec, name: bytes) -> str:
    """Which entry it is, in words."""
    if info.is_operator_state:
        found = decode_operator_key(name)
        return f"subtask {found.subtask}, element {found.element}"
    if info.is_timers:
        timer = decode_timer_key(name)
        return f"key {_shown(codec, timer.key)}, timer at {timer.ts_ms} ms"
    entry = decode_state_key(name)
    text = f"key {_shown(codec, entry.key)}"
    if codec.layout.has("map_key"):
        text += f", map key {_shown(codec, entry.namespace, 'map_key')}"
    elif codec.layout.has("namespace"):
        space = entry.namespace[:-8] if info.kind == "list" else entry.namespace
        text += f", window {_shown(codec, space, 'namespace')}"
    return text


def _shown(codec: Codec, data: bytes, role: str = "key") -> str:
    decode: Callable[[bytes], object] = codec.layout.part(role).type.decode  # type: ignore[arg-type]
    try:
        return shown(decode(data))
    except (MsgspecError, ForkpointError, ValueError, TypeError):
        return f"of the bytes {data.hex()}"
