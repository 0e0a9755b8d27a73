"""What in a function, sink or source cannot be sent to the workers: a lock, a connection, an open file.

pickle's own error names only the type of the object, not where it is.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from forkpoint.extras import is_own
from forkpoint.types.shipping import dumps

_MOST_STEPS = 20


@dataclass(frozen=True)
class Culprit:
    """An object that cannot be pickled, and how it is reached: ``attribute 'pool'['a'][0]``. ``error``: what pickle says."""

    path: str
    kind: str
    error: str
    of_instance: bool


def culprit(value: Any) -> Culprit | None:
    """The innermost object that keeps a value from being pickled; None if it can be."""
    error = _refusal(value)
    if error is None:
        return None
    path: list[str] = []
    seen: set[int] = set()
    of_instance = False
    for _ in range(_MOST_STEPS):
        seen.add(id(value))
        found = next((part for part in _parts(value) if id(part[1]) not in seen and _refusal(part[1])), None)
        if found is None:
            break
        if found[0] and not is_own(type(value).__module__):
            of_instance = of_instance or found[0].startswith("attribute")
            path.append(found[0])
        value = found[1]
        error = _refusal(value) or error
    kind = type(value)
    shown = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    said = "".join(step if step.startswith("[") or not index else f", {step}" for index, step in enumerate(path))
    return Culprit(said, shown, error, of_instance)


def _refusal(value: Any) -> str | None:
    try:
        dumps(value)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    """What is pickled with a value, and how to say where it is."""
    match value:
        case types.FunctionType():
            yield from _of_function(value)
        case types.MethodType():
            yield "", value.__self__
            yield "", value.__func__
        case functools.partial():
            yield "", value.func
            yield from ((f"argument {index}", each) for index, each in enumerate(value.args, 1))
            yield from ((f"argument {name!r}", each) for name, each in value.keywords.items())
        case Mapping():
            yield from ((f"[{key!r}]", each) for key, each in value.items())
        case list() | tuple() | set() | frozenset():
            yield from ((f"[{index}]", each) for index, each in enumerate(value))
        case type():
            yield from ((f"class attribute {value.__name__}.{name}", each) for name, each in vars(value).items())
    if not isinstance(value, type | types.FunctionType):
        state: Any = getattr(value, "__dict__", {})
        with suppress(Exception):  # one that leaves out what cannot be sent
            state = value.__getstate__()
        if isinstance(state, tuple):  # of a class with slots
            state = {name: each for part in state for name, each in (part or {}).items()}
        yield from ((f"attribute {name!r}", each) for name, each in (state or {}).items())
        yield "", type(value)


def _of_function(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    code = function.__code__
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        with suppress(ValueError):  # not assigned yet
            yield f"variable {name!r} of {function.__qualname__}", cell.cell_contents
    for name in _names(code):
        if name in function.__globals__:
            yield f"global variable {name!r} of {function.__qualname__}", function.__globals__[name]
    for each in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
        yield f"a default of {function.__qualname__}", each
    yield from ((f"attribute {name!r} of {function.__qualname__}", each) for name, each in vars(function).items())


def _names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for each in code.co_consts:
        if isinstance(each, types.CodeType):
            yield from _names(each)
