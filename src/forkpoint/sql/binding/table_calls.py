"""Functions of tables in FROM, which sqlglot cannot read: ``TABLE(TUMBLE(TABLE t, …))``, and a user's ``f(TABLE t, …)``.

They are taken out of a query's tokens, with names in their places.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from forkpoint.relational.functions.user import Functions
from forkpoint.sql.binding.match import MatchCall, match_call
from forkpoint.sql.binding.processes import ProcessCall, process_call
from forkpoint.sql.binding.windows import PARAMETERS, WindowCall, window_call
from forkpoint.sql.errors import SqlError
from forkpoint.sql.statements import Query
from forkpoint.sql.syntax import syntax_tree
from forkpoint.sql.tokens import CALL

if TYPE_CHECKING:
    from sqlglot.tokenizer_core import Token

TableCall = WindowCall | ProcessCall | MatchCall
_QUERY = ("SELECT", "WITH", "(")
"""What a subquery begins with."""
_NAMES = ("VAR", "IDENTIFIER")


def table_calls(tokens: Sequence[Token], query: Query, functions: Functions) -> tuple[list[Token], dict[str, TableCall]]:
    """The tokens with names in place of calls, and the calls by these names. Raises SqlError."""
    found = Calls(query, functions)
    return found.taken_out(list(tokens)), found.found


@dataclass(frozen=True)
class Calls:
    query: Query
    functions: Functions
    found: dict[str, TableCall] = field(default_factory=dict)

    def taken_out(self, tokens: list[Token]) -> list[Token]:
        kept: list[Token] = []
        at = 0
        while at < len(tokens):
            if tokens[at].text.upper() == "MATCH_RECOGNIZE" and kept and tokens[at + 1 : at + 2] and tokens[at + 1].text == "(":
                closing = self._closing(tokens, at + 1)
                start, end = self._before(kept)
                found = match_call(self, tokens[at], kept[start:end], tokens[at + 2 : closing])
                kept[start:] = [self._named(tokens[at], found)]
                at = closing + 1
                continue
            in_table = tokens[at].token_type.name == "TABLE" and len(tokens) > at + 3 and tokens[at + 1].text == "("
            name = at + 2 if in_table else at
            call = self._call(tokens, name) if name + 1 < len(tokens) and tokens[name + 1].text == "(" else None
            if call is None:
                kept.append(tokens[at])
            else:
                kept.append(self._named(tokens[at], call))
                at = self._closing(tokens, at + 1)
            at += 1
        return kept

    def _call(self, tokens: list[Token], at: int) -> TableCall | None:
        """The call of a function of tables that begins there."""
        word = tokens[at].text
        if word.upper() in PARAMETERS:
            if at < 2 or tokens[at - 2].token_type.name != "TABLE" or tokens[at - 1].text != "(":
                return None
            arguments = tokens[at + 2 : self._closing(tokens, at + 1)]
            return window_call(self, tokens[at - 2], word.upper(), arguments)
        function = self.functions.named(word.removeprefix(CALL), ()) if word.startswith(CALL) else None
        if function is None or function.kind != "process":
            return None
        before, first = tokens[at - 1].text.upper() if at else "", [token.text.upper() for token in tokens[at + 2 : at + 4]]
        of_table = "TABLE" in first[:1] or (first[:1] == ["("] and first[1] in _QUERY) or first[1:] == ["=>"]
        if not of_table and before not in ("FROM", "JOIN"):
            return None  # a mistake in an expression
        return process_call(self, tokens[at], function, tokens[at + 2 : self._closing(tokens, at + 1)])

    def _before(self, tokens: list[Token]) -> tuple[int, int]:
        """Where the tokens of the table at the end begin and end: of a subquery, or a name; an alias may follow them."""
        kinds = ["", "", *(token.token_type.name for token in tokens)]
        end = len(tokens)
        if kinds[-2] == "ALIAS":
            end -= 2
        elif kinds[-1] in _NAMES and kinds[-2] in (*_NAMES, "R_PAREN"):
            end -= 1
        start = end - 1
        if tokens[start].token_type.name == "R_PAREN":
            depth = 1
            while start and depth:
                start -= 1
                depth += (tokens[start].token_type.name == "R_PAREN") - (tokens[start].token_type.name == "L_PAREN")
        while start >= 2 and tokens[start - 1].token_type.name == "DOT":
            start -= 2
        return start, end

    def _named(self, first: Token, call: TableCall) -> Token:
        from sqlglot.tokenizer_core import Token, TokenType

        name = f"{call.function} {len(self.found) + 1}"
        self.found[name] = call
        return Token(TokenType.IDENTIFIER, name, first.line, first.col, first.start, first.end)

    def table(self, data: list[Token]) -> tuple[Any, tuple[Token, ...]]:
        """The query of ``TABLE name`` or a subquery, and the names of its PARTITION BY."""
        words = [token.text.upper() for token in data[:3]]
        if words[0] == "TABLE" and (words[1:2] != ["("] or words[2] in _QUERY):
            data = data[1:]
        opening = next((at for at in (0, 1) if data[at : at + 1] and data[at].text == "("), None)
        end = 0 if opening is None else self._closing(data, opening)
        at = next((at for at in range(end, len(data)) if data[at].text.upper().startswith("PARTITION")), len(data))
        partition = data[at + 1 :]
        tree = self.parsed([*self.selecting(data[0]), *self.taken_out(data[:at])])
        return tree, tuple(token for token in partition if token.text.upper() not in ("BY", "(", ")", ","))

    def selecting(self, first: Token) -> list[Token]:
        """``SELECT * FROM``, at the place of a token."""
        from sqlglot.tokenizer_core import Token, TokenType

        kinds = {TokenType.SELECT: "SELECT", TokenType.STAR: "*", TokenType.FROM: "FROM"}
        return [Token(kind, word, first.line, first.col, first.start, first.end) for kind, word in kinds.items()]

    def ordering(self, table: Token, order: list[Token]) -> list[Token]:
        """``t ORDER BY`` and what follows it."""
        from sqlglot.tokenizer_core import Token, TokenType

        at = order[0]
        name = Token(TokenType.IDENTIFIER, "t", table.line, table.col, table.start, table.end)
        return [name, Token(TokenType.ORDER_BY, "ORDER BY", at.line, at.col, at.start, at.end), *order]

    def parsed(self, tokens: list[Token]) -> Any:
        return syntax_tree(tokens, self.query)

    def _closing(self, tokens: list[Token], opening: int) -> int:
        depth = 0
        for at in range(opening, len(tokens)):
            depth += (tokens[at].token_type.name == "L_PAREN") - (tokens[at].token_type.name == "R_PAREN")
            if not depth:
                return at
        raise self.error(tokens[opening], "a parenthesis is not closed")

    def at(self, token: Token) -> int:
        return int(self.query.start + token.start)

    def error(self, token: Token, problem: str) -> SqlError:
        return self.query.source.error(self.at(token), problem)
