"""The canonical form of plans: plans with the same meaning become equal.

Names of results, the order of conditions, keys and columns, unused columns, and projections in between do not enter it. So it
recognises a query's saved state after the query's text has changed. A stored plan is brought into the form of the running release
before it is compared.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from forkpoint.relational.calls import AggregateCall, Order
from forkpoint.relational.expressions import (
    COMMUTATIVE,
    Call,
    Column,
    Expression,
    Item,
    Literal,
    all_of,
    columns_of,
    conjuncts_of,
    operands_of,
    replace_columns,
)
from forkpoint.relational.plan import (
    LEFT,
    PRESENT,
    RIGHT,
    Aggregate,
    Apply,
    AsOf,
    Join,
    Match,
    Over,
    Plan,
    Process,
    Scan,
    Select,
    Union,
    Unnest,
    Window,
    key_name,
    nodes_of,
    window_columns,
    without_hints,
)
from forkpoint.relational.precision import is_cut
from forkpoint.relational.types import BOOLEAN, Field, SqlType, common_type
from forkpoint.relational.windows import WindowColumn

Replacements = Mapping[str, Expression]
CANONICAL_NAMES = ("$window_start", "$window_end", "$window_time")


def canonical(plan: Plan) -> Plan:
    """The canonical form. Columns are named by the text of their expressions."""
    return canonical_with_columns(plan)[0]


def merged(plan: Plan) -> Plan:
    """The plan with successive projections and filters as one Select."""
    match plan:
        case Scan():
            return plan
        case Aggregate():
            return replace(plan, input=merged(plan.input))
        case Union():
            return Union(tuple(map(merged, plan.inputs)))
        case Window() | Apply() | Process() | Match():
            return replace(plan, input=merged(plan.input))
        case Unnest(below, of, names, outer):
            return Unnest(merged(below), of, names, outer)
        case Join(left, right):
            return replace(plan, left=merged(left), right=merged(right))
        case Over():
            return replace(plan, input=merged(plan.input))
    below = merged(plan.input)
    if not isinstance(below, Select):
        return Select(below, plan.condition, plan.items)
    inner = {item.name: item.of for item in below.items}
    return Select(
        below.input,
        both(below.condition, replaced(plan.condition, inner)),
        tuple(Item(item.name, through(item.of, inner)) for item in plan.items),
    )


def both(one: Expression | None, other: Expression | None) -> Expression | None:
    """The condition that both conditions hold."""
    return all_of((*conjuncts_of(one), *conjuncts_of(other)))


def through(expression: Expression, by: Replacements) -> Expression:
    """The expression over other columns, in canonical form. Columns without a replacement stay: those of a canonical plan."""
    return normal(replace_columns(expression, lambda column: by.get(column.name, column)))


def normal(expression: Expression) -> Expression:
    """The expression with the arguments of commutative functions in the order of their texts."""
    if not isinstance(expression, Call):
        return expression
    arguments = list(map(normal, expression.arguments))
    if expression.function in ("AND", "OR"):
        operands = sorted(operands_of(expression.function, arguments), key=str)
        found = operands[0]
        for operand in operands[1:]:
            found = Call(expression.function, (found, operand), expression.type)
        return found
    if expression.function in COMMUTATIVE:
        arguments.sort(key=str)
    return Call(expression.function, tuple(arguments), expression.type)


def replaced(expression: Expression | None, by: Replacements) -> Expression | None:
    return None if expression is None else through(expression, by)


def canonical_with_columns(plan: Plan) -> tuple[Plan, Replacements]:
    """The canonical form, and its column for each column of the plan."""
    if isinstance(plan, Scan):
        scan = Scan(plan.table, (), updating=plan.updating, versions=plan.versions, options=plan.options)
        return scan, {field.name: Column(field.name, field.type) for field in plan.fields}
    if isinstance(plan, Aggregate):
        return _canonical_aggregate(plan)
    if isinstance(plan, Window):
        return _canonical_window(plan)
    if isinstance(plan, Unnest):
        return _canonical_unnest(plan)
    if isinstance(plan, Apply):
        return _canonical_apply(plan)
    if isinstance(plan, Process):
        return _canonical_process(plan)
    if isinstance(plan, Match):
        return _canonical_match(plan)
    if isinstance(plan, Union):
        return _canonical_union(plan), {field.name: Column(field.name, field.type) for field in plan.schema}
    if isinstance(plan, Join):
        return _canonical_join(plan)
    if isinstance(plan, Over):
        return _canonical_over(plan)
    source, condition, found = filtered(plan)
    items = {str(of): of for of in found.values()}
    select = Select(source, condition, tuple(Item(text, items[text]) for text in sorted(items)))
    return select, {name: Column(str(of), of.type) for name, of in found.items()}


def filtered(plan: Plan) -> tuple[Plan, Expression | None, Replacements]:
    """The canonical plan below a projection and filter, the condition on its columns, and each column over its columns."""
    plan = merged(plan)
    if not isinstance(plan, Select):
        source, columns = canonical_with_columns(plan)
        return source, None, columns
    source, inner = canonical_with_columns(plan.input)
    condition = all_of(conjuncts_of(replaced(plan.condition, inner)))
    columns = {item.name: through(item.of, inner) for item in plan.items}
    if isinstance(source, Join):
        source, condition = pushed(source, condition)
    if isinstance(source, Window):
        source, condition = _before_windows(source, condition)
    return source, condition, columns


def _canonical_aggregate(plan: Aggregate) -> tuple[Plan, Replacements]:
    """Keys and calls refer to the columns below a projection, whose condition remains, without items."""
    below, columns = _condition_only(plan.input)
    keys = {key.name: through(key.of, columns) for key in plan.keys}
    named = {name: _key_column(of, keys, below) for name, of in keys.items()}
    calls = {str(call): canonical_call(call, columns) for call in plan.calls}
    items = {str(of): of for name, of in keys.items() if isinstance(named[name], Column)}
    distinct = {str(call): call for call in calls.values()}
    found = Aggregate(
        below,
        tuple(Item(key_name(items[text]), items[text]) for text in sorted(items)),
        tuple(distinct[text] for text in sorted(distinct)),
        plan.hints,
    )
    return found, named | {name: Column(str(call), call.type) for name, call in calls.items()}


def _condition_only(plan: Plan) -> tuple[Plan, Replacements]:
    """The canonical form of an input whose projection the node above takes over."""
    source, condition, columns = filtered(plan)
    return source if condition is None else Select(source, condition, ()), columns


def _key_column(key: Expression, keys: Replacements, below: Plan) -> Expression:
    """The column of a key in the result. A window's event time is no key of its own beside the window's end."""
    windows = window_columns(below)
    found = windows.get(key.name) if isinstance(key, Column) else None
    if found is not None and found.role == "time":
        for other in keys.values():
            if isinstance(other, Column) and windows.get(other.name) == WindowColumn("end", found.of):
                return last_moment(Column(key_name(other), other.type), key.type)
    return Column(key_name(key), key.type)


def last_moment(end: Expression, of: SqlType) -> Expression:
    """The last millisecond of a window that ends then."""
    found = Call("PLUS MICROSECONDS", (end, Literal(-1000, SqlType("BIGINT", nullable=False))), end.type)
    return found if of == end.type else Call("CAST", (found,), of)


def _before_windows(window: Window, condition: Expression | None) -> tuple[Window, Expression | None]:
    """The windows of the rows that pass what the condition says of rows, and what it says of their windows."""
    parts = conjuncts_of(condition)
    of_windows = tuple(part for part in parts if any(column.name in window.names for column in columns_of(part)))
    of_rows = all_of(tuple(part for part in parts if part not in of_windows))
    if of_rows is None:
        return window, condition
    below, before = (window.input.input, window.input.condition) if isinstance(window.input, Select) else (window.input, None)
    return replace(window, input=Select(below, both(before, of_rows), ())), all_of(of_windows)


def _canonical_window(plan: Window) -> tuple[Plan, Replacements]:
    """The window's columns have names that no column of a table has; the others are those below a projection."""
    below, columns = _condition_only(plan.input)
    partition = {str(of): of for of in (through(each, columns) for each in plan.partition)}
    keys = tuple(partition[text] for text in sorted(partition))
    found = Window(below, _whole_ms(through(plan.time, columns)), plan.windows, CANONICAL_NAMES, keys)
    added = zip(plan.names, found.added, strict=True)
    return found, {**columns, **{name: Column(field.name, field.type) for name, field in added}}


