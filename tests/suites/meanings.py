"""What words of DuckDB mean in Flink, said in DuckDB's words: so DuckDB also answers what Flink is to answer.

Each meaning rewrites a query. A result "differs" only if it is DuckDB's answer to the query with one of them, or with all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from hashlib import blake2b
from typing import Any

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from suites.outcomes import Rows

_TEXT = """CASE WHEN typeof({0}) = 'BOOLEAN' THEN upper(CAST({0} AS VARCHAR))
WHEN typeof({0}) LIKE 'DECIMAL%' THEN regexp_replace(replace(CAST({0} AS VARCHAR), '-.', '-0.'), '^[.]', '0.')
WHEN typeof({0}) LIKE 'TIME%' AND regexp_matches(CAST({0} AS VARCHAR), '[.]\\d$') THEN CAST({0} AS VARCHAR) || '00'
WHEN typeof({0}) LIKE 'TIME%' AND regexp_matches(CAST({0} AS VARCHAR), '[.]\\d\\d$') THEN CAST({0} AS VARCHAR) || '0'
WHEN typeof({0}) LIKE 'TIME%' AND regexp_matches(CAST({0} AS VARCHAR), '[.]\\d{{4}}$') THEN CAST({0} AS VARCHAR) || '00'
WHEN typeof({0}) LIKE 'TIME%' AND regexp_matches(CAST({0} AS VARCHAR), '[.]\\d{{5}}$') THEN CAST({0} AS VARCHAR) || '0'
ELSE CAST({0} AS VARCHAR) END"""
_BLANK = "split_part(trim(CAST({0} AS VARCHAR)), ' ', 1)"
_DATE = f"""CASE WHEN typeof({{0}}) <> 'VARCHAR' THEN TRY_CAST({{0}} AS DATE)
WHEN regexp_full_match({_BLANK}, '\\d{{{{1,4}}}}(-\\d\\d?){{{{0,2}}}}')
THEN TRY_CAST({_BLANK} || repeat('-01', 2 - len(string_split({_BLANK}, '-')) + 1) AS DATE) END"""
_TIME = """CASE WHEN typeof({0}) <> 'VARCHAR' THEN TRY_CAST({0} AS TIME)
WHEN regexp_full_match(trim(CAST({0} AS VARCHAR)), '([01]?\\d|2[0-3])') THEN TRY_CAST(trim(CAST({0} AS VARCHAR)) || ':00' AS TIME)
WHEN regexp_full_match(trim(CAST({0} AS VARCHAR)), '([01]?\\d|2[0-3])(:\\d\\d?){{1,2}}([.]\\d{{1,9}})?')
THEN TRY_CAST({0} AS TIME) END"""
_OVERLAY = """CASE WHEN {2} <= 0 OR {2} > length({0}) THEN {0} ELSE substr({0}, 1, {2} - 1) || {1} ||
CASE WHEN {3} > 0 AND {2} + {3} <= length({0}) THEN substr({0}, {2} + {3}) ELSE '' END END"""
_CHARACTERS = "array_to_string(list_reverse(list_transform(range(length({0})), lambda at: substr({0}, at + 1, 1))), '')"
_ASCII = """CASE WHEN {0} = '' THEN 0 WHEN ('0x' || hex(encode({0}))[1:2])::INT > 127
THEN ('0x' || hex(encode({0}))[1:2])::INT - 256 ELSE ('0x' || hex(encode({0}))[1:2])::INT END"""
_PADDED = "CASE WHEN {1} < 0 OR {2} = '' THEN NULL ELSE {node} END"
_BAD_ESCAPE = "'%($|.$|[^0-9a-fA-F]|.[^0-9a-fA-F])'"
_ANY_NULL = "CASE WHEN {any_null} THEN NULL ELSE {node} END"
CALLS: dict[str, dict[str, str]] = {
    "texts of BOOLEAN, DECIMAL and times are Flink's": {"Cast VARCHAR": _TEXT, "TryCast VARCHAR": _TEXT},
    "Flink reads other texts as DATE, up to a blank": {"Cast DATE": _DATE, "TryCast DATE": _DATE},
    "Flink reads other texts as TIME": {"Cast TIME": _TIME, "TryCast TIME": _TIME},
    "a week begins with day 1": {"Extract DOW": "({node} + 1)"},
    "GREATEST and LEAST of a NULL are NULL": {"Greatest": _ANY_NULL, "Least": _ANY_NULL},
    "a function of arrays or texts with a NULL is NULL": {"ArrayConcat": _ANY_NULL, "Split": _ANY_NULL},
    "ARRAY_CONTAINS finds NULL": {
        "ArrayContains": "CASE WHEN {1} IS NULL THEN len(list_filter({0}, lambda each: each IS NULL)) > 0 ELSE {node} END",
    },
    "ARRAY_DISTINCT keeps NULL": {
        "ArrayDistinct": "if(len(list_filter({0}, lambda each: each IS NULL)) > 0, list_append({node}, NULL), {node})",
    },
    "LOG is the natural logarithm": {"Log": "ln({0})"},
    "OVERLAY inserts nothing, and nothing out of the text": {"Overlay": _OVERLAY},
    "REGEXP_EXTRACT without a match is NULL": {"RegexpExtract": "CASE WHEN regexp_matches({0}, {1}) THEN {node} END"},
    "REGEXP_REPLACE replaces all matches, and has no references": {
        "RegexpReplace": "regexp_replace({0}, {1}, replace({2}, '\\', '\\\\'), 'g')",
    },
    "ASCII and CHR are about bytes": {"Ascii": _ASCII, "Chr": "chr({0} & 255)"},
    "REVERSE is by characters, of which several may be one sign": {"Reverse": _CHARACTERS},
    "LPAD and RPAD without a text, or to a negative length, are NULL": {"Pad": _PADDED},
    "URL_DECODE of what is no code is NULL": {
        "url_decode": f"CASE WHEN NOT regexp_matches({{0}}, {_BAD_ESCAPE}) THEN {{node}} END",
    },
    "FROM_BASE64 has a text": {"FromBase64": "decode({node})"},
    "a CAST to an integer truncates": {
        f"{kind} {of}": "{kind}(trunc({0}) AS {to})"
        for kind in ("Cast", "TryCast")
        for of in ("TINYINT", "SMALLINT", "INT", "BIGINT")
    },
}
"""By the reason: what a call is in Flink. ``{0}``, ``{1}``, … are its arguments, ``{node}`` is itself."""
DIFFERENT = {
    "a remainder of decimals is exact, DuckDB's a DOUBLE": "90c5eab7",
    "CEIL and FLOOR of a DECIMAL are exact, DuckDB's are DOUBLE": "67f22fdd 8386c629",
    "FLOAT beside a DECIMAL is a DOUBLE": "e85ad568",
    "ROUND of a DOUBLE is that of its digits": "de851bdb",
    "NaN equals nothing": "e2fd4a98",
    "texts of intervals are Flink's": "37422bd8",
    "a group that a pattern lacks is NULL": "424dedc3 56d936fc 58abf3b7 827fd4d3 88fda8bb d3409470 fe65d3f0",
}
"""Queries, by the digests of their texts, whose other result was computed by hand."""


def digest(query: str) -> str:
    return blake2b(" ".join(query.split()).encode(), digest_size=4).hexdigest()


def others(text: str, tree: exp.Query, answer: Rows, ask: Callable[[str], Rows | None]) -> dict[str, Callable[[Rows], bool]]:
    """Whether a result is what Flink asks for, by the reason. ``ask``: DuckDB's answer to a query, None if that is an error."""

    def by(*rewrites: Callable[[exp.Query], bool]) -> Callable[[Rows], bool]:
        def is_other(found: Rows) -> bool:
            words = tree.copy()
            changes = [rewrite(words) for rewrite in rewrites]
            return any(changes) and found == ask(words.sql(dialect="duckdb"))

        return is_other

    def by_reason(reason: str) -> Callable[[Rows], bool]:
        return lambda found: digest(text) in DIFFERENT[reason].split()

    def merged_first(found: Rows) -> bool:
        using = any(join.args.get("using") or join.method for join in tree.find_all(exp.Join))
        return using and tree.find(exp.Star) is not None and _unordered(found) == _unordered(answer)

    def any_rows(found: Rows) -> bool:
        queries = [node for node in tree.find_all(exp.Query) if node.args.get("limit")]
        free = any(not node.args.get("order") for node in queries)
        return free and sum(found.values()) == sum(answer.values())

    def any_order(found: Rows) -> bool:
        windows = (node for node in tree.find_all(exp.Window) if isinstance(node.this, exp.FirstValue | exp.LastValue))
        return any(not node.args.get("order") for node in windows) and sum(found.values()) == sum(answer.values())

    calls = {reason: _rewriting(of) for reason, of in CALLS.items()}
    return {
        "FIRST_VALUE and LAST_VALUE without ORDER BY follow the order of values": any_order,
        "an aggregate without GROUP BY has no row until there is one": by(_without_empty_groups),
        **{reason: by(rewrite) for reason, rewrite in calls.items()},
        "several of these": by(_without_empty_groups, *calls.values()),
        "* begins with the columns of USING": merged_first,
        "LIMIT without ORDER BY takes any rows": any_rows,
        **{reason: by_reason(reason) for reason in DIFFERENT},
    }


