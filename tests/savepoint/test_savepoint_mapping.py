"""What a restore would do: one row for each operator, state and source, and every problem told at once."""

from __future__ import annotations

import re
from typing import Any

import pytest

from forkpoint.checkpoint.states import StateInfo, state_id
from forkpoint.errors import RestoreRefused
from forkpoint.savepoint.restore.compatibility import ProgramOperator
from forkpoint.savepoint.restore.restore_plan import RestorePlan, Saved, plan_restore
from forkpoint.types import TypeInformation, Types

LONG, STRING = Types.LONG(), Types.STRING()
RECORD = Types.ROW_NAMED(["count", "total"], [LONG, Types.DOUBLE()])


def saved(uid: str = "counts", name: str = "sum", kind: str = "value", value: TypeInformation = LONG, **more: Any) -> StateInfo:
    return StateInfo.of(uid, name, kind, STRING, value).replace(**more)


def wanted(uid: str = "counts", name: str = "sum", kind: Any = "value", value: TypeInformation = LONG, **more: Any) -> StateInfo:
    described = {"key_type": STRING.describe(), "value_type": value.describe(), **more}
    return StateInfo(sid=state_id(uid, name), uid=uid, name=name, kind=kind, **described)


def plan(states: list[StateInfo], program: list[StateInfo], *uids: str, empty: Any = (), **options: Any) -> RestorePlan:
    operators = [ProgramOperator(uid, True, complete=options.pop("complete", True)) for uid in uids or ("counts",)]
    saved = Saved(tuple(states), {s.uid: s.uid for s in states}, empty=empty)
    return plan_restore(saved, program, operators, **options)


def outcomes(found: RestorePlan, subject: str = "state") -> dict[str, str]:
    return {f"{row.uid}/{row.name}": row.outcome for row in found.rows if row.subject == subject}


def test_equal_states_are_restored() -> None:
    found = plan([saved()], [wanted()])
    assert outcomes(found) == {"counts/sum": "restored"}
    assert found.states[0].target == wanted()


def test_a_new_state_starts_empty() -> None:
    assert outcomes(plan([saved()], [wanted(), wanted(name="max")])) == {"counts/sum": "restored", "counts/max": "new"}


@pytest.mark.parametrize(
    ("state", "program", "told"),
    [
        (saved(), wanted(value=STRING), r"value type was LONG and is declared as STRING"),
        (
            saved(value=RECORD),
            wanted(),
            r"value type was Row\(count: .*LONG.*, total: .*DOUBLE.*\) and is declared as LONG",
        ),
        (saved(), wanted(key_type=LONG.describe()), "key type was STRING and is declared as LONG"),
        (saved(), wanted(kind="list"), "was value state and is declared as list state"),
        (saved(kind="reducing"), wanted(kind="aggregating"), "was reducing state"),
        (
            saved(kind="map", namespace_type=STRING.describe()),
            wanted(kind="map", namespace_type=LONG.describe()),
            "map key type was STRING and is declared as LONG",
        ),
        (saved(fingerprint="tumbling 5 s"), wanted(fingerprint="tumbling 9 s"), "from tumbling 5 s to tumbling 9 s"),
    ],
)
def test_what_does_not_fit_is_refused_with_both_values(state: StateInfo, program: StateInfo, told: str) -> None:
    with pytest.raises(RestoreRefused, match=told):
        plan([state], [program])
    assert outcomes(plan([state], [program], check_only=True)) == {"counts/sum": "refused"}


def test_every_problem_is_told_at_once() -> None:
    states = [saved(), saved(name="max"), saved("gone", "x"), saved("also gone", "y")]
    with pytest.raises(RestoreRefused, match="3 problems") as refused:
        plan(states, [wanted(), wanted(name="max", value=STRING)])
    text = str(refused.value)
    assert all(part in text for part in ("counts/max", "gone/x", "also gone/y", "--allow-non-restored-state"))
    assert "counts/sum" not in text


def test_state_is_dropped_only_when_that_is_allowed() -> None:
    states = [saved(), saved("gone", "x")]
    found = plan(states, [wanted()], allow_non_restored=True)
    assert outcomes(found) == {"counts/sum": "restored", "gone/x": "dropped"}
    assert [mapping.saved_uid for mapping in found.states] == ["counts"]


def test_empty_state_is_dropped_without_asking() -> None:
    states = [saved(), saved("gone", "x")]
    assert outcomes(plan(states, [wanted()], empty=[("gone", "x")]))["gone/x"] == "dropped"
    with pytest.raises(RestoreRefused):
        plan(states, [wanted()])


def test_operators_are_renamed() -> None:
    found = plan([saved("old")], [wanted("new")], "new", renames={"old": "new"})
    assert outcomes(found) == {"new/sum": "restored"}
    (mapping,) = found.states
    assert (mapping.saved_uid, mapping.target.uid, mapping.target.sid) == ("old", "new", state_id("new", "sum"))
    assert found.uids == {"old": "new"}


