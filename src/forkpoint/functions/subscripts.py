"""Type parameters on PyFlink's classes: ``ProcessWindowFunction[tuple, tuple, str, TimeWindow]``."""

from __future__ import annotations

from types import GenericAlias
from typing import Any


class Subscripted:
    """Takes type parameters, for readers and annotations; nothing here depends on them."""

    __slots__ = ()

    __class_getitem__: Any = classmethod(GenericAlias)
