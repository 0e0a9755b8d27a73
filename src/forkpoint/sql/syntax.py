"""Text of queries and expressions as sqlglot's trees."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from sqlglot.errors import ParseError

from forkpoint.sql.binding.expressions import CALLED
from forkpoint.sql.errors import SqlError
from forkpoint.sql.hints import is_left
from forkpoint.sql.json_clauses import with_json_clauses
from forkpoint.sql.statements import Query
from forkpoint.sql.tokens import dialect, named_calls

_NUMBER_AND_SIGN = re.compile(r"([\d.]+[eE]\d+)[+-]", re.ASCII)
_NUMBERS = ("TINYINT", "SMALLINT", "INT", "BIGINT", "DECIMAL", "FLOAT", "DOUBLE")

if TYPE_CHECKING:
    from sqlglot.tokenizer_core import Token


def tokens_of(query: Query) -> list[Token]:
    """sqlglot's tokens of a query or expression. Their positions are those in it.

    It would read 1e3+1 as one number, with two signs of an exponent: such a sign is read as a blank, and put back.
    """
    from sqlglot.tokenizer_core import Token, TokenType

    text, signs = query.source.text[query.start : query.end], []
    found: list[Token] = dialect()().tokenize(text)
    while joined := _number_and_sign(found):
        number, at = joined
        kind = TokenType.PLUS if text[at] == "+" else TokenType.DASH
        signs.append(Token(kind, text[at], number.line, number.col - number.end + at, at, at))
        text = f"{text[:at]} {text[at + 1 :]}"
        found = dialect()().tokenize(text)
    return sorted([*found, *signs], key=lambda token: token.start) if signs else found


def _number_and_sign(tokens: list[Token]) -> tuple[Token, int] | None:
    """A number that is two, and where the sign between them is."""
    for token in tokens:
        match = _NUMBER_AND_SIGN.match(token.text) if token.token_type.name == "NUMBER" else None
        if match is not None:
            return token, token.start + match.end(1)
    return None


def syntax_tree(tokens: list[Token], query: Query) -> Any:
    """The tree of tokens of a query. Raises SqlError."""
    text = query.source.text[query.start : query.end]
    _refuse_lost_words(tokens, query)
    try:
        found = dialect()().parser().parse(with_json_clauses(named_calls(tokens, CALLED)), text)
        if len(found) != 1 or found[0] is None:
            raise ParseError("expected one query")
    except ParseError as error:
        raise _syntax_error(query, error) from None
    return found[0]


def _refuse_lost_words(tokens: list[Token], query: Query) -> None:
    """Raise SqlError for what sqlglot reads as a comment, or drops."""
    for token, following in zip(tokens, [*tokens[1:], None], strict=True):
        if is_left(query, token, following):
            raise query.source.error(query.start + token.start, "hints are for queries and tables, not for expressions")
        name = token.token_type.name
        if token.text.upper() == "MATCH_RECOGNIZE" and following is not None and following.text == "(":
            problem = "MATCH_RECOGNIZE follows a table in FROM: FROM t MATCH_RECOGNIZE (…)"
            raise query.source.error(query.start + token.start, problem)
        if name == "PARAMETER":
            raise query.source.error(query.start + token.start, "@ is not supported here")
        if name in _NUMBERS and following is not None and following.token_type.name == "STRING":
            raise query.source.error(query.start + token.start, f"a number has no {token.text.upper()} before it; use CAST")
        if name == "GROUP_BY" and following is not None and following.token_type.name == "DISTINCT":
            raise query.source.error(query.start + following.start, "GROUP BY DISTINCT is not supported yet")


def _syntax_error(query: Query, error: ParseError) -> SqlError:
    found = error.errors[0] if error.errors else {}
    before = query.source.text[: query.start]
    line, column = int(found.get("line") or 1), int(found.get("col") or 1)
    text = query.source.text[query.start : query.end]
    lines = text.split("\n")
    at = len(before) + sum(len(each) + 1 for each in lines[: line - 1])
    word = str(found.get("highlight") or "")
    at += max(0, column - max(len(word), 1))
    what = re.sub(r"<class '.*?\.(\w+)'>", r"\1", str(found.get("description") or error)).split("<Token")[0].strip()
    return query.source.error(at, f"syntax error at {word!r}: {what}" if word else f"syntax error: {what}")