def _whole_ms(time: Expression) -> Expression:
    """A time without a cut of its microseconds, which windows do not look at."""
    cut = isinstance(time, Call) and is_cut(time) and isinstance(time.type.precision, int) and time.type.precision >= 3
    return replace(time, type=time.type.plain) if cut else time


def _canonical_unnest(plan: Unnest) -> tuple[Plan, Replacements]:
    """The element's columns have names that no column of a table or another UNNEST below has."""
    below, columns = _condition_only(plan.input)
    number = sum(isinstance(node, Unnest) for node in nodes_of(below))
    names = tuple(f"$element{number}.{at}" for at in range(len(plan.names)))
    found = Unnest(below, through(plan.of, columns), names, plan.outer)
    added = zip(plan.names, found.added, strict=True)
    return found, {**columns, **{name: Column(field.name, field.type) for name, field in added}}


def _canonical_apply(plan: Apply) -> tuple[Plan, Replacements]:
    """The columns of the calls have names that no column of a table or another node below has."""
    below, columns = _condition_only(plan.input)
    number = sum(isinstance(node, Apply) for node in nodes_of(below))
    calls = {item.name: through(item.of, columns) for item in plan.calls}
    names = {name: f"$result{number} {of}" for name, of in calls.items()}
    found = Apply(below, tuple(sorted((Item(names[name], of) for name, of in calls.items()), key=lambda item: item.name)))
    return found, {**columns, **{name: Column(names[name], of.type) for name, of in calls.items()}}


