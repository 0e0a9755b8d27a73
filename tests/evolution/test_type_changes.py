"""Programs whose state types change between a savepoint and its restore, through the whole engine."""

from __future__ import annotations

import dataclasses
import enum
from datetime import timedelta
from typing import Annotated, NamedTuple, Optional

import msgspec
import pytest
from evolution_jobs import STOP, go_on, keeper, keyed, life, saved_then

import forkpoint as fp
from forkpoint.errors import RestoreRefused
from forkpoint.graph.options import RestoreOptions

FIRST = [("a", 1), ("b", 2), ("a", 3)]
THEN = [("a", 10), ("b", 20), ("c", 30)]


class Sums1(NamedTuple):
    count: int
    total: int
    extra: str


class Sums2(NamedTuple):
    """Reordered, renamed, widened, dropped, and two added."""

    sum: Annotated[float, fp.RenamedFrom("total")]
    count: int | None
    seen: list[int] = []  # noqa: RUF012 - a default
    mean: float | None = None


@dataclasses.dataclass
class Data2:
    count: int
    sum: Annotated[float, fp.RenamedFrom("amount", "total")]
    seen: list[int] = dataclasses.field(default_factory=lambda: [7])


class Struct2(msgspec.Struct):
    count: int
    total: int
    more: str = "none"


def put1(state, value):
    old = state.value() or Sums1(0, 0, "x")
    state.update(Sums1(old.count + 1, old.total + value[1], f"{value[1]}"))


def read(state, value):
    return state.value()


VALUE1 = keyed(keeper(fp.ValueStateDescriptor("s", Sums1), put1))


@pytest.mark.parametrize(
    ("cls", "expected"),
    [
        (Sums2, {"a": Sums2(4.0, 2, [], None), "b": Sums2(2.0, 1, [], None), "c": None}),
        (Data2, {"a": Data2(2, 4.0, [7]), "b": Data2(1, 2.0, [7]), "c": None}),
        (Struct2, {"a": Struct2(2, 4), "b": Struct2(1, 2), "c": None}),
    ],
)
@pytest.mark.parametrize("how", [{}, {"parallelism": 3}, {"parallelism": 1, "max_parallelism": 9}])
def test_records_evolve(tmp_path, cls, expected, how):
    after = keyed(keeper(fp.ValueStateDescriptor("s", cls), read))
    found = saved_then(tmp_path, VALUE1, after, first=FIRST, then=THEN, restore=go_on(allow_non_restored=True), **how)
    assert dict(found) == expected
    assert all(type(value) in (cls, type(None)) for _, value in found)


def test_records_evolve_from_the_newest_checkpoint_too(tmp_path):
    life(tmp_path, VALUE1, [*FIRST, fp.testing.EOF, *THEN])
    after = keyed(keeper(fp.ValueStateDescriptor("s", Sums2), read))
    script = [*FIRST, fp.testing.EOF, *THEN]
    with pytest.raises(RestoreRefused, match="would lose extra; to drop them, use --allow-non-restored-state"):
        life(tmp_path, after, script)
    run = life(tmp_path, after, script, restore=RestoreOptions(allow_non_restored=True))
    assert dict(run.output)["a"] == Sums2(4.0, 2, [], None)


class Recounted(NamedTuple):
    """A field was renamed, without a word: its totals would begin at 0 again."""

    count: int
    sum: int = 0
    extra: str = ""


@pytest.mark.parametrize("restore", [go_on(), RestoreOptions()])
def test_a_dropped_field_is_refused_unless_that_is_allowed(tmp_path, restore):
    script = [*FIRST, STOP, *THEN]
    life(tmp_path, VALUE1, script)
    after = keyed(keeper(fp.ValueStateDescriptor("s", Recounted), read))
    with pytest.raises(RestoreRefused) as refused:
        life(tmp_path, after, script, restore=restore)
    assert "would lose total (if it is sum now, annotate that with RenamedFrom('total'))" in str(refused.value)
    allowed = dataclasses.replace(restore, allow_non_restored=True)
    assert dict(life(tmp_path, after, script, restore=allowed).output)["a"] == Recounted(2, 0, "3")


def test_a_field_of_an_empty_state_is_dropped_without_asking(tmp_path):
    """Nothing is lost; a run that goes on from a checkpoint finds out by a savepoint of its own."""
    before = keyed(keeper(fp.ValueStateDescriptor("s", Sums1), read))
    after = keyed(keeper(fp.ValueStateDescriptor("s", Recounted), read))
    script = [*FIRST, STOP, *THEN]
    for restore in (go_on(), RestoreOptions()):
        life(tmp_path / str(restore.savepoint), before, script)
        assert life(tmp_path / str(restore.savepoint), after, script, restore=restore).outcome == "finished"


@dataclasses.dataclass
class Loose:
    total: int


