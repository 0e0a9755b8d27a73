"""What a program builds: transformations linked by edges, still without uids checked or stages cut.

The stream façade creates these; ``graph.compile`` turns them into a frozen ``JobGraph``. A transformation is the only
mutable thing here, because ``uid()``, ``name()`` and ``set_parallelism()`` are said after it exists.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from forkpoint.functions import OutputTag
from forkpoint.graph.specs import OperatorSpec
from forkpoint.types import TypeInformation


@dataclass(frozen=True)
class Forward:
    """Elements stay where they are."""


@dataclass(frozen=True)
class KeyBy:
    """Elements go to the subtask that owns their key's key group.

    ``selector`` takes an element and returns its key. ``columns`` names the fields that make up the key where the
    selector does nothing but pick fields, so that the key can be taken from columns without touching elements;
    ``single`` tells whether the key is the field itself or a tuple of the fields. No names at all: one key that all have.
    """

    selector: Callable[[Any], Any]
    key_type: TypeInformation | None
    columns: tuple[str, ...] | None = None
    single: bool = True


@dataclass(frozen=True)
class Rebalance:
    """Elements are spread over the subtasks: one by one, or each split as a whole, so that its order survives.

    ``said``: what the program called it; it makes no difference.
    """

    by: Literal["element", "split"] = "element"
    said: str = field(default="REBALANCE", compare=False)


@dataclass(frozen=True)
class Custom:
    """Elements go where a function of theirs says: ``partitioner(key, number of subtasks)``, the key by ``selector``."""

    partitioner: Callable[[Any, int], int]
    selector: Callable[[Any], Any]


@dataclass(frozen=True)
class Broadcast:
    """Every subtask gets every element.

    ``at_next_watermark``: an element takes effect at the watermark that follows it, as far as the source knows that one,
    instead of the watermark before it, so a rule whose stream had been silent takes effect at its own time.
    """

    at_next_watermark: bool = False


Partitioning = Forward | KeyBy | Rebalance | Custom | Broadcast


@dataclass(frozen=True)
class Migrations:
    """One-step migrations of an operator's saved state, by the version that each takes: of states by name, and of keys.

    A version is one more than the latest migration's; a state or key that has none is of version 1.
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
    """One input of a transformation: whose output (or side output), and how its elements travel."""

    upstream: Transformation
    tag: OutputTag | None = None
    partitioning: Partitioning = field(default_factory=Forward)
    ordinal: int = 0  # 0 for the only or first input, 1 for the second input of a connected operator


@dataclass(eq=False)
class Transformation:
    spec: OperatorSpec
    name: str
    inputs: tuple[Edge, ...]
    output_type: TypeInformation | None
    uid: str | None = None
    parallelism: int | None = None
    max_parallelism: int | None = None
    migrations: Migrations = field(default_factory=Migrations)


def topological_order(ends: Iterable[Transformation]) -> list[Transformation]:
    """The given transformations and all upstream of them, each after its inputs."""
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