def _canonical_process(plan: Process) -> tuple[Plan, Replacements]:
    """The function sees its input's columns by their names; the result's have names that no other node's have."""
    rows = _with_names(plan.input)
    prefix = f"${plan.uid} "
    fields = tuple(Field(prefix + field.name.removeprefix(prefix), field.type) for field in plan.fields)
    found = replace(plan, input=rows, fields=fields, time=plan.time and fields[-1].name)
    return found, {old.name: Column(new.name, new.type) for old, new in zip(plan.fields, fields, strict=True)}


def _with_names(plan: Plan) -> Select:
    """A plan as a selection that keeps the names of its columns."""
    source, condition, columns = filtered(plan)
    return Select(source, condition, tuple(Item(field.name, columns[field.name]) for field in plan.schema))


def _canonical_match(plan: Match) -> tuple[Plan, Replacements]:
    """Its input keeps its columns' names, which conditions and measures refer to."""
    found = replace(plan, input=_with_names(plan.input))
    return found, {field.name: Column(field.name, field.type) for field in found.schema}


def _canonical_over(plan: Over) -> tuple[Plan, Replacements]:
    """As aggregates, calls refer to the columns below a projection, which are also columns of the result."""
    below, columns = _condition_only(plan.input)
    partition = {str(of): of for of in (through(each, columns) for each in plan.partition)}
    order = tuple(Order(through(each.of, columns), each.descending, each.nulls_first) for each in plan.order)
    calls = {
        plan.name_of(call): replace(call, arguments=tuple(through(a, columns) for a in call.arguments)) for call in plan.calls
    }
    distinct = {str(call): call for call in calls.values()}
    keys = tuple(partition[text] for text in sorted(partition))
    found = Over(below, keys, order, tuple(distinct[text] for text in sorted(distinct)), hints=plan.hints)
    if plan.until:
        found = replace(found, until=through(plan.until, columns))
    return found, {**columns, **{name: Column(found.name_of(call), call.type) for name, call in calls.items()}}


