"""Wrong programs, wrong data and wrong places: each ends with a message that names what is wrong, and nothing is lost."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jobs import JOB, Click, Crash, StopAfter, Sum, clicks, finish, history, job, run, state_of, sums

import forkpoint as fp
from forkpoint.api.launch import Launch
from forkpoint.errors import (
    ForkpointError,
    GraphError,
    RecordParseError,
    RestoreRefused,
    SavepointCorrupt,
    SavepointNotFound,
    TypeNotSupported,
    UserFunctionError,
)
from patience import PATIENCE_S

ELEMENTS = clicks(20)


class Opaque:
    pass


def fails(error: type[ForkpointError], work: Callable[[], Any], *parts: str) -> str:
    """The message, which has all these parts."""
    with pytest.raises(error) as caught:
        work()
    assert type(caught.value) is error
    for part in parts:
        assert part in str(caught.value), f"{part!r} is not in: {caught.value}"
    return str(caught.value)


# -- programs


def test_a_state_of_a_type_that_cannot_be_stored(tmp_path: Path) -> None:
    class Keeps(Sum):
        def open(self, runtime_context: fp.RuntimeContext) -> None:
            self.odd = runtime_context.get_state(fp.ValueStateDescriptor("odd", Opaque))

    fails(TypeNotSupported, lambda: fp.ValueStateDescriptor("odd", Opaque), "Opaque have no durable encoding; use a")
    fails(TypeNotSupported, lambda: run(tmp_path, ELEMENTS, fn=Keeps()), "Opaque have no durable encoding")


def test_uids_that_are_missing_are_all_listed_with_suggestions(tmp_path: Path) -> None:
    env = fp.StreamExecutionEnvironment.get_execution_environment()
    env.set_state_root(str(tmp_path))
    stream = env.from_collection(ELEMENTS, Click).map(lambda c: c, Click).key_by(lambda c: c.user, int)
    stream.process(Sum()).name("My sums").sink_to(fp.DiscardSink())

    def execute() -> None:
        env.launch = Launch(options={"engine": "local"})
        env.execute("job")

    message = fails(GraphError, execute, "'collection': .uid('collection')", "'My sums': .uid('my-sums')", "sink")
    assert "map" not in message
    assert not any(tmp_path.iterdir())


def divide(click: Click) -> float:
    return 1 / (click.ts - 130)


class Divides(Sum):
    def process_element(self, click: Click, ctx: fp.KeyedProcessFunction.Context) -> Any:
        divide(click)
        yield from super().process_element(click, ctx)


class TicksBadly(Sum):
    def process_element(self, click: Click, ctx: fp.KeyedProcessFunction.Context) -> Any:
        ctx.timer_service().register_event_time_timer(5)
        yield click

    def on_timer(self, timestamp: int, ctx: fp.KeyedProcessFunction.OnTimerContext) -> Any:
        raise KeyError("tick")


class OpensBadly(Sum):
    def open(self, runtime_context: fp.RuntimeContext) -> None:
        raise RuntimeError("no database")


def test_a_function_that_raises_is_shown_with_key_element_and_its_own_traceback(tmp_path: Path) -> None:
    message = fails(
        UserFunctionError,
        lambda: run(tmp_path, ELEMENTS, fn=Divides()),
        "operator 'sums': the function raised ZeroDivisionError",
        "key 2",
        "Click(user=2, count=2, ts=130)",
        "in process_element\n    divide(click)",
        "in divide\n    return 1 / (click.ts - 130)",
    )
    assert "forkpoint/runtime" not in message
    # The epochs before are there; with the function mended the job goes on from them.
    assert state_of(tmp_path) == sums(ELEMENTS[:10])
    run(tmp_path, ELEMENTS)
    assert state_of(tmp_path) == sums(ELEMENTS)


def test_timers_and_open_that_raise_name_the_operator_too(tmp_path: Path) -> None:
    fails(
        UserFunctionError,
        lambda: run(tmp_path / "1", ELEMENTS, fn=TicksBadly()),
        "operator 'sums': the function raised KeyError: 'tick' (key ",
        "timer at 5 ms",
        "in on_timer",
    )
    fails(
        UserFunctionError,
        lambda: run(tmp_path / "2", ELEMENTS, fn=OpensBadly()),
        "operator 'sums': the function raised RuntimeError: no database",
        "open()",
        'raise RuntimeError("no database")',
    )


@pytest.mark.parametrize(("declared", "value"), [(int, "text"), (tuple[int, str], (1, 2)), (fp.Types.ANY(), Opaque())])
@pytest.mark.parametrize("ttl", [None, fp.StateTtlConfig.new_builder(fp.Time.hours(1)).build()])
def test_a_value_that_is_none_of_its_states_type_is_not_committed(tmp_path: Path, declared: Any, value: Any, ttl: Any) -> None:
    """It could not be read again: neither by the next epoch nor by a savepoint."""
    descriptor = fp.ValueStateDescriptor("odd", declared)
    if ttl is not None:
        descriptor.enable_time_to_live(ttl)

    class Odd(Sum):
        odd = descriptor

        def process_element(self, click: Click, ctx: fp.KeyedProcessFunction.Context) -> Any:
            if click.ts == 130:
                self.odd.update(value)
            yield from super().process_element(click, ctx)

    fails(
        TypeNotSupported,
        lambda: run(tmp_path, ELEMENTS, fn=Odd()),
        "operator 'sums', state 'odd'",
        "of key 2 is not valid for state type",
    )
    assert state_of(tmp_path) == sums(ELEMENTS[:10])


# -- data


def test_null_keys(tmp_path: Path) -> None:
    def user(click: Click) -> int | None:
        return None if click.ts == 130 else click.user

    fails(
        TypeNotSupported,
        lambda: run(tmp_path / "1", ELEMENTS, key=user, key_type=fp.Types.LONG()),
        "operator 'sums': key None of element Click(user=2, count=2, ts=130) is not valid",
        "for key type LONG",
        "Filter such elements out first",
    )
    assert state_of(tmp_path / "1") == sums(ELEMENTS[:10])
    # Where the type allows it, None is a key like others.
    run(tmp_path / "2", ELEMENTS, key=user, key_type=int | None)
    assert state_of(tmp_path / "2")[None] == 2


def test_a_key_selector_that_raises(tmp_path: Path) -> None:
    fails(
        UserFunctionError,
        lambda: run(tmp_path, ELEMENTS, key=lambda c: c.nobody, key_type=int),
        "operator 'sums': the function raised AttributeError",
        "nobody",
        "Click(user=0, count=1, ts=0)",
    )


@pytest.mark.parametrize(
    ("assign", "part"),
    [
        (lambda c, _: None, "not None"),
        (lambda c, _: "noon", "'noon' (str)"),
        (lambda c, _: c.time, "no attribute 'time'"),
    ],
)
def test_timestamps_that_are_missing(tmp_path: Path, assign: Any, part: str) -> None:
    env = fp.StreamExecutionEnvironment.get_execution_environment()
    env.set_state_root(str(tmp_path))
    strategy = fp.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(assign)
    stream = env.from_collection(ELEMENTS, Click).uid("clicks").assign_timestamps_and_watermarks(strategy).uid("times")
    stream.key_by(lambda c: c.user, int).process(Sum()).uid("sums").sink_to(fp.DiscardSink()).uid("sink")

    def execute() -> None:
        env.launch = Launch(options={"engine": "local"})
        env.execute("job")

    fails(UserFunctionError, execute, "operator 'times'", part, "Click(user=0, count=1, ts=0)")


GOOD = '{"user": 1, "count": 1, "ts": 1}\n'


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        ('{"user": 1, "count":\n', "not JSON on one line"),
        ('{"user": "x", "count": 1, "ts": 2}\n', "user: expected int, got 'x'"),
        ('{"user": 4, "count": 1}\n', "ts: missing, and the field has no default"),
    ],
)
def test_a_record_that_cannot_be_parsed(tmp_path: Path, bad: str, why: str) -> None:
    (tmp_path / "in").mkdir()
    file = tmp_path / "in" / "a.json"
    file.write_text(GOOD * 7 + bad + GOOD)

    def read(**options: Any) -> None:
        run(tmp_path / "state", source=fp.FileSource.json(tmp_path / "in", Click, bounded=True, **options))

    fails(RecordParseError, read, f"{file}, line 8: cannot read {bad.strip()[:12]}", why, "on_parse_error='skip'")
    assert state_of(tmp_path / "state") == {1: 5}
    read(on_parse_error="skip")
    assert state_of(tmp_path / "state") == {1: 8}


# -- places


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A savepoint of half the elements."""

    class Asks:
        def on_step(self, step: str, epoch: int) -> None:
            if (step, epoch) == ("planned", 3):
                self.request = prepared.driver.savepoint()

    asks = Asks()
    prepared = job(tmp_path / "first", ELEMENTS, steps=asks)
    finish(prepared)
    return Path(asks.request.done.result(PATIENCE_S).removeprefix("file://"))


