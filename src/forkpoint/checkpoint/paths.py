"""Formats and parses all paths below the state root.

    jobs/<job>/job.json
    jobs/<job>/last-savepoints.json                   on whose files the next savepoint may build
    jobs/<job>/runs/<run>/run.json
    jobs/<job>/runs/<run>/plan.json                   its operators and their connections
    jobs/<job>/runs/<run>/endpoint.json               while it runs: its address
    jobs/<job>/runs/<run>/lease.json                  while it leads the job: its driver's sign of life
    jobs/<job>/runs/<run>/requests/<id>.json          a request, until its driver takes it
    jobs/<job>/runs/<run>/answers/<id>.json           its driver's answer, until the caller has read it
    jobs/<job>/runs/<run>/program.json                the arguments of `forkpoint run`
    jobs/<job>/runs/<run>/program.zip                 the program's own files at that time
    jobs/<job>/checkpoints/<epoch>.json
    jobs/<job>/checkpoints/<epoch>.fence              marks a manifest that only reserves its epoch
    jobs/<job>/changelog/<epoch>/<stage>-<subtask>-<attempt>.arrow
    jobs/<job>/snapshots/<epoch>/<subtask>-<attempt>.arrow
    jobs/<job>/sources/<epoch>/<uid>/<name>           of a Spark source's private log
    jobs/<job>/staging/<epoch>/<uid>/<name>
    jobs/<job>/uncommitted/<uid>/<epoch>-<name>.json  files elsewhere that a sink may never commit
    jobs/<job>/refused/<uid>/<epoch>-<group>.parquet  skipped records, which a sink's system refused
    jobs/<job>/received/<uid>/<enumerator>/<name>     messages that a source has not acknowledged
    sinks/<digest>.json                               the job that owns an output location
    catalogs/<name>/<version>.json                    a version of a catalogue of tables
    logs/<name>.log                                   of detached drivers
    savepoints/<job>/<id>/                            or any other directory, with
        savepoint.json
        sources/<uid>/<name>
        operators/<uid>/<state>/part-<k>.parquet
        operators/<uid>/_timers/part-<k>.parquet
        references/<id>.json                          of its files that another savepoint needs

Epochs have twelve digits, so names sort like numbers. User-defined names (jobs, uids, states) are escaped: ASCII letters, digits,
"-", "." and "_" stay, and any other UTF-8 byte becomes "!" and two hex digits. So does a leading "." or "_", because readers of
data directories skip such names. "%" and "=" are escaped because readers would take them for URL escapes and partitions. Too long
names of jobs and runs, which are parsed from paths, are refused; too long names of uids, states and files are truncated and end
with "!~" and a digest of the full name.
"""

from __future__ import annotations

import hashlib
import re
import shlex
from dataclasses import dataclass
from typing import Literal

from forkpoint.errors import ConfigError

JOBS = "jobs"
SAVEPOINTS = "savepoints"
LOGS = "logs"
SINKS = "sinks"
CATALOGS = "catalogs"
PROGRAMS = "programs"
AREAS = (JOBS, SAVEPOINTS, LOGS, SINKS, CATALOGS, PROGRAMS)  # all directories of forkpoint below a state root
SAVEPOINT_FILE = "savepoint.json"
MAX_EPOCH = 10**12 - 1
_MAX_SEGMENT = 200  # file systems allow 255 bytes; the rest is for suffixes

_UNSAFE = re.compile(rb"^[._]|[^A-Za-z0-9._-]")
_ESCAPE = re.compile(rb"!([0-9a-f]{2})")
_MANIFEST = re.compile(r"checkpoints/(\d{12})\.(json|fence)", re.ASCII)
_RUN_FILE = re.compile(rf"{JOBS}/([^/]+)/runs/([^/]+)/(run|endpoint)\.json")
_MAIL = re.compile(rf"{JOBS}/[^/]+/runs/[^/]+/(?:requests|answers)/([^/]+)\.json")
_DATA_FILE = re.compile(r"(changelog|snapshots|sources|staging)/(\d{12})/.+", re.ASCII)


def escape(name: str) -> str:
    """`name` as one path segment; different names give different segments. Raises ConfigError if empty or too long."""
    try:
        raw = name.encode()
    except UnicodeEncodeError:
        raise ConfigError(f"name {name!r} is not valid Unicode; choose another") from None
    if not raw:
        raise ConfigError("an empty name cannot be part of a path; give the job, operator or state a name")
    segment = _escaped(raw)
    if len(segment) > _MAX_SEGMENT:
        raise ConfigError(f"name {name!r} takes {len(segment)} bytes in a path; at most {_MAX_SEGMENT} fit: shorten it")
    return segment


