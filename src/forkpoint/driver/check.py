"""What a restore would do, without starting anything. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from forkpoint.checkpoint.manifest import Manifest
from forkpoint.checkpoint.savepoint_manifest import Savepoint
from forkpoint.driver.declared import program_operators, program_states
from forkpoint.graph.job import JobGraph
from forkpoint.savepoint.restore_plan import RestorePlan, Saved, plan_restore


def check_program(
    graph: JobGraph,
    saved: Savepoint | Manifest,
    *,
    allow_non_restored: bool = False,
    renames: Mapping[str, str] | None = None,
) -> RestorePlan:
    """Compare a program with a savepoint or checkpoint: the plan that a run would follow, including refused rows.

    There is one row for each operator, state and source: restored, migrated (values or keys are converted; ``why`` says
    how), new, kept, dropped or refused. The program fits if ``plan.refused`` is empty. Numbers that a wider type cannot
    represent exactly, and migrations that raise, are only found by the run, before it changes anything.
    """
    return plan_restore(
        Saved.of(saved),
        program_states(graph),
        program_operators(graph),
        allow_non_restored=allow_non_restored,
        renames=renames,
        check_only=True,
    )
