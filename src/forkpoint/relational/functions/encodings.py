"""Digests, and other notations of values: Base64, hexadecimal, binary."""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from forkpoint.relational.functions.registry import Function, Types, fixed, per_distinct, signature
from forkpoint.relational.types import INTEGERS, STRING, SqlType

_SHA2 = {224: "sha224", 256: "sha256", 384: "sha384", 512: "sha512"}


def _digest(name: str) -> Function:
    return _text(lambda text: hashlib.new(name, text.encode(), usedforsecurity=False).hexdigest(), "STRING")


def _sha2(text: str, bits: int) -> str:
    if bits not in _SHA2:
        raise ValueError(f"SHA2 has 224, 256, 384 and 512 bits, not {bits}")
    return hashlib.new(_SHA2[bits], text.encode()).hexdigest()


def _bad_bits(bits: Any) -> str | None:
    return None if bits in _SHA2 else f"there are 224, 256, 384 and 512 bits, not {bits}"


def _from_base64(text: str) -> str:
    try:
        # Java takes text without padding, too.
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True).decode(errors="replace")
    except binascii.Error as error:
        raise ValueError(f"{text!r} is not Base64: {error}") from None


def _hex(value: int | str) -> str:
    """Negative numbers as 64 bits."""
    return f"{value % 2**64:X}" if isinstance(value, int) else value.encode().hex().upper()


def _text(function: Callable[..., str], *accepted: str) -> Function:
    return Function((1, 1), fixed(STRING, *accepted), lambda of: per_distinct(function, pa.string(), of))


def _sha2_type(types: Types) -> SqlType | str:
    return signature(STRING, ("STRING",), INTEGERS)(types)


ENCODINGS: dict[str, Function] = {
    "MD5": _digest("md5"),
    **{f"SHA{bits}": _digest(f"sha{bits}") for bits in (1, 224, 256, 384, 512)},
    "SHA2": Function((2, 2), _sha2_type, lambda *of: per_distinct(_sha2, pa.string(), *of), checks=((1, _bad_bits),)),
    "TO_BASE64": _text(lambda text: base64.b64encode(text.encode()).decode(), "STRING"),
    "FROM_BASE64": _text(_from_base64, "STRING"),
    "HEX": _text(_hex, "STRING", *INTEGERS),
    "BIN": _text(lambda number: f"{number % 2**64:b}", *INTEGERS),
}
