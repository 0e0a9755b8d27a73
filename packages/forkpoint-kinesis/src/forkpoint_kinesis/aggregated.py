"""Splits records aggregated by the Kinesis Producer Library: four magic bytes, a Protobuf message and its MD5.

message AggregatedRecord { repeated string partition_key_table = 1; repeated string explicit_hash_key_table = 2;
                           repeated Record records = 3; }
message Record { uint64 partition_key_index = 1; optional uint64 explicit_hash_key_index = 2; bytes data = 3; }
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

_MAGIC = b"\xf3\x89\x9a\xc2"
_DIGEST_BYTES = 16


@dataclass(frozen=True)
class Part:
    """A record within an aggregated record. ``hash_key``: determines its shard."""

    partition_key: str
    hash_key: int
    data: bytes


def parts(data: bytes) -> list[Part] | None:
    """The records in an aggregated record; None if it is not aggregated."""
    if not data.startswith(_MAGIC) or len(data) < len(_MAGIC) + _DIGEST_BYTES:
        return None
    message, digest = data[len(_MAGIC) : -_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    if hashlib.md5(message, usedforsecurity=False).digest() != digest:
        return None
    keys: list[str] = []
    hash_keys: list[str] = []
    records: list[tuple[int, int | None, bytes]] = []
    try:
        for number, value in _fields(message):
            if number == 1:
                keys.append(_bytes(value).decode())
            elif number == 2:
                hash_keys.append(_bytes(value).decode())
            elif number == 3:
                fields = dict(_fields(_bytes(value)))
                hash_key = fields.get(2)
                records.append((_number(fields[1]), None if hash_key is None else _number(hash_key), _bytes(fields[3])))
        return [Part(keys[k], _hash(keys[k]) if h is None else int(hash_keys[h]), content) for k, h, content in records]
    except (IndexError, KeyError, ValueError, TypeError):
        return None  # the digest matches, but the message is something else


def _hash(partition_key: str) -> int:
    return int.from_bytes(hashlib.md5(partition_key.encode(), usedforsecurity=False).digest(), "big")


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """A Protobuf message's field numbers and values (int or bytes)."""
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        number, kind = tag >> 3, tag & 7
        value, at = _varint(message, at)
        if kind == 0:
            yield number, value
        elif kind == 2:
            if at + value > len(message):
                raise ValueError("truncated")
            yield number, message[at : at + value]
            at += value
        else:
            raise ValueError(f"field {number} has wire type {kind}")


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value, at
        shift += 7


def _bytes(value: int | bytes) -> bytes:
    if not isinstance(value, bytes):
        raise TypeError("not bytes")
    return value


def _number(value: int | bytes) -> int:
    if not isinstance(value, int):
        raise TypeError("not a number")
    return value
