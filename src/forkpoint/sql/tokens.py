"""The tokens of a script, in Flink's dialect: names in backticks, text in single quotes."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar

from forkpoint.extras import require
from forkpoint.sql.errors import SqlError, Text

CALL = "call "
"""What precedes the names that ``named_calls`` gives."""
WINDOW_CALLS = {
    name: kind for kind in ("TUMBLE", "HOP", "SESSION") for name in (kind, f"{kind}_START", f"{kind}_END", f"{kind}_ROWTIME")
}
"""The functions of windows in GROUP BY, and the kind of window that they are about."""
_QUOTED = ("STRING", "IDENTIFIER")

if TYPE_CHECKING:
    from sqlglot.tokenizer_core import Token


@cache
def dialect() -> Any:
    """Flink's dialect. Only the tokenizer differs: sqlglot's compiled parser cannot be subclassed."""
    require("sqlglot", "SQL")
    from sqlglot import Dialect, tokens

    class Flink(Dialect):
        class Tokenizer(tokens.Tokenizer):
            IDENTIFIERS = ["`"]  # noqa: RUF012
            QUOTES = ["'"]  # noqa: RUF012
            STRING_ESCAPES = ["'"]  # noqa: RUF012
            COMMENTS = ["--", ("/*", "*/")]  # noqa: RUF012
            COMMANDS: ClassVar[set[Any]] = set()  # statements that sqlglot would not split into words

    return Flink


@dataclass(frozen=True)
class Word:
    """A word, sign, quoted name or text, from ``start`` to ``end``. ``kind``: sqlglot's."""

    text: str
    kind: str
    start: int
    end: int


def _words(token: Token) -> Iterator[Word]:
    """A token's words: sqlglot reads PRIMARY KEY as one token."""
    kind = token.token_type.name
    if kind in _QUOTED or " " not in token.text:
        yield Word(token.text, kind, token.start, token.end + 1)
        return
    for word in token.text.split():
        yield Word(word, kind, token.start, token.end + 1)


class Tokens:
    """The words of one statement, read from left to right. Keywords are compared without case."""

    def __init__(self, source: Text, tokens: Sequence[Token]) -> None:
        self.source, self._at = source, 0
        self._tokens = [word for token in tokens for word in _words(token)]

    @property
    def done(self) -> bool:
        return self._at >= len(self._tokens)

    @property
    def offset(self) -> int:
        """Where the next token begins; the statement's end after the last one."""
        return self._tokens[-1].end if self.done else self._tokens[self._at].start

    @property
    def end(self) -> int:
        """Where the last read token ends."""
        return self._tokens[self._at - 1].end

    def peek(self, *words: str) -> bool:
        """Whether these words come next."""
        found = self._tokens[self._at : self._at + len(words)]
        return len(found) == len(words) and all(
            found_word.text.upper() == word and found_word.kind not in _QUOTED
            for found_word, word in zip(found, words, strict=True)
        )

    def take(self, *words: str) -> bool:
        """Read these words if they come next."""
        found = self.peek(*words)
        self._at += len(words) if found else 0
        return found

    def expect(self, *words: str) -> None:
        if not self.take(*words):
            raise self.unexpected(" ".join(words))

    def name(self, what: str) -> str:
        """A name, quoted or not."""
        if self.done or not (self._kind == "IDENTIFIER" or self._next.text.replace("_", "a").isalnum()) or self._kind == "STRING":
            raise self.unexpected(what)
        self._at += 1
        return str(self._tokens[self._at - 1].text)

    def names(self, what: str) -> list[str]:
        """Names in parentheses."""
        self.expect("(")
        found = [self.name(what)]
        while self.take(","):
            found.append(self.name(what))
        self.expect(")")
        return found

    def path(self, what: str) -> str:
        """A name, after those of a catalogue and a database if they are given."""
        parts = [self.name(what)]
        while self.take("."):
            parts.append(self.name(what))
        return ".".join(parts)

    def options(self, offsets: dict[str, int]) -> dict[str, str]:
        """``('key' = 'value', …)``. The offsets of the values are added to those given."""
        self.expect("(")
        options: dict[str, str] = {}
        while not options or self.take(","):
            at = self.offset
            key = self.text("an option in single quotes")
            if key in options:
                raise self.source.error(at, f"option {key!r} is given twice")
            self.expect("=")
            offsets[key] = self.offset
            options[key] = self.text("the option's value in single quotes")
        self.expect(")")
        return options

    def text(self, what: str) -> str:
        """A text in single quotes."""
        if self.done or self._kind != "STRING":
            raise self.unexpected(what)
        self._at += 1
        return str(self._tokens[self._at - 1].text)

    def literal(self, what: str) -> str:
        """A text in single quotes, or a number."""
        return str(self.number()) if not self.done and self._kind == "NUMBER" else self.text(what)

    def value(self, what: str) -> str:
        """A text in single quotes, or a path of names."""
        return self.text(what) if not self.done and self._kind == "STRING" else self.path(what)

    def number(self) -> int:
        if self.done or self._kind != "NUMBER" or not self._next.text.isdigit():
            raise self.unexpected("a whole number")
        self._at += 1
        return int(self._tokens[self._at - 1].text)

    def rest(self) -> int:
        """The offset of the remaining tokens, which are then read."""
        offset = self.offset
        self._at = len(self._tokens)
        return offset

    def skip_expression(self, *ends: str) -> int:
        """Read an expression up to a comma, a closing parenthesis, COMMENT or one of ``ends`` that is not part of it. Returns its
        offset."""
        offset, start, depth = self.offset, self._at, 0
        while not self.done and (depth or not any(map(self.peek, (",", ")", "COMMENT", *ends)))):
            depth += self.peek("(") - self.peek(")")
            self._at += 1
        if self._at == start:
            raise self.unexpected("an expression")
        return offset

    def finish(self) -> None:
        """Check that the statement ends here."""
        if not self.done:
            raise self.unexpected("the end of the statement")

    def unexpected(self, expected: str) -> SqlError:
        if self.done:
            return self.source.error(self.offset, f"{expected} is missing at the end of the statement")
        return self.source.error(self.offset, f"expected {expected}, not {self._next.text!r}")

    @property
    def _next(self) -> Word:
        return self._tokens[self._at]

    @property
    def _kind(self) -> str:
        return self._next.kind


