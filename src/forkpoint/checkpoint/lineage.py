"""The history of jobs as a tree of runs and savepoints, and its rows as a version-control graph. Pure.

A run's parent is the savepoint or the run (through one of its checkpoints) that it went on from; a savepoint's parent
is the run that took it, or, if it was edited, the savepoint that it was made from. For drawing, the savepoints of one run
are put on the run's line in order of epochs, and a run that went on from a checkpoint branches off where that checkpoint
is on the line:

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
from dataclasses import dataclass
from typing import Literal

from forkpoint.checkpoint.manifest import Parent, Run
from forkpoint.checkpoint.savepoint_manifest import Savepoint
from forkpoint.errors import SavepointCorrupt

NodeKind = Literal["run", "savepoint"]

_SYMBOLS: dict[NodeKind, str] = {"run": "○", "savepoint": "◆"}
_MISSING = "◌"


@dataclass(frozen=True, slots=True)
class NodeKey:
    """Which run (ids are unique within a job) or savepoint (ids are unique; `job` is "")."""

    kind: NodeKind
    job: str
    id: str


@dataclass(frozen=True, slots=True)
class Node:
    """A run or savepoint. `record` is None if something refers to it and it is gone, or lives elsewhere.

    `parent` is what it depends on; `line` is the node drawn below it. `epoch` is the savepoint's, or the one at which
    the run branched off its parent run.
    """

    key: NodeKey
    parent: NodeKey | None
    line: NodeKey | None
    epoch: int | None
    created_ms: int | None
    record: Run | Savepoint | None


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the graph: the lanes as text, and the node it shows, None for a line where lanes meet."""

    graph: str
    node: Node | None


@dataclass(frozen=True)
class Lineage:
    """All nodes by key."""

    nodes: Mapping[NodeKey, Node]

    def roots(self) -> list[Node]:
        """Nodes without a parent, oldest first."""
        return sorted((node for node in self.nodes.values() if node.parent is None), key=_age)

    def children(self, key: NodeKey) -> list[Node]:
        """What depends directly on `key`, oldest first: a savepoint with children must not be disposed of lightly."""
        return sorted((node for node in self.nodes.values() if node.parent == key), key=_age)

    def ancestors(self, key: NodeKey) -> list[Node]:
        """The nodes that `key` goes back to, nearest first."""
        found = []
        node = self.nodes[key]
        while node.parent is not None:
            node = self.nodes[node.parent]
            found.append(node)
        return found

    def rows(self) -> Iterator[Row]:
        """The graph from the newest node to the oldest; a node comes after everything that grew from it."""
        lanes: list[NodeKey | None] = []  # the node that each lane leads down to; None is a free lane
        ended: int | None = None  # the lane of the row before, if its node was a root
        for node in self._newest_first():
            mine = [lane for lane, below in enumerate(lanes) if below == node.key]
            if len(mine) > 1:
                yield Row(_joined(lanes, mine), None)
                for lane in mine[1:]:
                    lanes[lane] = None
            if mine:
                place = mine[0]
            elif None in lanes:
                place = lanes.index(None)
            else:
                place = len(lanes)
                lanes.append(None)
            if place == ended:  # without a gap it would look as if the root above had grown from this node
                yield Row(_marks(lanes), None)
            symbol = _SYMBOLS[node.key.kind] if node.record is not None else _MISSING
            yield Row(_marks(lanes, place, symbol), node)
            lanes[place] = node.line
            ended = place if node.line is None else None
            while lanes and lanes[-1] is None:
                lanes.pop()

    def _newest_first(self) -> Iterator[Node]:
        waiting: defaultdict[NodeKey, int] = defaultdict(int)
        for node in self.nodes.values():
            if node.line is not None:
                waiting[node.line] += 1
        ready = [(_newness(node), node.key) for node in self.nodes.values() if not waiting[node.key]]
        heap = [(newness, key.kind, key.job, key.id) for newness, key in ready]
        heapq.heapify(heap)
        while heap:
            _, kind, job, name = heapq.heappop(heap)
            node = self.nodes[NodeKey(kind, job, name)]
            yield node
            if node.line is not None:
                waiting[node.line] -= 1
                if not waiting[node.line]:
                    below = self.nodes[node.line]
                    heapq.heappush(heap, (_newness(below), below.key.kind, below.key.job, below.key.id))


