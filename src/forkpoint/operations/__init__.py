"""What the ``forkpoint`` command does, as Python functions over plain values.

    jobs that run     list_jobs, savepoint, stop, cancel, wait
    programs          run (in the background), drive (in this process), check, upgrade, fork, replay, ab
    savepoints        savepoints, show, label, dispose
    what is stored    tree, recover, gc

``state_root`` is a path or URL; by default FORKPOINT_STATE_ROOT, else ``./.forkpoint``. An ``Observer`` hears how long
operations are getting on. Whatever is refused raises one of forkpoint's errors.
"""

from forkpoint.operations.catalog import Disposed, SavepointShown, dispose, label, savepoints, show
from forkpoint.operations.checking import check
from forkpoint.operations.cleaning import gc
from forkpoint.operations.comparing import VersionsCompared, ab
from forkpoint.operations.detached import DriverFailed, Started
from forkpoint.operations.driving import Announcer
from forkpoint.operations.foreground import ProgramEnd, drive
from forkpoint.operations.lineage import Tree, tree
from forkpoint.operations.observer import Observer
from forkpoint.operations.program import NoJob, ProgramFailed
from forkpoint.operations.recovering import Recovery, recover
from forkpoint.operations.request import RunRequest
from forkpoint.operations.running import Cancelled, SavepointTaken, Stopped, cancel, list_jobs, savepoint, stop
from forkpoint.operations.starting import Replayed, fork, forked, replay, run, wait
from forkpoint.operations.upgrading import Refused, Upgraded, upgrade

__all__ = [
    "Announcer",
    "Cancelled",
    "Disposed",
    "DriverFailed",
    "NoJob",
    "Observer",
    "ProgramEnd",
    "ProgramFailed",
    "Recovery",
    "Refused",
    "Replayed",
    "RunRequest",
    "SavepointShown",
    "SavepointTaken",
    "Started",
    "Stopped",
    "Tree",
    "Upgraded",
    "VersionsCompared",
    "ab",
    "cancel",
    "check",
    "dispose",
    "drive",
    "fork",
    "forked",
    "gc",
    "label",
    "list_jobs",
    "recover",
    "replay",
    "run",
    "savepoint",
    "savepoints",
    "show",
    "stop",
    "tree",
    "upgrade",
    "wait",
]
