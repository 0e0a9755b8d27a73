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
from forkpoint.relational.types import BOOLEAN, INTEGERS, STRING, array_type


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


def _split(text: str, separator: str, index: int) -> str | None:
    parts = (text.split(separator) if separator else re.split(r"\s", text)) if text else []
    return parts[index] if 0 <= index < len(parts) else None


def _parts(text: str, separator: str) -> list[str]:
    return text.split(separator) if separator else list(text)


def _is_decimal(text: Datum) -> Datum:
    return pc.fill_null(per_distinct(lambda each: REAL.fullmatch(each.strip()) is not None, pa.bool_(), text), False)


_TEXT, _TEXTS = ("STRING",), array_type(STRING)
_REGEX = ((1, _bad_regex),)

PATTERNS: dict[str, Function] = {
    "LIKE": Function((2, 3), fixed(BOOLEAN, *_TEXT), _like),
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
    "SPLIT_INDEX": Function(
        (3, 3), signature(STRING, _TEXT, _TEXT, INTEGERS, nullable=True), lambda *of: per_distinct(_split, pa.string(), *of)
    ),
    "SPLIT": Function((2, 2), fixed(_TEXTS, *_TEXT), lambda *of: per_distinct(_parts, _TEXTS.arrow_type, *of)),
    "IS_DECIMAL": Function((1, 1), never_null(fixed(BOOLEAN, *_TEXT)), _is_decimal),
}