def refused(tmp_path: Path, saved: Path | str, error: type[ForkpointError], *parts: str, **options: Any) -> None:
    """And the refused start leaves no trace, so that the next one is not hindered by it."""
    root = tmp_path / "second"
    fails(error, lambda: run(root, ELEMENTS, savepoint=str(saved), **options), *parts)
    assert history(root).epochs() == []
    left = [path for path in root.rglob("*") if path.is_file()]
    assert left == []


def test_a_savepoint_that_is_not_there(tmp_path: Path) -> None:
    refused(tmp_path, tmp_path / "nowhere", SavepointNotFound, "nowhere is not a savepoint: it has no savepoint.json")
    refused(tmp_path, "latest", SavepointNotFound, f"job {JOB!r} has no savepoint 'latest'")


def test_a_savepoint_that_was_cut_short(tmp_path: Path, saved: Path) -> None:
    for file in (*sorted((saved / "operators" / "sums" / "total").iterdir()), saved / "savepoint.json"):
        data = file.read_bytes()
        file.write_bytes(data[:-9])
        refused(tmp_path, saved, SavepointCorrupt, f"{file.relative_to(saved)}: has ")
        file.write_bytes(data)
    run(tmp_path / "second", ELEMENTS, savepoint=str(saved))
    assert state_of(tmp_path / "second") == sums(ELEMENTS)


