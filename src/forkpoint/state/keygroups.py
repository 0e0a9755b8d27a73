"""The key group of a key, and the subtask of a key group.

The hash of a key depends only on its value and the kind of its type (a key form: see types/keys.py). It addresses saved state,
so it is the same in every process, on every platform and in every release.

    integers       splitmix64(value as int64) >> 32
    other types    splitmix64(crc32(type.encode(value))) >> 32
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from forkpoint.errors import TypeNotSupported
from forkpoint.types import TypeInformation

DEFAULT_MAX_PARALLELISM = 128

_MASK = 2**64 - 1
_GAMMA, _MIX1, _MIX2 = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_BLOCK = 8192  # values mixed at once: small enough for the temporaries to stay in the CPU's cache


def _splitmix64(value: int) -> int:
    z = (value + _GAMMA) & _MASK
    z = ((z ^ (z >> 30)) * _MIX1) & _MASK
    z = ((z ^ (z >> 27)) * _MIX2) & _MASK
    return z ^ (z >> 31)


def _splitmix64_high(values: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint32]:
    """The upper 32 bits of splitmix64 of each value."""
    hashes = np.empty(len(values), np.uint32)
    for at in range(0, len(values), _BLOCK):
        z = values[at : at + _BLOCK] + np.uint64(_GAMMA)
        z ^= z >> np.uint64(30)
        z *= np.uint64(_MIX1)
        z ^= z >> np.uint64(27)
        z *= np.uint64(_MIX2)
        z ^= z >> np.uint64(31)
        z >>= np.uint64(32)
        hashes[at : at + _BLOCK] = z
    return hashes


def key_hash(key: Any, type: TypeInformation) -> int:
    """The hash of one key of the given type: 0 <= hash < 2**32.

    Raises TypeNotSupported for a value that the type cannot hold.
    """
    if pa.types.is_integer(type.arrow_type):
        if not isinstance(key, int):  # None, an Enum of ints, a numpy integer, or not valid
            return int(hash_column(type.to_arrow([key]), type)[0])
        return _splitmix64(key & _MASK) >> 32
    try:
        data = type.encode(key)
    except Exception as e:
        raise type.encode_error(key, e) from e
    return _splitmix64(zlib.crc32(data)) >> 32


def hash_column(arr: pa.Array | pa.ChunkedArray, type: TypeInformation) -> npt.NDArray[np.uint32]:
    """`key_hash` of every element of a column, in order; shape (len(arr),).

    Each distinct value other than an integer is decoded, encoded and hashed once. Raises TypeNotSupported for an element that
    the type cannot hold, such as null unless the type is Optional.
    """
    if isinstance(arr, pa.ChunkedArray):
        arr = arr.combine_chunks()
    if not pa.types.is_dictionary(arr.type):
        if pa.types.is_integer(type.arrow_type):
            return _hash_integers(arr, type)
        try:
            arr = arr.dictionary_encode()
        except (pa.ArrowNotImplementedError, pa.ArrowInvalid, pa.ArrowTypeError):  # structs, lists, maps
            return _hash_values(arr, type)
    return _hash_dictionary(arr, type)


def hash_keys(keys: Sequence[Any], type: TypeInformation) -> npt.NDArray[np.uint32]:
    """`key_hash` of every key, in order; shape (len(keys),)."""
    if pa.types.is_integer(type.arrow_type):
        return _hash_integers(type.to_arrow(list(keys)), type)
    try:
        encoded = list(map(type.encode, keys))
    except Exception:
        return np.array([key_hash(key, type) for key in keys], dtype=np.uint32)  # its error names the invalid key
    return hash_encoded(encoded)


def encode_keys(keys: Sequence[Any], type: TypeInformation) -> tuple[list[bytes], npt.NDArray[np.uint32]]:
    """The encoded keys and their `key_hash`, in order."""
    encoded = list(map(type.encode, keys))
    return encoded, hash_keys(keys, type) if pa.types.is_integer(type.arrow_type) else hash_encoded(encoded)


def hash_encoded(keys: Sequence[bytes]) -> npt.NDArray[np.uint32]:
    """`key_hash` of encoded keys of a type other than integers; shape (len(keys),)."""
    return _splitmix64_high(np.fromiter(map(zlib.crc32, keys), np.uint64, len(keys)))


def _null_hash(type: TypeInformation) -> int:
    type.from_arrow(pa.nulls(1, type.arrow_type))  # raises unless None is a value of the type
    return _splitmix64(zlib.crc32(type.encode(None))) >> 32


def _hash_integers(arr: pa.Array, type: TypeInformation) -> npt.NDArray[np.uint32]:
    if not pa.types.is_integer(arr.type):
        try:
            arr = arr.cast(type.arrow_type)
        except pa.ArrowException as e:
            raise TypeNotSupported(f"a column of {arr.type} cannot be read as keys of {type!r}: {e}") from e
    filled = arr.fill_null(0) if arr.null_count else arr
    values = filled.to_numpy(zero_copy_only=False)
    if values.dtype != np.uint64:
        values = values.astype(np.int64, copy=False).view(np.uint64)  # via int64, so that negative values keep the sign
    hashes = _splitmix64_high(values)
    if arr.null_count:
        hashes[arr.is_null().to_numpy(zero_copy_only=False)] = _null_hash(type)
    return hashes


def _hash_values(arr: pa.Array, type: TypeInformation) -> npt.NDArray[np.uint32]:
    """Decodes every element: for distinct values, and columns that Arrow cannot dictionary-encode."""
    return hash_encoded(list(map(type.encode, type.from_arrow(arr))))


def _hash_dictionary(arr: pa.DictionaryArray, type: TypeInformation) -> npt.NDArray[np.uint32]:
    hash_distinct = _hash_integers if pa.types.is_integer(type.arrow_type) else _hash_values
    distinct, indices = hash_distinct(arr.dictionary, type), arr.indices
    if arr.null_count:  # nulls get the index after the distinct values
        indices = indices.cast(pa.int64()).fill_null(len(distinct))
        distinct = np.append(distinct, np.uint32(_null_hash(type)))
    hashes: npt.NDArray[np.uint32] = distinct[indices.to_numpy(zero_copy_only=False)]
    return hashes


Numbers = TypeVar("Numbers", int, npt.NDArray[Any])


def key_group(h: Numbers, max_parallelism: int) -> Numbers:
    """The key group of a hash, or of each hash (as uint16, which numpy sorts stably in linear time)."""
    if isinstance(h, np.ndarray):
        return (h % np.uint32(max_parallelism)).astype(np.uint16)
    return h % max_parallelism


def subtask_of(kg: Numbers, parallelism: int, max_parallelism: int) -> Numbers:
    """The subtask (0 .. parallelism - 1) that owns a key group, or each key group (as int32)."""
    if isinstance(kg, np.ndarray):
        return (kg.astype(np.int64) * parallelism // max_parallelism).astype(np.int32)
    return kg * parallelism // max_parallelism


def key_group_range(subtask: int, parallelism: int, max_parallelism: int) -> tuple[int, int]:
    """The key groups (start, stop) of a subtask, `stop` not included; the inverse of `subtask_of`.

    Empty for some subtasks when the parallelism is above the max parallelism.
    """
    return -(-subtask * max_parallelism // parallelism), -(-(subtask + 1) * max_parallelism // parallelism)