def _canonical_union(plan: Union) -> Union:
    """Each input is a Select with the union's columns, by position."""
    inputs = []
    for each in plan.inputs:
        source, condition, columns = filtered(each)
        pairs = zip(plan.schema, each.schema, strict=True)
        inputs.append(Select(source, condition, tuple(Item(field.name, columns[own.name]) for field, own in pairs)))
    return Union(tuple(sorted(inputs, key=lambda each: repr(without_hints(each)))))


def canonical_call(call: AggregateCall, columns: Replacements) -> AggregateCall:
    condition = all_of(conjuncts_of(replaced(call.condition, columns)))
    return replace(call, argument=replaced(call.argument, columns), condition=condition)


# -- joins -------------------------------------------------------------------------------------------------------------


def _canonical_join(plan: Join) -> tuple[Plan, Replacements]:
    """The condition is split: what concerns one input filters that input where that makes no difference, and equations of the
    two inputs are keys. The columns are those below the inputs' projections."""
    left, left_condition, left_columns = filtered(plan.left)
    right, right_condition, right_columns = filtered(plan.right)
    before = _renamed(LEFT, left_columns) | _renamed(RIGHT, right_columns)
    condition = replaced(plan.condition, before)
    keys = [(through(one, left_columns), through(other, right_columns)) for one, other in plan.keys]
    inputs = _where(left, left_condition), _where(right, right_condition)
    found = Join(*inputs, plan.kind, None, tuple(keys), lookup=plan.lookup, hints=plan.hints)
    if plan.within:
        times = through(plan.within.left, left_columns), through(plan.within.right, right_columns)
        found = replace(found, within=replace(plan.within, left=times[0], right=times[1]))
    if plan.as_of:
        of = plan.as_of
        found = replace(found, as_of=AsOf(through(of.left, left_columns), through(of.right, right_columns)))
    pushed = {"inner": (LEFT, RIGHT), "semi": (LEFT, RIGHT), "left": (RIGHT,), "anti": (RIGHT,), "right": (LEFT,), "full": ()}
    sides = tuple(side for side in pushed[plan.kind] if side == LEFT or not (plan.as_of or plan.lookup))
    found = _with_condition(found, conjuncts_of(condition), sides)
    after = {name: _padded(of, LEFT, found.pads(LEFT)) for name, of in _renamed(LEFT, left_columns).items()}
    if plan.kind not in ("semi", "anti"):
        after |= {name: _padded(of, RIGHT, found.pads(RIGHT)) for name, of in _renamed(RIGHT, right_columns).items()}
    return found, after


def _renamed(side: str, columns: Replacements) -> dict[str, Expression]:
    """The columns of an input as those of the join."""
    return {side + name: _moved(of, "", side) for name, of in columns.items()}


def _moved(expression: Expression, old: str, new: str) -> Expression:
    """The expression with columns of other names, by which the arguments of commutative functions are ordered anew."""
    return normal(replace_columns(expression, lambda column: Column(new + column.name.removeprefix(old), column.type)))


def _padded(expression: Expression, side: str, pads: bool) -> Expression:
    """A column of a side in the result: NULL in rows without a row of that side, whatever it is computed from."""
    nullable = expression.type.with_null()
    if not pads:
        return expression
    if isinstance(expression, Column):
        return Column(expression.name, nullable)
    return Call("IF", (Column(side + PRESENT, BOOLEAN), expression, Literal(None, SqlType("NULL"))), nullable)