@dataclasses.dataclass
class Strict:
    total: int

    def __post_init__(self):
        if self.total > 2:
            raise ValueError("too much")


class StrictStruct(msgspec.Struct):
    total: int

    def __post_init__(self):
        if self.total > 2:
            raise ValueError("too much")


@pytest.mark.parametrize("cls", [Strict, StrictStruct])
@pytest.mark.parametrize("how", [{}, {"max_parallelism": 9}])
@pytest.mark.parametrize("kind", ["value", "list", "nested"])
def test_a_class_that_refuses_a_saved_value_is_found_by_the_restore(tmp_path, cls, how, kind):
    def job(of):
        if kind == "list":
            state = fp.ListStateDescriptor("s", of)
            return keyed(keeper(state, lambda s, v: s.add(of(v[1])) if v[1] < 9 else len(list(s.get()))))
        descriptor = fp.ValueStateDescriptor("s", of if kind == "value" else dict[str, of])
        wrap = (lambda value: value) if kind == "value" else (lambda value: {"x": value})
        return keyed(keeper(descriptor, lambda s, v: s.update(wrap(of(v[1]))) if v[1] < 9 else s.value()))

    script = [*FIRST, STOP, *THEN]
    life(tmp_path, job(Loose), script)
    with pytest.raises(
        RestoreRefused, match=r"(?s)state 's' of operator 'keeper': .* refuses the saved value .*3.* of key 'a'.*too much"
    ):
        life(tmp_path, job(cls), script, restore=go_on(), **how)
    assert life(tmp_path, job(Loose), script, restore=go_on(), **how).outcome == "finished"  # nothing was changed


Status1 = enum.Enum("Status1", "NEW PAID")
Status2 = enum.Enum("Status2", "DRAFT NEW PAID")


@pytest.mark.parametrize("restore", [go_on(), RestoreOptions()])
def test_enums_go_by_the_names_of_their_members(tmp_path, restore):
    """A member that is put first shifts the values of a functional Enum."""
    before = keyed(keeper(fp.ValueStateDescriptor("s", Status1), lambda s, v: s.update(Status1(v[1] % 2 + 1))))
    after = keyed(keeper(fp.ValueStateDescriptor("s", Status2), lambda s, v: s.value()))
    script = [*FIRST, STOP, *THEN]
    life(tmp_path, before, script)
    found = dict(life(tmp_path, after, script, restore=restore).output)
    assert found == {"a": Status2.PAID, "b": Status2.NEW, "c": None}


@dataclasses.dataclass
class Ends1:
    low: int
    high: int


@dataclasses.dataclass
class Ends2:
    """The names had been mixed up."""

    low: Annotated[int, fp.RenamedFrom("high")]
    high: Annotated[int, fp.RenamedFrom("low")]


@pytest.mark.parametrize("restore", [go_on(), RestoreOptions()])
def test_swapped_fields_are_swapped_once(tmp_path, restore):
    def job(cls):
        return keyed(keeper(fp.ValueStateDescriptor("s", cls), put_ends if cls is Ends1 else read))

    def put_ends(state, value):
        state.update(Ends1(value[1], -value[1]))

    script = [*FIRST, STOP, *THEN, STOP, ("a", 0), STOP, ("a", 0)]
    life(tmp_path, job(Ends1), script)
    for _ in range(3):
        assert dict(life(tmp_path, job(Ends2), script, restore=restore).output)["a"] == Ends2(low=-3, high=3)


class Renamed(NamedTuple):
    """The same bytes under other names: nothing is rewritten, not even of a checkpoint."""

    number: Annotated[int, fp.RenamedFrom("count")]
    total: int
    extra: str | None = ""


def test_renamed_fields_of_the_same_bytes(tmp_path):
    life(tmp_path, VALUE1, [*FIRST, fp.testing.EOF, *THEN, fp.testing.EOF, ("a", 0)])
    after = keyed(keeper(fp.ValueStateDescriptor("s", Renamed), read))
    script = [*FIRST, fp.testing.EOF, *THEN, fp.testing.EOF, ("a", 0)]
    assert dict(life(tmp_path, after, script).output)["a"] == Renamed(2, 4, "3")
    assert dict(life(tmp_path, after, script).output)["a"] == Renamed(2, 4, "3")


class Level1(enum.Enum):
    LOW = "low"


class Level2(enum.Enum):
    LOW = "low"
    HIGH = "high"


class Inner1(NamedTuple):
    level: Level1
    n: int


class Inner2(NamedTuple):
    n: float
    level: Level2
    note: str = "-"


class Outer1(NamedTuple):
    inner: Inner1
    several: list[Inner1]
    by_name: dict[str, Inner1]
    maybe: Optional[Inner1]  # noqa: UP045


class Outer2(NamedTuple):
    by_name: dict[str, Inner2]
    maybe: Inner2 | None
    several: tuple[Inner2, ...]
    inner: Inner2 | None


