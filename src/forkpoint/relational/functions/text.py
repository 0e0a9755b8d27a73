"""Functions of texts. Characters are Unicode code points."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from forkpoint.relational.functions.registry import (
    Datum,
    Function,
    Types,
    broadcast,
    fixed,
    is_scalar,
    never_null,
    per_distinct,
    signature,
)
from forkpoint.relational.types import BOOLEAN, INTEGERS, STRING, SqlType, array_type

_INT = SqlType("INT")
_TEXT = ("STRING",)


def _concat(*texts: Datum) -> Datum:
    return pc.binary_join_element_wise(*texts, "")


def _concat_with(separator: Datum, *texts: Datum) -> Datum:
    """NULL without a separator; other NULLs are left out."""
    if is_scalar(separator, *texts):  # Arrow fails for scalars that are all NULL
        found = [text.as_py() for text in texts if text.is_valid]
        return pa.scalar(separator.as_py().join(found) if separator.is_valid else None, pa.string())
    nothing = pc.is_null(pc.coalesce(*texts))
    first = pc.if_else(nothing, "", texts[0])  # of rows with nothing but NULL, Arrow would have none
    return pc.binary_join_element_wise(first, *texts[1:], separator, null_handling="skip")


def _concat_with_type(types: Types) -> SqlType | str:
    found = fixed(STRING, *_TEXT)(types)
    return found if isinstance(found, str) else STRING.with_null(types[0].nullable)


def _cased(ascii_kernel: Callable[[Datum], Datum], function: Callable[[str], str]) -> Callable[[Datum], Datum]:
    """Arrow maps one character to one; the upper case of ß has two."""

    def kernel(text: Datum) -> Datum:
        if isinstance(text, pa.Array) and pc.all(pc.string_is_ascii(text), min_count=0).as_py():
            return ascii_kernel(text)
        return per_distinct(function, pa.string(), text)

    return kernel


def _trimmed(arrow: Callable[..., Datum], function: Callable[[str, str], str]) -> Callable[..., Datum]:
    def kernel(text: Datum, characters: Datum | None = None) -> Datum:
        if characters is None:
            return arrow(text, " ")
        return per_distinct(function, pa.string(), text, characters)

    return kernel


def _substring(text: Datum, start: Datum, length: Datum | None = None) -> Datum:
    if isinstance(text, pa.Array) and is_scalar(start) and (length is None or is_scalar(length)):
        first, count = start.as_py(), None if length is None else length.as_py()
        if first is not None and first >= 0 and (length is None or (count is not None and count >= 0)):
            begin = max(first - 1, 0)
            return pc.utf8_slice_codeunits(text, begin, None if count is None else begin + count)
    arguments = (text, start) if length is None else (text, start, length)
    return per_distinct(_substring_of, pa.string(), *arguments)


def _substring_of(text: str, start: int, length: int | None = None) -> str | None:
    if length is not None and length < 0:
        return None
    begin = start - 1 if start > 0 else len(text) + start if start < 0 else 0
    if begin < 0:
        return ""
    return text[begin:] if length is None else text[begin : begin + length]


def _substring_type(types: Types) -> SqlType | str:
    found = signature(STRING, _TEXT, INTEGERS, INTEGERS, nullable=len(types) == 3)(types)
    return "takes a text, an integer and an integer" if isinstance(found, str) and types[0].name in _TEXT else found


def _located(part: str, text: str, start: int = 1) -> int:
    return text.find(part, max(start - 1, 0)) + 1 if part else 1


def _overlay(text: str, part: str, start: int, length: int | None = None) -> str:
    replaced = len(part) if length is None else length
    if start <= 0 or start > len(text):
        return text
    # Flink drops the rest of the text if nothing is replaced.
    return text[: start - 1] + part + (text[start - 1 + replaced :] if replaced > 0 else "")


def _replace(text: Datum, part: Datum, by: Datum) -> Datum:
    if is_scalar(part, by) and part.as_py() and by.is_valid:
        return pc.replace_substring(text, part.as_py(), by.as_py())
    return per_distinct(str.replace, pa.string(), text, part, by)


def _left(text: str, count: int) -> str:
    return text[: max(count, 0)]


def _right(text: str, count: int) -> str:
    return text[-count:] if count > 0 else ""


def _padded(left: bool) -> Callable[[str, int, str], str | None]:
    def padded(text: str, size: int, pad: str) -> str | None:
        if size < 0 or not pad:
            return None
        missing = max(size - len(text), 0)
        filler = (pad * (missing // len(pad) + 1))[:missing]
        return (filler + text if left else text + filler)[: size if missing == 0 else None]

    return padded


def _initcap(text: str) -> str:
    """A word is a sequence of letters and digits."""
    found, inside = [], False
    for sign in text:
        found.append(sign.lower() if inside else sign.upper())
        inside = sign.isalnum()
    return "".join(found)


def _ascii(text: str) -> int:
    """The first byte, signed as in Java."""
    return int.from_bytes(text.encode()[:1], signed=True)


def _chr(code: int) -> str:
    return "" if code < 0 else chr(code & 0xFF)


def _prefixed(arrow: Callable[..., Datum], function: Callable[[str, str], bool]) -> Callable[[Datum, Datum], Datum]:
    def kernel(text: Datum, part: Datum) -> Datum:
        if is_scalar(part) and part.is_valid:
            return arrow(text, part.as_py())
        return per_distinct(function, pa.bool_(), text, part)

    return kernel


def _made(function: Callable[..., Any], result: pa.DataType) -> Callable[..., Datum]:
    return lambda *arguments: per_distinct(function, result, *arguments)


def _swapped(function: Callable[[str, str], int]) -> Callable[[str, str], int]:
    return lambda text, part: function(part, text)


def _translated(text: str, characters: str, by: str) -> str:
    """Each character of ``characters`` as that of ``by`` in its place, if there is one."""
    table = {ord(sign): by[at] if at < len(by) else None for at, sign in reversed(list(enumerate(characters)))}
    return text.translate(table)


def _split(text: str, separator: str) -> list[str]:
    return text.split(separator) if separator else list(text)


def _chosen_type(types: Types) -> SqlType | str:
    if types[0].name not in (*INTEGERS, "NULL") or any(of.name not in (*_TEXT, "NULL") for of in types[1:]):
        return "takes a number and texts"
    return STRING


def _chosen(index: Datum, *texts: Datum) -> Datum:
    size = max((len(each) for each in (index, *texts) if isinstance(each, pa.Array)), default=1)
    found: Datum = pa.nulls(size, pa.string())
    for at, text in enumerate(texts, 1):
        found = pc.if_else(pc.fill_null(pc.equal(broadcast(index, size), at), False), text, found)
    return found[0] if is_scalar(index, *texts) else found


_TEXTS = fixed(STRING, *_TEXT)
_COUNTED = signature(STRING, _TEXT, INTEGERS)
_PADDED = signature(STRING, _TEXT, INTEGERS, _TEXT, nullable=True)

TEXT: dict[str, Function] = {
    "||": Function((2, None), _TEXTS, _concat),
    "CONCAT": Function((1, None), _TEXTS, _concat),
    "CONCAT_WS": Function((2, None), _concat_with_type, _concat_with),
    "UPPER": Function((1, 1), _TEXTS, _cased(pc.ascii_upper, str.upper)),
    "LOWER": Function((1, 1), _TEXTS, _cased(pc.ascii_lower, str.lower)),
    "INITCAP": Function((1, 1), _TEXTS, _made(_initcap, pa.string())),
    "REVERSE": Function((1, 1), _TEXTS, pc.utf8_reverse),
    "TRIM": Function((1, 2), _TEXTS, _trimmed(pc.utf8_trim, str.strip)),
    "BTRIM": Function((1, 2), _TEXTS, _trimmed(pc.utf8_trim, str.strip)),
    "LTRIM": Function((1, 2), _TEXTS, _trimmed(pc.utf8_ltrim, str.lstrip)),
    "RTRIM": Function((1, 2), _TEXTS, _trimmed(pc.utf8_rtrim, str.rstrip)),
    "SUBSTRING": Function((2, 3), _substring_type, _substring),
    "LEFT": Function((2, 2), _COUNTED, _made(_left, pa.string())),
    "RIGHT": Function((2, 2), _COUNTED, _made(_right, pa.string())),
    "REPEAT": Function((2, 2), _COUNTED, _made(lambda text, count: text * count, pa.string())),
    "LPAD": Function((3, 3), _PADDED, _made(_padded(True), pa.string())),
    "RPAD": Function((3, 3), _PADDED, _made(_padded(False), pa.string())),
    "REPLACE": Function((3, 3), _TEXTS, _replace),
    "TRANSLATE": Function((3, 3), _TEXTS, _made(_translated, pa.string())),
    "SPLIT": Function((2, 2), fixed(array_type(STRING), *_TEXT), _made(_split, array_type(STRING).arrow_type)),
    "ELT": Function((2, None), _chosen_type, _chosen),
    "OVERLAY": Function((3, 4), signature(STRING, _TEXT, _TEXT, INTEGERS, INTEGERS), _made(_overlay, pa.string())),
    "POSITION": Function((2, 2), fixed(_INT, *_TEXT), _made(_located, pa.int32())),
    "LOCATE": Function((2, 3), signature(_INT, _TEXT, _TEXT, INTEGERS), _made(_located, pa.int32())),
    "INSTR": Function((2, 2), fixed(_INT, *_TEXT), _made(_swapped(_located), pa.int32())),
    "STARTSWITH": Function((2, 2), fixed(BOOLEAN, *_TEXT), _prefixed(pc.starts_with, str.startswith)),
    "ENDSWITH": Function((2, 2), fixed(BOOLEAN, *_TEXT), _prefixed(pc.ends_with, str.endswith)),
    "CHAR_LENGTH": Function((1, 1), fixed(_INT, *_TEXT), pc.utf8_length),
    "ASCII": Function((1, 1), fixed(_INT, *_TEXT), _made(_ascii, pa.int32())),
    "CHR": Function((1, 1), fixed(STRING, *INTEGERS), _made(_chr, pa.string())),
    "IS_ALPHA": Function((1, 1), never_null(fixed(BOOLEAN, *_TEXT)), lambda text: pc.fill_null(pc.utf8_is_alpha(text), False)),
    "IS_DIGIT": Function((1, 1), never_null(fixed(BOOLEAN, *_TEXT)), lambda text: pc.fill_null(pc.utf8_is_decimal(text), False)),
}
