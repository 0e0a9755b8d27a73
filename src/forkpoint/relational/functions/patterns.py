"""Functions that match texts: LIKE, regular expressions, and what splits texts or recognises numbers.

Regular expressions are Python's, with Java's ASCII classes (``\\d``, ``\\w``, ``\\s``).
"""

from __future__ import annotations

import re
import warnings
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from forkpoint.relational.functions.casts import REAL
from forkpoint.relational.functions.registry import Datum, Function, fixed, is_scalar, never_null, per_distinct, signature
from forkpoint.relational.types import BOOLEAN, INTEGERS, STRING, SqlType, array_type, map_type


def _like(text: Datum, pattern: Datum, escape: Datum | None = None) -> Datum:
    if is_scalar(pattern) and (escape is None or is_scalar(escape)):
        if not pattern.is_valid or (escape is not None and not escape.is_valid):
            return pa.scalar(None, pa.bool_())
        return pc.match_substring_regex(text, _like_regex(pattern.as_py(), None if escape is None else escape.as_py()))
    arguments = (text, pattern) if escape is None else (text, pattern, escape)
    return per_distinct(_is_like, pa.bool_(), *arguments)


def _is_like(text: str, pattern: str, escape: str | None = None) -> bool:
    # RE2's $ is the end; Python's also precedes a last newline.
    return re.fullmatch(_like_regex(pattern, escape).removesuffix("$"), text) is not None


def _like_regex(pattern: str, escape: str | None) -> str:
    if escape is not None and len(escape) != 1:
        raise ValueError(f"ESCAPE {escape!r} must be one character")
    parts, at = [], 0
    while at < len(pattern):
        sign = pattern[at]
        if escape is not None and sign == escape:
            at += 1
            if at == len(pattern) or pattern[at] not in ("%", "_", escape):
                raise ValueError(f"LIKE {pattern!r}: {escape!r} must precede %, _ or itself")
            parts.append(re.escape(pattern[at]))
        else:
            parts.append({"%": ".*", "_": "."}.get(sign) or re.escape(sign))
        at += 1
    return f"(?s)^{''.join(parts)}$"


_CLASSES = {
    "ALPHA": "a-zA-Z",
    "UPPER": "A-Z",
    "LOWER": "a-z",
    "DIGIT": "0-9",
    "ALNUM": "a-zA-Z0-9",
    "SPACE": " ",
    "WHITESPACE": r"\s",
}
_CLASS = re.compile(r"\[:(\w+):\]")


def _is_similar(text: str, pattern: str, escape: str | None = None) -> bool:
    return _compiled(_similar_regex(pattern, escape)).fullmatch(text) is not None


def _similar_regex(pattern: str, escape: str | None) -> str:
    """% and _ as in LIKE; | * + ? {} () [] as in regular expressions."""
    if escape is not None and len(escape) != 1:
        raise ValueError(f"ESCAPE {escape!r} must be one character")
    parts, at, inside = [], 0, False
    while at < len(pattern):
        sign, named = pattern[at], _CLASS.match(pattern, at) if inside else None
        at += 1
        if sign == escape:
            if at == len(pattern):
                raise ValueError(f"SIMILAR TO {pattern!r}: {escape!r} must precede a sign")
            parts.append(re.escape(pattern[at]))
            at += 1
        elif named is not None:
            if named[1].upper() not in _CLASSES:
                raise ValueError(f"SIMILAR TO {pattern!r}: there is no class {named[0]}")
            parts.append(_CLASSES[named[1].upper()])
            at = named.end()
        elif inside:
            inside = sign != "]"
            parts.append(f"\\{sign}" if sign in "[\\&~|" else sign)
        else:
            inside = sign == "["
            parts.append({"%": ".*", "_": "."}.get(sign) or (sign if sign in "[]()|+*?{}" else re.escape(sign)))
    return f"(?s){''.join(parts)}"


