"""The history of jobs as a tree of runs and savepoints, drawn like a version-control graph. Pure.

A run's parent is the savepoint, or the run of the checkpoint, that it started from. A savepoint's parent is the run that took it
or, if it was edited, its original. A run's savepoints are on its line in order of epochs, and a run that started from a
checkpoint branches off at that checkpoint's position on the line:

    ○      r3, from checkpoint 25 of r1
    │ ○    r2, from s1
    │ │ ◆  s2, of r1 at epoch 30
    ├─┴─╯
    ◆      s1, of r1 at epoch 20
    ○      r1
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Literal

from forkpoint.checkpoint.manifest import Parent, Run
from forkpoint.checkpoint.savepoint_manifest import Savepoint
from forkpoint.errors import SavepointCorrupt

NodeKind = Literal["run", "savepoint"]

_SYMBOLS: dict[NodeKind, str] = {"run": "○", "savepoint": "◆"}
_MISSING = "◌"


@dataclass(frozen=True, slots=True, order=True)
class NodeKey:
    """The key of a run (ids are unique within a job) or savepoint (ids are unique; `job` is "")."""

    kind: NodeKind
    job: str
    id: str


@dataclass(frozen=True, slots=True)
class Node:
    """A run or savepoint. `record` is None if other records refer to it but it is deleted or stored elsewhere.

    `parent`: the node it depends on; `line`: the node drawn below it. `epoch`: the savepoint's epoch, or the epoch at which the
    run branched off its parent run.
    """

    key: NodeKey
    parent: NodeKey | None
    line: NodeKey | None
    epoch: int | None
    created_ms: int | None
    record: Run | Savepoint | None

    @property
    def age(self) -> tuple[int, NodeKey]:
        """Sorts nodes from oldest to newest."""
        return self.created_ms or 0, self.key


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the graph: the lanes as text, and the node it shows; None for a line where lanes meet."""

    graph: str
    node: Node | None


@dataclass(frozen=True)
class Lineage:
    """All nodes by key."""

    nodes: Mapping[NodeKey, Node]

    def roots(self) -> list[Node]:
        """Nodes without a parent, oldest first."""
        return sorted((node for node in self.nodes.values() if node.parent is None), key=attrgetter("age"))

    def children(self, key: NodeKey) -> list[Node]:
        """The nodes that depend directly on `key`, oldest first."""
        return sorted((node for node in self.nodes.values() if node.parent == key), key=attrgetter("age"))

    def ancestors(self, key: NodeKey) -> list[Node]:
        """The ancestors of `key`, nearest first."""
        found = []
        node = self.nodes[key]
        while node.parent is not None:
            node = self.nodes[node.parent]
            found.append(node)
        return found

    def rows(self) -> Iterator[Row]:
        """The graph from the newest node to the oldest; a node comes after all its descendants."""
        lanes: list[NodeKey | None] = []  # the next node down each lane; None is a free lane
        ended: int | None = None  # the previous row's lane, if its node was a root
        for node in self._newest_first():
            mine = [lane for lane, below in enumerate(lanes) if below == node.key]
            if len(mine) > 1:
                yield Row(_joined(lanes, mine), None)
                for lane in mine[1:]:
                    lanes[lane] = None
            if mine:
                own = mine[0]
            elif None in lanes:
                own = lanes.index(None)
            else:
                own = len(lanes)
                lanes.append(None)
            if own == ended:  # without a gap the root above would look like a descendant of this node
                yield Row(_marks(lanes), None)
            symbol = _SYMBOLS[node.key.kind] if node.record is not None else _MISSING
            yield Row(_marks(lanes, own, symbol), node)
            lanes[own] = node.line
            ended = own if node.line is None else None
            while lanes and lanes[-1] is None:
                lanes.pop()

    def _newest_first(self) -> Iterator[Node]:
        waiting: defaultdict[NodeKey, int] = defaultdict(int)
        for node in self.nodes.values():
            if node.line is not None:
                waiting[node.line] += 1
        heap = [(-(node.created_ms or 0), node.key) for node in self.nodes.values() if not waiting[node.key]]
        heapq.heapify(heap)
        while heap:
            node = self.nodes[heapq.heappop(heap)[1]]
            yield node
            if node.line is not None:
                waiting[node.line] -= 1
                if not waiting[node.line]:
                    heapq.heappush(heap, (-(self.nodes[node.line].created_ms or 0), node.line))


def run_key(job: str, run: str) -> NodeKey:
    return NodeKey("run", job, run)


