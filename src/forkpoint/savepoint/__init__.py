"""Savepoints: exported from a committed manifest, opened and verified, compared with a program, imported, deleted."""

from forkpoint.savepoint.catalog import LATEST, Listed, choose, find_savepoint, jobs_with_savepoints, list_savepoints
from forkpoint.savepoint.compatibility import ProgramOperator, Verdict, compare_state
from forkpoint.savepoint.directory import remove_partial
from forkpoint.savepoint.dispose import Dependents, dependents, dispose_savepoint
from forkpoint.savepoint.export import export_savepoint
from forkpoint.savepoint.importing import import_savepoint
from forkpoint.savepoint.layout import Layout, layout_of
from forkpoint.savepoint.reading import OpenedSavepoint, Verified, open_savepoint, verify_files
from forkpoint.savepoint.restore_plan import RestorePlan, Row, Saved, StateMapping, plan_restore
from forkpoint.savepoint.tasks import Progress, RunTasks, run_here

__all__ = [
    "LATEST",
    "Dependents",
    "Layout",
    "Listed",
    "OpenedSavepoint",
    "ProgramOperator",
    "Progress",
    "RestorePlan",
    "Row",
    "RunTasks",
    "Saved",
    "StateMapping",
    "Verdict",
    "Verified",
    "choose",
    "compare_state",
    "dependents",
    "dispose_savepoint",
    "export_savepoint",
    "find_savepoint",
    "import_savepoint",
    "jobs_with_savepoints",
    "layout_of",
    "list_savepoints",
    "open_savepoint",
    "plan_restore",
    "remove_partial",
    "run_here",
    "verify_files",
]
