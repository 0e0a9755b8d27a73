"""Finds unreadable entries: earlier versions committed values that do not fit their type.

Bisects only the blocks that cannot be converted, so readable entries cost almost nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from msgspec import MsgspecError, Raw

from forkpoint.checkpoint.savepoint_manifest import LeftOutState, UnreadableEntry
from forkpoint.checkpoint.states import StateInfo
from forkpoint.decoders import msgpack_decoder
from forkpoint.errors import ForkpointError, SavepointCorrupt
from forkpoint.runtime.state.ttl import STAMP_BYTES, pack_stamp, unpack_stamp
from forkpoint.savepoint.format.entries import Codec, codec_of
from forkpoint.savepoint.format.layout import Role
from forkpoint.savepoint.format.rows import Ints
from forkpoint.state import decode_operator_key, decode_state_key, decode_timer_key
from forkpoint.types import Types
from forkpoint.types.wire import pack, shown

SHOWN = 20  # entries listed for each state

_split = msgpack_decoder(list[Raw])
_STAMPS = Types.LIST(Types.LONG())


@dataclass
class LeftOut:
    """Counts the unreadable entries of a state, and keeps some as examples."""

    entries: int = 0
    examples: list[UnreadableEntry] = field(default_factory=list)

    def add(self, key: str, why: str) -> None:
        self.entries += 1
        if len(self.examples) < SHOWN:
            self.examples.append(UnreadableEntry(key=key, why=why))

    def record(self, info: StateInfo) -> LeftOutState:
        return LeftOutState(uid=info.uid, state=info.name, entries=self.entries, examples=self.examples)


Block = tuple[Ints, list[bytes], list[bytes]]
"""Key groups, store keys and values of entries, in the same order."""


def readable(info: StateInfo, block: Block, left_out: LeftOut) -> Block:
    """The readable entries of a block, with the readable elements of lists; adds the others to ``left_out``."""
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
    """The readable elements of an unreadable chunk of a list; None if there are none."""
    groups, keys, values = entry
    location = _location(info, codec_of(info), keys[0])
    try:
        elements = list(_elements(info, values[0])) if info.kind == "list" else []
    except (MsgspecError, ValueError):
        elements = []  # not even a list
    if not elements:
        left_out.add(location, _failure(info, entry) or "")
        return None
    good: list[tuple[bytes, int]] = []
    for number, element in enumerate(elements):
        why = _failure(info, (groups, keys, [_chunk(info, [element])]))
        if why is None:
            good.append(element)
        else:
            left_out.add(f"{location}, element {number} of those added together", why)
    return _chunk(info, good) if good else None


def _elements(info: StateInfo, value: bytes) -> Iterator[tuple[bytes, int]]:
    """The encoded elements of a list's chunk, with their stamps."""
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


def _location(info: StateInfo, codec: Codec, store_key: bytes) -> str:
    """Describes an entry by its key, or by its subtask and index."""
    if info.is_operator_state:
        key = decode_operator_key(store_key)
        return f"subtask {key.subtask}, element {key.element}"
    if info.is_timers:
        timer = decode_timer_key(store_key)
        return f"key {_shown(codec, timer.key)}, timer at {timer.ts_ms} ms"
    entry = decode_state_key(store_key)
    text = f"key {_shown(codec, entry.key)}"
    if codec.layout.has("map_key"):
        text += f", map key {_shown(codec, entry.namespace, 'map_key')}"
    elif codec.layout.has("namespace"):
        space = entry.namespace[:-8] if info.kind == "list" else entry.namespace
        text += f", window {_shown(codec, space, 'namespace')}"
    return text


def _shown(codec: Codec, data: bytes, role: Role = "key") -> str:
    decode: Callable[[bytes], object] = codec.layout.part(role).type.decode
    try:
        return shown(decode(data))
    except (MsgspecError, ForkpointError, ValueError, TypeError):
        return f"of the bytes {data.hex()}"
