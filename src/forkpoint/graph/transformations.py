"""The graph that a program builds: transformations linked by edges, before uids are checked and stages assigned.

The DataStream API creates transformations; ``graph.compile`` turns them into a frozen ``JobGraph``. Only transformations are
mutable, because programs call ``uid()``, ``name()`` and ``set_parallelism()`` on existing ones.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, ClassVar, Literal

from forkpoint.extras import is_own_frame
from forkpoint.functions import OutputTag
from forkpoint.graph.specs import DataFrameSpec, OperatorSpec, SourceSpec
from forkpoint.types import TypeInformation
from forkpoint.types.keys import key_form


@dataclass(frozen=True)
class Forward:
    """Elements stay on their subtask."""

    ship_strategy: ClassVar[str] = "FORWARD"


@dataclass(frozen=True)
class KeyBy:
    """Elements go to the subtask that owns their key's key group. ``key_type``: the key form of the given type.

    ``columns``: the key's fields if the selector only picks fields, so that the key can be read from columns; empty for
    a single constant key. ``single``: whether the key is the field itself rather than a tuple of the fields. ``over_columns``:
    whether another selector may be computed over columns.
    """

    ship_strategy: ClassVar[str] = "HASH"

    selector: Callable[[Any], Any]
    key_type: TypeInformation
    columns: tuple[str, ...] | None = None
    single: bool = True
    over_columns: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "key_type", key_form(self.key_type))


@dataclass(frozen=True)
class Rebalance:
    """Elements are distributed over the subtasks, one by one or by split, which keeps each split in order.

    ``ship_strategy`` does not change the behaviour.
    """

    by: Literal["element", "split"] = "element"
    ship_strategy: str = field(default="REBALANCE", compare=False)


@dataclass(frozen=True)
class Custom:
    """Elements go to subtask ``partitioner(selector(element), number of subtasks)``."""

    ship_strategy: ClassVar[str] = "CUSTOM"

    partitioner: Callable[[Any, int], int]
    selector: Callable[[Any], Any]


@dataclass(frozen=True)
class Broadcast:
    """Every subtask gets every element.

    ``at_next_watermark``: an element takes effect at the watermark after it, if the source knows that, rather than at the
    watermark before it, so that an element after a long silence takes effect at its own time.
    """

    ship_strategy: ClassVar[str] = "BROADCAST"

    at_next_watermark: bool = False


# ``ship_strategy`` is the name in the execution plan.
Partitioning = Forward | KeyBy | Rebalance | Custom | Broadcast


@dataclass(frozen=True)
class Migrations:
    """Migrations of an operator's saved states, by name, and keys: functions by the version that they start from.

    The current version is one more than the highest version in the map; without migrations it is 1.
    """

    states: Mapping[str, Mapping[int, Callable[[Any], Any]]] = field(default_factory=dict)
    keys: Mapping[int, Callable[[Any], Any]] = field(default_factory=dict)

    def version(self, state: str) -> int:
        return max(self.states.get(state, ()), default=0) + 1

    @property
    def key_version(self) -> int:
        return max(self.keys, default=0) + 1


@dataclass(frozen=True, eq=False)
class Edge:
    """An input of a transformation: an upstream output or side output, and its partitioning."""

    upstream: Transformation
    tag: OutputTag | None = None
    partitioning: Partitioning = field(default_factory=Forward)
    ordinal: int = 0  # 0 for the only or first input, 1 for the second input of a connected operator


def line_of_program() -> str:
    """The running line of the user's program: ``app.py, line 12``."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and is_own_frame(frame):
        frame = frame.f_back
    return "" if frame is None else f"{os.path.basename(frame.f_code.co_filename)}, line {frame.f_lineno}"


@dataclass(eq=False)
class Transformation:
    """``line``: where the program creates it."""

    spec: OperatorSpec
    name: str
    inputs: tuple[Edge, ...]
    output_type: TypeInformation | None
    uid: str | None = None
    parallelism: int | None = None
    migrations: Migrations = field(default_factory=Migrations)
    line: str = field(default_factory=line_of_program)

    @property
    def is_endless(self) -> bool:
        """Whether it is an input that does not end."""
        return isinstance(self.spec, SourceSpec | DataFrameSpec) and not self.spec.bounded


def is_endless(edges: Iterable[Edge]) -> bool:
    """Whether some input of a stream does not end."""
    return any(each.is_endless for each in topological_order(edge.upstream for edge in edges))


def topological_order(ends: Iterable[Transformation]) -> list[Transformation]:
    """The given transformations and everything upstream of them, each after its inputs."""
    order: list[Transformation] = []
    seen: set[Transformation] = set()
    stack = [(t, False) for t in reversed(list(ends))]
    while stack:
        t, inputs_done = stack.pop()
        if inputs_done:
            order.append(t)
        elif t not in seen:
            seen.add(t)
            stack.append((t, True))
            stack.extend((e.upstream, False) for e in reversed(t.inputs))
    return order
