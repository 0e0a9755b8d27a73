"""Digests, and other notations of values: Base64, hexadecimal, binary."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import quote_plus, unquote_plus, urlsplit

import pyarrow as pa

from forkpoint.relational.functions.registry import Function, Types, fixed, per_distinct, signature
from forkpoint.relational.types import BYTES, INTEGERS, STRING, SqlType

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


def _charset(name: str) -> str:
    found = {"US-ASCII": "ascii", "ISO-8859-1": "latin-1"}.get(name.upper(), name.lower())
    if found not in ("ascii", "latin-1", "utf-8", "utf-16", "utf-16be", "utf-16le"):
        raise ValueError(f"there is no character set {name!r}")
    return "utf-16be" if found == "utf-16" else found


def _bad_charset(name: Any) -> str | None:
    try:
        _charset(name)
    except ValueError as error:
        return str(error)
    return None


def _encoded(text: str, charset: str) -> bytes:
    """As in Java, UTF-16 begins with a mark of its order, and what a character set has no sign for is a question mark."""
    mark = b"\xfe\xff" if charset.upper() == "UTF-16" else b""
    return mark + text.encode(_charset(charset), errors="replace")


def _decoded(data: bytes, charset: str) -> str:
    if charset.upper() == "UTF-16" and data[:2] in (b"\xfe\xff", b"\xff\xfe"):
        return data.decode("utf-16", errors="replace")
    return data.decode(_charset(charset), errors="replace")


def _url_encoded(text: str) -> str:
    return quote_plus(text, safe="*").replace("~", "%7E")


def _url_decoded(text: str) -> str | None:
    return None if re.search(r"%(?![0-9A-Fa-f]{2})", text) else unquote_plus(text)


def _part_of_url(url: str, part: str, key: str | None = None) -> str | None:
    """NULL without that part, and for what is no URL."""
    try:
        found = urlsplit(url)
    except ValueError:
        return None
    if not found.scheme:
        return None
    user, at, host = found.netloc.rpartition("@")
    query = found.query if "?" in url.split("#")[0] else None
    parts = {
        "HOST": re.sub(r":\d*$", "", host),
        "PATH": found.path,
        "QUERY": query,
        "REF": found.fragment if "#" in url else None,
        "PROTOCOL": found.scheme,
        "AUTHORITY": found.netloc,
        "FILE": found.path + ("" if query is None else f"?{query}"),
        "USERINFO": user if at else None,
    }
    if key is None:
        return parts.get(part)
    value = re.search(rf"(?:&|^){re.escape(key)}=([^&]*)", query or "") if part == "QUERY" else None
    return None if value is None else value[1]


def _hex(value: int | str) -> str:
    """Negative numbers as 64 bits."""
    return f"{value % 2**64:X}" if isinstance(value, int) else value.encode().hex().upper()


def _unhex(text: str) -> bytes | None:
    """NULL for what is not hexadecimal."""
    try:
        return bytes.fromhex(text.zfill(len(text) + len(text) % 2)) if text.isalnum() or not text else None
    except ValueError:
        return None


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
    "ENCODE": Function(
        (2, 2), fixed(BYTES, "STRING"), lambda *of: per_distinct(_encoded, pa.binary(), *of), checks=((1, _bad_charset),)
    ),
    "DECODE": Function(
        (2, 2),
        signature(STRING, ("BYTES",), ("STRING",)),
        lambda *of: per_distinct(_decoded, pa.string(), *of),
        checks=((1, _bad_charset),),
    ),
    "URL_ENCODE": _text(_url_encoded, "STRING"),
    "URL_DECODE": Function(
        (1, 1), signature(STRING, ("STRING",), nullable=True), lambda of: per_distinct(_url_decoded, pa.string(), of)
    ),
    "PARSE_URL": Function(
        (2, 3),
        signature(STRING, ("STRING",), ("STRING",), ("STRING",), nullable=True),
        lambda *of: per_distinct(_part_of_url, pa.string(), *of),
    ),
    "HEX": _text(_hex, "STRING", *INTEGERS),
    "UNHEX": Function((1, 1), signature(BYTES, ("STRING",), nullable=True), lambda of: per_distinct(_unhex, pa.binary(), of)),
    "BIN": _text(lambda number: f"{number % 2**64:b}", *INTEGERS),
}
