import functools
from collections.abc import Generator, Iterable, Iterator
from typing import Any, NamedTuple, TypeVar

import pytest

from forkpoint.api.streams.signatures import type_of_output
from forkpoint.errors import TypeNotSupported
from forkpoint.functions import FlatMapFunction, MapFunction, OutputTag
from forkpoint.types import Types, type_of

T = TypeVar("T")


class Word(NamedTuple):
    text: str
    n: int


class Parse(MapFunction):
    def map(self, value: str) -> Word:
        return Word(value, 1)


class Untold(MapFunction):
    def map(self, value):
        return value


class Split(FlatMapFunction):
    def flat_map(self, value: str) -> Iterator[str] | None:
        return iter(value.split())


class Callable:
    def __call__(self, value: str) -> int:
        return len(value)


def length(text: str) -> int:
    return len(text)


def later(text: str) -> "Word":
    return Word(text, 1)


def unknown(text: str) -> "OnlyForTypeCheckers":  # noqa: F821
    return text


def durable_nothing(text: str) -> complex:
    return 1j


def anything(text: str) -> Any:
    return text


def generic(value: T) -> T:
    return value


@pytest.mark.parametrize(
    ("fn", "expected"),
    [
        (length, int),
        (later, Word),
        (Parse(), Word),
        (Callable(), int),
        (functools.partial(length), int),
        (Word, Word),
        (str, str),
        (Untold(), None),
        (lambda x: x, None),
        (unknown, None),
        (durable_nothing, None),
        (anything, None),
        (generic, None),
        (len, None),
        (str.upper, None),
    ],
)
def test_one_output(fn, expected):
    assert type_of_output(None, fn, "map") == (None if expected is None else type_of(expected))


def iterator(x) -> Iterator[Word]: ...
def generator(x) -> Generator[int, None, None]: ...
def a_list(x) -> list[str]: ...
def many(x) -> tuple[int, ...]: ...
def pair(x) -> tuple[int, str]: ...
def optional(x) -> Iterable[float] | None: ...
def sides(x) -> Iterator[Word | tuple[OutputTag, str]]: ...
def typed_sides(x) -> Iterator[Word | tuple[OutputTag[int], int]]: ...
def only_sides(x) -> Iterator[tuple[OutputTag, str]]: ...
def several(x) -> Iterator[int | str | tuple[OutputTag, Any]]: ...
def a_dict(x) -> dict[str, int]: ...
def bare(x) -> list: ...


@pytest.mark.parametrize(
    ("fn", "expected"),
    [
        (iterator, Word),
        (generator, int),
        (a_list, str),
        (many, int),
        (pair, None),
        (optional, float),
        (sides, Word),
        (typed_sides, Word),
        (only_sides, None),
        (several, int | str),
        (a_dict, None),
        (bare, None),
        (Split(), str),
    ],
)
def test_many_outputs(fn, expected):
    assert type_of_output(None, fn, "flat_map", many=True) == (None if expected is None else type_of(expected))


def count(word, state) -> tuple[Word, int | None]: ...
def counts(word, state) -> tuple[list[str], int | None]: ...
def no_pair(word, state) -> Word: ...


def test_outputs_with_state():
    assert type_of_output(None, count, "__call__", with_state=True) == type_of(Word)
    assert type_of_output(None, counts, "__call__", with_state=True, many=True) == Types.STRING()
    assert type_of_output(None, no_pair, "__call__", with_state=True) is None


def test_what_is_given_counts_and_must_be_durable():
    assert type_of_output(Types.ANY(), length, "map") == Types.ANY()
    with pytest.raises(TypeNotSupported):
        type_of_output(complex, length, "map")
