"""forkpoint finds the matches that Flink 2.3.0's CEP found, with their timestamps, timed-out partial matches and late events."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pattern_programs import PROGRAMS
from pattern_runs import OUTPUTS, RECORDED, pattern_of, run, run_in_two

from forkpoint.errors import ForkpointError, GraphError
from forkpoint.patterns.compiling import automaton_of

# Where forkpoint gives something else on purpose: docs/flink-parity.md says why.
DEPARTURES = {
    # a loop before a last notFollowedBy: Flink reports matches as timed out (FLINK-31040)
    "not_last_after_plus",
    "not_last_after_plus_middle",
    "not_last_after_greedy",
    "not_last_after_range",
    # a gap that is over is seen at once, not with the key's next event, if there is one
    "not_last_by_gap",
    "gap_quiet",
    "gap_quiet_key",
    "gap_not_last_quiet_key",
    "drawn_100",
    "drawn_140",
    "drawn_145",
    # the time between repeated events: Flink limits the wait for the first of them, and not for the last
    "gap_loop_middle",
    "times_in_window",
    "times_in_window_middle",
    "times_range_in_window",
    "plus_in_window",
    "plus_in_window_middle",
    "or_more_in_window",
    "plus_in_window_within",
    # refused here: Flink ignores them, or takes them as something else
    "within_inside_group",
    "gap_on_first",
    "drawn_9",
    "odd_not_last_in_group_within",
    "odd_not_last_in_last_group",
    "odd_empty_name",
    "odd_within_none",
    "odd_within_negative",
    # optional().one_or_more() stays optional; a name may have a colon
    "odd_quantifier_after_optional",
    "odd_name_with_colon",
    # refused by Flink: skipping to a stage in a group, and a name of its own states
    "skip_group_first",
    "skip_group_last",
    "skip_group_first_a",
    "skip_group_last_a",
    "skip_to_in_group",
    "drawn_155",
    "refused_end_state",
}
BY_NAME = {program["name"]: program for program in PROGRAMS if program["name"] in RECORDED}
REFUSED = sorted(name for name in BY_NAME if "refused" in RECORDED[name] and name not in DEPARTURES)
FAILED = sorted(name for name in BY_NAME if "failed" in RECORDED[name] and name not in DEPARTURES)
COMPARED = sorted(BY_NAME.keys() - {*REFUSED, *FAILED, *DEPARTURES})


def expected(name: str) -> dict[str, list[Any]]:
    """What Flink gave with a watermark for every millisecond, where that differs."""
    found = RECORDED[name].get("each", RECORDED[name])
    return {output: found.get(output, []) for output in OUTPUTS}


def unordered(found: dict[str, list[Any]]) -> dict[str, list[str]]:
    return {output: sorted(json.dumps(each, sort_keys=True) for each in rows) for output, rows in found.items()}


def variant(name: str, number: int, root: Path) -> dict[str, list[Any]]:
    program, count = BY_NAME[name], len(BY_NAME[name]["events"])
    match number % 4:
        case 0:
            return run(program)
        case 1:
            return run(program, cuts=list(range(1, count)), parallelism=2)
        case 2:
            return run_in_two(program, root, count // 2, 2, 3)
    return run_in_two(program, root, count * 3 // 4, 3, 1)


def test_most_programs_are_compared():
    assert len(COMPARED) >= 500
    assert BY_NAME.keys() >= DEPARTURES


def test_some_matches_however_the_input_is_cut(tmp_path: Path) -> None:
    names = COMPARED[::8]
    found = {name: unordered(variant(name, number, tmp_path / name)) for number, name in enumerate(names)}
    assert found == {name: unordered(expected(name)) for name in names}


@pytest.mark.slow
@pytest.mark.parametrize("number", range(4))
def test_every_program_in_each_way(number: int, tmp_path: Path) -> None:
    found = {name: unordered(variant(name, number, tmp_path / name)) for name in COMPARED}
    assert found == {name: unordered(expected(name)) for name in COMPARED}


def test_matches_are_those_of_flink_in_its_order() -> None:
    for name in COMPARED:
        found, wanted = run(BY_NAME[name]), expected(name)
        assert (found["matches"], unordered(found)) == (wanted["matches"], unordered(wanted)), name


@pytest.mark.parametrize("name", REFUSED)
def test_what_flink_refuses_is_refused(name: str) -> None:
    with pytest.raises(GraphError):
        automaton_of(pattern_of(BY_NAME[name]))


@pytest.mark.parametrize("name", FAILED)
def test_jobs_that_fail_on_flink_fail(name: str) -> None:
    with pytest.raises(ForkpointError, match="cannot skip to"):
        run(BY_NAME[name])


def test_departures_differ() -> None:
    def differs(name: str) -> bool:
        try:
            return "refused" in RECORDED[name] or unordered(run(BY_NAME[name])) != unordered(expected(name))
        except ForkpointError:
            return True

    assert [name for name in sorted(DEPARTURES) if not differs(name)] == []
