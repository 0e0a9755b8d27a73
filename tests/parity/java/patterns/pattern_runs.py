"""Runs the programs of ``pattern_programs.py`` through forkpoint's API."""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import forkpoint as fp
from forkpoint.testing import Eof, LocalRun, run_local

RECORDED: dict[str, dict[str, Any]] = json.loads((Path(__file__).parent / "recorded.json").read_text())
OUTPUTS = ("matches", "timed_out", "late")
_TIMED_OUT, _LATE = fp.OutputTag("timed out"), fp.OutputTag("late")
_COMPARE = {"=": operator.eq, "<": operator.lt, ">": operator.gt, "<=": operator.le, ">=": operator.ge}
_STAGES = ("begin", "next", "followedBy", "followedByAny", "notNext", "notFollowedBy")
_ITERATIVE = ("sum", "count", "above_last", "same_as_first", "since_last")


class Event(NamedTuple):
    at: int
    key: str
    kind: str
    value: int
    index: int


class Matches(fp.PatternProcessFunction, fp.TimedOutPartialMatchHandler):
    def process_match(self, match, ctx):
        yield [ctx.timestamp(), _indices(match)]

    def process_timed_out_match(self, match, ctx):
        yield _TIMED_OUT, [ctx.timestamp(), _indices(match)]


def _indices(match: dict[str, list[Event]]) -> dict[str, list[int]]:
    return {stage: [event.index for event in events] for stage, events in match.items()}


def run(program: dict[str, Any], *, cuts: Sequence[int] | None = None, parallelism: int = 1) -> dict[str, list[Any]]:
    """What a program gives, by output. ``cuts``: after how many events an epoch ends."""
    return _found(run_local(_job(program), _events(program), epochs=cuts, parallelism=parallelism))


def run_in_two(program: dict[str, Any], root: Path, after: int, first: int, second: int) -> dict[str, list[Any]]:
    """The same, with a savepoint after some events, and another parallelism from there on."""
    events: list[Any] = _events(program)
    events.insert(after, Eof(savepoint=True))
    before = run_local(_job(program), events, state_root=root, parallelism=first)
    rest = run_local(_job(program), events, state_root=root, job_name="rest", restore=before.savepoint, parallelism=second)
    parts = (_found(before), _found(rest))
    return {name: [each for part in parts for each in part[name]] for name in OUTPUTS}


def pattern_of(program: dict[str, Any]) -> fp.Pattern:
    return _built(program["pattern"], _strategy(program.get("skip")))


def _events(program: dict[str, Any]) -> list[Event]:
    return [Event(*event, index) for index, event in enumerate(program["events"])]


def _found(run: LocalRun) -> dict[str, list[Any]]:
    values = {name: [record.value for record in run.records.get(name, ())] for name in OUTPUTS}
    return values | {"late": [event.index for event in values["late"]]}


def _job(program: dict[str, Any]) -> Callable[..., Any]:
    pattern = pattern_of(program)
    sign = -1 if program.get("comparator", "").startswith("-") else 1
    comparator = (lambda a, b: sign * (a.value - b.value)) if "comparator" in program else None
    bounded = fp.WatermarkStrategy.for_bounded_out_of_orderness(program.get("bound_ms", 0))

    def build(env, events):
        strategy = bounded.with_timestamp_assigner(lambda event, _: event.at)
        keyed = env.from_source(events, strategy, "events").uid("events").key_by(lambda event: event.key, str)
        found = fp.CEP.pattern(keyed, pattern, comparator).side_output_late_data(_LATE).process(Matches()).uid("pattern")
        return {"matches": found, "timed_out": found.get_side_output(_TIMED_OUT), "late": found.get_side_output(_LATE)}

    return build


def _built(chain: list[list[Any]], skip: fp.AfterMatchSkipStrategy | None = None) -> Any:
    """The pattern of a chain of calls in Java's names."""
    pattern: Any = None
    for method, *arguments in chain:
        name = "or_where" if method == "or" else _python_name(method)
        given = {"window_time": arguments.pop()["window_ms"]} if arguments and isinstance(arguments[-1], dict) else {}
        if method in _STAGES:
            stage = arguments[0] if isinstance(arguments[0], str) else _built(arguments[0])
            pattern = fp.Pattern.begin(stage, skip) if method == "begin" else getattr(pattern, name)(stage)
        elif method == "subtype":  # of a class whose elements have kinds in capitals
            pattern = pattern.where(lambda event: event.kind.isupper())
        elif method in ("where", "or", "until"):
            pattern = getattr(pattern, name)(_condition(arguments[0]))
        elif method == "within":
            pattern = pattern.within(arguments[0], *(fp.WithinType[kind] for kind in arguments[1:]))
        else:
            pattern = getattr(pattern, name)(*arguments, **given)
    return pattern


def _strategy(given: list[str] | None) -> fp.AfterMatchSkipStrategy | None:
    if given is None:
        return None
    name, *rest = given
    strategy = getattr(fp.AfterMatchSkipStrategy, _python_name(name))(*rest[:1])
    return strategy.throw_exception_on_miss() if len(rest) > 1 else strategy


def _python_name(java: str) -> str:
    return re.sub("[A-Z]", lambda letter: "_" + letter[0].lower(), java)


def _condition(given: list[Any]) -> Callable[..., bool]:
    holds = _holds(given)
    return (lambda event, ctx: holds(event, ctx)) if _is_iterative(given) else (lambda event: holds(event, None))


def _is_iterative(given: list[Any]) -> bool:
    return given[0] in _ITERATIVE or any(isinstance(part, list) and _is_iterative(part) for part in given[1:])


def _holds(given: list[Any]) -> Callable[[Event, Any], bool]:
    """A condition as a function of an event and a context."""

    def before(ctx: Any) -> list[Event]:
        return list(ctx.get_events_for_pattern(given[1]))

    match given:
        case ["true"]:
            return lambda event, ctx: True
        case ["kind", how, kinds]:
            return lambda event, ctx: event.kind == kinds if how == "=" else event.kind in kinds
        case ["value", how, limit]:
            return lambda event, ctx: _COMPARE[how](event.value, limit)
        case ["subtype", _]:
            return lambda event, ctx: event.kind.isupper()
        case ["and" | "or" as how, *parts]:
            each = list(map(_holds, parts))
            return lambda event, ctx: (all if how == "and" else any)(part(event, ctx) for part in each)
        case ["not", part]:
            inner = _holds(part)
            return lambda event, ctx: not inner(event, ctx)
        case ["sum", _, how, limit]:
            return lambda event, ctx: _COMPARE[how](sum(each.value for each in before(ctx)) + event.value, limit)
        case ["count", _, how, limit]:
            return lambda event, ctx: _COMPARE[how](len(before(ctx)), limit)
        case ["above_last", _]:
            return lambda event, ctx: any(event.value > each.value for each in before(ctx)[-1:])
        case ["same_as_first", _]:
            return lambda event, ctx: any(event.value == each.value for each in before(ctx)[:1])
        case ["since_last", _, how, limit]:
            return lambda event, ctx: any(_COMPARE[how](event.at - each.at, limit) for each in before(ctx)[-1:])
    raise ValueError(f"unknown condition {given}")
