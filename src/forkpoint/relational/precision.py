"""Digits of seconds: of TIMESTAMP(3) and the like.

Types have them while a query is bound, for what is shown and for what a CAST does. Values are cut where they get such a type, by
a CAST. So the plans that run, and those that are stored with state, need no digits elsewhere, and have none: a column
TIMESTAMP(3) is stored as it was before there were digits. The texts of expressions, which are names of columns, are the same with
and without them.
"""

from __future__ import annotations

from typing import Any, TypeVar, cast

import msgspec

from forkpoint.relational.expressions import Call, Column, Expression, Item, items_of
from forkpoint.relational.plan import Select, Window
from forkpoint.relational.types import Field, Schema, SqlType, cuts, time_type

T = TypeVar("T")
CASTS = ("CAST", "TRY_CAST")


def as_it_runs(value: T) -> T:
    """A plan, or a part of one, with digits of seconds only in the types of CASTs that cut values."""
    found: Any = value
    if isinstance(value, SqlType):
        found = value.plain
    elif isinstance(value, tuple):
        each = tuple(map(as_it_runs, value))
        found = value if all(one is other for one, other in zip(each, value, strict=True)) else each
    elif isinstance(value, msgspec.Struct):
        names = [name for name in value.__struct_fields__ if not (name == "type" and is_cut(value))]
        pairs = [(name, old := getattr(value, name), as_it_runs(old)) for name in names]
        changed = {name: new for name, old, new in pairs if new is not old}
        found = msgspec.structs.replace(value, **changed) if changed else value
    return cast("T", found)


def is_cut(value: Any) -> bool:
    """Whether an expression is a CAST that may drop digits of seconds."""
    return isinstance(value, Call) and value.function in CASTS and cuts(value.arguments[0].type, value.type)


def converted(value: Expression, of: SqlType) -> Expression:
    """A value as another type has it, with its own NULLs: by a CAST, if that changes values."""
    wanted = of.with_null(value.type.nullable)
    if wanted == value.type:
        return value
    if is_cut(value) or not same_values(value.type, wanted):
        return Call("CAST", (value,), wanted)
    return msgspec.structs.replace(value, type=wanted)


def same_values(given: SqlType, wanted: SqlType) -> bool:
    """Whether each value of one type is one of the other, in the same form."""
    return given.same_values(wanted) and not cuts(given, wanted)


def in_ms(windows: Window) -> Select:
    """The rows of windows, whose columns have milliseconds."""
    columns = (*items_of(windows.input.schema), *(Item(each.name, ms_column(each)) for each in windows.added))
    return Select(windows, None, columns)


def ms_column(field: Field) -> Column:
    """A column of a window, with its digits of seconds."""
    return Column(field.name, time_type(field.type.name, 3, field.type.nullable))


def cut_columns(fields: Schema) -> tuple[Item, ...]:
    """The columns of a table whose source may have more digits of seconds than its types; empty if no type has any."""
    items = tuple(Item(each.name, converted(Column(each.name, each.type.plain), each.type)) for each in fields)
    return items if any(is_cut(item.of) for item in items) else ()