def named_calls(tokens: list[Token], names: Container[str]) -> list[Token]:
    """Tokens in which calls of these functions have names that sqlglot does not know, so that it keeps name and arguments.

    It would read them as another dialect's: the unit of TIMESTAMPDIFF as a column, and LOG2(x) as LOG(2, x).
    """
    from sqlglot.tokenizer_core import TokenType

    for before, token, following in zip([None, *tokens], tokens, tokens[1:], strict=False):
        name = token.text.upper()
        called = following.token_type == TokenType.L_PAREN and token.token_type.name not in _QUOTED
        if called and name in names and (before is None or before.token_type.name not in ("ALIAS", "WITH")):
            token.text, token.token_type = CALL + name, TokenType.VAR
    return tokens


def called_name(node: Any) -> str:
    """The name of a call of which sqlglot knows no more than that; "" for other nodes."""
    return str(node.this).removeprefix(CALL).upper() if type(node).__name__ == "Anonymous" else ""


def arguments_of(tokens: list[Token]) -> list[tuple[str, list[Token]]]:
    """The arguments of a call, with their names; "" for those without."""
    parts: list[list[Token]] = [[]]
    depth = 0
    for token in tokens:
        kind = token.token_type.name
        depth += (kind == "L_PAREN") - (kind == "R_PAREN")
        if kind == "COMMA" and not depth:
            parts.append([])
        else:
            parts[-1].append(token)
    return [(part[0].text, part[2:]) if len(part) > 2 and part[1].text == "=>" else ("", part) for part in parts]


def statements_of(source: Text) -> Iterator[Tokens]:
    """The statements of a script, which semicolons separate."""
    from sqlglot.errors import TokenError

    try:
        tokens = dialect()().tokenize(source.text)
    except TokenError:
        raise source.error(len(source.text), "a quote or comment is not closed") from None
    statement: list[Token] = []
    for token in tokens:
        if token.token_type.name == "SEMICOLON":
            if statement:
                yield Tokens(source, statement)
            statement = []
        else:
            statement.append(token)
    if statement:
        yield Tokens(source, statement)
