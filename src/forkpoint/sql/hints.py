"""Hints, ``/*+ … */``: after SELECT about the query, after a table's name about the table. To sqlglot they are comments."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from forkpoint.sql.errors import SqlError, Text, did_you_mean
from forkpoint.sql.statements import Query
from forkpoint.sql.tokens import Tokens, dialect

if TYPE_CHECKING:
    from sqlglot.tokenizer_core import Token

_HINT = re.compile(r"\s*/\*\+(.*?)\*/", re.DOTALL)
_TABLE = "table with options "
"""What precedes the number of a table that has a hint, in place of its name."""
STRATEGIES = ("BROADCAST", "SHUFFLE_HASH", "SHUFFLE_MERGE", "NEST_LOOP", "MULTI_JOIN")
"""How a join is carried out in Flink, which its result does not depend on."""
OF_QUERIES = ("STATE_TTL", "LOOKUP", "UID", *STRATEGIES)
_FORMS = {
    "OPTIONS": "OPTIONS('key' = 'value', …)",
    "STATE_TTL": "STATE_TTL('orders' = '1 d', 'customers' = '20 d')",
    "LOOKUP": "LOOKUP('table' = 'customers', 'async' = 'true')",
    "UID": "UID('name')",
    **{name: f"{name}(orders, customers)" for name in STRATEGIES},
}


@dataclass(frozen=True)
class Hint:
    """``values``: what is in parentheses, each with its offset; ``options``: the pairs ``'key' = 'value'`` there."""

    name: str
    at: int
    values: Mapping[str, int]
    options: Mapping[str, str]
    source: Text

    def error(self, problem: str, value: str = "") -> SqlError:
        return self.source.error(self.values.get(value, self.at), problem)


@dataclass(frozen=True)
class Hints:
    """The hints of a query. ``of_selects``: by the numbers that their trees have. ``of_tables``: the table and its hint, by the
    name in its place."""

    of_selects: list[tuple[Hint, ...]] = field(default_factory=list)
    of_tables: dict[str, tuple[str, Hint]] = field(default_factory=dict)

    def of(self, select: Any) -> tuple[Hint, ...]:
        """The hints of a SELECT."""
        hint = select.args.get("hint")
        return () if hint is None else self.of_selects[int(hint.expressions[0].expressions[0].name)]

    def table(self, name: str) -> tuple[str, Hint | None]:
        """The name of a table in FROM, and its hint."""
        return self.of_tables.get(name, (name, None))


def taken_out(tokens: Sequence[Token], query: Query) -> tuple[list[Token], Hints]:
    """The tokens of a query with signs of its hints in their places, and the hints. Raises SqlError."""
    from sqlglot.tokenizer_core import Token, TokenType

    found, kept = Hints(), []
    for token in tokens:
        if token.token_type == TokenType.HINT:
            continue
        kept.append(token)
        content = _HINT.match(query.source.text, query.start + token.end + 1)
        if content is None:
            continue
        hints = _parsed(query.source, content[1], content.start(1))
        if token.token_type == TokenType.SELECT:
            _check(hints, OF_QUERIES)
            comment = f"HINT({len(found.of_selects)})"
            kept.append(Token(TokenType.HINT, "/*+", token.line, token.col, token.start, token.end, [comment]))
            found.of_selects.append(hints)
            continue
        _check(hints, ("OPTIONS",))
        path = [kept.pop()]
        while len(kept) > 1 and kept[-1].token_type == TokenType.DOT:
            del kept[-1]
            path.insert(0, kept.pop())
        name = f"{_TABLE}{len(found.of_tables)}"
        found.of_tables[name] = ".".join(each.text for each in path), hints[0]
        kept.append(Token(TokenType.IDENTIFIER, name, token.line, token.col, path[0].start, token.end))
    return kept, found


def is_left(query: Query, token: Token, following: Token | None) -> bool:
    """Whether there is a hint after a token that has not been taken out."""
    of_select = any(each is not None and each.token_type.name == "HINT" for each in (token, following))
    taken = of_select or token.text.startswith(_TABLE)
    return not taken and _HINT.match(query.source.text, query.start + token.end + 1) is not None


def options_after(source: Text, at: int) -> Mapping[str, str]:
    """The options of the hint after a table's name that ends there, if there is one. Raises SqlError."""
    content = _HINT.match(source.text, at)
    hints = () if content is None else _parsed(source, content[1], content.start(1))
    _check(hints, ("OPTIONS",))
    return hints[0].options if hints else {}


def _check(hints: Sequence[Hint], known: tuple[str, ...]) -> None:
    """Raise SqlError for hints that do not belong there."""
    once: set[str] = set()
    for hint in hints:
        if hint.name in once:
            raise hint.error(f"there already is a hint {hint.name} here; write one, as {_FORMS[hint.name]}")
        once |= {hint.name} & {"UID", "OPTIONS"}
        if hint.name not in known:
            place = "after a table's name" if hint.name == "OPTIONS" else "after SELECT" if hint.name in OF_QUERIES else ""
            raise hint.error(f"the hint {hint.name} belongs {place}" if place else f"there is no hint {hint.name}; {_near(hint)}")
        if bool(hint.options) != (hint.name in ("OPTIONS", "STATE_TTL", "LOOKUP")) or not hint.values:
            raise hint.error(f"write the hint as {_FORMS[hint.name]}")


def _near(hint: Hint) -> str:
    return did_you_mean(hint.name, ("OPTIONS", *OF_QUERIES))


def _parsed(source: Text, content: str, start: int) -> tuple[Hint, ...]:
    """The hints in a comment. ``start``: its offset."""
    words = dialect()().tokenize(content)
    for word in words:
        word.start, word.end = word.start + start, word.end + start
    tokens = Tokens(source, words)
    found = []
    while not tokens.done:
        at = tokens.offset
        name = tokens.name("a hint").upper()
        values: dict[str, int] = {}
        options: dict[str, str] = {}
        while tokens.take("(" if not values else ","):
            value_at = tokens.offset
            value = tokens.value("a name, or a text in single quotes")
            values[value] = value_at
            if tokens.take("="):
                options[value] = tokens.text("the value in single quotes")
        if values:
            tokens.expect(")")
        found.append(Hint(name, at, values, options, source))
        tokens.take(",")
    return tuple(found)
