"""Finds the classes that values name: only classes of the program, and without calling anything.

Looks up a class in modules that are loaded, or that the job's driver had loaded; classes of ``__main__`` are sent with the job.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

ALLOW_PICKLE = "execution.allow-pickle = true (in the environment FORKPOINT_JOB__EXECUTION_ALLOW_PICKLE=true)"
"""The setting that allows pickles for objects without a typed form, for error messages."""


@dataclass(frozen=True)
class Program:
    """The classes that values of `Types.ANY()` may refer to. ``main``: the classes of ``__main__``. ``modules``: modules that may
    be imported to find a class. ``allow_pickle``: whether to pickle objects without a typed form, and to load pickles."""

    main: Mapping[str, type] = field(default_factory=dict)
    modules: frozenset[str] = frozenset()
    allow_pickle: bool = False

    def __reduce__(self) -> tuple[Any, ...]:
        return _received, (dict(self.main), self.modules, self.allow_pickle)


def _received(main: dict[str, type], modules: frozenset[str], allow_pickle: bool) -> Program:
    for cls in main.values():
        _name_inner(cls)
    return Program(main, modules, allow_pickle)


def _name_inner(cls: type) -> None:
    """Restore the qualified names of nested classes, which cloudpickle does not send."""
    for name, inner in list(vars(cls).items()):
        if isinstance(inner, type) and inner.__module__ == "__main__" and inner.__qualname__ == name:
            inner.__qualname__ = f"{cls.__qualname__}.{name}"
            _name_inner(inner)


_program: ContextVar[Program] = ContextVar("program", default=Program())  # noqa: B039 - it is frozen


def current_program() -> Program:
    """The program whose values this code handles."""
    return _program.get()


@contextmanager
def values_of(program: Program) -> Iterator[None]:
    """Sets the program whose values of `Types.ANY()` this code handles."""
    token = _program.set(program)
    try:
        yield
    finally:
        _program.reset(token)


def find_class(module: str, qualname: str) -> type | None:
    """The class with this name, or None. Imports a module only if the program's driver had loaded it."""
    first, *rest = qualname.split(".")
    found = _named(module, first)
    for name in rest:
        found = vars(found).get(name) if isinstance(found, type) else None
    return found if isinstance(found, type) else None


def is_found(cls: type) -> bool:
    """Whether `find_class` finds the class by its own name."""
    return find_class(cls.__module__, cls.__qualname__) is cls


def _named(module: str, name: str) -> Any:
    program = _program.get()
    if module == "__main__" and name in program.main:
        return program.main[name]
    found = sys.modules.get(module)
    if found is None and module in program.modules:
        try:
            found = importlib.import_module(module)
        except ImportError:
            return None
    return getattr(found, "__dict__", {}).get(name)


# -- sending the classes of __main__ -----------------------------------------------------------------------------------

_sent: WeakKeyDictionary[type, bool] = WeakKeyDictionary()


def this_program(allow_pickle: bool) -> Program:
    """The program that runs in this process, for its tasks in other processes."""
    from forkpoint.types.kinds.objects import is_carried  # imports this module

    main = list(vars(sys.modules["__main__"]).items())
    classes = {name: found for name, found in main if isinstance(found, type) and found.__module__ == "__main__"}
    sent = {name: cls for name, cls in classes.items() if any(map(is_carried, _with_inner(cls))) and _can_be_sent(cls)}
    return Program(sent, frozenset(sys.modules), allow_pickle)


def _with_inner(cls: type) -> Iterator[type]:
    yield cls
    for name, inner in list(vars(cls).items()):
        if isinstance(inner, type) and inner.__qualname__ == f"{cls.__qualname__}.{name}":
            yield from _with_inner(inner)


def _can_be_sent(cls: type) -> bool:
    """Whether a class can be pickled. A failure is not an error: the job may have no values of the class."""
    if cls not in _sent:
        from forkpoint.types.shipping import dumps

        try:
            dumps(cls)
            _sent[cls] = True
        except Exception:
            _sent[cls] = False
    return _sent[cls]
