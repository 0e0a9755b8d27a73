"""User functions that are computed over columns, as long as they agree with Python.

An epoch's first elements are also computed in Python. At the first difference, and as soon as a name that the function reads from
outside has another value, the operator computes in Python for good. Elements for which columns might differ from Python, such as
sums beyond 64 bits, are always computed in Python.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from forkpoint.runtime.exchange.batch import Batch
from forkpoint.runtime.expressions.kernels import Evaluation, InPython
from forkpoint.runtime.expressions.screening import NotAnExpression
from forkpoint.runtime.expressions.symbols import EMPTY
from forkpoint.runtime.expressions.tracing import Returned, Traced, traced
from forkpoint.runtime.expressions.tree import Node, fields_of, kind_of
from forkpoint.types import TypeInformation, Types
from forkpoint.types.kinds.containers import present
from forkpoint.types.kinds.records import RecordType

log = logging.getLogger("forkpoint")

_SAMPLE = 16
_MOST_KNOWN = 256


@dataclass
class OverColumns:
    """A function of an element over columns. ``output``: the type of its results."""

    uid: str
    function: Callable[..., Any]
    found: Traced
    elements: TypeInformation
    output: TypeInformation
    usable: bool = True
    _sampled: int | None = None  # the epoch whose first elements have been compared

    def columns(self, batch: Batch, epoch: int | None) -> list[pa.Array] | None:
        """The columns of the results; None if Python has to compute them. ``epoch``: compares its first elements with Python;
        None: those of each batch."""
        table = batch.table
        if table is None or not self.holds(batch):
            return None
        try:
            found = self.results(Evaluation(table.columns, batch.size))
        except InPython:
            return None
        except Exception as error:
            self.give_up(f"they raise {type(error).__name__}: {error}")
            return None
        if epoch is None or self._sampled != epoch:
            self._sampled = epoch
            rows = table.slice(0, _SAMPLE)
            if not self.agrees([column.slice(0, _SAMPLE) for column in found], lambda: self.elements.from_columns(rows.columns)):
                return None
        return found

    def holds(self, batch: Batch) -> bool:
        """Whether the elements of a batch may be computed over columns."""
        if not self.usable or batch.table is None or not batch.size or batch.type != self.elements:
            return False
        columns = batch.table.columns
        if not all(map(self._holds, range(len(columns)), columns)):
            return False
        if not self.found.screened.holds:
            self.give_up("a name that it reads has another value now")
        return self.usable

    def _holds(self, index: int, column: pa.Array) -> bool:
        """Whether Python could read the column, and would see no None that it computes with."""
        of = self.elements.arrow_schema.field(index)
        may_be_null = of.nullable and index not in self.found.needed
        return bool(column.type == of.type and (may_be_null or not column.null_count))

    def mask(self, batch: Batch, epoch: int) -> npt.NDArray[np.bool_] | None:
        """Of each element, whether a condition holds; None as above."""
        found = self.columns(batch, epoch)
        return None if found is None else found[0].to_numpy(zero_copy_only=False)

    def results(self, evaluation: Evaluation) -> list[pa.Array]:
        if is_part(self.found, self.elements, self.output):
            record = evaluation.field(self.found.nodes[0])
            if record.null_count:
                raise InPython
            return list(record.flatten())
        schema = self.output.arrow_schema
        found = [evaluation.array(node, of.type) for node, of in zip(self.found.nodes, schema, strict=True)]
        if any(column.null_count and not of.nullable for column, of in zip(found, schema, strict=True)):
            raise InPython
        return found

    def agrees(self, found: Sequence[pa.Array], arguments: Callable[[], list[Any]]) -> bool:
        """Whether results over columns are those of Python, which computes no others from then on if they are not."""
        encode = self.output.encode
        over_columns = list(map(encode, self.output.from_columns(found)))
        try:
            in_python = [encode(self.output.accept(self.function(each))) for each in arguments()]
        except Exception as error:
            self.give_up(f"in Python, it raises {type(error).__name__}")
            return False
        if over_columns != in_python:
            self.give_up("its results over columns are others than in Python")
        return self.usable

    def give_up(self, why: str) -> None:
        self.usable = False
        log.warning("operator %r computes in Python from here on, not over columns: %s", self.uid, why)


@dataclass(frozen=True)
class _Condition:
    """A condition, whose result counts as true or false."""

    fn: Callable[[Any], Any]

    def __call__(self, element: Any) -> bool:
        return bool(self.fn(element))


def mapped(function: Any, elements: TypeInformation | None, output: TypeInformation | None) -> Traced:
    """The expressions of a function from elements to elements. Raises NotAnExpression."""
    if output is None:
        raise NotAnExpression("its output type is not declared")
    found = traced(function, elements)
    assert elements is not None
    if not is_part(found, elements, output):
        check_output(found, elements, output)
    return found


def is_part(found: Traced, elements: TypeInformation, output: TypeInformation) -> bool:
    """Whether the result is a field of the element that is a record itself, such as the bid of an event."""
    if found.made is not None or elements.fields is None or not isinstance(output, RecordType) or not output.members:
        return False
    node = found.nodes[0]
    return node.operation == "field" and present(elements.fields[node.arguments[0]].type) == output


def condition(function: Any, elements: TypeInformation | None) -> Traced:
    """The expression of a condition. Raises NotAnExpression."""
    found = traced(function, elements)
    if found.made is not None:
        raise NotAnExpression("returns no condition")
    (node,) = found.nodes
    if node.kind != "bool":
        if node.kind not in EMPTY:
            raise NotAnExpression(f"asks whether {node} is true")
        empty = EMPTY[node.kind]
        node = Node("!=", "bool", (node, Node("constant", node.kind, (empty, repr(empty)))))
    needed = found.needed | set(fields_of((node,)))
    return replace(found, nodes=(node,), needed=frozenset(needed))


def column_map(uid: str, function: Any, elements: TypeInformation | None, output: TypeInformation | None) -> OverColumns | None:
    try:
        found = mapped(function, elements, output)
    except NotAnExpression:
        return None
    assert elements is not None
    assert output is not None
    return OverColumns(uid, function, found, elements, output)


def column_condition(uid: str, function: Any, elements: TypeInformation | None) -> OverColumns | None:
    try:
        found = condition(function, elements)
    except NotAnExpression:
        return None
    assert elements is not None
    return OverColumns(uid, _Condition(function), found, elements, Types.BOOLEAN())


_known: dict[tuple[int, ...], tuple[tuple[Any, ...], OverColumns | None]] = {}


def kept(of: tuple[Any, ...], make: Callable[[], OverColumns | None]) -> OverColumns | None:
    """What has been made of these objects before, or is made now, for where no operator keeps it. Objects are compared by
    identity, because a user's may have no hash."""
    identity = tuple(map(id, of))
    if identity not in _known:
        if len(_known) >= _MOST_KNOWN:
            _known.clear()
        _known[identity] = of, make()  # it holds the objects, so that their ids stay theirs
    return _known[identity][1]