@lru_cache(256)
def _compiled(pattern: str) -> re.Pattern[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # Python reads [a&&b] in another way than Java, and warns
        try:
            return re.compile(pattern, re.ASCII)
        except (re.error, FutureWarning, DeprecationWarning) as error:
            raise ValueError(f"regular expression {pattern!r}: {error}") from None


def _bad_regex(pattern: Any) -> str | None:
    try:
        _compiled(pattern)
    except ValueError as error:
        return str(error)
    return None


def _matches(text: str, pattern: str) -> bool:
    return bool(pattern) and _compiled(pattern).search(text) is not None


def _regex_replaced(text: str, pattern: str, by: str) -> str:
    return _compiled(pattern).sub(lambda match: by, text)


def _extracted(text: str, pattern: str, group: int = 0) -> str | None:
    found = _compiled(pattern).search(text)
    if found is None or not 0 <= group <= found.re.groups:
        return None
    return found.group(group)


def _counted(text: str, pattern: str) -> int:
    return sum(1 for _ in _compiled(pattern).finditer(text))


def _located(text: str, pattern: str) -> int:
    found = _compiled(pattern).search(text)
    return 0 if found is None else found.start() + 1


def _all_extracted(text: str, pattern: str, group: int = 1) -> list[str | None] | None:
    compiled = _compiled(pattern)
    return [found.group(group) for found in compiled.finditer(text)] if 0 <= group <= compiled.groups else None


def _mapped(text: str, pairs: str = ",", key: str = "=") -> list[tuple[str, str | None]]:
    """A MAP of a text. Separators are regular expressions; empty texts at the end are none, as in Java."""
    parts = re.split(pairs, text)
    while len(parts) > 1 and not parts[-1]:
        parts.pop()
    found = (re.split(key, part, maxsplit=1) for part in parts)
    return list({each[0]: each[1] if len(each) > 1 else None for each in found}.items())


def _split(text: str, separator: str, index: int) -> str | None:
    parts = (text.split(separator) if separator else re.split(r"\s", text)) if text else []
    return parts[index] if 0 <= index < len(parts) else None


def _is_decimal(text: Datum) -> Datum:
    return pc.fill_null(per_distinct(lambda each: REAL.fullmatch(each.strip()) is not None, pa.bool_(), text), False)


_TEXT = ("STRING",)
_REGEX = ((1, _bad_regex),)
_INT = SqlType("INT")
_TEXT_MAP = map_type(STRING, STRING)

PATTERNS: dict[str, Function] = {
    "LIKE": Function((2, 3), fixed(BOOLEAN, *_TEXT), _like),
    "SIMILAR TO": Function((2, 3), fixed(BOOLEAN, *_TEXT), lambda *of: per_distinct(_is_similar, pa.bool_(), *of)),
    "REGEXP": Function((2, 2), fixed(BOOLEAN, *_TEXT), lambda *of: per_distinct(_matches, pa.bool_(), *of), checks=_REGEX),
    "REGEXP_REPLACE": Function(
        (3, 3), fixed(STRING, *_TEXT), lambda *of: per_distinct(_regex_replaced, pa.string(), *of), checks=_REGEX
    ),
    "REGEXP_EXTRACT": Function(
        (2, 3),
        signature(STRING, _TEXT, _TEXT, INTEGERS, nullable=True),
        lambda *of: per_distinct(_extracted, pa.string(), *of),
        checks=_REGEX,
    ),
    "REGEXP_COUNT": Function((2, 2), fixed(_INT, *_TEXT), lambda *of: per_distinct(_counted, pa.int32(), *of), checks=_REGEX),
    "REGEXP_INSTR": Function((2, 2), fixed(_INT, *_TEXT), lambda *of: per_distinct(_located, pa.int32(), *of), checks=_REGEX),
    "REGEXP_SUBSTR": Function(
        (2, 2),
        signature(STRING, _TEXT, _TEXT, nullable=True),
        lambda *of: per_distinct(_extracted, pa.string(), *of),
        checks=_REGEX,
    ),
    "REGEXP_EXTRACT_ALL": Function(
        (2, 3),
        signature(array_type(STRING), _TEXT, _TEXT, INTEGERS, nullable=True),
        lambda *of: per_distinct(_all_extracted, array_type(STRING).arrow_type, *of),
        checks=_REGEX,
    ),
    "STR_TO_MAP": Function(
        (1, 3),
        fixed(_TEXT_MAP, *_TEXT),
        lambda *of: per_distinct(_mapped, _TEXT_MAP.arrow_type, *of),
        checks=((1, _bad_regex), (2, _bad_regex)),
    ),
    "SPLIT_INDEX": Function(
        (3, 3), signature(STRING, _TEXT, _TEXT, INTEGERS, nullable=True), lambda *of: per_distinct(_split, pa.string(), *of)
    ),
    "IS_DECIMAL": Function((1, 1), never_null(fixed(BOOLEAN, *_TEXT)), _is_decimal),
}
