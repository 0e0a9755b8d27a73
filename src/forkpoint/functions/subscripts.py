"""Classes that PyFlink programs subscript with any number of type parameters."""

from __future__ import annotations

from types import GenericAlias
from typing import Any


class Subscripted:
    """Accepts any type parameters at run time. Must precede Generic in the bases, which checks their number."""

    __slots__ = ()

    __class_getitem__: Any = classmethod(GenericAlias)
