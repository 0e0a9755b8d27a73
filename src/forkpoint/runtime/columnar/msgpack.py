"""Vectorized msgpack: numpy writes and reads numbers between literal bytes.

A layout is the flat sequence of an encoded value's parts: literal bytes (array and map headers, field names) and numbers. The
output equals msgspec's, with the shortest form of each int.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from forkpoint.types import TypeInformation
from forkpoint.types.kinds.containers import OptionalType, SequenceType
from forkpoint.types.kinds.records import ARRAY_FLAVORS, RecordType
from forkpoint.types.wire import pack

Kind = Literal["int", "float", "bool"]
Layout = tuple["bytes | Kind", ...]
Numbers = npt.NDArray[Any]
Bytes = npt.NDArray[np.uint8]

_KINDS: dict[str, Kind] = {"byte": "int", "short": "int", "int": "int", "long": "int", "double": "float", "boolean": "bool"}
_TIMES = ("date", "time", "timestamp", "instant")
_MOST_TEXT = 2**30  # bytes
_PAD = np.zeros(9, np.uint8)

# By first byte: the number of bytes that follow (255: not a number), and whether they are a signed number.
_SIZE = np.full(256, 255, np.uint8)
_SIZE[0x00:0x80] = _SIZE[0xE0:0x100] = 0
for _first in (0xCC, 0xD0):
    _SIZE[_first : _first + 4] = (1, 2, 4, 8)
_SIGNED = np.zeros(256, bool)
_SIGNED[0xD0:0xD4] = True


def layout_of(type: TypeInformation) -> Layout | None:
    """The layout of a type's values without None; None if the type has parts other than numbers."""
    if isinstance(type, OptionalType):
        return layout_of(type.of)
    if not isinstance(type, RecordType):
        kind = _KINDS.get(type.kind)
        return None if kind is None else (kind,)
    count, array = len(type.members), type.flavor in ARRAY_FLAVORS
    if not 0 < count < 16 or type.flavor == "struct" or (not array and not type.plain):
        return None
    found: Layout = (bytes([(0x90 if array else 0x80) + count]),)
    for member in type.members:
        part = layout_of(member.type)
        if part is None:
            return None
        found = _chained(found if array else _chained(found, (pack(member.name),)), part)
    return found


def _chained(first: Layout, second: Layout) -> Layout:
    """The two layouts concatenated, with adjacent literals joined."""
    if isinstance(first[-1], bytes) and isinstance(second[0], bytes):
        return (*first[:-1], first[-1] + second[0], *second[1:])
    return first + second


def encode(layout: Layout, leaves: Sequence[Numbers], count: int) -> pa.BinaryArray:
    """Encode ``count`` values. ``leaves``: their numbers, in the layout's order."""
    ends: list[Numbers] = [np.zeros(1, np.int64)]
    blocks: list[Bytes] = [np.empty(0, np.uint8)]
    for start in range(0, count, _BLOCK):
        few = iter([leaf[start : start + _BLOCK] for leaf in leaves])
        pieces: list[_Piece] = []
        for part in layout:
            pieces += _literal(part) if isinstance(part, bytes) else _PIECES[part](next(few))
        bounds, block = _written(pieces, min(_BLOCK, count - start))
        ends.append(bounds[1:] + ends[-1][-1])
        blocks.append(block)
    return _binary(np.concatenate(ends), np.concatenate(blocks))


def _binary(bounds: Numbers, data: Bytes) -> pa.BinaryArray:
    buffers = [None, pa.py_buffer(bounds.astype(np.int32)), pa.py_buffer(data)]
    return pa.BinaryArray.from_buffers(pa.binary(), len(bounds) - 1, buffers)


_BLOCK = 4096  # values encoded at once: arrays of this size stay in the processor's cache, and need no new pages
_Piece = tuple[Any, Any]
"""Up to 8 bytes of each value: the bytes, from the highest of a uint64 on, and their number. Both may be the same for all."""


def _written(pieces: Sequence[_Piece], count: int) -> tuple[Numbers, Bytes]:
    """The bytes of ``count`` values, and their bounds.

    Whole words are written, in the order of their places: what is too much of one, the next overwrites.
    """
    places, words = (np.empty((count, len(pieces)), kind) for kind in (np.int64, np.uint64))
    bounds = np.zeros(count + 1, np.int64)
    np.cumsum(np.broadcast_to(sum(width for _, width in pieces), count), out=bounds[1:])
    at, end = bounds[:-1], int(bounds[-1])
    for number, (word, width) in enumerate(pieces):
        places[:, number], words[:, number] = at, word
        at = at + width
    data = np.empty(end + 8, np.uint8)
    anywhere: npt.NDArray[Any] = np.ndarray((end + 1,), np.uint64, data, strides=(1,))
    anywhere[places.ravel()] = words.ravel().astype(">u8").view(np.uint64)
    return bounds, data[:end]