def test_operators_swap_names() -> None:
    states = [saved("a", value=LONG), saved("b", value=STRING)]
    found = plan(states, [wanted("a", value=STRING), wanted("b", value=LONG)], "a", "b", renames={"a": "b", "b": "a"})
    assert {m.saved_uid: m.target.uid for m in found.states} == {"a": "b", "b": "a"}


@pytest.mark.parametrize(
    ("renames", "told"),
    [
        ({"nobody": "new"}, "no saved operator 'nobody'; the saved operators are 'a', 'b'"),
        ({"a": "nowhere", "b": "new"}, "the program has no operator 'nowhere'; it has 'b', 'new'"),
        ({"a": "new", "b": "new"}, "'a' is also renamed to 'new'"),
        ({"a": "b"}, "there already is a saved operator 'b'"),
    ],
)
def test_renames_that_make_no_sense(renames: dict[str, str], told: str) -> None:
    with pytest.raises(RestoreRefused, match=told):
        plan([saved("a"), saved("b")], [wanted("new"), wanted("b")], "new", "b", renames=renames, allow_non_restored=True)


def test_states_that_a_function_asks_for_later_are_kept() -> None:
    found = plan([saved(), saved(name="lazy", ttl_ms=5)], [wanted()], complete=False)
    assert outcomes(found) == {"counts/sum": "restored", "counts/lazy": "kept"}
    assert {m.target.name: m.target.ttl_ms for m in found.states} == {"sum": None, "lazy": 5}


def test_a_time_to_live_may_come_change_and_go() -> None:
    for before, after in ((None, 5), (5, None), (5, 6)):
        (mapping,) = plan([saved(ttl_ms=before)], [wanted(ttl_ms=after)]).states
        assert mapping.target.ttl_ms == after


def test_sources_are_matched_by_uid_and_kept_when_they_are_gone() -> None:
    before = Saved((), {"in": "in"}, {"in": "native", "gone": "native", "other": "spark", "old": "native"})
    program = [
        ProgramOperator("in", False, source="native"),
        ProgramOperator("new", False, source="native"),
        ProgramOperator("renamed", False, source="native"),
    ]
    found = plan_restore(before, [], program, renames={"old": "renamed"})
    assert outcomes(found, "source") == {
        "in/": "restored",
        "gone/": "kept",
        "other/": "kept",
        "renamed/": "restored",
        "new/": "new",
    }
    assert found.sources == {"in": "in", "gone": "gone", "other": "other", "old": "renamed"}
    other = [ProgramOperator("other", False, source="native")]
    with pytest.raises(RestoreRefused, match=r"other .*position is of a spark source, the program has a native source"):
        plan_restore(before, [], other)


@pytest.mark.parametrize(
    ("before", "after", "renames", "sources"),
    [
        ({"t": "t", "t-2": "t x"}, {"t": "t x", "t-2": "t"}, {}, {"t": "t-2", "t-2": "t"}),
        ({"t": "t", "t-2": "t x"}, {"t": "t x", "t-2": "t"}, {"t": "t", "t-2": "t-2"}, {"t": "t", "t-2": "t-2"}),
        ({"t": "t", "t-2": "t x"}, {"t": "t y", "t-2": "t"}, {}, {"t": "t-2", "t-2": "t"}),
        ({"t": "t x", "t-2": "t"}, {"t": "t y", "t-2": "t"}, {}, {"t": "t", "t-2": "t-2"}),
        ({"t": "t", "t-2": "t-2"}, {"t": "t x", "t-2": "t"}, {}, {"t": "t", "t-2": "t-2"}),  # by an earlier release
        ({"t": "t", "t-2": "t"}, {"t": "t x", "t-2": "t"}, {}, {"t": "t", "t-2": "t-2"}),  # altered in between
        ({"t": "t", "u": "u"}, {"t": "u", "u": "t"}, {}, {"t": "t", "u": "u"}),  # not uses of one table
    ],
)
def test_uses_of_a_table_are_told_apart_by_their_options(
    before: dict[str, str], after: dict[str, str], renames: dict[str, str], sources: dict[str, str]
) -> None:
    def named(uses: dict[str, str]) -> dict[str, str]:
        return {uid: re.sub(" (.)", r" /*+ OPTIONS('\1' = '1') */", use) for uid, use in uses.items()}

    saved = Saved((), named(before), dict.fromkeys(before, "native"))
    program = [ProgramOperator(uid, False, source="native", name=name) for uid, name in named(after).items()]
    assert plan_restore(saved, [], program, renames=renames).sources == sources


def test_the_table_has_a_line_for_each_row() -> None:
    found = plan([saved(), saved("gone", "x")], [wanted(), wanted(name="max")], allow_non_restored=True)
    lines = found.table().splitlines()
    assert len(lines) == len(found.rows) == 4
    assert any(line.split()[:3] == ["dropped", "state", "gone/x"] for line in lines)
