"""Tags of side outputs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeAlias, overload

from forkpoint.errors import GraphError
from forkpoint.types import TypeInformation, TypeLike, type_of
from forkpoint.types.variables import OUT, T


@dataclass(frozen=True)
class OutputTag(Generic[T]):
    """The name of a side output and the type of its elements.

    A process function emits to it with ``yield tag, value``; ``stream.get_side_output(tag)`` reads it. Tags with the same
    id are equal.

    ``type_info``: ``Types.*`` or a Python type; None leaves the elements untyped. GraphError for an empty id.
    """

    used: ClassVar[bool] = False
    """Whether this process has created any tag; if not, no output needs a check for tags."""

    tag_id: str
    type_info: TypeInformation[T] | None = field(default=None, compare=False)

    @overload
    def __init__(self, tag_id: str, type_info: TypeLike[T]) -> None: ...
    @overload
    def __init__(self: OutputTag[Any], tag_id: str, type_info: Any = None) -> None: ...
    def __init__(self, tag_id: str, type_info: Any = None) -> None:
        if not isinstance(tag_id, str) or not tag_id:
            raise GraphError(f"the id of an OutputTag must be a non-empty string, not {tag_id!r}")
        OutputTag.used = True
        object.__setattr__(self, "tag_id", tag_id)
        object.__setattr__(self, "type_info", None if type_info is None else type_of(type_info))

    def __reduce__(self) -> tuple[type[OutputTag[T]], tuple[str, TypeInformation[T] | None]]:
        return OutputTag, (self.tag_id, self.type_info)


Emitted: TypeAlias = Iterable[OUT | tuple[OutputTag[Any], Any]] | None
"""The return type of process functions: an iterable of elements and of pairs ``(tag, element)`` for side outputs, or None."""