def _literal(part: bytes) -> list[_Piece]:
    words = [part[start : start + 8] for start in range(0, len(part), 8)]
    return [(np.uint64(int.from_bytes(word.ljust(8, b"\0"), "big")), len(word)) for word in words]


def _bools(values: Numbers) -> list[_Piece]:
    return [(np.where(values, _in_front(0xC3), _in_front(0xC2)), 1)]


def _floats(numbers: Numbers) -> list[_Piece]:
    return [(_in_front(0xCB), 1), (numbers.astype(np.float64).view(np.uint64), 8)]


def _ints(numbers: Numbers) -> list[_Piece]:
    """Each in its shortest form: a byte, or a first byte and 1, 2, 4 or 8 bytes."""
    n = numbers.astype(np.int64, copy=False)
    size = _size(n, _POSITIVE)
    form = size
    if (negative := n < 0).any():
        # The width of a negative number follows from its two's complement bits beyond the sign.
        size = np.where(negative, _size(~n, _NEGATIVE), size)
        form = size + len(_WIDTHS) * negative
    bits, longest = n.view(np.uint64), size == len(_WIDTHS) - 1
    word = _headed(_FIRST_BYTES[form], bits, size)
    if not longest.any():
        return [(word, 1 + _WIDTHS[size])]
    return [(word, np.minimum(1 + _WIDTHS[size], 8)), (bits << np.uint64(56), longest)]  # 8 bytes, and the last of 9


def _headed(first: Numbers, bits: Numbers, size: Numbers) -> Numbers:
    """First bytes with numbers of these sizes in them, or behind them."""
    found: Numbers = first | bits << _LEFT[size] >> _RIGHT[size]
    return found


def _size(n: Numbers, limits: Sequence[int]) -> Numbers:
    """How many of the limits each number exceeds."""
    size = np.zeros(len(n), np.int8)
    for limit in limits:
        size += (n > limit).view(np.int8)
    return size.astype(np.int64)


def _in_front(byte: int) -> np.uint64:
    return np.uint64(byte << 56)


_PIECES: dict[Kind, Callable[[Numbers], list[_Piece]]] = {"bool": _bools, "float": _floats, "int": _ints}

# By size: the greatest number, the bytes after the first, and the shifts that bring them behind it.
_POSITIVE = (127, 255, 65535, 2**32 - 1)
_NEGATIVE = (31, 127, 32767, 2**31 - 1)
_WIDTHS = np.array([0, 1, 2, 4, 8])
_LEFT = np.array([56, 56, 48, 32, 0], np.uint64)
_RIGHT = np.array([0, 8, 8, 8, 8], np.uint64)
_FIRST_BYTES = np.array([_in_front(byte) for byte in (0, 0xCC, 0xCD, 0xCE, 0xCF, 0, 0xD0, 0xD1, 0xD2, 0xD3)])


def writable(type: TypeInformation) -> bool:
    """Whether ``encode_array`` supports all parts of a type."""
    if isinstance(type, RecordType):
        array = type.flavor in ARRAY_FLAVORS
        if not type.members or type.flavor == "struct" or (not array and not type.plain):
            return False
    if isinstance(type, OptionalType | SequenceType | RecordType):
        return all(map(writable, type.children))
    return type.kind in _KINDS or type.kind in ("float", "string", "char", "bytes", "decimal", *_TIMES)


