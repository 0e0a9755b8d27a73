"""Plans: what a query means, as a tree of tables. Frozen, and JSON when stored."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal

import msgspec
from msgspec.structs import replace

from forkpoint.relational.calls import AggregateCall, Order, OverCall
from forkpoint.relational.expressions import Call, Column, Expression, Item, conjuncts_of
from forkpoint.relational.expressions import Literal as Literal_
from forkpoint.relational.row_patterns import Defined, Matched, RowPattern
from forkpoint.relational.types import Field, Schema, SqlType
from forkpoint.relational.windows import ROLES, WINDOW_NAMES, WindowColumn, Windows, duration_us


class Scan(msgspec.Struct, frozen=True, tag_field="node", tag="scan", omit_defaults=True):
    """The rows of a table of the catalogue. ``rowtime``: the event time of its rows, if it has a watermark. ``updating``: whether
    rows are also removed, not only added. ``key``: the columns of its primary key. ``versions``: whether rows are read as they
    come, where the later rows of a key replace earlier ones, and not as changes. ``options``: of the hint OPTIONS."""

    table: str
    fields: Schema
    rowtime: Expression | None = None
    updating: bool = False
    key: tuple[str, ...] = ()
    versions: bool = False
    options: tuple[tuple[str, str], ...] = ()

    @property
    def schema(self) -> Schema:
        return self.fields


ONE_ROW = Scan("one-row", ())
"""What a query without FROM reads: a row without columns, once."""


class Hints(msgspec.Struct, frozen=True):
    """What a query says of how a node runs, which its result and the meaning of its state do not depend on. ``uid``: ends that of
    its operator. ``ttl_ms``: how long the state of each input is kept after its last change; 0 for ever, None as configured."""

    uid: str = ""
    ttl_ms: tuple[int | None, ...] = ()


class Select(msgspec.Struct, frozen=True, tag_field="node", tag="select"):
    """Projection and filter: the rows of the input for which ``condition`` is true (None: all), as ``items``."""

    input: Plan
    condition: Expression | None
    items: tuple[Item, ...]

    @property
    def schema(self) -> Schema:
        return tuple(Field(item.name, item.of.type) for item in self.items)


def key_name(key: Expression) -> str:
    """The name of a key's column in the result of an aggregate. No call has such a text."""
    return f"by {key}"


class Aggregate(msgspec.Struct, frozen=True, tag_field="node", tag="aggregate"):
    """One row for each group of rows with equal ``keys``. The columns are the keys, then the calls, each named by its text."""

    input: Plan
    keys: tuple[Item, ...]
    calls: tuple[AggregateCall, ...]
    hints: Hints | msgspec.UnsetType = msgspec.UNSET

    @property
    def schema(self) -> Schema:
        return (*(Field(key.name, key.of.type) for key in self.keys), *(Field(str(call), call.type) for call in self.calls))


class Union(msgspec.Struct, frozen=True, tag_field="node", tag="union"):
    """The rows of all inputs (UNION ALL), whose columns have the same types. The names are those of the first input."""

    inputs: tuple[Plan, ...]

    @property
    def schema(self) -> Schema:
        columns = zip(*(plan.schema for plan in self.inputs), strict=True)
        return tuple(Field(same[0].name, same[0].type.with_null(any(each.type.nullable for each in same))) for same in columns)


class Window(msgspec.Struct, frozen=True, tag_field="node", tag="window"):
    """The rows of the input, once for each window that ``time``, their event time, is in, with the window as columns ``names``:
    its start, its end, and its last millisecond, which is the event time of the result. Rows with equal ``partition`` share
    sessions; other windows have none."""

    input: Plan
    time: Expression
    windows: Windows
    names: tuple[str, str, str] = WINDOW_NAMES
    partition: tuple[Expression, ...] = ()

    @property
    def added(self) -> Schema:
        """The window's columns."""
        bound = SqlType("TIMESTAMP", nullable=False)
        return tuple(map(Field, self.names, (bound, bound, self.time.type.with_null(False))))

    @property
    def schema(self) -> Schema:
        return (*self.input.schema, *self.added)


class Unnest(msgspec.Struct, frozen=True, tag_field="node", tag="unnest"):
    """The rows of the input, once for each element of ``of``, an ARRAY or a MAP, with the element as columns ``names``: of a ROW
    its fields, of a MAP key and value. ``outer``: also the rows without elements."""

    input: Plan
    of: Expression
    names: tuple[str, ...]
    outer: bool = False

    @property
    def added(self) -> Schema:
        """The element's columns."""
        return tuple(Field(name, part.with_null()) for name, part in zip(self.names, element_types(self.of.type), strict=True))

    @property
    def schema(self) -> Schema:
        return (*self.input.schema, *self.added)


