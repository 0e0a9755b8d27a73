"""Which changes of a plan come from the same subtask, so that they are in order."""

from __future__ import annotations

from forkpoint.relational.expressions import Column
from forkpoint.relational.plan import (
    LEFT,
    Aggregate,
    Apply,
    Join,
    Key,
    Over,
    Plan,
    Scan,
    Select,
    Unnest,
    Window,
    keys_of,
    shown_as,
)


def together(plan: Plan) -> list[Key]:
    """Sets of columns: all changes of rows with the same values of one of them come from one subtask, as far as that is known.

    The changes of a table's row come from one split.
    """
    match plan:
        case Scan():
            return keys_of(plan)
        case Aggregate(_, keys):
            return [frozenset(key.name for key in keys)]
        case Over(_, partition):
            columns = [column.name for column in partition if isinstance(column, Column)]
            return [frozenset(columns)] if len(columns) == len(partition) else []
        case Apply(below) | Window(below) | Unnest(below):
            return together(below)
        case Join(left=below, lookup=True):
            return [frozenset(LEFT + name for name in key) for key in together(below)]
        case Select(below, _, items):
            return shown_as(items, together(below))
    return []  # the key of a join is that of its canonical form, which other conditions may extend
