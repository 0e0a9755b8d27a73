"""Types that users' functions tell by their annotations."""

from __future__ import annotations

import functools
import inspect
import types
import typing
from collections.abc import AsyncIterable, Iterable
from typing import Any, Union, get_args, get_origin

from forkpoint.errors import TypeNotSupported
from forkpoint.functions import OutputTag
from forkpoint.types import TypeInformation, type_of

_NOTHING = object()


def output_type(explicit: Any, fn: Any, method: str, *, many: bool = False, with_state: bool = False) -> Any:
    """The output type of an operator: what was given, else what the function's return annotation says, else None.

    ``method`` is the one that counts where ``fn`` is a Function object. ``many``: the annotation is of an iterable of
    outputs, of which pairs with an OutputTag go elsewhere. ``with_state``: it is of a pair (output, state).
    A given type without durable encoding raises TypeNotSupported; an annotation like that just tells nothing.
    """
    if explicit is not None:
        return type_of(explicit)
    annotation = return_annotation(fn, method)
    if annotation is _NOTHING:
        return None
    if with_state:
        parts = get_args(annotation)
        if get_origin(annotation) is not tuple or len(parts) != 2:
            return None
        annotation = parts[0]
    if many:
        annotation = _main_output(_element(annotation))
    return annotated_type(annotation)


def key_type_of(fn: Any, method: str) -> TypeInformation | None:
    """The type that a key selector's return annotation tells, None where it tells none."""
    return annotated_type(return_annotation(fn, method))


def returns_nothing(fn: Any, method: str) -> bool:
    """Whether a method is annotated with ``-> None``."""
    return return_annotation(fn, method) is type(None)


def annotated_type(annotation: Any) -> TypeInformation | None:
    """The type of an annotation, None for one that tells nothing durable (Any, object, type variables …)."""
    if annotation in (_NOTHING, Any, object, None, type(None)) or isinstance(annotation, typing.TypeVar):
        return None
    try:
        return type_of(annotation)
    except TypeNotSupported:
        return None


def return_annotation(fn: Any, method: str) -> Any:
    """The return annotation of a function, of ``method`` of a Function object, or of a callable object; or _NOTHING.

    A class called as a function returns itself.
    """
    if isinstance(fn, type):
        return fn
    while isinstance(fn, functools.partial):
        fn = fn.func
    target = getattr(fn, method, None) if not isinstance(fn, types.FunctionType | types.MethodType) else fn
    if target is None:
        target = fn if inspect.isroutine(fn) else getattr(type(fn), "__call__", None)  # noqa: B004
    if target is None:
        return _NOTHING
    try:
        hints = typing.get_type_hints(target)
    except Exception:  # names that exist only for type checkers, or objects that have no hints: nothing to learn
        return _NOTHING
    return hints.get("return", _NOTHING)


def _element(annotation: Any) -> Any:
    """The element type of an iterable's annotation; of unions, that of the one iterable in it."""
    if get_origin(annotation) in (Union, types.UnionType):
        parts = [a for a in get_args(annotation) if a is not type(None)]
        return _element(parts[0]) if len(parts) == 1 else _NOTHING
    origin, parts = get_origin(annotation), list(get_args(annotation))
    if not isinstance(origin, type) or not parts:
        return _NOTHING
    if origin is tuple:
        return parts[0] if len(parts) == 2 and parts[1] is Ellipsis else _NOTHING
    if issubclass(origin, dict) or not issubclass(origin, Iterable) or issubclass(origin, AsyncIterable):
        return _NOTHING
    return parts[0]


def _main_output(annotation: Any) -> Any:
    """An element annotation without the pairs that go to side outputs."""
    alternatives = get_args(annotation) if get_origin(annotation) in (Union, types.UnionType) else (annotation,)
    main = [a for a in alternatives if not _is_side_output(a)]
    if not main:
        return _NOTHING
    return functools.reduce(lambda a, b: a | b, main)


def _is_side_output(annotation: Any) -> bool:
    parts = get_args(annotation)
    return get_origin(annotation) is tuple and bool(parts) and (get_origin(parts[0]) or parts[0]) is OutputTag
