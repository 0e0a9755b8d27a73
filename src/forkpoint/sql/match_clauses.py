"""The clauses of MATCH_RECOGNIZE, which sqlglot does not read as a whole: their tokens, and the text of PATTERN."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from forkpoint.relational.row_patterns import RowPattern
from forkpoint.sql.errors import SqlError

if TYPE_CHECKING:
    from sqlglot.tokenizer_core import Token

Error = Callable[["Token | int", str], SqlError]
"""The error for a problem at a token, or at an offset of the query."""
CLAUSES = ("PARTITION BY", "ORDER BY", "MEASURES", "ONE", "ALL", "AFTER", "PATTERN", "WITHIN", "SUBSET", "DEFINE")
"""The words with which clauses begin, in the order in which they come."""
_QUANTIFIER = re.compile(r"\s*(?:([*+?])|\{\s*(\d*)\s*(,?)\s*(\d*)\s*\})\s*(\??)")
_PERMUTE = re.compile(r"\s*PERMUTE\s*\(", re.IGNORECASE)
_MOST_PERMUTED = 6
_NAME = re.compile(r"\s*(?:`((?:[^`]|``)+)`|([A-Za-z_]\w*))")


def clauses_of(tokens: list[Token], error: Error) -> Mapping[str, list[Token]]:
    """The tokens of each clause, after its first word. Raises SqlError."""
    found: dict[str, list[Token]] = {}
    current: list[Token] | None = None
    depth = 0
    for before, token in zip([None, *tokens], tokens, strict=False):
        word, quoted = token.text.upper(), token.token_type.name in ("IDENTIFIER", "STRING")
        named = before is not None and (before.token_type.name in ("ALIAS", "DOT", "COMMA") or before.text.upper() == "AS")
        place = CLAUSES.index(word) if word in CLAUSES and not quoted and not depth and not named else -1
        if place > max((CLAUSES.index(each) for each in found), default=-1):
            current = found[word] = []
        elif current is None:
            raise error(token, f"expected a clause of MATCH_RECOGNIZE, such as PARTITION BY, not {token.text!r}")
        else:
            current.append(token)
        kind = token.token_type.name
        depth += (kind == "L_PAREN") - (kind == "R_PAREN")
    return found


def listed(tokens: list[Token]) -> Iterator[list[Token]]:
    """The tokens of each element of a list."""
    part: list[Token] = []
    depth = 0
    for token in tokens:
        kind = token.token_type.name
        depth += (kind == "L_PAREN") - (kind == "R_PAREN")
        if kind == "COMMA" and not depth:
            yield part
            part = []
        else:
            part.append(token)
    yield part


@dataclass
class PatternText:
    """Reads the text of PATTERN. ``offset``: of the text in the query. ``excluded``: the variables in {- … -},
    once it is read."""

    text: str
    offset: int
    error: Error
    excluded: list[str] = field(default_factory=list)
    _at: int = 0

    def read(self) -> RowPattern:
        """Raises SqlError."""
        found = self._pattern()
        if self._at < len(self.text):
            raise self._unexpected()
        return RowPattern(parts=(found,)) if found.joined else found

    def _pattern(self) -> RowPattern:
        """A group of parts that follow each other, or of alternatives."""
        start = self._at
        found = [self._sequence()]
        while self._sign("|"):
            found.append(self._sequence())
        if len(found) == 1:
            return RowPattern(parts=found[0])
        parts = tuple(_only(RowPattern(parts=each)) for each in found)
        lacking = next((each for each in parts if each.may_lack), None)
        if lacking is not None:
            raise self.error(
                self.offset + start, f"the alternative {lacking} may have no rows; make it necessary, and all optional: (A | B)?"
            )
        return RowPattern(parts=parts, joined="|")

    def _sequence(self) -> tuple[RowPattern, ...]:
        parts = []
        while (part := self._part()) is not None:
            parts.append(part)
        if not parts:
            raise self._unexpected()
        return tuple(parts)

    def _part(self) -> RowPattern | None:
        self._blank()
        name = _NAME.match(self.text, self._at)
        start = self._at
        if (permute := _PERMUTE.match(self.text, self._at)) is not None:
            self._at = permute.end()
            return self._quantified(self._permuted(start), start)
        if self._sign("{-"):
            found = self._pattern()
            if not self._sign("-}"):
                raise self._unexpected()
            self.excluded += found.variables()
            inner = _only(found)
            quantified = self._quantified(found if inner.quantifier else inner, start)
            return inner if quantified is found else quantified
        if name is not None:
            self._at = name.end()
            return self._quantified(RowPattern(name[2] or name[1].replace("``", "`")), start)
        if self.text[start : start + 1] == "(":
            self._at += 1
            found = self._pattern()
            if not self._sign(")"):
                raise self._unexpected()
            return self._quantified(found, start)
        return None

    def _permuted(self, start: int) -> RowPattern:
        parts = [self._pattern()]
        while self._sign(","):
            parts.append(self._pattern())
        if not self._sign(")"):
            raise self._unexpected()
        if len(parts) > _MOST_PERMUTED:
            problem = f"PERMUTE takes at most {_MOST_PERMUTED} variables, as it waits for each set of them"
            raise self.error(
                self.offset + start, f"{problem}; make several that are alike one variable, with a quantifier: B{{3}}"
            )
        return RowPattern(parts=tuple(map(_only, parts)), joined="PERMUTE")

    def _quantified(self, of: RowPattern, start: int) -> RowPattern:
        found = _QUANTIFIER.match(self.text, self._at)
        if found is None:
            return of
        self._at = found.end()
        sign, low, comma, high, reluctant = found.groups()
        least, most = {"*": (0, None), "+": (1, None), "?": (0, 1)}.get(sign, (int(low or 0), int(high) if high else None))
        if not sign and not comma:
            most = least
        if not sign and not low and not high:
            raise self.error(self.offset + start, "{} needs a number: {2}, {2,}, {,2} or {1,2}")
        if most is not None and (most < max(least, 1)):
            raise self.error(self.offset + start, f"{of}{{{low}{comma}{high}}} is no number of rows from 1")
        return RowPattern(of.variable, of.parts, least, most, bool(reluctant), of.joined)

    def _sign(self, sign: str) -> bool:
        """Whether it comes next, which is then read."""
        self._blank()
        found = self.text.startswith(sign, self._at)
        self._at += len(sign) * found
        return found

    def _blank(self) -> None:
        while self._at < len(self.text) and self.text[self._at].isspace():
            self._at += 1

    def _unexpected(self) -> SqlError:
        self._blank()
        rest = self.text[self._at :]
        at = self.offset + self._at
        if rest[:1] in ("^", "$"):
            return self.error(at, f"{rest[0]} is not supported: a stream has no first and no last row")
        return self.error(at, f"expected a variable in PATTERN, not {rest[:10] or ')'!r}")


def _only(group: RowPattern) -> RowPattern:
    """The group, or what is alone in it."""
    return group.parts[0] if len(group.parts) == 1 and not group.joined else group
