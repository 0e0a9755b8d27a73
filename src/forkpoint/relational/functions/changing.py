"""Functions whose values differ each time: of the clock, and random ones.

They have values only where each row is seen once, and once for all: see ``user_calls.isolated``. The clock is the epoch's
processing time, which all its tasks share. Random values are computed from the epoch and the place of their row, so that a task
that runs twice has the same ones; those of an epoch that is repeated may differ, since nothing of it was committed.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec.structs import replace

from forkpoint.relational.expressions import Call, Column, Expression, Literal
from forkpoint.relational.types import STORED, SqlType, time_type
from forkpoint.runtime.columnar.segments import run_starts
from forkpoint.runtime.exchange.batch import Longs

Bits = npt.NDArray[np.uint64]

PROCTIME = "PROCTIME"
"""The time at which a row is processed, as an attribute of rows that windows, OVER and lookup joins take."""
CLOCK = {
    **dict.fromkeys((PROCTIME, "NOW", "CURRENT_TIMESTAMP", "CURRENT_ROW_TIMESTAMP"), "TIMESTAMP_LTZ"),
    "LOCALTIMESTAMP": "TIMESTAMP",
    "CURRENT_DATE": "DATE",
    **dict.fromkeys(("CURRENT_TIME", "LOCALTIME"), "TIME"),
    "UNIX_TIMESTAMP": "BIGINT",
}
"""The types of the functions of the clock."""
ARRIVAL = "ARRIVAL"
"""The place of a row among those of its epoch and task. No text of a query calls it."""
RANDOM = {"RAND": ("DOUBLE", 0), "RAND_INTEGER": ("INT", 1), "UUID": ("STRING", 0), ARRIVAL: ("BIGINT", 0)}
"""The types of random functions, and how many arguments they have beside their place in the query, which comes first, and a
seed."""


def changes(call: Call) -> bool:
    """Whether a call needs a node of its own, which stores what it had for a row."""
    return call.function in RANDOM or (call.function in CLOCK and call.function != PROCTIME and not call.arguments)


def clock_call(name: str) -> Call:
    of = CLOCK[name]
    digits = {"TIME": 0, "TIMESTAMP": 3, "TIMESTAMP_LTZ": 3}.get(of, STORED)
    return Call(name, (), time_type(of, digits, nullable=False))


def reads_clock(expression: Expression | None) -> bool:
    """Whether a value depends on PROCTIME()."""
    return isinstance(expression, Call) and (expression.function == PROCTIME or any(map(reads_clock, expression.arguments)))


def calls_in(expression: Expression | None) -> Iterator[Call]:
    """The calls of functions of the clock, and of random ones."""
    if isinstance(expression, Call):
        if expression.function in RANDOM or (expression.function in CLOCK and not expression.arguments):
            yield expression
        else:
            for argument in expression.arguments:
                yield from calls_in(argument)


def of_column(expression: Expression, name: str) -> Expression:
    """The expression of a computed column, with random values of its own."""
    if not isinstance(expression, Call):
        return expression
    place, *others = (of_column(each, name) for each in expression.arguments) if expression.arguments else (None,)
    if place is None:
        return expression
    if expression.function in RANDOM and isinstance(place, Literal):
        place = Literal(f"{name} {place.value}", place.type)
    return replace(expression, arguments=(place, *others))


@dataclass(frozen=True)
class Occasion:
    """When and where values are computed. ``place``: of the rows, among which each has a number of ``numbers``; rows with equal
    numbers are next to each other. ``salt``: of the run."""

    epoch: int
    now_ms: int
    place: str
    numbers: Longs
    salt: int

    def value(self, call: Call) -> Literal | pa.Array:
        """The value of a call: one for all rows, or one for each."""
        if call.function in CLOCK:
            return Literal(_moment(call.type.name, self.now_ms), call.type)
        if call.function == ARRIVAL:
            return pa.array(self.numbers)
        seeded = len(call.arguments) > 1 + RANDOM[call.function][1]
        salt = int(str(call.arguments[1])) if seeded else self.salt
        seed = f"{salt} {self.epoch} {self.place} {call}"
        if call.function == "UUID":
            pairs = zip(*(self._bits(f"{half} {seed}").tolist() for half in (1, 2)), strict=True)
            return pa.array([str(uuid.UUID(int=(high << 64) | low, version=4)) for high, low in pairs], pa.string())
        return pa.array((self._bits(seed) >> np.uint64(11)).astype(np.float64) * 2.0**-53)

    def _bits(self, seed: str) -> Bits:
        """64 random bits for each row."""
        word = np.uint64(int.from_bytes(hashlib.blake2b(seed.encode(), digest_size=8).digest(), "big"))
        starts = np.flatnonzero(run_starts(self.numbers))
        nth = np.arange(len(self.numbers)) - np.repeat(starts, np.diff(np.append(starts, len(self.numbers))))
        return _mixed(_mixed(_mixed(self.numbers.astype(np.uint64) ^ word)) + nth.astype(np.uint64))


def replaced(expression: Expression, values: dict[str, Literal | Column]) -> Expression:
    """The expression with values in place of such calls, by their texts."""
    if not isinstance(expression, Call):
        return expression
    found = values.get(str(expression))
    if found is None:
        return replace(expression, arguments=tuple(replaced(each, values) for each in expression.arguments))
    if expression.function != "RAND_INTEGER":
        return found
    double, bound = SqlType("DOUBLE", nullable=False), expression.arguments[-1]
    scaled = Call("*", (found, Call("CAST", (bound,), double.with_null(bound.type.nullable))), double)
    return Call("CAST", (Call("FLOOR", (scaled,), double),), expression.type)


def _moment(type: str, now_ms: int) -> str | int:
    if type == "BIGINT":
        return now_ms // 1000
    now = datetime.fromtimestamp(now_ms / 1000, UTC)
    if type == "DATE":
        return now.date().isoformat()
    if type == "TIME":
        return now.time().replace(microsecond=0).isoformat()
    return now.isoformat() if type == "TIMESTAMP_LTZ" else now.replace(tzinfo=None).isoformat()


def _mixed(bits: Bits) -> Bits:
    """splitmix64."""
    with np.errstate(over="ignore"):
        bits = (bits + np.uint64(0x9E37_79B9_7F4A_7C15)).astype(np.uint64)
        bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58_476D_1CE4_E5B9)
        bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D0_49BB_1331_11EB)
        return np.asarray(bits ^ (bits >> np.uint64(31)))
