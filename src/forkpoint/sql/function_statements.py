"""CREATE FUNCTION and DROP FUNCTION."""

from __future__ import annotations

from dataclasses import dataclass

from forkpoint.sql.errors import Text
from forkpoint.sql.tokens import Tokens

_NAME = "a function's name"


@dataclass(frozen=True)
class CreateFunction:
    """``of``: the module and attribute that is the function. ``system``: it has no database, and precedes SQL's own.
    ``temporary``: no other session has it."""

    name: str
    of: str
    of_at: int
    system: bool
    if_not_exists: bool
    at: int
    temporary: bool = False


@dataclass(frozen=True)
class DropFunction:
    name: str
    system: bool
    if_exists: bool
    at: int


FunctionStatement = CreateFunction | DropFunction


def function_statement(source: Text, tokens: Tokens) -> FunctionStatement | None:
    """The statement, if it is one of these. Raises SqlError."""
    for verb in ("CREATE", "DROP"):
        for words in (("TEMPORARY", "SYSTEM", "FUNCTION"), ("TEMPORARY", "FUNCTION"), ("FUNCTION",)):
            if tokens.take(verb, *words):
                return (_create if verb == "CREATE" else _drop)(source, tokens, words)
    if tokens.peek("ALTER", "FUNCTION") or tokens.peek("ALTER", "TEMPORARY"):
        raise source.error(tokens.offset, "ALTER FUNCTION is not supported; DROP FUNCTION and CREATE FUNCTION")
    return None


def _create(source: Text, tokens: Tokens, words: tuple[str, ...]) -> CreateFunction:
    if_not_exists, at = tokens.take("IF", "NOT", "EXISTS"), tokens.offset
    name = tokens.path(_NAME)
    tokens.expect("AS")
    of_at, of = tokens.offset, tokens.text("'module.function' in single quotes")
    language = tokens.offset
    if not tokens.take("LANGUAGE", "PYTHON"):
        raise source.error(language, "functions are written in Python: add LANGUAGE PYTHON")
    if tokens.peek("USING"):
        raise source.error(tokens.offset, "USING is not supported: install the module, or put it beside the file of SQL")
    return CreateFunction(name, of, of_at, "SYSTEM" in words, if_not_exists, at, "TEMPORARY" in words)


def _drop(source: Text, tokens: Tokens, words: tuple[str, ...]) -> DropFunction:
    if_exists, at = tokens.take("IF", "EXISTS"), tokens.offset
    return DropFunction(tokens.path(_NAME), "SYSTEM" in words, if_exists, at)
