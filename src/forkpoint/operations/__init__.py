"""What the ``forkpoint`` command does, as Python functions over plain values.

    running jobs      list_jobs, savepoint, rescale, stop, cancel, wait
    programs          run (in the background), drive (in this process), supervise, check, upgrade, fork, replay, ab
    savepoints        savepoints, show, label, dispose, edit, import_spark_checkpoint, inspect_spark_checkpoint
    saved state       states, entries, query (of a savepoint or a job), diff; open_live, follow_state (of a job), and states_of,
                      entries_of, query_of for what they return
    the state root    tree, recover, publish, gc
    where it runs     check_machine, doctor (of a cluster)

``state_root`` is a path or URL; by default FORKPOINT_STATE_ROOT, else ``./.forkpoint``. Long operations report to an
``Observer``. All raise forkpoint's errors.
"""

from typing import TYPE_CHECKING

from forkpoint.lazy import loader

if TYPE_CHECKING:
    from forkpoint.driver.start.preflight import HostReport
    from forkpoint.operations.catalog import Disposed, SavepointShown, dispose, label, savepoints, show
    from forkpoint.operations.checking import check
    from forkpoint.operations.cleaning import gc
    from forkpoint.operations.cluster import doctor
    from forkpoint.operations.comparing import VersionsCompared, ab
    from forkpoint.operations.detached import Started
    from forkpoint.operations.driving import Announcer
    from forkpoint.operations.editing import Edited, EditRequest, StateFilter, edit
    from forkpoint.operations.failed import DriverFailed, NoJob, ProgramFailed
    from forkpoint.operations.foreground import ProgramEnd, drive
    from forkpoint.operations.importing import ImportRequest, import_spark_checkpoint, inspect_spark_checkpoint
    from forkpoint.operations.inspecting import (
        QueryResult,
        StateEntries,
        StateShown,
        StatesShown,
        diff,
        entries,
        entries_of,
        query,
        query_of,
        states,
        states_of,
    )
    from forkpoint.operations.lineage import Tree, tree
    from forkpoint.operations.live_state import follow_state, open_live
    from forkpoint.operations.machine import Check, check_machine
    from forkpoint.operations.observer import Observer
    from forkpoint.operations.preceding import with_predecessor
    from forkpoint.operations.publishing import Published, publish
    from forkpoint.operations.recovering import Recovery, recover
    from forkpoint.operations.replacing import Upgraded
    from forkpoint.operations.request import RunRequest
    from forkpoint.operations.running import (
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
    from forkpoint.operations.starting import Replayed, fork, forked, replay, run, wait
    from forkpoint.operations.supervising import supervise
    from forkpoint.operations.upgrading import Refused, upgrade

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
    "ImportRequest",
    "NoJob",
    "Observer",
    "ProgramEnd",
    "ProgramFailed",
    "Published",
    "QueryResult",
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
    "follow_state",
    "fork",
    "forked",
    "gc",
    "import_spark_checkpoint",
    "inspect_spark_checkpoint",
    "label",
    "list_jobs",
    "open_live",
    "publish",
    "query",
    "query_of",
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
