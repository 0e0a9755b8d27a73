"""The scope of keyed state: a handle can be read and written only while there is a current key.

A check at each access would slow every element. So a handle changes its class instead: without a current key, its class is a
subclass whose public methods raise.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import new_class
from typing import Any, NoReturn

from forkpoint.errors import UserFunctionError
from forkpoint.functions import State

OUTSIDE = (
    "there is no current key here (open(), close(), snapshot_state() and notifications run without a key); read and write it "
    "in methods that process an element or a timer"
)
"""The default reason why a handle is unusable."""

_OPERATORS = ("__getitem__", "__setitem__", "__delitem__", "__contains__", "__iter__")


@dataclass(frozen=True)
class _Scoped:
    handle: State
    keyed: type[State]
    keyless: type[State]


class KeyScope:
    """The handles of one operator on one subtask, which are bound to a key all together or not at all."""

    def __init__(self, uid: str) -> None:
        self._uid = uid
        self._handles: dict[int, _Scoped] = {}
        self._bound = False
        self._reason = OUTSIDE

    def add(self, name: str, handle: State) -> None:
        """Add the handle of a state, bound if the other handles are."""
        keyed = type(handle)
        scoped = self._handles[id(handle)] = _Scoped(handle, keyed, self._keyless(name, keyed))
        if not self._bound:
            handle.__class__ = scoped.keyless

    def bind(self) -> None:
        """Make all handles usable; the caller enters a key before any user code runs."""
        self._bound = True
        for scoped in self._handles.values():
            scoped.handle.__class__ = scoped.keyed

    def release(self, reason: str = OUTSIDE) -> None:
        """Make all handles unusable; ``reason`` completes the message "… is keyed state, and …"."""
        self._bound, self._reason = False, reason
        for scoped in self._handles.values():
            scoped.handle.__class__ = scoped.keyless

    def bind_only(self, handle: State) -> None:
        """Bind one handle while the others are released; the next ``bind`` or ``release`` applies to all handles again."""
        handle.__class__ = self._handles[id(handle)].keyed

    def _keyless(self, name: str, keyed: type[State]) -> type[State]:
        def refuse(*_: Any) -> NoReturn:
            raise UserFunctionError(f"operator {self._uid!r}: {name} is keyed state, and {self._reason}")

        interface = [vars(base) for base in keyed.__mro__ if base.__module__ == State.__module__]
        names = {n for methods in interface for n in methods if n in _OPERATORS or not n.startswith("_")}
        body = {"__slots__": (), **dict.fromkeys(names, refuse)}
        return new_class(keyed.__name__, (keyed,), exec_body=lambda space: space.update(body))