def short_escape(name: str) -> str:
    """`escape` for names of any length, not reversible; different names give different segments."""
    try:
        return escape(name)
    except ConfigError:
        segment = _escaped(name.encode(errors="surrogatepass"))
        if len(segment) <= _MAX_SEGMENT:
            raise
    digest = hashlib.sha256(segment.encode()).hexdigest()[:32]
    return f"{segment[: _MAX_SEGMENT - len(digest) - 2]}!~{digest}"


def _escaped(raw: bytes) -> str:
    return _UNSAFE.sub(lambda match: b"!%02x" % match[0][0], raw).decode()


def unescape(segment: str) -> str:
    """The inverse of `escape`."""
    return _ESCAPE.sub(lambda match: bytes([int(match[1], 16)]), segment.encode()).decode()


def _epoch(epoch: int) -> str:
    if not 0 <= epoch <= MAX_EPOCH:
        raise ConfigError(f"epoch {epoch} is outside 0..{MAX_EPOCH}")
    return f"{epoch:012d}"


Area = Literal["manifest", "fence", "changelog", "snapshot", "source", "staging"]
_DATA_AREAS: dict[str, Area] = {"changelog": "changelog", "snapshots": "snapshot", "sources": "source", "staging": "staging"}


@dataclass(frozen=True, slots=True)
class EpochFile:
    """The kind and epoch of a job's file, from its path."""

    area: Area
    epoch: int


@dataclass(frozen=True, slots=True)
class RunFile:
    """A record of a run: its job, run and kind, from its path."""

    job: str
    run: str
    kind: Literal["run", "endpoint"]


class JobPaths:
    """Paths of one job, relative to the state root. ``savepoints``: the default directory of its savepoints.

    Raises ConfigError for a name that cannot be part of a path.
    """

    def __init__(self, job: str) -> None:
        self.job = job
        self.directory = f"{JOBS}/{escape(job)}"
        self.job_file = f"{self.directory}/job.json"
        self.last_savepoints = f"{self.directory}/last-savepoints.json"
        self.runs = f"{self.directory}/runs"
        self.checkpoints = f"{self.directory}/checkpoints"
        self.changelog_directory = f"{self.directory}/changelog"
        self.snapshot_directory = f"{self.directory}/snapshots"
        self.source_directory = f"{self.directory}/sources"
        self.staging_directory = f"{self.directory}/staging"
        self.savepoints = f"{SAVEPOINTS}/{escape(job)}"

    def run_file(self, run: str) -> str:
        return f"{self.runs}/{escape(run)}/run.json"

    def plan_file(self, run: str) -> str:
        return f"{self.runs}/{escape(run)}/plan.json"

    def endpoint_file(self, run: str) -> str:
        """The address of a run's driver; exists while the driver runs, or if it was killed."""
        return f"{self.runs}/{escape(run)}/endpoint.json"

    def lease_file(self, run: str) -> str:
        """A run's lease; exists while it leads the job, or if its driver was killed."""
        return f"{self.runs}/{escape(run)}/lease.json"

    def requests(self, run: str) -> str:
        return f"{self.runs}/{escape(run)}/requests"

    def request_file(self, run: str, request_id: str) -> str:
        return f"{self.requests(run)}/{escape(request_id)}.json"

    def answers(self, run: str) -> str:
        return f"{self.runs}/{escape(run)}/answers"

    def answer_file(self, run: str, request_id: str) -> str:
        return f"{self.answers(run)}/{escape(request_id)}.json"

    def program_file(self, run: str) -> str:
        return f"{self.runs}/{escape(run)}/program.json"

    def program_archive(self, run: str) -> str:
        return f"{self.runs}/{escape(run)}/program.zip"

    def manifest(self, epoch: int) -> str:
        return f"{self.checkpoints}/{_epoch(epoch)}.json"

    def fence(self, epoch: int) -> str:
        """Marks in a listing that this epoch's manifest is no longer a checkpoint."""
        return f"{self.checkpoints}/{_epoch(epoch)}.fence"

    def changelog(self, epoch: int, stage: int, subtask: int, attempt: str) -> str:
        return f"{self.changelog_directory}/{_epoch(epoch)}/{stage}-{subtask}-{escape(attempt)}.arrow"

    def snapshot(self, epoch: int, subtask: int, attempt: str) -> str:
        return f"{self.snapshot_directory}/{_epoch(epoch)}/{subtask}-{escape(attempt)}.arrow"

    def source_log(self, epoch: int, uid: str, name: str) -> str:
        """A file of a Spark source's log that was new in `epoch`."""
        return f"{self.source_directory}/{_epoch(epoch)}/{short_escape(uid)}/{short_escape(name)}"

    def staging(self, epoch: int, uid: str, name: str) -> str:
        """A file that a sink staged in `epoch`."""
        return f"{self.staging_directory}/{_epoch(epoch)}/{short_escape(uid)}/{short_escape(name)}"

    def uncommitted(self, uid: str) -> str:
        """The directory of a sink's records of external files that it may never commit."""
        return f"{self.directory}/uncommitted/{short_escape(uid)}"

    def uncommitted_file(self, uid: str, epoch: int, name: str) -> str:
        return f"{self.uncommitted(uid)}/{_epoch(epoch)}-{escape(name)}.json"

    @staticmethod
    def uncommitted_epoch(path: str) -> int:
        """The epoch in the path of an ``uncommitted_file``."""
        return int(path.rsplit("/", 1)[1].split("-", 1)[0])

    def received(self, uid: str) -> str:
        """The directory of a source's received messages without acknowledgement. The source removes them."""
        return f"{self.directory}/received/{short_escape(uid)}"

    def refused(self, uid: str, epoch: int, group: str) -> str:
        """The skipped records of one group of a sink, which its system refused. They are kept for good."""
        return f"{self.directory}/refused/{short_escape(uid)}/{_epoch(epoch)}-{short_escape(group or 'all')}.parquet"

    def savepoint(self, savepoint_id: str) -> str:
        """The default directory of one savepoint."""
        return f"{self.savepoints}/{escape(savepoint_id)}"

    def data_from(self, epoch: int) -> dict[str, str]:
        """The directories of epochs' files except manifests. The value is a path that sorts before all files of this and later
        epochs, and after all files of earlier epochs."""
        parents = (self.changelog_directory, self.snapshot_directory, self.source_directory, self.staging_directory)
        return {parent: f"{parent}/{_epoch(epoch)}" for parent in parents}

    def checkpoints_from(self, epoch: int) -> str:
        """A path that sorts before the manifests and fences of this and later epochs, and after all earlier ones."""
        return f"{self.checkpoints}/{_epoch(epoch)}"

    def parse(self, path: str) -> EpochFile | None:
        """Parse the path of an epoch's file; None for any other path."""
        head = f"{self.directory}/"
        if not path.startswith(head):
            return None
        inside = path[len(head) :]
        if match := _MANIFEST.fullmatch(inside):
            return EpochFile("manifest" if match[2] == "json" else "fence", int(match[1]))
        if match := _DATA_FILE.fullmatch(inside):
            return EpochFile(_DATA_AREAS[match[1]], int(match[2]))
        return None