def element_types(of: SqlType) -> tuple[SqlType, ...]:
    """The types of the columns that UNNEST makes of an element."""
    if of.name == "MAP":
        return tuple(each.type for each in of.fields)
    return tuple(each.type for each in of.element.fields) if of.element.name == "ROW" else (of.element,)


class Apply(msgspec.Struct, frozen=True, tag_field="node", tag="apply"):
    """The rows of the input, with a column for each call of a function that is not deterministic: so that each row has one
    result of it. The input only adds rows."""

    input: Plan
    calls: tuple[Item, ...]

    @property
    def schema(self) -> Schema:
        return (*self.input.schema, *(Field(item.name, item.of.type) for item in self.calls))


class Process(msgspec.Struct, frozen=True, tag_field="node", tag="process"):
    """What a user's process function emits for the rows of the input, which only adds rows. ``partition``: the columns by whose
    values it has state and timers; none if it looks at each row by itself. ``fields``: of the result: those of ``partition``,
    the function's, and ``time``, the event time, unless that is "". ``uid``: of its state. ``arguments``: of the function
    itself, which are literals."""

    input: Plan
    function: str
    partition: tuple[str, ...]
    fields: Schema
    uid: str
    time: str = ""
    arguments: tuple[Item, ...] = ()

    @property
    def schema(self) -> Schema:
        return self.fields


class Match(msgspec.Struct, frozen=True, tag_field="node", tag="match", omit_defaults=True):
    """MATCH_RECOGNIZE: a row for each match of a pattern in the rows of the input with equal ``partition``, which are its
    columns, in their ``order``, event time first. The result has ``partition`` and ``reads``, by their texts. ``skip``: as of
    AfterMatchSkipStrategy. ``within_ms``: how long a match may take. ``processing``: the order is that in which rows come.
    ``all_rows``: a row for each row of a match instead, except those of the variables that are ``excluded``.
    ``earlier``: columns that show another one of the row that came a number of rows before in the partition."""

    input: Plan
    partition: tuple[str, ...]
    order: tuple[Order, ...]
    pattern: RowPattern
    defined: tuple[Defined, ...]
    reads: tuple[Matched, ...]
    skip: str
    skip_to: str = ""
    within_ms: int | None = None
    processing: bool = False
    all_rows: bool = False
    excluded: tuple[str, ...] = ()
    earlier: tuple[tuple[str, str, int], ...] = ()

    @property
    def schema(self) -> Schema:
        columns = {field.name: field for field in self.input.schema}
        return (*(columns[name] for name in self.partition), *(Field(str(read), read.type) for read in self.reads))


