"""Plans of restores with migrations: what is decided before anything is touched."""

from __future__ import annotations

from typing import Any

import pytest

from forkpoint.checkpoint.savepoint_manifest import Savepoint, SavepointOperator
from forkpoint.checkpoint.states import StateInfo, state_id
from forkpoint.graph.transformations import Migrations
from forkpoint.savepoint.restore.compatibility import ProgramOperator
from forkpoint.savepoint.restore.restore_plan import RestorePlan, Saved, plan_restore
from forkpoint.types import Types

LONG, STRING = Types.LONG().describe(), Types.STRING().describe()
ONE, TWO = Migrations({"s": {1: str}}), Migrations({"s": {1: str, 2: len}})
REKEYED = Migrations({}, {1: str})


def saved(**more: Any) -> StateInfo:
    return wanted(**more)


def wanted(**more: Any) -> StateInfo:
    given = {
        "uid": "op",
        "name": "s",
        "kind": "value",
        "key_type": LONG,
        "value_type": LONG,
        "sid": state_id("op", "s"),
    }
    return StateInfo.from_content(given | more)


def plan(state: StateInfo, declared: StateInfo | None, migrations: Migrations, **more: Any) -> RestorePlan:
    operator = ProgramOperator("op", True, key_type=LONG, migrations=migrations, **more)
    program = [] if declared is None else [declared]
    return plan_restore(Saved((state,), {"op": "op"}), program, [operator], check_only=True)


def state_row(found: RestorePlan) -> tuple[str, str]:
    (row,) = (row for row in found.rows if row.subject == "state")
    return row.outcome, row.why


@pytest.mark.parametrize(("version", "steps"), [(1, (str, len)), (2, (len,)), (3, ())])
def test_state_goes_through_the_steps_that_it_has_not_seen(version: int, steps: tuple[Any, ...]) -> None:
    found = plan(saved(version=version), wanted(version=3), TWO)
    (mapping,) = found.states
    assert mapping.values == steps
    assert mapping.rewritten == bool(steps)
    assert mapping.target.version == 3
    assert state_row(found)[0] == ("migrated" if steps else "restored")


@pytest.mark.parametrize(
    ("state", "migrations", "told"),
    [
        (
            saved(version=4),
            TWO,
            "values have version 4, the program's have version 3.*the migration from version 3 is enough",
        ),
        (saved(version=1), Migrations({"s": {2: len}}), "no migration from version 1"),
        (saved(key_version=2), TWO, "keys have version 2, the program's have version 1"),
        (saved(kind="timers-event"), ONE, "timers-event state cannot be migrated to value state"),
        (saved(namespace_type=LONG), ONE, "namespace type was LONG and is declared as none"),
    ],
)
def test_what_migrations_do_not_reach_is_refused(state: StateInfo, migrations: Migrations, told: str) -> None:
    import re

    outcome, why = state_row(plan(state, wanted(), migrations))
    assert outcome == "refused"
    assert re.search(told, why)


def test_a_migration_may_change_what_state_means() -> None:
    state = saved(fingerprint="tumbling 5 s")
    assert state_row(plan(state, wanted(fingerprint="tumbling 9 s"), Migrations()))[0] == "refused"
    assert state_row(plan(state, wanted(fingerprint="tumbling 9 s", version=2), ONE))[0] == "migrated"


def test_undeclared_state_goes_along_with_its_keys() -> None:
    found = plan(saved(key_type=STRING), None, Migrations({}, {1: int}), complete=False)
    (mapping,) = found.states
    assert mapping.keys == (int,)
    assert (mapping.target.key_type, mapping.target.key_version) == (LONG, 2)
    assert state_row(found)[0] == "kept"


def test_undeclared_state_is_refused_where_it_would_need_its_type() -> None:
    outcome, why = state_row(plan(saved(), None, ONE, complete=False))
    assert outcome == "refused"
    assert "make its descriptor a class attribute" in why
    outcome, why = state_row(plan(saved(key_type=STRING), None, Migrations(), complete=False))
    assert outcome == "refused"
    assert "key type was STRING and is declared as LONG" in why


def test_keys_are_hashed_by_their_type_so_it_must_not_change_how() -> None:
    big = Types.BIG_INT().describe()  # the same bytes, another hash
    assert state_row(plan(saved(), wanted(key_type=big), Migrations()))[0] == "refused"
    small = Types.SHORT().describe()
    assert state_row(plan(saved(key_type=small), wanted(), Migrations()))[0] == "restored"


def test_savepoints_from_before_there_were_versions_have_the_first() -> None:
    states = [{"name": "s", "kind": "value", "entries": 0, "bytes": 0}]
    fields = Savepoint.fields_of({"operators": [{"uid": "op", "name": "op", "kind": "", "states": states}]})
    (state,) = SavepointOperator.from_content(fields["operators"][0]).states
    assert (state.info.version, state.info.key_version) == (1, 1)