def within(directory: str, path: str) -> str:
    """A path, or part of a URL, inside a directory; both may be empty."""
    return "/".join(part for part in (directory.rstrip("/"), path) if part)


def recovery_hint(job: str) -> str:
    """The remedy if a job's newest checkpoint is damaged."""
    return f"`forkpoint recover {shlex.quote(job)}` restores the job from its newest undamaged checkpoint or savepoint"


def job_of(path: str) -> str | None:
    """The job whose directory `path` is in, or None."""
    parts = path.split("/")
    return unescape(parts[1]) if len(parts) > 2 and parts[0] == JOBS else None


def parse_run_file(path: str) -> RunFile | None:
    """Parse the path of a run's record; None for any other path."""
    match = _RUN_FILE.fullmatch(path)
    if match is None:
        return None
    return RunFile(unescape(match[1]), unescape(match[2]), "run" if match[3] == "run" else "endpoint")


def parse_mail_file(path: str) -> str | None:
    """The id in the path of a request or its answer; None if it is neither."""
    match = _MAIL.fullmatch(path)
    return None if match is None else unescape(match[1])


def log_file(name: str) -> str:
    """The output of a detached driver."""
    return f"{LOGS}/{escape(name)}.log"


def sink_file(place: str) -> str:
    """The record of the job that owns an output location."""
    return f"{SINKS}/{hashlib.sha256(place.encode()).hexdigest()[:32]}.json"


def catalog_file(name: str, version: int) -> str:
    """A version of a catalogue of tables."""
    return f"{CATALOGS}/{escape(name)}/{_epoch(version)}.json"


def parse_catalog_file(path: str) -> tuple[str, int]:
    """The catalogue and version of a ``catalog_file``."""
    _, name, version = path.split("/")
    return unescape(name), int(version.removesuffix(".json"))


def source_file(uid: str, name: str) -> str:
    """A file of a source, relative to its savepoint's directory."""
    return f"sources/{short_escape(uid)}/{short_escape(name)}"


def state_part(uid: str, state: str, part: int) -> str:
    """A part of a state, relative to its savepoint's directory."""
    return f"operators/{short_escape(uid)}/{short_escape(state)}/part-{part}.parquet"


def timers_part(uid: str, part: int) -> str:
    """A part of an operator's timers; escaped names of states have no leading underscore."""
    return f"operators/{short_escape(uid)}/_timers/part-{part}.parquet"
