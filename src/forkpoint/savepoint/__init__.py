"""Savepoints: exported from a committed manifest, opened and verified, compared with a program, imported, deleted."""

from forkpoint.savepoint.catalog import find_savepoint, list_savepoints
from forkpoint.savepoint.compatibility import ProgramOperator
from forkpoint.savepoint.directory import remove_partial
from forkpoint.savepoint.dispose import dependents, dispose_savepoint
from forkpoint.savepoint.export import export_savepoint
from forkpoint.savepoint.importing import import_savepoint
from forkpoint.savepoint.layout import layout_of
from forkpoint.savepoint.reading import OpenedSavepoint, open_savepoint, verify_files
from forkpoint.savepoint.restore_plan import RestorePlan, Saved, StateMapping, plan_restore
from forkpoint.savepoint.tasks import run_here

__all__ = [
    "OpenedSavepoint",
    "ProgramOperator",
    "RestorePlan",
    "Saved",
    "StateMapping",
    "dependents",
    "dispose_savepoint",
    "export_savepoint",
    "find_savepoint",
    "import_savepoint",
    "layout_of",
    "list_savepoints",
    "open_savepoint",
    "plan_restore",
    "remove_partial",
    "run_here",
    "verify_files",
]