def encode_array(array: pa.Array, type: TypeInformation) -> pa.BinaryArray:
    """Encode the values of a column, including None, strings and lists; sets must be in saved order."""
    if isinstance(type, OptionalType):
        found = encode_array(array, type.of)
        return pc.if_else(array.is_valid(), found, pa.scalar(b"\xc0")) if array.null_count else found
    if isinstance(type, SequenceType):
        lengths = pc.list_value_length(array).fill_null(0).to_numpy()
        offsets = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
        lists = pa.ListArray.from_arrays(offsets, encode_array(array.flatten(), type.element))
        return _join(_heads(lengths, _ARRAY_HEADS), pc.binary_join(lists, b""))
    if isinstance(type, RecordType):
        is_array, count = type.flavor in ARRAY_FLAVORS, len(type.members)
        parts = [_heads(np.array([count]), _ARRAY_HEADS if is_array else _MAP_HEADS)[0]]
        for member, column in zip(type.members, array.flatten(), strict=True):
            names = [] if is_array else [pa.scalar(pack(member.name))]
            parts += [*names, encode_array(column, member.type)]
        return _join(*parts)
    if type.kind in _TIMES:  # few distinct ones, such as the bounds of windows
        distinct = array.dictionary_encode()
        return pa.array(map(type.encode, type.from_arrow(distinct.dictionary)), pa.binary()).take(distinct.indices)
    kind: Kind | None = "float" if type.kind == "float" else _KINDS.get(type.kind)
    if kind is not None:
        filled = array.fill_null(False if kind == "bool" else 0) if array.null_count else array
        return encode((kind,), [filled.to_numpy(zero_copy_only=False)], len(array))
    array = array.cast(pa.string()) if type.kind == "decimal" else array
    heads = _BYTES_HEADS if type.kind == "bytes" else _TEXT_HEADS
    lengths = pc.binary_length(array).fill_null(0).to_numpy()
    return _join(_heads(lengths, heads), array.cast(pa.binary()))


def _join(*parts: pa.Array | pa.Scalar) -> pa.BinaryArray:
    return pc.binary_join_element_wise(*parts, b"")


_Heads = tuple[tuple[int, int, int], ...]  # greatest length, first byte, number of length bytes that follow
_ARRAY_HEADS: _Heads = ((15, 0x90, 0), (2**16 - 1, 0xDC, 2), (2**32 - 1, 0xDD, 4))
_MAP_HEADS: _Heads = ((15, 0x80, 0), (2**16 - 1, 0xDE, 2), (2**32 - 1, 0xDF, 4))
_TEXT_HEADS: _Heads = ((31, 0xA0, 0), (255, 0xD9, 1), (2**16 - 1, 0xDA, 2), (2**32 - 1, 0xDB, 4))
_BYTES_HEADS: _Heads = ((255, 0xC4, 1), (2**16 - 1, 0xC5, 2), (2**32 - 1, 0xC6, 4))


def _heads(lengths: Numbers, kinds: _Heads) -> pa.BinaryArray:
    """The headers of values of these lengths."""
    limits, firsts, widths = (np.array(column) for column in zip(*kinds, strict=True))
    kind = np.searchsorted(limits, lengths)
    first = firsts.astype(np.uint64) << np.uint64(56)
    word = _headed(first[kind], lengths.astype(np.uint64), np.searchsorted(_WIDTHS, widths)[kind])
    return _binary(*_written([(word, 1 + widths[kind])], len(lengths)))


def decode(layout: Layout, encoded: Sequence[bytes]) -> list[Numbers] | None:
    """The numbers of encoded values; None if a value has another layout, such as one with None."""
    lengths = np.fromiter(map(len, encoded), np.int64, len(encoded))
    ends = np.cumsum(lengths)
    return decode_at(layout, padded(b"".join(encoded)), ends - lengths, ends)


def padded(data: bytes | pa.Buffer) -> Bytes:
    """The bytes of values for ``decode_at``, which may read behind the last one."""
    return np.concatenate((np.frombuffer(data, np.uint8), _PAD))


def decode_at(layout: Layout, data: Bytes, at: Numbers, ends: Numbers) -> list[Numbers] | None:
    """``decode`` of values that begin and end at these offsets of ``padded`` bytes."""
    words: npt.NDArray[Any] = np.ndarray((len(data) - 7,), ">u8", data, strides=(1,))
    found: list[Numbers] = []
    for part in layout:
        if isinstance(part, bytes):
            for offset, byte in enumerate(part):
                if not (data[at + offset] == byte).all():
                    return None
            at = at + len(part)
            continue
        numbers, widths = _decode_numbers(part, data, words, at)
        if numbers is None:
            return None
        found.append(numbers)
        at = at + widths
    return found if (at == ends).all() else None


def decode_rows(type: RecordType, encoded: Sequence[bytes]) -> list[pa.Array] | None:
    """The columns of encoded arrays of numbers, times and texts; None if the type has other parts, or a value another form, such
    as one with None, or a long text."""
    members = [each.type.of if isinstance(each.type, OptionalType) else each.type for each in type.members]
    if not encoded or type.flavor not in ARRAY_FLAVORS or not 0 < len(members) < 16:
        return None
    if not all(each.kind in _KINDS or each.kind in ("string", *_TIMES) for each in members):
        return None
    data, words, at, ends = _joined(encoded)
    if not (data[at] == 0x90 + len(members)).all():
        return None
    at, columns = at + 1, []
    for each in members:
        kind = _KINDS.get(each.kind)
        column, widths = _texts(each, data, at) if kind is None else _numbers(each, kind, data, words, at)
        if column is None:
            return None
        at = at + widths
        columns.append(column)
    return columns if (at == ends).all() else None