def savepoint_key(savepoint_id: str) -> NodeKey:
    return NodeKey("savepoint", "", savepoint_id)


def build_lineage(runs: Iterable[Run], savepoints: Iterable[Savepoint]) -> Lineage:
    """Join the records into a tree. Copies of a savepoint count once. A parent without a record becomes a node without one.
    Raises SavepointCorrupt if the records form a cycle."""
    nodes: dict[NodeKey, Node] = {}
    disposed: dict[NodeKey, Node] = {}
    for run in runs:
        key, parent = run_key(run.job, run.run), parent_key(run.parent)
        if parent is not None and parent.kind == "savepoint" and run.parent.job and run.parent.run:
            # The run's record still names the run that took the savepoint, even if the savepoint was disposed of.
            taken_by = run_key(run.parent.job, run.parent.run)
            disposed[parent] = Node(parent, taken_by, None, run.parent.epoch, None, None)
        nodes[key] = Node(key, parent, None, run.parent.epoch, run.started_ms, run)
    origins: dict[NodeKey, Parent] = {}
    for savepoint in savepoints:
        key, taken_by = savepoint_key(savepoint.id), run_key(savepoint.job, savepoint.run)
        parent = parent_key(savepoint.parent) if savepoint.edited else taken_by
        nodes.setdefault(key, Node(key, parent, None, savepoint.epoch, savepoint.created_ms, savepoint))
        if not savepoint.edited:
            origins.setdefault(taken_by, savepoint.parent)
    for key, origin in origins.items():  # a savepoint still records the parent of a run whose own record is deleted
        nodes.setdefault(key, Node(key, parent_key(origin), None, origin.epoch, None, None))
    for key, node in disposed.items():
        nodes.setdefault(key, node)
    for node in list(nodes.values()):
        if node.parent is not None and node.parent not in nodes:
            nodes[node.parent] = Node(node.parent, None, None, None, None, None)
    _check_acyclic(nodes)
    return Lineage(_with_lines(nodes))


def parent_key(parent: Parent) -> NodeKey | None:
    """The node that a parent refers to, if any."""
    if parent.kind == "savepoint" and parent.savepoint_id is not None:
        return savepoint_key(parent.savepoint_id)
    if parent.kind == "checkpoint" and parent.job is not None and parent.run is not None:
        return run_key(parent.job, parent.run)
    return None


def _with_lines(nodes: Mapping[NodeKey, Node]) -> dict[NodeKey, Node]:
    taken: defaultdict[NodeKey, list[Node]] = defaultdict(list)
    for node in nodes.values():
        if node.key.kind == "savepoint" and node.parent is not None:
            taken[node.parent].append(node)
    for line in taken.values():
        line.sort(key=lambda node: (node.epoch or 0, node.age))

    def below(node: Node) -> NodeKey | None:
        if node.parent is None or node.parent.kind == "savepoint":
            return node.parent
        line = taken[node.parent]
        if node.key.kind == "savepoint":
            index = line.index(node)
            return line[index - 1].key if index else node.parent
        earlier = [savepoint.key for savepoint in line if (savepoint.epoch or 0) <= (node.epoch or 0)]
        return earlier[-1] if earlier else node.parent

    return {key: replace(node, line=below(node)) for key, node in nodes.items()}


def _check_acyclic(nodes: Mapping[NodeKey, Node]) -> None:
    safe: set[NodeKey] = set()
    for start in nodes:
        walked: dict[NodeKey, None] = {}
        key: NodeKey | None = start
        while key is not None and key not in safe:
            if key in walked:
                names = " → ".join(f"{each.kind} {each.id}" for each in walked)
                raise SavepointCorrupt(f"the history has a cycle: {names}; correct the parent of one of these records")
            walked[key] = None
            key = nodes[key].parent
        safe.update(walked)


def _marks(lanes: list[NodeKey | None], own: int = -1, symbol: str = "") -> str:
    return " ".join(symbol if lane == own else "│" if below is not None else " " for lane, below in enumerate(lanes)).rstrip()


def _joined(lanes: list[NodeKey | None], mine: list[int]) -> str:
    """The line on which the lanes `mine` join the first of them, across the lanes between."""
    first, last = mine[0], mine[-1]
    text = ""
    for lane, below in enumerate(lanes):
        inside = first < lane <= last
        if lane == first:
            mark = "├"
        elif lane in mine:
            mark = "╯" if lane == last else "┴"
        elif below is not None:
            mark = "│"
        else:
            mark = "─" if inside else " "
        text += ("─" if inside else " ") + mark if lane else mark
    return text.rstrip()
