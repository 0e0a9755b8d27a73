"""The scope of keyed state: a handle can be read and written only while there is a current key.

Checking at each access would cost every element, so a handle changes its class instead: outside of a key, it is of a subclass
whose public methods raise.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import new_class
from typing import Any, NoReturn

from forkpoint.errors import UserFunctionError
from forkpoint.functions import State

OUTSIDE = (
    "there is no current key here (open(), close(), snapshot_state() and notifications run outside of all keys); read and "
    "write it where an element or a timer is processed"
)
"""Why a handle can't be used, unless somebody knows more."""

_OPERATORS = ("__getitem__", "__setitem__", "__delitem__", "__contains__", "__iter__")


@dataclass(frozen=True)
class _Scoped:
    handle: State
    keyed: type[State]
    keyless: type[State]


class KeyScope:
    """The handles of one operator on one subtask, which are bound to a key together or not at all."""

    def __init__(self, uid: str) -> None:
        self._uid = uid
        self._handles: dict[int, _Scoped] = {}
        self._bound = False
        self._why = OUTSIDE

    def add(self, name: str, handle: State) -> None:
        """Add the handle of a state, bound if the others are."""
        keyed = type(handle)
        self._handles[id(handle)] = _Scoped(handle, keyed, self._keyless(name, keyed))
        if not self._bound:
            self._switch(handle, bound=False)

    def bind(self) -> None:
        """A key is entered before any user code runs: all handles can be used."""
        self._bound = True
        for scoped in self._handles.values():
            scoped.handle.__class__ = scoped.keyed

    def release(self, why: str = OUTSIDE) -> None:
        """No handle can be used; ``why`` completes the message "… is keyed state, and …"."""
        self._bound, self._why = False, why
        for scoped in self._handles.values():
            scoped.handle.__class__ = scoped.keyless

    def bind_only(self, handle: State) -> None:
        """Bind one handle while the others are released; the next ``bind`` or ``release`` is about all of them again."""
        self._switch(handle, bound=True)

    def _switch(self, handle: State, *, bound: bool) -> None:
        scoped = self._handles[id(handle)]
        handle.__class__ = scoped.keyed if bound else scoped.keyless

    def _keyless(self, name: str, keyed: type[State]) -> type[State]:
        def refuse(*_: Any) -> NoReturn:
            raise UserFunctionError(f"operator {self._uid!r}: {name} is keyed state, and {self._why}")

        interface = [vars(base) for base in keyed.__mro__ if base.__module__ == State.__module__]
        names = {n for methods in interface for n in methods if n in _OPERATORS or not n.startswith("_")}
        body = {"__slots__": (), **dict.fromkeys(names, refuse)}
        return new_class(keyed.__name__, (keyed,), exec_body=lambda space: space.update(body))
