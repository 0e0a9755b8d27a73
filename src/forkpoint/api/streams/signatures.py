"""Types from the return annotations of user functions."""

from __future__ import annotations

import functools
import inspect
import operator
import types
import typing
from collections.abc import AsyncIterable, Iterable
from typing import Any, Union, get_args, get_origin

from forkpoint.errors import TypeNotSupported
from forkpoint.functions import OutputTag
from forkpoint.types import TypeInformation, Types, type_of

_NOTHING = object()


def type_of_output(explicit: Any, fn: Any, *methods: str, many: bool = False, with_state: bool = False) -> TypeInformation | None:
    """The type of a function's output: the explicit type, else the function's return annotation, else None.

    ``methods``: the annotated methods if ``fn`` is a Function; they must agree, except that a method ``-> None`` emits nothing.
    ``many``: the function returns an iterable of outputs; pairs for side outputs are left out. ``with_state``: it returns a
    pair (output, state). An explicit list of types is a ROW of them, as in PyFlink. An explicit type without a durable encoding
    raises TypeNotSupported; such an annotation is ignored.
    """
    if explicit is not None:
        return Types.ROW(explicit) if isinstance(explicit, list) else type_of(explicit)
    annotations = [return_annotation(fn, method) for method in methods]
    found = [_emitted(hint, many=many, with_state=with_state) for hint in annotations if hint is not type(None)]
    return found[0] if found and all(type == found[0] for type in found) else None


def _emitted(annotation: Any, *, many: bool, with_state: bool) -> TypeInformation | None:
    if with_state:
        parts = get_args(annotation)
        if get_origin(annotation) is not tuple or len(parts) != 2:
            return None
        annotation = parts[0]
    if many:
        annotation = _main_output(_element(annotation))
    return annotated_type(annotation)


def annotated_type(annotation: Any) -> TypeInformation | None:
    """The type of an annotation, None for one without a durable encoding (Any, object, type variables …)."""
    if annotation in (_NOTHING, Any, object, None, type(None)) or isinstance(annotation, typing.TypeVar):
        return None
    try:
        return type_of(annotation)
    except TypeNotSupported:
        return None


def return_annotation(fn: Any, method: str) -> Any:
    """The return annotation of a callable, or of ``method`` of a Function; a class stands for itself; else _NOTHING."""
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
    except Exception:  # names defined only for type checkers, or no annotations
        return _NOTHING
    return hints.get("return", _NOTHING)


def _element(annotation: Any) -> Any:
    """The element type of an annotated iterable, which may be optional."""
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
    """An element annotation without the pairs for side outputs."""
    alternatives = get_args(annotation) if get_origin(annotation) in (Union, types.UnionType) else (annotation,)
    main = [a for a in alternatives if not _is_side_output(a)]
    return functools.reduce(operator.or_, main) if main else _NOTHING


def _is_side_output(annotation: Any) -> bool:
    parts = get_args(annotation)
    return get_origin(annotation) is tuple and bool(parts) and (get_origin(parts[0]) or parts[0]) is OutputTag
