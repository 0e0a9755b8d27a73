"""What stands for elements, states and their parts while a function is traced."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from forkpoint.runtime.expressions.screening import NotAnExpression, is_constant, reads_plainly
from forkpoint.runtime.expressions.tree import Kind, Node, kind_of
from forkpoint.types import Row, TypeInformation
from forkpoint.types.acceptance import encodable
from forkpoint.types.kinds.records import RecordType, field_names

BY_NAME = frozenset({"namedtuple", "dataclass", "struct", "row"})
BY_INDEX = frozenset({"namedtuple", "tuple", "row"})
_MAX_SIZE = 150
_MIN_LONG, _MAX_LONG = -(2**63), 2**63 - 1
_NUMBERS = ("bool", "int", "float")
EMPTY: dict[str, Any] = {"int": 0, "float": 0.0, "str": ""}
"""What counts as false."""


class Fork(Exception):
    """The path depends on a condition."""

    def __init__(self, condition: Node) -> None:
        self.condition = condition


class Trace:
    """One path. ``decided``: the conditions that it takes as true and false. ``used``: the columns that it computes with;
    ``read``: those, and the columns that it may ask for None, or pass on."""

    def __init__(
        self, nodes: dict[Any, Node], decided: dict[Node, bool], used: set[int], read: set[int], literals: set[Any]
    ) -> None:
        self._nodes = nodes
        self._decided = decided
        self._literals = literals
        self.used = used
        self.read = read
        self.fallible: list[Node] = []

    def node(self, operation: str, kind: Kind, *arguments: Any) -> Node:
        identity = (operation, kind, *(a if isinstance(a, Node) else (type(a), repr(a)) for a in arguments))
        size = 1 + sum(a.size for a in arguments if isinstance(a, Node))
        if size > _MAX_SIZE:
            raise NotAnExpression("is too long")
        found = self._nodes.setdefault(identity, Node(operation, kind, arguments, size))
        self.used.update(each.arguments[0] for each in found.operands if each.operation == "field")
        if found.can_fail:
            self.fallible.append(found)
        return found

    def decide(self, condition: Node) -> bool:
        if condition.is_truth is not None:
            return condition.is_truth
        if condition.operation == "field":
            self.used.add(condition.arguments[0])
        if condition not in self._decided:
            raise Fork(condition)
        return self._decided[condition]

    def lifted(self, value: Any) -> Node:
        """The node of a symbol, or of a constant."""
        if type(value) is Symbol:
            return node_of(value)
        kind: Any = type(value).__name__
        fits = type(value) in (bool, float) or (type(value) is int and _MIN_LONG <= value <= _MAX_LONG)
        if not fits and not (type(value) is str and encodable(value)):
            raise NotAnExpression(f"computes with {value!r:.60}")
        # A text from outside may be a secret, and the node is shown to people.
        return self.node("constant", kind, value, repr(value) if kind != "str" or value in self._literals else "…")

    def truth(self, node: Node) -> Node:
        if node.kind == "bool":
            return node
        if node.kind not in EMPTY:
            raise NotAnExpression(f"asks whether {node} is true")
        empty = EMPTY[node.kind]
        return self.node("!=", "bool", node, self.node("constant", node.kind, empty, repr(empty)))


class Silent:
    """What must not happen to a symbol, because a symbol cannot answer."""

    __slots__ = ()

    def _refuse(self, *_: Any) -> Any:
        raise NotAnExpression(f"does more with {_text_of(self)} than an expression")

    __setattr__ = __delattr__ = __len__ = __iter__ = __getitem__ = __index__ = __int__ = __float__ = __complex__ = _refuse
    __hash__ = __repr__ = __str__ = __format__ = __bytes__ = __dir__ = __call__ = __await__ = __enter__ = _refuse
    __reduce__ = __reduce_ex__ = __round__ = __trunc__ = __floor__ = __ceil__ = __fspath__ = __buffer__ = _refuse
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __bool__ = __contains__ = _refuse


class Untouchable(Silent):
    """An argument that nothing is known of."""

    __slots__ = ()

    def __getattribute__(self, name: str) -> Any:
        raise NotAnExpression(f"uses .{name} of an argument that is no element")


def _text_of(symbol: Any) -> str:
    return str(node_of(symbol)) if type(symbol) is Symbol else "an element"


def _arithmetic(operation: str, *, swapped: bool = False) -> Callable[[Any, Any], Any]:
    def operate(self: Symbol, other: Any) -> Symbol:
        trace = trace_of(self)
        operands = node_of(self), trace.lifted(other)
        left, right = reversed(operands) if swapped else operands
        kinds = {left.kind, right.kind}
        if operation in ("&", "|", "^", ">>"):
            if not kinds <= {"int", "bool"} or (operation == ">>" and right.operation != "constant"):
                raise NotAnExpression(f"computes {left} {operation} {right}")
            kind: Kind = "bool" if kinds == {"bool"} and operation != ">>" else "int"
        elif kinds == {"str"} and operation == "+":
            kind = "str"
        elif kinds <= set(_NUMBERS):
            kind = "float" if operation == "/" or "float" in kinds else "int"
        else:
            raise NotAnExpression(f"computes {left} {operation} {right}")
        return Symbol(trace.node(operation, kind, left, right), trace)

    return operate


def _comparison(operation: str) -> Callable[[Any, Any], Any]:
    def compare(self: Symbol, other: Any) -> Symbol:
        trace = trace_of(self)
        left, right = node_of(self), trace.lifted(other)
        alike = {left.kind, right.kind} <= set(_NUMBERS) or left.kind == right.kind == "str"
        if not alike:
            raise NotAnExpression(f"compares {left} with {right}")
        return Symbol(trace.node(operation, "bool", left, right), trace)

    return compare


class Symbol(Silent):
    """A value that depends on the element."""

    __slots__ = ("node", "trace")

    def __init__(self, node: Node, trace: Trace) -> None:
        object.__setattr__(self, "node", node)
        object.__setattr__(self, "trace", trace)

    def __getattribute__(self, name: str) -> Any:
        node, trace = node_of(self), trace_of(self)
        if node.kind == "str" and name in ("startswith", "endswith"):
            return lambda part: Symbol(trace.node(name, "bool", node, _fixed(trace, part)), trace)
        raise NotAnExpression(f"uses .{name} of {node}")

    def __bool__(self) -> bool:
        trace = trace_of(self)
        return trace.decide(trace.truth(node_of(self)))

    def __contains__(self, part: Any) -> bool:
        trace, node = trace_of(self), node_of(self)
        if node.kind != "str":
            raise NotAnExpression(f"looks into {node}")
        return trace.decide(trace.node("in", "bool", _fixed(trace, part), node))

    def __neg__(self) -> Symbol:
        return _one_number(self, "neg")

    def __abs__(self) -> Symbol:
        return _one_number(self, "abs")

    __eq__, __ne__, __lt__, __le__, __gt__, __ge__ = map(_comparison, ("==", "!=", "<", "<=", ">", ">="))
    __hash__ = Silent._refuse
    __add__, __sub__, __mul__, __truediv__ = map(_arithmetic, ("+", "-", "*", "/"))
    __floordiv__, __mod__, __and__, __or__ = map(_arithmetic, ("//", "%", "&", "|"))
    __xor__, __rshift__ = map(_arithmetic, ("^", ">>"))
    __radd__, __rsub__ = (_arithmetic(each, swapped=True) for each in "+-")
    __rmul__, __rtruediv__ = (_arithmetic(each, swapped=True) for each in "*/")
    __rfloordiv__, __rmod__ = (_arithmetic(each, swapped=True) for each in ("//", "%"))
    __rand__, __ror__, __rxor__ = (_arithmetic(each, swapped=True) for each in "&|^")


def node_of(symbol: Any) -> Node:
    found: Node = object.__getattribute__(symbol, "node")
    return found


def trace_of(symbol: Any) -> Trace:
    found: Trace = object.__getattribute__(symbol, "trace")
    return found


def _one_number(symbol: Symbol, operation: str) -> Symbol:
    node, trace = node_of(symbol), trace_of(symbol)
    if node.kind not in _NUMBERS:
        raise NotAnExpression(f"computes with {node}")
    return Symbol(trace.node(operation, "float" if node.kind == "float" else "int", node), trace)


def _fixed(trace: Trace, part: Any) -> Node:
    if type(part) is not str:
        raise NotAnExpression("looks for something in a text that is no constant text")
    return trace.lifted(part)


class Record(Silent):
    """An element, or an object that a function makes of symbols. ``names``: of the fields that can be read by name.
    ``items``: the values, which may be read by index if ``indexed``."""

    __slots__ = ("indexed", "items", "made", "names")

    def __init__(self, made: type, names: Sequence[str], items: Sequence[Any], *, indexed: bool) -> None:
        for slot, value in (("made", made), ("names", names), ("items", tuple(items)), ("indexed", indexed)):
            object.__setattr__(self, slot, value)

    def __getattribute__(self, name: str) -> Any:
        names, items = (object.__getattribute__(self, each) for each in ("names", "items"))
        if name in names:
            return _read(items[names.index(name)])
        made = object.__getattribute__(self, "made")
        if name == "_replace" and issubclass(made, tuple) and names:
            return lambda **new: Record(made, names, _replaced(names, items, new), indexed=True)
        raise NotAnExpression(f"uses .{name}, which is not a field")

    def __bool__(self) -> bool:
        made, items = (object.__getattribute__(self, each) for each in ("made", "items"))
        if not items or hasattr(made, "__bool__") or getattr(made, "__len__", None) not in (None, tuple.__len__):
            raise NotAnExpression("asks whether an element is true")
        return True

    def __getitem__(self, index: Any) -> Any:
        items, indexed = (object.__getattribute__(self, each) for each in ("items", "indexed"))
        names, made = (object.__getattribute__(self, each) for each in ("names", "made"))
        if made is Row and type(index) is str and index in names:
            index = names.index(index)
        if not indexed or type(index) is not int or not -len(items) <= index < len(items):
            raise NotAnExpression(f"reads [{_shown(index)}], which is not a field")
        return _read(items[index])

    def __iter__(self) -> Iterator[Any]:
        items, indexed = (object.__getattribute__(self, each) for each in ("items", "indexed"))
        if not indexed:
            raise NotAnExpression("takes an element apart that is no tuple")
        return map(_read, items)


def _replaced(names: Sequence[str], items: Sequence[Any], new: dict[str, Any]) -> list[Any]:
    if not new.keys() <= set(names):
        raise NotAnExpression("replaces what is not a field")
    return [new.get(name, item) for name, item in zip(names, items, strict=True)]


def _shown(index: Any) -> str:
    return repr(index) if is_constant(index) else "…"


def _read(value: Any) -> Any:
    if type(value) is Symbol and node_of(value).operation == "field":
        trace_of(value).read.add(node_of(value).arguments[0])
    return value


def record_maker(of: Any) -> Callable[..., Record]:
    """What stands for a class of records."""

    def make(*arguments: Any, **named: Any) -> Record:
        made = of(*arguments, **named)
        if issubclass(of, tuple):
            return Record(of, of._fields, list(tuple.__iter__(made)), indexed=True)
        names = field_names(of)
        return Record(of, names, [object.__getattribute__(made, name) for name in names], indexed=False)

    return make


def readable(names: Iterable[str]) -> list[str]:
    """The names of a Row's fields; a Row's own method hides a field, which then has no name here."""
    return ["" if hasattr(Row, name) else name for name in names]


def element_of(trace: Trace, type: TypeInformation, name: str = "", first: int = 0) -> Any:
    """``name``: of the element, and ``first``: the number of its first column, where there are several elements."""
    fields = type.fields
    if type.nullable or (fields is not None and not isinstance(type, RecordType)):
        raise NotAnExpression("its elements can be None")
    if fields is None:
        return _read(Symbol(trace.node("field", kind_of(type), first, name or "value"), trace))
    assert isinstance(type, RecordType)
    names = [each.name for each in fields]
    if type.validates or not (type.flavor in ("row", "tuple") or reads_plainly(type.python_class, names)):
        raise NotAnExpression("its elements are of a class that does more than hold fields")
    shown = [f"{name}.{each}" if name else each for each in names]
    nodes = [trace.node("field", kind_of(each.type), first + i, shown[i]) for i, each in enumerate(fields)]
    if type.flavor not in BY_NAME:
        names = []
    if type.flavor == "row":
        names = readable(names)
    of: Any = type.python_class
    return Record(of, names, [Symbol(node, trace) for node in nodes], indexed=type.flavor in BY_INDEX)