def _without_empty_groups(words: exp.Query) -> bool:
    changed = False
    for select in words.find_all(exp.Select):
        own = (node for part in (*select.expressions, select.args.get("having")) if part for node in _own(part))
        if select.args.get("group") is None and any(isinstance(node, exp.AggFunc) for node in own):
            condition, having = exp.condition("COUNT(*) > 0"), select.args.get("having")
            select.set("having", exp.Having(this=condition if having is None else exp.and_(having.this, condition)))
            changed = True
    return changed


def _rewriting(of: dict[str, str]) -> Callable[[exp.Query], bool]:
    """Replaces calls, the inner ones first. Returns whether there are any."""

    def rewrite(words: exp.Query) -> bool:
        found = [node for node in words.walk() if isinstance(node, exp.Func | exp.Cast) and _name(node) in of]
        for node in reversed(found):
            arguments = [f"({each.sql(dialect='duckdb')})" for each in _arguments(node)]
            parts = {"node": f"({node.sql(dialect='duckdb')})", "any_null": " OR ".join(f"{each} IS NULL" for each in arguments)}
            if isinstance(node, exp.Cast):
                kind = "TRY_CAST" if isinstance(node, exp.TryCast) else "CAST"
                parts |= {"kind": kind, "to": node.to.sql(dialect="duckdb")}
            try:
                text = of[_name(node)].format(*arguments, **parts)
                node.replace(exp.Paren(this=sqlglot.parse_one(text, dialect="duckdb")))
            except (IndexError, SqlglotError):  # another number of arguments
                return False
        return bool(found)

    return rewrite


def _name(node: Any) -> str:
    if isinstance(node, exp.Cast):
        return f"{type(node).__name__} {'VARCHAR' if node.to.this == exp.DataType.Type.TEXT else node.to.this.name}"
    if isinstance(node, exp.Extract):
        return f"Extract {node.this.name.upper()}"
    return node.name.lower() if isinstance(node, exp.Anonymous) else type(node).__name__


def _arguments(node: Any) -> list[Any]:
    if isinstance(node, exp.Cast):
        return [node.this]
    if isinstance(node, exp.Overlay) and node.args.get("for_") is None:
        return [*map(node.args.get, ("this", "expression", "from_")), exp.func("LENGTH", node.expression)]
    return [
        each
        for name in node.arg_types
        for value in [node.args.get(name)]
        for each in (value if isinstance(value, list) else [value])
        if isinstance(each, exp.Expression)
    ]


def _unordered(rows: Rows) -> Rows:
    found: Rows = Counter()
    for row, of_row in rows.items():
        found[tuple(sorted(row, key=repr))] += of_row
    return found


def _own(part: Any) -> Iterator[Any]:
    """The nodes of an expression outside of its subqueries and of OVER."""
    return part.walk(prune=lambda node: isinstance(node, exp.Query | exp.Window))
