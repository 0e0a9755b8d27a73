"""GROUP BY: its keys, and GROUPING SETS, ROLLUP and CUBE, which are groups of rows that are there once for each set of keys."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

from sqlglot import exp

from forkpoint.relational.expressions import Call, Column, Expression, Item, Literal, items_of
from forkpoint.relational.plan import Plan, Select, Union, key_name
from forkpoint.relational.types import BIGINT, SqlType
from forkpoint.sql.errors import SqlError

GROUPING = "GROUPING"
"""The call that stands for GROUPING and GROUPING_ID until the keys are known."""
_LONG = BIGINT.with_null(False)
_SET = "$grouping"
_MOST_SETS = 64  # each is a copy of the input
Node = Any
Bind = Callable[[Node], Expression]
Error = Callable[[Node, str], SqlError]


@dataclass(frozen=True)
class Keys:
    """The keys of groups. ``of``: the expression that each is, by its text. ``sets``: the texts of the keys in each grouping set;
    without GROUPING SETS, one set of all of them."""

    of: Mapping[str, Expression]
    sets: tuple[frozenset[str], ...]

    @staticmethod
    def bound(group: Node, bind: Bind, error: Error) -> Keys:
        """The keys in GROUP BY (None: there are none). ``bind``: binds a key."""
        if group is None:
            return Keys({}, (frozenset(),))
        found: dict[str, Expression] = {}

        def keys(node: Node) -> frozenset[str]:
            parts = node.expressions if isinstance(node, exp.Tuple) else [node.this if isinstance(node, exp.Paren) else node]
            bound = {str(of): of for of in map(bind, parts)}
            found.update(bound)
            return frozenset(bound)

        choices = [_sets(node, keys) for node in group.expressions]
        sets = tuple(frozenset[str]().union(*each) for each in product(*choices))
        if len(sets) > _MOST_SETS:
            raise error(group, f"GROUP BY has {len(sets)} grouping sets; {_MOST_SETS} are supported")
        return Keys(found, sets)

    @property
    def plain(self) -> bool:
        """Whether each group has all keys."""
        return self.sets == (frozenset(self.of),)

    def items(self) -> tuple[Item, ...]:
        """The keys, over the columns of ``expanded``."""
        if self.plain:
            return tuple(Item(key_name(of), of) for of in self.of.values())
        keys = tuple(Item(key_name(of), Column(key_name(of), of.type.with_null())) for of in self.of.values())
        return (*keys, Item(key_name(_OF_SET), _OF_SET))

    def expanded(self, plan: Plan) -> Plan:
        """The rows once for each grouping set, in which other keys are NULL."""
        if self.plain:
            return plan
        columns = items_of(plan.schema)
        inputs = []
        for number, keys in enumerate(self.sets):
            items = tuple(Item(key_name(of), of if text in keys else _null(of.type)) for text, of in self.of.items())
            absent = sum(1 << at for at, text in enumerate(self.of) if text not in keys)
            inputs.append(Select(plan, None, (*columns, *items, Item(_SET, Literal((number << len(self.of)) + absent, _LONG)))))
        return Union(tuple(inputs))

    def grouping(self, call: Call) -> Expression | None:
        """GROUPING: a bit for each argument, 1 if the group has all values of that key; None for an argument that is no key."""
        found: Expression = Literal(0, _LONG)
        for argument in call.arguments:
            if str(argument) not in self.of:
                return None
            at = list(self.of).index(str(argument))
            bit: Expression = Literal(0, _LONG)
            if not self.plain:
                bit = _long("%", _long("/", Column(key_name(_OF_SET), _LONG), Literal(1 << at, _LONG)), Literal(2, _LONG))
            found = _long("+", _long("*", found, Literal(2, _LONG)), bit)
        return found


_OF_SET = Column(_SET, _LONG)
"""The number of the grouping set, and a bit for each key that it lacks."""


def _sets(node: Node, keys: Callable[[Node], frozenset[str]]) -> list[frozenset[str]]:
    """The grouping sets of an element of GROUP BY."""
    match node:
        case exp.GroupingSets():
            return [each for part in node.expressions for each in _sets(part, keys)]
        case exp.Rollup():
            parts = list(map(keys, node.expressions))
            return [frozenset[str]().union(*parts[:count]) for count in range(len(parts), -1, -1)]
        case exp.Cube():
            choices = [(keys(part), frozenset[str]()) for part in node.expressions]
            return [frozenset[str]().union(*each) for each in product(*choices)]
    return [keys(node)]


def _null(of: SqlType) -> Expression:
    return Call("CAST", (Literal(None, SqlType("NULL")),), of.with_null())


def _long(function: str, *arguments: Expression) -> Call:
    return Call(function, arguments, _LONG)
