"""What the hints of a SELECT mean for its nodes."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from forkpoint.errors import ConfigError
from forkpoint.relational.definitions.rows import is_final
from forkpoint.relational.plan import Aggregate, Hints, Join, Over, Plan, Select, is_windowed
from forkpoint.sql.errors import did_you_mean
from forkpoint.sql.hints import STRATEGIES, Hint
from forkpoint.wording import parse_duration_ms

_log = logging.getLogger("forkpoint")
_LOOKUP = {"async": ("true", "false"), "output-mode": ("ordered", "allow_unordered")}
"""Options without effect here: an epoch asks for all its keys at once, and its rows keep their order."""


def check_tables(hints: Iterable[Hint], names: Sequence[str]) -> None:
    """Raise SqlError for hints about tables that are not in FROM. ``names``: of those that are."""
    for hint in hints:
        if hint.name in STRATEGIES:
            _log.info("the hint %s has no effect: joins are carried out in one way", hint.name)
        about = [hint.options.get("table", "")] if hint.name == "LOOKUP" else [] if hint.name == "UID" else list(hint.values)
        for name in about:
            if name not in names:
                raise hint.error(f"FROM has no table {name!r}; {did_you_mean(name, names)}", name)
            if hint.name == "LOOKUP" and name == names[0]:
                raise hint.error(f"{name!r} is not looked up: it comes before JOIN", "table")


def joined(plan: Plan, left: str, right: str, hints: Iterable[Hint]) -> Plan:
    """A join with what hints say of its inputs. ``left``, ``right``: their names; "" for a join of several tables."""
    if not isinstance(plan, Join):
        return plan
    for hint in hints:
        if hint.name == "LOOKUP" and hint.options["table"] == right:
            _check_lookup(plan, hint)
    return with_ttl(plan, (left, right), hints)


def with_ttl(plan: Join | Aggregate, inputs: Sequence[str], hints: Iterable[Hint]) -> Plan:
    """A node with the time to live of the state of its inputs, by their names."""
    given = {name: _ttl_ms(hint, name) for hint in hints if hint.name == "STATE_TTL" for name in hint.options}
    ttl_ms = tuple(given.get(name) for name in inputs)
    return plan if ttl_ms == (None,) * len(inputs) else replace(plan, hints=Hints(ttl_ms=ttl_ms))


def _ttl_ms(hint: Hint, name: str) -> int:
    try:
        return parse_duration_ms("STATE_TTL", hint.options[name])
    except ConfigError as error:
        raise hint.error(str(error), name) from error


def _check_lookup(join: Join, hint: Hint) -> None:
    if not join.lookup:
        problem = f"{hint.options['table']!r} is not the table of a lookup join, FOR SYSTEM_TIME AS OF o.proc_time"
        raise hint.error(problem, "table")
    for name, value in hint.options.items():
        if name != "table" and value not in _LOOKUP.get(name, ()):
            known = " or ".join(f"{key!r} = {each!r}" for key, values in _LOOKUP.items() for each in values)
            raise hint.error(f"LOOKUP takes {known}; retries and the cache are options of the table, 'lookup.max-retries'", name)


def named(plan: Plan, hints: Iterable[Hint]) -> Plan:
    """The plan of a SELECT whose last node with state has the name of the hint UID. Raises SqlError."""
    for hint in hints:
        if hint.name == "STATE_TTL":
            _check_ttl(plan, hint)
        if hint.name == "UID":
            (name,) = hint.values if len(hint.values) == 1 else ("",)
            if not name:
                raise hint.error("UID takes one name")
            found = _with_uid(plan, name)
            if found is None:
                raise hint.error("UID names an operator with state, and this SELECT has none: GROUP BY, a join, or OVER")
            plan = found
    return plan


def _with_uid(plan: Plan, uid: str) -> Plan | None:
    if isinstance(plan, Select):
        below = _with_uid(plan.input, uid)
        return None if below is None else replace(plan, input=below)
    if not isinstance(plan, Aggregate | Join | Over):
        return None
    return replace(plan, hints=replace(plan.hints or Hints(), uid=uid))


def _check_ttl(plan: Plan, hint: Hint) -> None:
    """Raise SqlError for nodes whose state event time bounds."""
    while isinstance(plan, Select | Aggregate | Join | Over):
        bounded = is_windowed(plan) if isinstance(plan, Aggregate) else isinstance(plan, Join | Over) and is_final(plan)
        if not isinstance(plan, Select) and plan.hints and any(each is not None for each in plan.hints.ttl_ms) and bounded:
            raise hint.error("STATE_TTL is for state that nothing else bounds; this state ends with event time")
        plan = plan.left if isinstance(plan, Join) else plan.input
