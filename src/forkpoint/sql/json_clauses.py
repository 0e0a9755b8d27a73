"""The clauses of JSON functions, which sqlglot does not read, as parts of what it reads.

``ON NULL`` at the end of JSON_ARRAY and JSON_ARRAYAGG becomes part of the name. Those of JSON_VALUE, JSON_QUERY and JSON_EXISTS
become further arguments: texts that begin with CALL, DEFAULT after its value.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from forkpoint.sql.tokens import CALL

if TYPE_CHECKING:
    from sqlglot.tokenizer_core import Token

NULL_CLAUSES = ("NULL ON NULL", "ABSENT ON NULL")
"""What JSON functions do with NULL: it is a value, or left out."""
WITH_PATHS = ("JSON_VALUE", "JSON_QUERY", "JSON_EXISTS")
_OF_ARRAYS = ("JSON_ARRAY", "JSON_ARRAYAGG")
_BEGIN = ("NULL", "ERROR", "TRUE", "FALSE", "UNKNOWN", "EMPTY", "DEFAULT", "WITH", "WITHOUT")


def with_json_clauses(tokens: list[Token]) -> list[Token]:
    found: list[Token] = []
    at = 0
    while at < len(tokens):
        token, at = tokens[at], at + 1
        found.append(token)
        name = token.text.removeprefix(CALL).upper()
        called = at < len(tokens) and tokens[at].token_type.name == "L_PAREN" and token.token_type.name != "STRING"
        if called and name in (*_OF_ARRAYS, *WITH_PATHS) and (close := _closing(tokens, at)) is not None:
            inner = with_json_clauses(tokens[at + 1 : close])
            if name in _OF_ARRAYS and (clause := _words(inner[-3:])) in NULL_CLAUSES:
                token.text, inner = f"{name} {clause}", inner[:-3]
            found += [tokens[at], *(_with_arguments(inner) if name in WITH_PATHS else inner)]
            at = close
    return found


def _closing(tokens: list[Token], opening: int) -> int | None:
    depth = 0
    for at in range(opening, len(tokens)):
        kind = tokens[at].token_type.name
        depth += (kind == "L_PAREN") - (kind == "R_PAREN")
        if not depth:
            return at
    return None


def _words(tokens: list[Token]) -> str:
    return " ".join(token.text.upper() for token in tokens)


def _at_top(tokens: list[Token]) -> Iterator[int]:
    """The places of tokens outside of parentheses."""
    depth = 0
    for at, token in enumerate(tokens):
        kind = token.token_type.name
        depth -= kind == "R_PAREN"
        if not depth:
            yield at
        depth += kind == "L_PAREN"


def _with_arguments(tokens: list[Token]) -> list[Token]:
    """The arguments of a function with a path, with those that its clauses become."""
    comma = next((at for at in _at_top(tokens) if tokens[at].token_type.name == "COMMA"), None)
    if comma is None or comma + 1 >= len(tokens) or tokens[comma + 1].token_type.name != "STRING":
        return tokens
    found, rest = tokens[: comma + 2], tokens[comma + 2 :]
    while rest:
        length = _length(rest)
        if length is None:
            return [*found, *rest]
        clause, rest = rest[:length], rest[length:]
        first, last = clause[0], clause[-1]
        value = clause[1:-2] if first.text.upper() == "DEFAULT" else []
        words = f"DEFAULT {_words(clause[-2:])}" if value else _words(clause)
        found += [_comma(first), *value, *([_comma(clause[-2])] if value else []), _text(last, words)]
    return found


def _length(tokens: list[Token]) -> int | None:
    """How many tokens the clause has that comes first; None if there is none."""
    first = tokens[0].text.upper()
    if first == "RETURNING":
        ends = (at for at in _at_top(tokens) if at > 1 and tokens[at].text.upper() in _BEGIN)
        return next(ends, len(tokens)) if len(tokens) > 1 else None
    if first in ("WITH", "WITHOUT"):
        return next((at + 1 for at in _at_top(tokens) if tokens[at].text.upper() == "WRAPPER" and at), None)
    if first in _BEGIN:
        ends = (at for at in _at_top(tokens) if _words(tokens[at - 1 : at + 1]) in ("ON EMPTY", "ON ERROR") and at)
        length = next(ends, None)
        return None if length is None or (first == "DEFAULT" and length < 3) else length + 1
    return None


def _comma(token: Token) -> Token:
    from sqlglot.tokenizer_core import TokenType

    token.text, token.token_type = ",", TokenType.COMMA
    return token


def _text(token: Token, words: str) -> Token:
    from sqlglot.tokenizer_core import TokenType

    token.text, token.token_type = CALL + words, TokenType.STRING
    return token
