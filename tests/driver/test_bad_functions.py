"""What users' functions may do beside raising a plain error: each is told as theirs, naming the operator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import forkpoint as fp
from forkpoint.errors import GraphError, UserFunctionError
from forkpoint.testing import run_local


class Unprintable:
    def __repr__(self) -> str:
        raise RuntimeError("no repr")


class MuteError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no str")


def raising(error: BaseException) -> Callable[[Any], Any]:
    def fn(value: Any) -> Any:
        raise error

    return fn


def message(build: Callable[[fp.DataStream], Any]) -> str:
    with pytest.raises(UserFunctionError) as caught:
        run_local(lambda env: build(env.from_collection([("a", 1)])))
    return str(caught.value)


def test_elements_and_errors_that_cannot_be_printed() -> None:
    found = message(lambda s: s.map(lambda e: Unprintable()).map(raising(ValueError("x"))).uid("bad"))
    assert "operator 'bad': the function raised ValueError: x" in found
    assert "<Unprintable, whose __repr__ raises RuntimeError>" in found
    found = message(lambda s: s.map(raising(MuteError())).uid("bad"))
    assert "operator 'bad': the function raised MuteError: <its __str__ raises RuntimeError>" in found


class Silent(fp.Trigger):
    def on_element(self, element: Any, timestamp: int, window: Any, ctx: Any) -> Any:
        return None

    def on_event_time(self, time: int, window: Any, ctx: Any) -> Any:
        return None

    def on_processing_time(self, time: int, window: Any, ctx: Any) -> Any:
        return None

    def on_merge(self, window: Any, ctx: Any) -> None:
        return None

    def clear(self, window: Any, ctx: Any) -> None:
        return None


class Forgetful(fp.Evictor):
    def evict_before(self, elements: Any, size: int, window: Any, ctx: Any) -> Any:
        return None

    def evict_after(self, elements: Any, size: int, window: Any, ctx: Any) -> Any:
        return elements


def test_a_trigger_or_evictor_that_returns_nothing_is_blamed_itself() -> None:
    def windowed(stream: fp.DataStream) -> Any:
        return stream.key_by(lambda e: e[0], str).window(fp.GlobalWindows.create())

    found = message(lambda s: windowed(s).trigger(Silent()).reduce(lambda a, b: a).uid("w"))
    assert found.startswith("operator 'w': the trigger Silent returned None; on_element(), ")
    counted = fp.CountTrigger.of(1)
    found = message(lambda s: windowed(s).trigger(counted).evictor(Forgetful()).reduce(lambda a, b: a).uid("w"))
    assert found.startswith("operator 'w': Forgetful.evict_before() returned None; it must return the elements")


@pytest.mark.parametrize("what", ["uid", "name"])
def test_half_a_character_in_a_name_is_refused_where_it_is_given(what: str) -> None:
    with pytest.raises(GraphError, match=rf"the {what} 'a\\ud800b' contains a lone surrogate"):
        run_local(lambda env: getattr(env.from_collection([1]).map(lambda e: e), what)("a\ud800b"))


class Ending(fp.ProcessFunction):
    def __init__(self, error: BaseException) -> None:
        self.error = error

    def process_element(self, value: Any, ctx: Any) -> Any:
        raise self.error


class KeyedEnding(fp.KeyedProcessFunction):
    def __init__(self, error: BaseException) -> None:
        self.error = error

    def process_element(self, value: Any, ctx: Any) -> Any:
        raise self.error
        yield


def keyed(stream: fp.DataStream) -> Any:
    return stream.key_by(lambda e: e[0], str)


@pytest.mark.parametrize("error", [SystemExit("bad line"), SystemExit(0), GeneratorExit("gone")], ids=repr)
@pytest.mark.parametrize(
    "build",
    [
        lambda s, e: s.map(raising(e)).uid("x"),
        lambda s, e: s.flat_map(raising(e)).uid("x"),
        lambda s, e: s.filter(raising(e)).uid("x"),
        lambda s, e: s.process(Ending(e)).uid("x"),
        lambda s, e: keyed(s).process(KeyedEnding(e)).uid("x"),
        lambda s, e: keyed(s).map_with_state(lambda v, state: raising(e)(v), int).uid("x"),
        lambda s, e: s.key_by(raising(e), str).reduce(lambda a, b: a).uid("x"),
    ],
    ids=["map", "flat_map", "filter", "process", "keyed process", "map_with_state", "key_by"],
)
def test_what_would_end_the_process_fails_the_function(build: Callable[..., Any], error: BaseException) -> None:
    found = message(lambda s: build(s, error))
    assert f"operator 'x': the function raised {type(error).__name__}: {error}" in found or "key_by" in found, found
    assert type(error).__name__ in found