def _joined(encoded: Sequence[bytes]) -> tuple[Bytes, Numbers, Numbers, Numbers]:
    """The bytes of all values, the number that the 8 bytes from each on are, and where each value begins and ends."""
    data = padded(b"".join(encoded))
    words: npt.NDArray[Any] = np.ndarray((len(data) - 7,), ">u8", data, strides=(1,))
    lengths = np.fromiter(map(len, encoded), np.int64, len(encoded))
    ends = np.cumsum(lengths)
    return data, words, ends - lengths, ends


def _numbers(of: TypeInformation, kind: Kind, data: Bytes, words: Numbers, at: Numbers) -> tuple[pa.Array | None, Any]:
    found, widths = _decode_numbers(kind, data, words, at)
    return None if found is None else pa.array(found, of.arrow_type), widths


def _texts(of: TypeInformation, data: Bytes, at: Numbers) -> tuple[pa.Array | None, Any]:
    """Texts of up to 31 bytes at these places, and times, which are texts."""
    first = data[at]
    if (first & 0xE0 != 0xA0).any():
        return None, 0
    lengths = (first & 0x1F).astype(np.int64)
    offsets = np.append(0, np.cumsum(lengths)).astype(np.int32)
    which = np.repeat(at + 1 - offsets[:-1], lengths) + np.arange(offsets[-1])
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data[which])]
    found = pa.BinaryArray.from_buffers(pa.binary(), len(at), buffers)
    if of.kind not in _TIMES:
        return found.cast(of.arrow_type), 1 + lengths
    texts = found.dictionary_encode()  # few distinct ones, such as the bounds of windows
    encoded = [bytes([0xA0 + len(text)]) + text for text in texts.dictionary.to_pylist()]
    return of.to_arrow(list(map(of.decode, encoded))).take(texts.indices), 1 + lengths


def texts_at(data: Bytes, at: Numbers, ends: Numbers) -> pa.StringArray | None:
    """The texts that begin and end at these offsets of ``padded`` bytes; None if a value is not one."""
    first, words = data[at], np.ndarray((len(data) - 3,), ">u4", data, strides=(1,))
    short, long = (first & 0xE0) == 0xA0, np.isin(first, (0xD9, 0xDA, 0xDB))
    if not (short | long).all():
        return None
    width = np.where(short, 0, 1 << (first.astype(np.int64) - 0xD9 & 3))
    lengths = np.where(short, first & 0x1F, words[at + 1].astype(np.int64) >> (32 - 8 * width & 31))
    starts = at + 1 + width
    if (starts + lengths != ends).any():
        return None
    bounds = np.concatenate(([0], np.cumsum(lengths)))
    if bounds[-1] > _MOST_TEXT:
        return None
    chosen = np.repeat(starts - bounds[:-1], lengths) + np.arange(bounds[-1])
    buffers = [None, pa.py_buffer(bounds.astype(np.int32)), pa.py_buffer(data[chosen])]
    try:
        return pa.BinaryArray.from_buffers(pa.binary(), len(at), buffers).cast(pa.string())
    except pa.ArrowInvalid:  # not UTF-8
        return None


def _decode_numbers(kind: Kind, data: Bytes, words: Numbers, at: Numbers) -> tuple[Numbers | None, Any]:
    first = data[at]
    if kind == "bool":
        return (first == 0xC3, 1) if bool(((first == 0xC3) | (first == 0xC2)).all()) else (None, 0)
    if kind == "float":
        if not (first == 0xCB).all():
            return None, 0
        return words[at + 1].astype(np.uint64).view(np.float64), 9
    size = _SIZE[first]
    if (size == 255).any():
        return None, 0
    word = words[at + 1].astype(np.uint64)
    if ((first == 0xCF) & (word >> np.uint64(63) != 0)).any():
        return None, 0
    shift = (64 - 8 * size.astype(np.int64)) & 63  # a shift by 64 does not occur: size 0 is handled below
    signed = word.view(np.int64) >> shift
    unsigned = (word >> shift.astype(np.uint64)).view(np.int64)
    numbers = np.where(_SIGNED[first], signed, unsigned)
    return np.where(size == 0, first.view(np.int8).astype(np.int64), numbers), 1 + size.astype(np.int64)
