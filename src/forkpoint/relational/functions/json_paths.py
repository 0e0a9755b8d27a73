"""JSON in texts: JSON_VALUE, JSON_QUERY, JSON_EXISTS and IS JSON, with paths of keys and indices such as ``$.a.b[0]``."""

from __future__ import annotations

import json
import re
from functools import lru_cache, partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from forkpoint.relational.functions.casts import java_real
from forkpoint.relational.functions.registry import Datum, Function, fixed, never_null, per_distinct, signature
from forkpoint.relational.types import BOOLEAN, STRING, array_type

_STEP = re.compile(r"\.([^\s.\[\]*?()@'\"]+)|\[(\d+)\]|\['((?:[^'\\])*)'\]")
_NOTHING = object()


class _Invalid(ValueError):
    """A text that is not JSON."""


@lru_cache(256)
def _steps(path: str) -> tuple[str | int, ...]:
    """Keys and indices. Raises ValueError."""
    rest = re.sub(r"^\s*(?:lax|strict)\s+", "", path).strip()
    if not rest.startswith("$"):
        raise ValueError(f"path {path!r} must begin with $")
    steps: list[str | int] = []
    at = 1
    while at < len(rest):
        found = _STEP.match(rest, at)
        if found is None:
            raise ValueError(f"path {path!r}: {rest[at:]!r} is not supported; a path is made of .key, ['key'] and [0]")
        steps.append(int(found[2]) if found[2] is not None else found[1] if found[1] is not None else found[3])
        at = found.end()
    return tuple(steps)


def _bad_path(path: Any) -> str | None:
    try:
        _steps(path)
    except ValueError as error:
        return str(error)
    return None


def _no_constant(name: str) -> Any:
    raise _Invalid(name)


def _parsed(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise _Invalid(text) from None


def _found(text: str, path: str) -> Any:
    """The value at the path; _NOTHING if there is none, or the text is not JSON."""
    steps = _steps(path)
    try:
        value = _parsed(text)
    except _Invalid:
        return _NOTHING
    for step in steps:
        if isinstance(step, str):
            if not isinstance(value, dict) or step not in value:
                return _NOTHING
            value = value[step]
        else:
            if not isinstance(value, list) or step >= len(value):
                return _NOTHING
            value = value[step]
    return value


def _value(text: str, path: str) -> str | None:
    """A scalar's text; NULL for objects and arrays."""
    found = _found(text, path)
    return None if found is _NOTHING or isinstance(found, dict | list) else _scalar(found)


def _scalar(value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, bool):
        return str(value).lower()
    return java_real(value, repr(value)) if isinstance(value, float) else str(value)


def _query(text: str, path: str) -> str | None:
    """The text of an object or array; NULL for scalars."""
    found = _found(text, path)
    return _compact(found) if isinstance(found, dict | list) else None


def _wrapped(text: str, path: str, *, always: bool) -> str | None:
    """JSON_QUERY, with values that are no array in one, or all values."""
    found = _found(text, path)
    if found is _NOTHING or found is None:
        return None
    return _compact(found if isinstance(found, list) and not always else [found])


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _state(*kinds: type) -> Function:
    """What a path finds, for a function that takes values of these kinds (none: all): ``value``; for what is none ``empty`` with
    a ``lax`` path, else ``error``."""

    def state(text: str, path: str) -> str:
        found = _found(text, path)
        if found is not _NOTHING and found is not None and (not kinds or isinstance(found, kinds)):
            return "value"
        return "empty" if re.match(r"\s*lax\s", path) else "error"

    return Function((2, 2), _MAYBE, lambda *of: per_distinct(state, pa.string(), *of), checks=_PATH)


def _elements(text: str) -> list[str | None]:
    """The elements of a JSON array: scalars as JSON_VALUE has them, others as JSON."""
    return [_scalar(each) if not isinstance(each, dict | list) else _compact(each) for each in _parsed(text)]


def _failing(state: Datum, which: Datum) -> Datum:
    """NULL for all other states."""
    if pc.any(pc.equal(state, which)).as_py():
        raise ValueError("the path finds no value")
    return pa.nulls(len(state), pa.string()) if isinstance(state, pa.Array) else pa.scalar(None, pa.string())


def _exists(text: str, path: str) -> bool:
    return _found(text, path) is not _NOTHING


def checked(text: str) -> str:
    """The text. Raises ValueError if it is not JSON."""
    try:
        _parsed(text)
    except _Invalid:
        raise ValueError(f"{text!r} is not JSON") from None
    return text


def _unquoted(text: str) -> str:
    """The text of a JSON string; other texts as they are."""
    if len(text) < 2 or text[0] != '"' or text[-1] != '"':
        return text
    try:
        found = _parsed(text)
    except _Invalid:
        return text
    return found if isinstance(found, str) else text


def _is_json(*kinds: type) -> Function:
    def matches(text: str) -> bool:
        try:
            found = _parsed(text)
        except _Invalid:
            return False
        return not kinds or isinstance(found, kinds) or (found is None and str in kinds)

    def kernel(text: Datum) -> Datum:
        return pc.fill_null(per_distinct(matches, pa.bool_(), text), False)

    return Function((1, 1), never_null(fixed(BOOLEAN, "STRING")), kernel)


_TEXT = ("STRING",)
_PATH = ((1, _bad_path),)
_MAYBE = signature(STRING, _TEXT, _TEXT, nullable=True)

JSON: dict[str, Function] = {
    "JSON_VALUE": Function((2, 2), _MAYBE, lambda *of: per_distinct(_value, pa.string(), *of), checks=_PATH),
    "JSON_QUERY": Function((2, 2), _MAYBE, lambda *of: per_distinct(_query, pa.string(), *of), checks=_PATH),
    "JSON_EXISTS": Function((2, 2), fixed(BOOLEAN, *_TEXT), lambda *of: per_distinct(_exists, pa.bool_(), *of), checks=_PATH),
    **{
        f"JSON_QUERY WITH {kind} ARRAY WRAPPER": Function(
            (2, 2),
            _MAYBE,
            lambda *of, always=kind == "UNCONDITIONAL": per_distinct(partial(_wrapped, always=always), pa.string(), *of),
            checks=_PATH,
        )
        for kind in ("CONDITIONAL", "UNCONDITIONAL")
    },
    "JSON_VALUE STATE": _state(str, int, float),
    "JSON_QUERY STATE": _state(dict, list),
    **{f"JSON_QUERY STATE WITH {kind} ARRAY WRAPPER": _state() for kind in ("CONDITIONAL", "UNCONDITIONAL")},
    "JSON_QUERY STATE OF ARRAY": _state(list),
    "JSON_EXISTS STATE": _state(),
    "JSON ELEMENTS": Function(
        (1, 1),
        lambda types: array_type(STRING).with_null(types[0].nullable),
        lambda text: per_distinct(_elements, pa.list_(pa.field("element", pa.string())), text),
    ),
    "JSON ERROR": Function((2, 2), fixed(STRING.with_null(), *_TEXT), _failing),
    "JSON_UNQUOTE": Function((1, 1), fixed(STRING, *_TEXT), lambda of: per_distinct(_unquoted, pa.string(), of)),
    "IS JSON": _is_json(),
    "IS JSON VALUE": _is_json(),
    "IS JSON SCALAR": _is_json(str, int, float),
    "IS JSON ARRAY": _is_json(list),
    "IS JSON OBJECT": _is_json(dict),
}