def text_of(function: Any, find: Callable[[], object]) -> str:
    """How a function runs, for people; "" of one that is not the user's. ``find``: its expressions."""
    if str(getattr(function, "__module__", None) or type(function).__module__).startswith("forkpoint."):
        return ""
    try:
        found = find()
    except NotAnExpression as why:
        return f"in Python: {why}"
    return f"over columns: {found}"


def check_output(found: Traced, elements: TypeInformation, output: TypeInformation) -> None:
    """Raise NotAnExpression unless the results are exactly of the declared type."""
    own = [elements] if elements.fields is None else [each.type for each in elements.fields]
    check_results((found.nodes, (found.made, found.names)), 2 * own, output)  # of two elements, too


def check_results(found: Returned, own: Sequence[TypeInformation], output: TypeInformation) -> None:
    """The same of results over columns of these types."""
    nodes, (made, names) = found
    fields = output.fields
    if (fields is None) != (made is None) or (fields is not None and not isinstance(output, RecordType)):
        raise NotAnExpression(f"returns no {output!r}")
    if isinstance(output, RecordType) and (made is not output.python_class or names not in ((), output.names)):
        raise NotAnExpression(f"returns no {output!r}")
    types = [output] if fields is None else [each.type for each in fields]
    if len(types) != len(nodes) or not types:
        raise NotAnExpression(f"returns no {output!r}")
    for node, of in zip(nodes, types, strict=True):
        passed_on = node.operation == "field" and own[node.arguments[0]] == of
        if not passed_on and (node.kind == "other" or kind_of(of) != node.kind or present(of).kind == "float"):
            raise NotAnExpression(f"returns {node}, which is no {of!r}")
