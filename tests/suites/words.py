"""DuckDB's queries in Flink's words, where these mean the same; other words are refused."""

from __future__ import annotations

import re
from typing import Any

from sqlglot import exp

from forkpoint.sql.tokens import dialect
from suites.outcomes import Refused

_REAL_RESULTS = (exp.Avg, exp.Stddev, exp.StddevPop, exp.StddevSamp, exp.Variance, exp.VariancePop)
_KEPT = {"this", "db", "catalog", "alias", "joins"}
"""What a table in FROM may have besides."""
_NUMBER_AND_SIGN = re.compile(r"[\d.]+[eE]\d+[+-]")
_LOST = {
    r"\bdecode\s*\([^()]*,": "DECODE with what to do about errors",
    r"'[^']* ago'": "an interval with ago",
}
"""What sqlglot drops."""


class _Flink(dialect()):  # type: ignore[misc]
    """In which DuckDB's queries are written: ``/`` is that of integers, NULL is less than all values."""

    TYPED_DIVISION = True
    SAFE_DIVISION = False
    NULL_ORDERING = "nulls_are_small"
    INDEX_OFFSET = 1


def refuse_lost(text: str, tree: exp.Query) -> None:
    """Raises Refused for what sqlglot reads as something else."""
    for pattern, reason in _LOST.items():
        if re.search(pattern, text, re.IGNORECASE | re.DOTALL):
            raise Refused(reason)
    for node in tree.walk():
        if isinstance(node, exp.Literal) and not node.is_string and _NUMBER_AND_SIGN.match(node.name):
            raise Refused("sqlglot reads two numbers as one")
        if isinstance(node, exp.DataType) and node.args.get("values"):
            raise Refused("sqlglot reads a name as a type")
        if isinstance(node, exp.Table) and (others := {key for key, value in node.args.items() if value} - _KEPT):
            raise Refused(f"{' and '.join(sorted(others))} of a table")


def in_words_of_flink(tree: exp.Query) -> exp.Query:
    """The query with what Flink writes in another way. ORDER BY without LIMIT is left out: rows are compared without order."""
    words = tree.copy()
    if words.args.get("order") is not None and words.args.get("limit") is None:
        words.set("order", None)
    for node in list(words.walk()):
        if isinstance(node, exp.Identifier):
            node.set("this", node.this.lower())
        elif isinstance(node, exp.CTE):
            node.set("materialized", None)
        elif isinstance(node, exp.ConcatWs):
            node.set("coalesce", False)  # both leave out NULL
        elif isinstance(node, _REAL_RESULTS):
            of, key, value = (
                (node.this, "expressions", node.this.expressions[0])
                if isinstance(node.this, exp.Distinct)
                else (node, "this", node.this)
            )
            cast = exp.cast(value, "DOUBLE")
            of.set(key, [cast] if key == "expressions" else cast)
        elif isinstance(node, exp.WindowSpec) and node.args.get("exclude"):
            raise Refused("EXCLUDE in a frame")
        elif isinstance(node, exp.DataType) and node.this == exp.DataType.Type.VARBINARY:
            raise Refused("a text as BLOB, in which DuckDB reads escapes")
        elif isinstance(node, exp.IntDiv) and "INT128" in repr(tree):
            raise Refused("a division of HUGEINT")
        elif isinstance(node, exp.DataType) and node.this == exp.DataType.Type.INT128:
            node.replace(exp.DataType.build("DECIMAL(38, 0)"))
        elif isinstance(node, exp.IntDiv):
            node.replace(exp.Div(this=node.this, expression=node.expression, typed=True))
    return words


def text_of(words: exp.Query) -> str:
    """The text of a query in Flink's words."""
    words = words.copy()
    for identifier in words.find_all(exp.Identifier):
        identifier.set("quoted", True)
    try:
        for node in reversed(list(words.find_all(exp.ToMap))):
            node.replace(exp.Var(this=f"MAP[{', '.join(_sql(part) for part in _parts_of(node))}]"))
        return _sql(words)
    except (ValueError, AttributeError) as error:
        raise Refused(f"sqlglot cannot write it: {type(error).__name__}") from None


def _parts_of(node: exp.ToMap) -> list[Any]:
    """The keys and values of ``MAP {key: value, …}`` in turn."""
    return [part for entry in node.this.expressions for part in (entry.this, entry.expression)]


def _sql(node: Any) -> str:
    return str(node.sql(dialect=_Flink, comments=False))