def run_key(job: str, run: str) -> NodeKey:
    return NodeKey("run", job, run)


def savepoint_key(savepoint_id: str) -> NodeKey:
    return NodeKey("savepoint", "", savepoint_id)


def build_lineage(runs: Iterable[Run], savepoints: Iterable[Savepoint]) -> Lineage:
    """Join the records into a tree. Copies of one savepoint count once. What is referred to and not given becomes a
    node without a record. Raises SavepointCorrupt if the records refer to each other in a circle."""
    nodes: dict[NodeKey, Node] = {}
    disposed: dict[NodeKey, Node] = {}
    for run in runs:
        key, grew_from = run_key(run.job, run.run), parent_key(run.parent)
        if grew_from is not None and grew_from.kind == "savepoint" and run.parent.job and run.parent.run:
            # The run still knows who took the savepoint, also when it has been disposed of.
            taken_by = run_key(run.parent.job, run.parent.run)
            disposed[grew_from] = Node(grew_from, taken_by, None, run.parent.epoch, None, None)
        nodes[key] = Node(key, parent_key(run.parent), None, run.parent.epoch, run.started_ms, run)
    origins: dict[NodeKey, Parent] = {}
    for savepoint in savepoints:
        key, taken_by = savepoint_key(savepoint.id), run_key(savepoint.job, savepoint.run)
        if savepoint.edited:
            made_from = parent_key(savepoint.parent)
            nodes.setdefault(key, Node(key, made_from, None, savepoint.epoch, savepoint.created_ms, savepoint))
            continue
        nodes.setdefault(key, Node(key, taken_by, None, savepoint.epoch, savepoint.created_ms, savepoint))
        origins.setdefault(taken_by, savepoint.parent)
    for key, origin in origins.items():  # the savepoint still knows where a run came from whose own record is gone
        nodes.setdefault(key, Node(key, parent_key(origin), None, origin.epoch, None, None))
    for key, node in disposed.items():
        nodes.setdefault(key, node)
    for node in list(nodes.values()):
        if node.parent is not None and node.parent not in nodes:
            nodes[node.parent] = Node(node.parent, None, None, None, None, None)
    _check_no_circle(nodes)
    return Lineage(_with_lines(nodes))


def parent_key(parent: Parent) -> NodeKey | None:
    """The node that a run with this parent grew from."""
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
        line.sort(key=lambda node: (node.epoch or 0, *_age(node)))

    def below(node: Node) -> NodeKey | None:
        if node.parent is None or node.parent.kind == "savepoint":
            return node.parent
        line = taken[node.parent]
        if node.key.kind == "savepoint":
            index = line.index(node)
            return line[index - 1].key if index else node.parent
        earlier = [savepoint.key for savepoint in line if (savepoint.epoch or 0) <= (node.epoch or 0)]
        return earlier[-1] if earlier else node.parent

    return {
        key: Node(key, node.parent, below(node), node.epoch, node.created_ms, node.record)
        for key, node in nodes.items()
    }


def _check_no_circle(nodes: Mapping[NodeKey, Node]) -> None:
    safe: set[NodeKey] = set()
    for start in nodes:
        walked: dict[NodeKey, None] = {}
        key: NodeKey | None = start
        while key is not None and key not in safe:
            if key in walked:
                names = " → ".join(f"{each.kind} {each.id}" for each in walked)
                raise SavepointCorrupt(
                    f"the history runs in a circle: {names}; correct the parent of one of these records"
                )
            walked[key] = None
            key = nodes[key].parent
        safe.update(walked)


def _marks(lanes: list[NodeKey | None], place: int = -1, symbol: str = "") -> str:
    return " ".join(
        symbol if lane == place else "│" if below is not None else " " for lane, below in enumerate(lanes)
    ).rstrip()


def _joined(lanes: list[NodeKey | None], mine: list[int]) -> str:
    """The line that brings the lanes `mine` together in the first of them, across the lanes between."""
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


def _age(node: Node) -> tuple[int, str, str, str]:
    return (node.created_ms or 0, node.key.kind, node.key.job, node.key.id)


def _newness(node: Node) -> int:
    return -(node.created_ms or 0)
