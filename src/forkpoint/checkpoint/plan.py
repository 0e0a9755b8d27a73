"""plan.json: the operators of a run's program and their connections, for people and tools. No run depends on it."""

from __future__ import annotations

from typing import Literal

from msgspec import field

from forkpoint.checkpoint.format import Format, Record
from forkpoint.checkpoint.manifest import Count, Name

CHANGES, KEY, KEEPS, RUNS = "changes", "key", "keeps", "runs"
"""Properties of a query's operator: what its result does, by which key, and what bounds its state. Of an operator with functions
that could be computed over columns: whether they are."""


class PlanInput(Record, frozen=True, kw_only=True):
    """An input of an operator. ``ship_strategy``: the partitioning of elements, by Flink's name. ``tag``: of the side output that
    it reads. ``crosses``: whether elements pass an exchange between stages."""

    uid: Name
    ship_strategy: str
    tag: str | None = None
    crosses: bool = False


class PlanEdge(Record, frozen=True, kw_only=True):
    """What a state does with an event. ``action``: take, ignore or proceed. ``condition``: in words, "" if it always holds.
    ``target``: the number of a state."""

    action: str
    condition: str
    target: Count


class PlanState(Record, frozen=True, kw_only=True):
    """A state of a pattern's automaton, as in ``forkpoint.patterns.automaton``."""

    name: str
    stage: str
    kind: str
    within_ms: Count | None = None
    edges: list[PlanEdge]


class PlanPattern(Record, frozen=True, kw_only=True):
    """``states``: from the one on in which matches begin. ``explanation``: the same in words. ``total_ms``: how long a match may
    take."""

    states: list[PlanState]
    explanation: str
    total_ms: Count | None = None


class PlanOperator(Record, frozen=True, kw_only=True):
    """``generated_uid``: the program did not set the uid. ``type``: of its output, in words. ``properties``: by
    their names above. ``pattern``: which it matches."""

    uid: Name
    name: str
    kind: str
    stage: Count
    generated_uid: bool = False
    stateful: bool = False
    type: str | None = None
    properties: dict[str, str] = field(default_factory=dict)
    pattern: PlanPattern | None = None
    inputs: list[PlanInput] = field(default_factory=list)


class Plan(Record, frozen=True, kw_only=True):
    """``operators``: in topological order."""

    format_version: Literal[1] = 1
    operators: list[PlanOperator]


PLAN = Format("plan.json", Plan, 1)
