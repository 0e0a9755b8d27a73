"""The operations of the ``forkpoint`` command, as Python functions over plain values.

    running jobs      list_jobs, explain, savepoint, rescale, stop, cancel, wait
    programs          run (in the background), drive (in this process), supervise, check, plan, upgrade, fork, replay, ab,
                      recompute (of SQL)
    savepoints        savepoints, show, label, dispose, edit; import_spark_checkpoint, inspect_spark_checkpoint (in the package
                      forkpoint-spark-checkpoints)
    saved state       states, entries, query (of a savepoint or a job), diff; open_live, follow_state (of a job), and states_of,
                      entries_of, query_of for their results
    the state root    tree, recover, publish, gc
    hosts             check_machine, doctor (of a cluster)

``state_root`` is a path or URL; by default FORKPOINT_STATE_ROOT, else ``./.forkpoint``. Long operations report to an
``Observer``. All raise forkpoint's errors.
"""

from typing import TYPE_CHECKING

from forkpoint.extras import is_installed, loader

if TYPE_CHECKING:
    from forkpoint.driver.start.preflight import HostReport
    from forkpoint.operations.jobs.cleanup import gc
    from forkpoint.operations.jobs.explanation import JobExplained, OperatorExplained, explain
    from forkpoint.operations.jobs.lineage import Tree, tree
    from forkpoint.operations.jobs.recovery import Published, Recovery, publish, recover
    from forkpoint.operations.jobs.running import (
        Cancelled,
        Rescaled,
        SavepointTaken,
        Stopped,
        cancel,
        list_jobs,
        rescale,
        savepoint,
        stop,
    )
    from forkpoint.operations.launch.detached import Started
    from forkpoint.operations.launch.failed import DriverFailed, NoJob, ProgramFailed
    from forkpoint.operations.launch.foreground import ProgramEnd, drive
    from forkpoint.operations.launch.program_jobs import Announcer
    from forkpoint.operations.launch.request import RunRequest
    from forkpoint.operations.launch.starts import Replayed, fork, forked, replay, run, wait, with_predecessor
    from forkpoint.operations.launch.supervisor import supervise
    from forkpoint.operations.machine import Check, check_machine, doctor
    from forkpoint.operations.observer import Observer
    from forkpoint.operations.saved_state.catalog import Disposed, SavepointShown, dispose, label, savepoints, show
    from forkpoint.operations.saved_state.edits import Edited, EditRequest, StateFilter, edit
    from forkpoint.operations.saved_state.inspection import (
        QueryResult,
        StateEntries,
        StateShown,
        StatesShown,
        diff,
        entries,
        entries_of,
        follow_state,
        open_live,
        query,
        query_of,
        states,
        states_of,
    )
    from forkpoint.operations.versions.check import check, plan
    from forkpoint.operations.versions.comparison import VersionsCompared, ab
    from forkpoint.operations.versions.recompute import Recomputed, recompute
    from forkpoint.operations.versions.replacement import Upgraded
    from forkpoint.operations.versions.upgrade import Refused, upgrade
    from forkpoint_spark_checkpoints.operations import ImportRequest, import_spark_checkpoint, inspect_spark_checkpoint

__getattr__ = loader(__name__)

__all__ = [
    "Announcer",
    "Cancelled",
    "Check",
    "Disposed",
    "DriverFailed",
    "EditRequest",
    "Edited",
    "HostReport",
    "JobExplained",
    "NoJob",
    "Observer",
    "OperatorExplained",
    "ProgramEnd",
    "ProgramFailed",
    "Published",
    "QueryResult",
    "Recomputed",
    "Recovery",
    "Refused",
    "Replayed",
    "Rescaled",
    "RunRequest",
    "SavepointShown",
    "SavepointTaken",
    "Started",
    "StateEntries",
    "StateFilter",
    "StateShown",
    "StatesShown",
    "Stopped",
    "Tree",
    "Upgraded",
    "VersionsCompared",
    "ab",
    "cancel",
    "check",
    "check_machine",
    "diff",
    "dispose",
    "doctor",
    "drive",
    "edit",
    "entries",
    "entries_of",
    "explain",
    "follow_state",
    "fork",
    "forked",
    "gc",
    "label",
    "list_jobs",
    "open_live",
    "plan",
    "publish",
    "query",
    "query_of",
    "recompute",
    "recover",
    "replay",
    "rescale",
    "run",
    "savepoint",
    "savepoints",
    "show",
    "states",
    "states_of",
    "stop",
    "supervise",
    "tree",
    "upgrade",
    "wait",
    "with_predecessor",
]
if is_installed("forkpoint_spark_checkpoints"):
    __all__ += ["ImportRequest", "import_spark_checkpoint", "inspect_spark_checkpoint"]
