"""Files with checksums that are right and content that is not: nobody writes such by accident."""

import random
import zlib

import pytest

from forkpoint.errors import SavepointCorrupt
from forkpoint.state import read_snapshot, state_key, write_snapshot
from forkpoint.state.arrow_file import _BLOCK, _TRAILER, _trailer_crc

ENTRIES = [(state_key(group, 7, b"key"), b"value" * group) for group in range(20)]


def sealed(content: bytes, data: bytes) -> bytes:
    """The file ``data`` with another Arrow file of the same length in it, and checksums of that."""
    trailer = list(_TRAILER.unpack(data[-_TRAILER.size :]))
    index, position, frame = b"", 0, 0
    for block in _BLOCK.iter_unpack(data[len(content) : -_TRAILER.size]):
        offset, length = block[3], block[4]
        frame = zlib.crc32(content[position:offset], frame)
        index += _BLOCK.pack(*block[:5], zlib.crc32(content[offset : offset + length]))
        position = offset + length
    trailer[5:7] = zlib.crc32(content[position:], frame), zlib.crc32(index)
    return content + index + _TRAILER.pack(*trailer[:7], _trailer_crc(_TRAILER.pack(*trailer)), trailer[8])


def test_any_flipped_bit_behind_right_checksums() -> None:
    data, dice = write_snapshot(ENTRIES), random.Random(1)
    content = data[: len(data) - _TRAILER.size - _BLOCK.size]
    assert sealed(content, data) == data
    refused = 0
    for _ in range(2000):
        at, bit = dice.randrange(len(content)), 1 << dice.randrange(8)
        damaged = sealed(content[:at] + bytes([content[at] ^ bit]) + content[at + 1 :], data)
        try:
            list(read_snapshot(damaged, 0, 100, "the file"))
        except SavepointCorrupt as error:
            refused += "the file" in str(error)
    assert refused > 500


def test_no_arrow_file_inside() -> None:
    data = write_snapshot(ENTRIES)
    content = bytes(len(data) - _TRAILER.size - _BLOCK.size)
    with pytest.raises(SavepointCorrupt, match="the file cannot be read"):
        list(read_snapshot(sealed(content, data), 0, 100, "the file"))