def test_a_savepoint_without_one_of_its_files(tmp_path: Path, saved: Path) -> None:
    file = next((saved / "operators" / "sums" / "total").iterdir())
    file.unlink()
    with pytest.raises(ForkpointError, match=file.name):
        run(tmp_path / "second", ELEMENTS, savepoint=str(saved))
    assert history(tmp_path / "second").epochs() == []


def test_a_savepoint_of_another_program(tmp_path: Path, saved: Path) -> None:
    refused(
        tmp_path,
        saved,
        RestoreRefused,
        "sums/total",
        "the program has no operator 'sums'",
        "--map sums=NEW",
        "--allow-non-restored-state",
        uid="others",
    )

    class Text(Sum):
        total = fp.ValueStateDescriptor("total", str)  # type: ignore[assignment]

    refused(tmp_path, saved, RestoreRefused, "sums/total", "LONG", "STRING", fn=Text())
    run(tmp_path / "second", ELEMENTS, savepoint=str(saved), uid="others", allow_non_restored=True)
    assert state_of(tmp_path / "second", uid="others") == sums(ELEMENTS[10:])  # positions were kept, state was not


def newer(file: Path) -> str:
    text = file.read_text()
    content = json.loads(text)
    content["format_version"] += 1
    file.write_text(json.dumps(content))
    return text


def test_a_savepoint_of_a_newer_format(tmp_path: Path, saved: Path) -> None:
    newer(saved / "savepoint.json")
    newer(saved / "savepoint.json")  # format 2 is known
    (saved / "savepoint.json.sha256").unlink()
    refused(tmp_path, saved, SavepointCorrupt, "has savepoint.json format 3", "formats up to 2", "upgrade forkpoint")


def test_a_checkpoint_of_a_newer_format_or_cut_short(tmp_path: Path) -> None:
    with pytest.raises(Crash):
        run(tmp_path, ELEMENTS, steps=StopAfter(2))
    past = history(tmp_path)
    epochs = past.epochs()
    file = tmp_path / past.paths.manifest(epochs[-1])
    text = newer(file)
    fails(SavepointCorrupt, lambda: run(tmp_path, ELEMENTS), file.name, "has manifest format 2", "upgrade forkpoint")
    file.write_text(text[:-100])
    fails(SavepointCorrupt, lambda: run(tmp_path, ELEMENTS), file.name, "not complete JSON")
    assert past.epochs() == epochs
    file.write_text(text)
    run(tmp_path, ELEMENTS)
    assert state_of(tmp_path) == sums(ELEMENTS)


def test_a_changed_program_and_a_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(Crash):
        run(tmp_path, ELEMENTS, steps=StopAfter(2))
    epochs = history(tmp_path).epochs()
    fails(RestoreRefused, lambda: run(tmp_path, ELEMENTS, uid="others"), "sums/total", "no operator 'sums'")
    assert history(tmp_path).epochs() == epochs
    run(tmp_path, ELEMENTS)
    assert state_of(tmp_path) == sums(ELEMENTS)