class Within(msgspec.Struct, frozen=True):
    """Bounds of the event times of a join's two rows: left less right is at least ``lower_us`` and at most ``upper_us``. ``left``
    and ``right`` are over the columns of the inputs. ``windows``: if both are the last moments of the rows' windows."""

    left: Expression
    right: Expression
    lower_us: int
    upper_us: int
    windows: Windows | msgspec.UnsetType = msgspec.UNSET

    @property
    def delay_ms(self) -> int:
        """How much later than its earlier row a pair may appear."""
        return -(-max(self.upper_us, -self.lower_us, 0) // 1000)

    def __str__(self) -> str:
        if self.windows:
            return f"in {self.windows}"
        bounds = ", ".join(duration_us(each) for each in (self.lower_us, self.upper_us))
        return f"{LEFT}{self.left} - {RIGHT}{self.right} in [{bounds}]"


class AsOf(msgspec.Struct, frozen=True):
    """The right row of a key is the one with the latest event time ``right`` that is not after ``left``, the left row's. Both are
    over the columns of the inputs."""

    left: Expression
    right: Expression

    def __str__(self) -> str:
        return f"as of {LEFT}{self.left} by {RIGHT}{self.right}"


JoinKind = Literal["inner", "left", "right", "full", "semi", "anti"]
LEFT, RIGHT = "left.", "right."
PRESENT = "$present"
"""The column of each side of a join that is TRUE for its rows and NULL where they are missing."""


class Join(msgspec.Struct, frozen=True, tag_field="node", tag="join"):
    """The pairs of rows with equal ``keys``, of which none is NULL, for which ``condition`` is true.

    ``left``, ``right`` and ``full``: also the rows of that side without a pair. ``semi`` and ``anti``: the left rows with or
    without one. The condition and the result name the columns by side: ``left.a``, ``right.b``. A key is a pair of
    expressions over the columns of the left and of the right input; only the canonical form has keys, split from the condition,
    and joins with versions or lookups, where nothing else is a key.
    ``within``: of interval and window joins, whose rows are kept until event time has passed these bounds. Those of intervals are
    a condition, too. ``as_of``: of temporal joins, whose left rows have at most one pair.
    ``lookup``: whether right rows are those that another system has for a key when a left row comes.
    """

    left: Plan
    right: Plan
    kind: JoinKind
    condition: Expression | None
    keys: tuple[tuple[Expression, Expression], ...] = ()
    within: Within | msgspec.UnsetType = msgspec.UNSET
    as_of: AsOf | msgspec.UnsetType = msgspec.UNSET
    lookup: Literal[True] | msgspec.UnsetType = msgspec.UNSET
    hints: Hints | msgspec.UnsetType = msgspec.UNSET

    @property
    def schema(self) -> Schema:
        left = sided(LEFT, self.left.schema, nullable=self.pads(LEFT))
        return left if self.kind in ("semi", "anti") else (*left, *sided(RIGHT, self.right.schema, nullable=self.pads(RIGHT)))

    def pads(self, side: str) -> bool:
        """Whether the columns of a side are NULL in rows without a pair."""
        return self.kind in ("full", "right" if side == LEFT else "left")

    def needs_pairless(self, side: str) -> bool:
        """Whether the result depends on which rows of a side have no pair."""
        return self.pads(RIGHT if side == LEFT else LEFT) or (side == LEFT and self.kind in ("semi", "anti"))


class Over(msgspec.Struct, frozen=True, tag_field="node", tag="over"):
    """The rows of the input, with a column for each call, which reads the rows with equal ``partition`` in their ``order``.
    ``until``: the last moment of the window of a partition's rows, if it has those of one; then only their final result is
    emitted. A literal is the end of all input."""

    input: Plan
    partition: tuple[Expression, ...]
    order: tuple[Order, ...]
    calls: tuple[OverCall, ...]
    until: Expression | msgspec.UnsetType = msgspec.UNSET
    hints: Hints | msgspec.UnsetType = msgspec.UNSET

    def name_of(self, call: OverCall) -> str:
        """The name of a call's column."""
        return f"{call} OVER ({', '.join(map(str, self.partition))} ORDER BY {', '.join(map(str, self.order))})"

    @property
    def schema(self) -> Schema:
        return (*self.input.schema, *(Field(self.name_of(call), call.type) for call in self.calls))


def is_sort(plan: Plan) -> bool:
    """Whether a node is ORDER BY of a result which nothing else bounds: it has no order until its input has ended."""
    return isinstance(plan, Over) and not plan.calls and not plan.until


def sided(side: str, schema: Schema, *, nullable: bool) -> Schema:
    return tuple(Field(side + each.name, each.type.with_null(nullable or each.type.nullable)) for each in schema)


def plain_name(column: str) -> str:
    """The column's own name, without the sides of joins."""
    while column.startswith((LEFT, RIGHT)):
        column = column.partition(".")[2]
    return column


Plan = Scan | Select | Aggregate | Union | Join | Over | Window | Unnest | Apply | Process | Match


def inputs_of(plan: Plan) -> tuple[Plan, ...]:
    match plan:
        case Scan():
            return ()
        case Union(inputs):
            return inputs
        case Join(left, right):
            return left, right
    return (plan.input,)


def without_hints(plan: Plan) -> Plan:
    """The plan without what does not concern its meaning."""
    match plan:
        case Scan():
            return replace(plan, options=())
        case Union(inputs):
            return Union(tuple(map(without_hints, inputs)))
        case Join(left, right):
            return replace(plan, left=without_hints(left), right=without_hints(right), hints=msgspec.UNSET)
        case Aggregate(below) | Over(below):
            return replace(plan, input=without_hints(below), hints=msgspec.UNSET)
    return replace(plan, input=without_hints(plan.input))


def nodes_of(plan: Plan) -> Iterator[Plan]:
    """The plan's nodes, inputs first."""
    for each in inputs_of(plan):
        yield from nodes_of(each)
    yield plan


def is_updating(plan: Plan) -> bool:
    """Whether rows of the result are also changed or deleted, not only added."""
    match plan:
        case Scan(updating=updating):
            return updating
        case Join(left=left, as_of=AsOf()) | Join(left=left, lookup=True):
            return is_updating(left)
        case Join(kind="left" | "right" | "full" | "anti", within=msgspec.UNSET) | Over(until=msgspec.UNSET):
            return True
        case Aggregate() if not is_windowed(plan):
            return True
        case Over():
            return False
    return any(map(is_updating, inputs_of(plan)))


Key = frozenset[str]


def keys_of(plan: Plan) -> list[Key]:
    """Sets of columns of which no two rows have the same values at a time, as far as they are known."""
    match plan:
        case Scan(updating=updating, key=key):
            return [frozenset(key)] if updating and key else []
        case Union() | Window() | Unnest() | Process() | Match():
            return []
        case Aggregate(_, keys):
            return [frozenset(key.name for key in keys)]
        case Apply(below):
            return keys_of(below)
        case Join():
            return _keys_of_join(plan)
        case Over(below, partition, _, calls):
            numbers = [plan.name_of(call) for call in calls if call.function == "ROW_NUMBER"]
            columns = {column.name for column in partition if isinstance(column, Column)}
            numbered = [frozenset({*columns, number}) for number in numbers if len(columns) == len(partition)]
            return [*keys_of(below), *numbered]
    pinned = {name for part in conjuncts_of(plan.condition) for name in _pinned(part)}
    return shown_as(plan.items, [key - pinned for key in keys_of(plan.input)])


def shown_as(items: Sequence[Item], keys: Iterable[Key]) -> list[Key]:
    """Sets of columns by the names that items give them, without those of which a column is not shown."""
    kept = ((item.name, unwrapped(item.of)) for item in reversed(items))
    names = {of.name: name for name, of in kept if isinstance(of, Column)}
    return [frozenset(names[name] for name in key) for key in keys if names.keys() >= key]


def _keys_of_join(join: Join) -> list[Key]:
    """If the rows of a side have at most one pair each, its keys are keys of the result; else those of both sides together."""
    left = [frozenset(LEFT + name for name in key) for key in keys_of(join.left)]
    if join.kind in ("semi", "anti") or join.as_of:
        return left
    right = [frozenset(RIGHT + name for name in key) for key in keys_of(join.right)]
    equal = {name for part in conjuncts_of(join.condition) for name in _compared(part)}
    one_left, one_right = (any(key <= equal for key in keys) for keys in (left, right))
    found = left if one_right and not join.pads(LEFT) else []
    found = [*found, *(right if one_left and not join.pads(RIGHT) else [])]
    return found or [one | other for one in left for other in right]


def _pinned(condition: Expression) -> Key:
    """The column that a condition allows one value of."""
    match condition:
        case Call("=", (Column(name), Literal_()) | (Literal_(), Column(name))) | Call("<=", (Column(name), Literal_(value=1))):
            return frozenset({name})
    return frozenset()


def _compared(condition: Expression) -> Key:
    """The two columns of ``left.a = right.b``; none for other conditions."""
    if not (isinstance(condition, Call) and condition.function == "="):
        return frozenset()
    names = frozenset(each.name for each in condition.arguments if isinstance(each, Column))
    return names if len({name.partition(".")[0] for name in names}) == 2 else frozenset()


def window_columns(plan: Plan) -> dict[str, WindowColumn]:
    """The columns that are the start, end or event time of a row's window."""
    match plan:
        case Window(windows=windows, names=names):
            return {name: WindowColumn(role, windows) for name, role in zip(names, ROLES, strict=True)}
        case (
            Select(input=input, items=()) | Apply(input=input) | Over(input=input, until=Column() | Call())
        ):  # a condition on all columns
            return window_columns(input)
        case Join(left=left, lookup=True):
            return {LEFT + name: of for name, of in window_columns(left).items()}
        case Join(left=left, right=right, kind=kind, within=Within(windows=Windows())):
            sides = [(LEFT, left), *([] if kind in ("semi", "anti") else [(RIGHT, right)])]
            return {side + name: of for side, each in sides if not plan.pads(side) for name, of in window_columns(each).items()}
        case Select(input=input, items=items):
            return _kept(items, window_columns(input))
        case Aggregate(input=input, keys=keys) if is_windowed(plan):
            return _kept(keys, window_columns(input))
        case Union(inputs=(first, *_) as inputs):
            found = [list(map(window_columns(each).get, (field.name for field in each.schema))) for each in inputs]
            same = zip(first.schema, found[0], *found[1:], strict=True)
            return {field.name: one for field, one, *others in same if one is not None and all(o == one for o in others)}
    return {}


def _kept(items: tuple[Item, ...], below: Mapping[str, WindowColumn]) -> dict[str, WindowColumn]:
    return {item.name: below[item.of.name] for item in items if isinstance(item.of, Column) and item.of.name in below}


def is_windowed(aggregate: Aggregate) -> bool:
    """Whether the groups are those of windows: each is complete, and final, once event time has passed the window's end."""
    below = window_columns(aggregate.input)
    keys = [below.get(key.of.name) for key in aggregate.keys if isinstance(key.of, Column)]
    return {"start", "end"} <= {key.role for key in keys if key is not None}


def unwrapped(expression: Expression) -> Expression:
    """The expression without the check that it is not NULL."""
    if isinstance(expression, Call) and expression.function == "NOT NULL":
        return expression.arguments[0]
    return expression
