"""Event time in plans: the columns whose values watermarks are about, and where a column has lost that."""

from __future__ import annotations

from forkpoint.relational.expressions import Call, Column, Expression
from forkpoint.relational.functions.changing import PROCTIME
from forkpoint.relational.plan import (
    LEFT,
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
    Within,
    is_windowed,
    unwrapped,
    window_columns,
)
from forkpoint.relational.row_patterns import MATCH_ROWTIME
from forkpoint.relational.windows import Windows


def rowtimes(plan: Plan) -> frozenset[str]:
    """The columns that are event time. Projections, filters, UNION ALL, windows and joins that it bounds keep it."""
    match plan:
        case Scan(rowtime=Column(name)):
            return frozenset({name})
        case Select(items=items):
            return frozenset(item.name for item in items if _is_rowtime(item.of, plan.input))
        case Window(names=(_, _, time), windows=windows):
            return frozenset() if windows.processing else frozenset({time})
        case Process(time=time):
            return frozenset({time} if time else ())
        case Match(reads=reads, processing=False):
            return frozenset(str(read) for read in reads if read.function == MATCH_ROWTIME)
        case Unnest(input=input) | Apply(input=input) | Over(input=input, until=Column() | Call()):
            return rowtimes(input)
        case Join(left=left, right=right, within=Within(windows=Windows())):
            pairs = ((side, name) for side, each in ((LEFT, left), (RIGHT, right)) for name in rowtimes(each))
            return frozenset(side + name for side, name in pairs if side + name in window_columns(plan))
        case Join(left=left, lookup=True):
            return frozenset(LEFT + name for name in rowtimes(left))
        case Join(as_of=AsOf(left=Column(name))):
            return frozenset({LEFT + name})
        case Join(kind=kind, within=within) if within:
            sides = [(LEFT, within.left), *([] if kind in ("semi", "anti") else [(RIGHT, within.right)])]
            return frozenset(side + time.name for side, time in sides if isinstance(time, Column))
        case Aggregate(keys=keys) if is_windowed(plan):
            columns = window_columns(plan.input).items()
            times = {name for name, column in columns if column.role == "time" and not column.of.processing}
            return frozenset(key.name for key in keys if isinstance(key.of, Column) and key.of.name in times)
        case Union(inputs=inputs):
            found = list(map(rowtimes, inputs))
            by_position = zip(*(each.schema for each in inputs), strict=True)
            return frozenset(
                same[0].name for same in by_position if all(field.name in times for field, times in zip(same, found, strict=True))
            )
    return frozenset()


def _is_rowtime(of: Expression, plan: Plan) -> bool:
    of = unwrapped(of)
    if isinstance(plan, Scan):
        return plan.rowtime is not None and str(of) == str(plan.rowtime)
    return isinstance(of, Column) and of.name in rowtimes(plan)


def is_processing_time(plan: Plan, name: str) -> bool:
    """Whether a column is PROCTIME()."""
    match plan:
        case Select(input=below, items=items):
            of = unwrapped(next(item.of for item in items if item.name == name))
            return (isinstance(of, Call) and of.function == PROCTIME) or (
                isinstance(of, Column) and is_processing_time(below, of.name)
            )
        case Join(left=left, right=right):
            side, own = (left, LEFT) if name.startswith(LEFT) else (right, RIGHT)
            return is_processing_time(side, name.removeprefix(own))
        case Window(input=below) | Unnest(input=below) | Apply(input=below) | Over(input=below):
            return any(name == field.name for field in below.schema) and is_processing_time(below, name)
        case Union(inputs=inputs):
            at = [field.name for field in plan.schema].index(name)
            return all(is_processing_time(each, each.schema[at].name) for each in inputs)
    return False


def why_not_rowtime(plan: Plan, name: str) -> str:
    """Where a column has lost event time, or never had it, and what to do."""
    match plan:
        case Scan(table=table, rowtime=None):
            return f"table {table!r} has no watermark; declare WATERMARK FOR {name} AS {name} - INTERVAL '5' SECOND"
        case Scan(table=table, rowtime=rowtime):
            return f"the event time of table {table!r} is {rowtime}"
        case Select(input=Scan(table=table, rowtime=rowtime), items=items) if rowtime is not None and rowtimes(plan):
            return f"the event time of table {table!r} is {', '.join(sorted(rowtimes(plan)))}"
        case Select(items=items):
            of = unwrapped(next(item.of for item in items if item.name == name))
            if isinstance(of, Call) and of.function == PROCTIME:
                return "it is PROCTIME(), which windows, OVER and lookup joins take; use a time of the rows"
            if not isinstance(of, Column):
                return "an expression computes it; select the column that is event time itself"
            return why_not_rowtime(plan.input, of.name)
        case Aggregate() if is_windowed(plan):
            return "of a window's columns, only window_time is event time; add it to GROUP BY"
        case Aggregate():
            return "GROUP BY and DISTINCT lose event time, unless they group by window_start, window_end and window_time"
        case Window(names=(_, _, time)):
            return f"the event time of windows is {time}"
        case Match():
            return "the event time of matches is MATCH_ROWTIME() in MEASURES"
        case Process(time=time):
            return f"the event time of the function's results is {time}" if time else "give the function on_time => DESCRIPTOR(…)"
        case Union(inputs=inputs):
            at = [field.name for field in plan.schema].index(name)
            names = [each.schema[at].name for each in inputs]
            lost = next(i for i, each in enumerate(inputs) if names[i] not in rowtimes(each))
            return why_not_rowtime(inputs[lost], names[lost])
    return "OVER loses event time, as do joins without bounds of both times: a.ts BETWEEN b.ts - INTERVAL '1' HOUR AND b.ts"