def test_nested_records_lists_maps_and_optionals_evolve(tmp_path):
    one = Inner1(Level1.LOW, 5)

    def put(state, value):
        state.update(Outer1(one, [one] * value[1], {"k": one}, one if value[1] == 2 else None))

    before = keyed(keeper(fp.ValueStateDescriptor("s", Outer1), put))
    after = keyed(keeper(fp.ValueStateDescriptor("s", Outer2), read))
    found = dict(saved_then(tmp_path, before, after, first=FIRST, then=THEN))
    two = Inner2(5.0, Level2.LOW, "-")
    assert found["a"] == Outer2({"k": two}, None, (two,) * 3, two)
    assert found["b"] == Outer2({"k": two}, two, (two,) * 2, two)


def test_list_and_map_state_evolve_with_their_times_to_live(tmp_path):
    ttl = timedelta(days=1)

    def jobs(cls, put_list, put_map):
        class Both(fp.KeyedProcessFunction):
            events = fp.ListStateDescriptor("events", cls).enable_time_to_live(ttl)
            table = fp.MapStateDescriptor("table", str, cls)

            def process_element(self, value, ctx):
                put_list(self.events, value)
                put_map(self.table, value)
                yield ctx.get_current_key(), (list(self.events.get()), dict(self.table.items()))

        return keyed(Both())

    before = jobs(
        Sums1,
        lambda events, v: events.add(Sums1(1, v[1], "x")),
        lambda table, v: table.put(str(v[1]), Sums1(1, v[1], "x")),
    )
    after = jobs(Struct2, lambda events, v: None, lambda table, v: None)
    found = dict(saved_then(tmp_path, before, after, first=FIRST, then=THEN, restore=go_on(allow_non_restored=True)))
    assert found["a"] == ([Struct2(1, 1), Struct2(1, 3)], {"1": Struct2(1, 1), "3": Struct2(1, 3)})
    assert found["c"] == ([], {})


def test_reducing_state_is_widened(tmp_path):
    def job(of):
        return keyed(
            keeper(
                fp.ReducingStateDescriptor("r", lambda a, b: a + b, of),
                lambda state, v: (state.add(v[1]), state.get())[1],
            )
        )

    assert dict(saved_then(tmp_path, job(int), job(float), first=FIRST, then=THEN)) == {"a": 14.0, "b": 22.0, "c": 30.0}


def test_a_number_that_would_not_be_exact_is_refused_and_nothing_is_changed(tmp_path):
    def job(of):
        return keyed(keeper(fp.ValueStateDescriptor("s", of), lambda state, v: (state.value(), state.update(v[1]))[0]))

    big = [("a", 2**53 + 1), STOP, ("a", 0)]
    life(tmp_path, job(int), big)
    with pytest.raises(RestoreRefused, match=r"state 's' of operator 'keeper'.*9007199254740993"):
        life(tmp_path, job(float), big, restore=go_on())
    assert life(tmp_path, job(int), big, restore=go_on()).output == [("a", 2**53 + 1)]


class Narrow(NamedTuple):
    count: str
    total: int


class Added(NamedTuple):
    count: int
    total: int
    extra: str
    needed: int


@pytest.mark.parametrize(
    ("of", "why"),
    [
        (Narrow, r"count LONG cannot become STRING"),
        (Added, r"needed was added without a default"),
        (int, r"its value type was Sums1\(count: LONG, total: LONG, extra: STRING\) and is declared as LONG"),
    ],
)
def test_other_changes_are_refused(tmp_path, of, why):
    after = keyed(keeper(fp.ValueStateDescriptor("s", of), read))
    with pytest.raises(RestoreRefused, match=why):
        saved_then(tmp_path, VALUE1, after, first=FIRST, then=THEN)


def test_a_state_that_is_asked_for_late_cannot_be_converted(tmp_path):
    class Late(fp.KeyedProcessFunction):
        def open(self, ctx):
            self.state = ctx.get_state(fp.ValueStateDescriptor("s", Sums2))

        def process_element(self, value, ctx):
            yield ctx.get_current_key(), self.state.value()

    with pytest.raises(RestoreRefused, match="make its descriptor a class attribute"):
        saved_then(tmp_path, VALUE1, keyed(Late()), first=FIRST, then=THEN)


def test_a_late_state_of_the_same_bytes_opens(tmp_path):
    class Same(NamedTuple):
        count: int
        total: int
        extra: str | None = "unknown"

    class Late(fp.KeyedProcessFunction):
        def open(self, ctx):
            self.state = ctx.get_state(fp.ValueStateDescriptor("s", Same))

        def process_element(self, value, ctx):
            yield ctx.get_current_key(), self.state.value()

    found = saved_then(tmp_path, VALUE1, keyed(Late()), first=FIRST, then=THEN)
    assert dict(found) == {"a": Same(2, 4, "3"), "b": Same(1, 2, "2"), "c": None}