def _with_condition(join: Join, conjuncts: tuple[Expression, ...], pushed: tuple[str, ...]) -> Join:
    """The join with these conditions, too. ``pushed``: the sides that conditions on their columns filter."""
    conjuncts = tuple({str(part): part for each in conjuncts for part in (each, *_implied(each))}.values())
    keys, rest = list(join.keys), [*conjuncts_of(join.condition)]
    filters: dict[str, tuple[Expression, ...]] = dict.fromkeys(pushed, ())
    for conjunct in conjuncts:
        if isinstance(conjunct, Literal) and conjunct.value is True:
            continue
        sides, pair = _sides(conjunct), _key_pair(conjunct)
        if len(sides) == 1 and (side := min(sides)) in filters:
            filters[side] = (*filters[side], _moved(conjunct, side, ""))
        elif pair is not None and not (join.as_of or join.lookup):
            keys.append(pair)
        else:
            rest.append(conjunct)
    left, right = (_where(plan, all_of(filters.get(side, ()))) for plan, side in ((join.left, LEFT), (join.right, RIGHT)))
    by_text = {f"{one} = {other}": (one, other) for one, other in keys}
    keys = [by_text[text] for text in sorted(by_text)]
    return replace(join, left=left, right=right, condition=all_of(conjuncts_of(all_of(tuple(rest)))), keys=tuple(keys))


def _implied(condition: Expression) -> tuple[Expression, ...]:
    """What all operands of an OR have in common, such as an equation of the inputs."""
    if not (isinstance(condition, Call) and condition.function == "OR"):
        return ()
    first, *others = (conjuncts_of(each) for each in operands_of("OR", [condition]))
    return tuple(part for part in first if all(part in other for other in others))


def _sides(expression: Expression) -> frozenset[str]:
    """The sides whose columns an expression reads."""
    return frozenset(column.name.partition(".")[0] + "." for column in columns_of(expression))


def _key_pair(condition: Expression) -> tuple[Expression, Expression] | None:
    """The two sides of an equation of the inputs, each over the columns of its input, with one type."""
    if not (isinstance(condition, Call) and condition.function == "="):
        return None
    by_side = {min(sides): part for part in condition.arguments if len(sides := _sides(part)) == 1}
    if by_side.keys() != {LEFT, RIGHT}:
        return None
    of = common_type([part.type for part in by_side.values()])
    if of is None or of.is_nested:
        return None
    one, other = (_as_type(_moved(by_side[side], side, ""), of) for side in (LEFT, RIGHT))
    return one, other


def _as_type(expression: Expression, of: SqlType) -> Expression:
    if of.same_values(expression.type):
        return expression
    return Call("CAST", (expression,), of.with_null(expression.type.nullable))


def _where(plan: Plan, condition: Expression | None) -> Plan:
    """A canonical input of a join with a filter: without projection, and pushed into a join below."""
    if condition is None:
        return plan
    if isinstance(plan, Select):
        condition = both(plan.condition, condition)
        plan = plan.input
    if isinstance(plan, Join):
        plan, condition = pushed(plan, condition)
    return plan if condition is None else Select(plan, condition, ())


def pushed(join: Join, condition: Expression | None) -> tuple[Join, Expression | None]:
    """The join with a filter of its result in it, as far as that makes no difference, and the rest of the filter."""
    if join.kind == "inner":  # a row that its key no longer has is no older version of it
        return _with_condition(join, conjuncts_of(condition), (LEFT,) if join.as_of or join.lookup else (LEFT, RIGHT)), None
    sides = {"left": (LEFT,), "semi": (LEFT,), "anti": (LEFT,), "right": (RIGHT,)}.get(join.kind, ())
    below = tuple(each for each in conjuncts_of(condition) if _sides(each) and _sides(each) <= set(sides))
    rest = tuple(each for each in conjuncts_of(condition) if each not in below)
    return _with_condition(join, below, sides), all_of(rest)
