"""Classes that PyFlink programs subscript with any number of type parameters."""

from __future__ import annotations

from types import GenericAlias
from typing import Any


class Subscripted:
    """Takes any type parameters at run time. Stands ahead of Generic, which counts them."""

    __slots__ = ()

    __class_getitem__: Any = classmethod(GenericAlias)
