"""Checks a program against a savepoint, or against another program."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from forkpoint.api.execution import check as check_job
from forkpoint.api.launch import Inspected, Launch, ProgramStopped, launching
from forkpoint.api.results import CheckResult
from forkpoint.driver.start.program_check import compare_programs
from forkpoint.operations.launch.failed import NoJob, ProgramFailed
from forkpoint.operations.launch.program import Source, as_main, run_program
from forkpoint.operations.roots import StateRoot
from forkpoint.pyflink import install, installed
from forkpoint.savepoint.catalog.listing import LATEST
from forkpoint.savepoint.restore.restore_plan import RestorePlan
from forkpoint.types.lookup import Program, values_of


def check(
    app: str,
    arguments: Sequence[str] = (),
    savepoint: str = LATEST,
    *,
    name: str | None = None,
    allow_non_restored: bool = False,
    renames: Mapping[str, str] | None = None,
    accept_empty: Collection[str] = (),
    pyflink: bool = False,
    state_root: str | None = None,
) -> CheckResult:
    """Determine how a restore would treat a savepoint's state in a program.

    ``savepoint``: a path, URL, id or label, or the job's latest. ``name``: overrides the program's job name. ``accept_empty``: as
    in RestoreOptions. The program runs in this process up to its first execute(), which starts no job and writes nothing. Raises
    ProgramFailed and NoJob.
    """
    if pyflink:
        install()
    job = inspect_program(app, arguments, name, StateRoot(state_root))
    return check_job(job, savepoint, allow_non_restored=allow_non_restored, renames=renames, accept_empty=accept_empty)


def plan(
    old: str,
    new: str,
    *,
    allow_non_restored: bool = False,
    renames: Mapping[str, str] | None = None,
    accept_empty: Collection[str] = (),
    pyflink: bool = False,
) -> tuple[str, RestorePlan]:
    """Determine how a program would treat the state of another one, before either has run. Returns the new job's name, too.

    Both programs run in this process up to their first execute(), which starts no job. Raises ProgramFailed and NoJob.
    """
    if pyflink:
        install()
    with _without_warnings():
        before = inspect_program(old, (), None, StateRoot(None))
    after = inspect_program(new, (), None, StateRoot(None))
    with values_of(Program(allow_pickle=after.options.allow_pickle)):
        found = compare_programs(
            before.graph, after.graph, allow_non_restored=allow_non_restored, renames=renames, accept_empty=accept_empty
        )
    return after.name, found


@contextmanager
def _without_warnings() -> Iterator[None]:
    """A context without the warnings of a program, for one that is not to run."""
    log = logging.getLogger("forkpoint")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(level)


def inspect_program(app: str, arguments: Sequence[str], name: str | None, root: StateRoot) -> Inspected:
    """Run the program up to its first execute(), and return the job."""
    options: dict[str, Any] = {} if root.given is None else {"state_root": root.place}
    found: list[Inspected] = []
    launch = Launch(options=options, state_root=root.place, job_name=name, inspect=found.append, generated_uids=installed())
    source = Source.read(app)
    with launching(launch), as_main(source, arguments):
        try:
            run_program(source)
        except (ProgramStopped, SystemExit):
            pass
        except Exception as error:
            if not found:
                raise ProgramFailed(app, error) from error
    if not found:
        raise NoJob(app)
    return found[0]
