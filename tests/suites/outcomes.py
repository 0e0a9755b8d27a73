"""Runs a query of a suite and says what became of it: equal, refused, wrong, or other than asked for, as Flink has it."""

from __future__ import annotations

import re
import signal
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any, Literal

import forkpoint as fp
from forkpoint.errors import JobFailed
from forkpoint.sql.errors import SqlError

SECONDS = 30
"""Of CPU, after which a query counts as one that does not end."""
GIGABYTES = 8
"""Of memory, which a query may have."""
_MARK = re.compile(r".*?, line \d+, column \d+: ", re.DOTALL)
_STRICT = {
    "a CAST of a text that Flink does not read is an error": re.compile(r"CAST\('.*' is no [A-Z]"),
    "a number beyond the digits of its type is an error": re.compile(
        r"exceeds|overflow|does not fit|precision \d+|out of bounds"
    ),
    "a division of integers by zero is an error": re.compile(r"divide by zero"),
    "a subquery that is a value has one row": re.compile(r"has several rows"),
    "ESCAPE is one character": re.compile(r"ESCAPE '' must be one character"),
    "a key of a MAP is not NULL": re.compile(r"a key is NULL"),
}
"""Errors of rows, as the documentation has them, where another system has a wider type, NULL, or any of the rows."""
Rows = Counter[tuple[Any, ...]]
Kind = Literal["equal", "differs", "refused", "wrong"]
KINDS: tuple[Kind, ...] = ("equal", "differs", "refused", "wrong")


class Refused(Exception):
    """The suite's query or data cannot be written in Flink's SQL."""


class TooSlow(Exception):
    pass


@dataclass(frozen=True)
class Outcome:
    """Of a query, which begins at a line of a file. ``reason``: why it is not equal."""

    kind: Kind
    file: str
    line: int
    query: str
    reason: str = ""


@contextmanager
def limited(seconds: int) -> Iterator[None]:
    def ended(*_: Any) -> None:
        raise TooSlow(f"no result within {seconds} s")

    before = signal.signal(signal.SIGPROF, ended)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def result(query: str, tables: fp.StreamTableEnvironment, shown: Callable[[Any], Any]) -> Rows:
    """What a query ends with. ``shown``: a value as it is compared."""
    found: Rows = Counter()
    for row in tables.execute_sql(query).collect():
        found[tuple(map(shown, row))] += -1 if row.get_row_kind() is fp.RowKind.DELETE else 1
    if any(count < 0 for count in found.values()):
        raise AssertionError(f"removes what is not there: {-found}")
    return +found


def outcome(
    run: Callable[[], Rows], answer: Rows, place: tuple[str, int], query: str, others: Mapping[str, Callable[[Rows], bool]]
) -> Outcome:
    """``run``: the query's result. ``others``: by the reason, whether a result is what Flink's other meaning asks for."""
    try:
        with limited(SECONDS):
            found = run()
    except Refused as refusal:
        return Outcome("refused", *place, query, str(refusal))
    except SqlError as error:
        return Outcome("refused", *place, query, reason_of(str(error)))
    except MemoryError:
        return Outcome("refused", *place, query, f"more pairs of rows than {GIGABYTES} GB hold")
    except JobFailed as error:
        for reason, pattern in _STRICT.items():
            if pattern.search(str(error)):
                return Outcome("differs", *place, query, reason)
        return Outcome("wrong", *place, query, f"JobFailed: {' '.join(str(error).split())[:300]}")
    except Exception as error:
        return Outcome("wrong", *place, query, f"{type(error).__name__}: {' '.join(str(error).split())[:300]}")
    if found == answer:
        return Outcome("equal", *place, query)
    for reason, other in others.items():
        if other(found):
            return Outcome("differs", *place, query, reason)
    return Outcome("wrong", *place, query, f"{_shown(found - answer)} instead of {_shown(answer - found)}")


def _shown(rows: Rows) -> str:
    return f"{sum(rows.values())} rows: {', '.join(map(repr, list(rows)[:3]))}"


def reason_of(message: str) -> str:
    """A refusal without its position and names."""
    first = _MARK.sub("", message, count=1).split("\n")[0]
    first = re.sub(r"\b(?:SELECT|LATERAL)\b.* is not", "A query here is not", re.sub(r"\(.*\)", "(…)", first))
    return re.sub(r"\d+", "n", re.sub(r"'[^']*'|\"[^\"]*\"|`[^`]*`", "'…'", first).split(";")[0])[:110]


def plain(value: Any) -> Any:
    """A value such that those of two systems compare: equal numbers are equal, whatever their types."""
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, Decimal):
        if not value.is_finite():
            return str(value)
        return int(value) if value == value.to_integral_value() else plain(float(value))
    if isinstance(value, float):
        return int(value) if value.is_integer() and abs(value) < 2**53 else float(f"{value:.7g}") if value == value else "NaN"
    if isinstance(value, Mapping | tuple | fp.Row):  # DuckDB's ROW is a dictionary as MAP is, without names a tuple
        return tuple(sorted(map(plain, value.values() if isinstance(value, Mapping) else value), key=repr))
    if isinstance(value, list):
        return tuple(map(plain, value))
    if isinstance(value, date) and not isinstance(value, datetime):  # DATE + INTERVAL is a TIMESTAMP elsewhere
        return datetime(value.year, value.month, value.day)  # noqa: DTZ001
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC)
    return bytes(value) if isinstance(value, bytearray) else value


def number(text: str) -> Any:
    """A text of a number as ``plain`` has it; other texts as they are."""
    try:
        return plain(Decimal(text))
    except InvalidOperation:
        return text


def counts(outcomes: Mapping[str, Iterable[Outcome]]) -> str:
    """How many queries of each directory or file have each kind of outcome."""
    lines = [f"{'':32}{''.join(f'{kind:>9}' for kind in KINDS)}"]
    for place, found in outcomes.items():
        of_place = Counter(each.kind for each in found)
        lines += [f"{place:32}{''.join(f'{of_place[kind]:9}' for kind in KINDS)}"] * bool(of_place)
    return "\n".join(lines)


def report(outcomes: Iterable[Outcome], shown: int) -> str:
    """Counts, the reasons of refusals, most frequent first, and what is wrong."""
    found = list(outcomes)
    kinds = Counter(each.kind for each in found)
    lines = [", ".join(f"{kind}: {kinds[kind]}" for kind in KINDS)]
    for kind in ("differs", "refused"):
        reasons = Counter(each.reason for each in found if each.kind == kind)
        lines += [f"\n{kind}:"] * bool(reasons)
        lines += [f"{count:6}  {reason}" for reason, count in reasons.most_common(shown)]
    lines += ["\nwrong:"] * bool(kinds["wrong"])
    lines += [f"{e.file}:{e.line}: {e.reason}\n        {' '.join(e.query.split())}" for e in found if e.kind == "wrong"]
    return "\n".join(lines)
