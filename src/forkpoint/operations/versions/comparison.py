"""Runs two versions of a program from one savepoint over the same inputs, and compares their output by row and by key."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

from forkpoint.checkpoint.history import History
from forkpoint.checkpoint.paths import JobPaths, unescape
from forkpoint.errors import ConfigError, JobFailed
from forkpoint.operations.launch.recorded import pack
from forkpoint.operations.launch.request import RunRequest
from forkpoint.operations.observer import SILENT, Observer, OnStep
from forkpoint.operations.roots import StateRoot
from forkpoint.operations.versions.replay import write_positions
from forkpoint.operations.versions.trials import Trials
from forkpoint.savepoint.catalog.names import named_savepoint
from forkpoint.savepoint.format.opened_savepoint import OpenedSavepoint
from forkpoint.state_processor import SavepointDiff, diff
from forkpoint.storage.base import Storage
from forkpoint.storage.places import plain_place

VERSIONS = ("a", "b")
_REPORT_SECONDS = 2.0
Keys = Mapping[str | None, Sequence[str]]
SHOWN_ROWS = 3


@dataclass(frozen=True)
class VersionsCompared:
    """``savepoint``: the initial state of both. ``a``, ``b``: the programs. ``states``: the differences between their states;
    None unless both ended with a savepoint. ``kept``: the directory with their rows, state and logs; None if it was removed."""

    savepoint: str
    a: str
    b: str
    sinks: tuple[Comparison, ...]
    states: SavepointDiff | None
    kept: str | None

    @property
    def same(self) -> bool:
        """Whether all sinks got the same rows."""
        return all(each.same for each in self.sinks)


def ab(
    savepoint: str,
    request: RunRequest,
    app_b: str,
    *,
    keys: Keys | None = None,
    samples: int = 5,
    keep: str | None = None,
    state_root: str | None = None,
    observer: Observer = SILENT,
) -> VersionsCompared:
    """Run two versions from a savepoint over the same inputs, one after the other, and compare their output.

    ``request``: the first version, and the options of both; they read up to its ``until``, by default up to the current position
    of the savepoint's job. Neither version writes to its sinks. ``keys``: key columns by sink uid, None for all other sinks; by
    default the first column. ``keep``: a directory to keep the rows, state and logs of both.
    """
    storage = StateRoot(state_root).storage
    opened = named_savepoint(storage, savepoint)
    place = Path(keep).absolute() if keep is not None else Path(tempfile.mkdtemp(prefix="forkpoint-ab-"))
    try:
        place.mkdir(parents=True, exist_ok=True)
        if any(place.iterdir()):
            raise ConfigError(f"--keep {place}: the directory is not empty; name a new or empty one")
        end = request.until or _newest(storage, opened, place)
        from_there = replace(request, restore=replace(request.restore, savepoint=plain_place(opened.url)))
        versions = _Versions(place, Trials.beside(storage, StateRoot(str(place / "state")), place, from_there))
        pack(request.ship_env, observer)
        with observer.steps("running both versions") as report:
            for version, app in zip(VERSIONS, (request.app, app_b), strict=True):
                report(f"version {version} ({app})")
                end = versions.run(version, app, end, report)
        sinks = versions.compared(keys or {}, samples)
        kept = None if keep is None else str(place)
        return VersionsCompared(plain_place(opened.url), request.app, app_b, sinks, versions.states(samples), kept)
    finally:
        if keep is None:
            shutil.rmtree(place, ignore_errors=True)


def _newest(storage: Storage, opened: OpenedSavepoint, place: Path) -> str:
    """The current position of the savepoint's job, for ``RunRequest.until``."""
    saved = opened.savepoint
    newest = History(storage, JobPaths(saved.job)).newest()
    if newest is None or newest.epoch <= saved.epoch:
        raise ConfigError(
            f"job {saved.job!r} has read nothing since savepoint {saved.id}, so there is nothing to compare; give --until"
        )
    return write_positions(place / "until.json", newest)


@dataclass(frozen=True)
class _Versions:
    """The runs of both versions, with their rows in files next to their state root."""

    place: Path
    trials: Trials

    def run(self, version: str, app: str, until: str, report: OnStep) -> str:
        """Run a version to its end; returns its final position, for the other version."""
        self.trials.run(version, app, until, str(self.place / version), f"version {version}", report)
        return self.trials.savepoint(version) or until

    def states(self, samples: int) -> SavepointDiff | None:
        a, b = (self.trials.savepoint(version) for version in VERSIONS)
        # Without timestamps of entries: the versions ran one after the other, so their times to live started at different times.
        return None if a is None or b is None else diff(a, b, samples=samples, stamps=False)

    def compared(self, keys: Keys, samples: int) -> tuple[Comparison, ...]:
        found = {v: {unescape(sink.name): sink for sink in (self.place / v).glob("*")} for v in VERSIONS}
        uids = sorted({uid for sinks in found.values() for uid in sinks})
        if unknown := sorted(uid for uid in keys if uid is not None and uid not in uids):
            raise ConfigError(
                f"--key: no sink {', '.join(map(repr, unknown))} got rows; sinks with rows: {', '.join(map(repr, uids))}"
            )
        return tuple(
            compare_rows(uid, *(_rows(found[v].get(uid)) for v in VERSIONS), key=keys.get(uid, keys.get(None)), samples=samples)
            for uid in uids
        )


def _rows(sink: Path | None) -> Iterator[Any]:
    for file in sorted(sink.glob("*.jsonl")) if sink is not None else ():
        with open(file, "rb") as lines:
            for line in lines:
                try:
                    yield json.loads(line)
                except ValueError:
                    raise JobFailed(f"{file}: a row is not JSON: {line[:100]!r}") from None


@dataclass(frozen=True)
class KeyDifference:
    """A key with different rows: some of the rows that only one version has."""

    key: Any
    only_a: list[Any]
    only_b: list[Any]


@dataclass(frozen=True)
class Comparison:
    """One sink's rows in both versions, with duplicates. ``key``: the key columns; None if rows are not records, so that each row
    is its own key. A key is the same if all its rows are the same."""

    uid: str
    rows_a: int
    rows_b: int
    only_a: int
    only_b: int
    key: list[str] | None
    keys_same: int
    keys_different: int
    keys_only_a: int
    keys_only_b: int
    samples: list[KeyDifference] = field(default_factory=list)

    @property
    def same(self) -> bool:
        return not self.only_a and not self.only_b


def compare_rows(
    uid: str, a: Iterable[Any], b: Iterable[Any], *, key: Sequence[str] | None = None, samples: int = 5
) -> Comparison:
    """Compare rows as JSON, regardless of their order and of the order of fields in a record.

    ``key``: columns; by default a record's first field (a list's first element). A missing column counts as null.
    """
    rows_a, rows_b = list(a), list(b)
    columns = list(key) if key is not None else _inferred([*rows_a[:1], *rows_b[:1]])
    by_key_a, by_key_b = _by_key(rows_a, columns), _by_key(rows_b, columns)
    only_a = {k: found for k, rows in by_key_a.items() if (found := rows - by_key_b.get(k, Counter()))}
    only_b = {k: found for k, rows in by_key_b.items() if (found := rows - by_key_a.get(k, Counter()))}
    differing = sorted(only_a.keys() | only_b.keys())
    keys = by_key_a.keys() | by_key_b.keys()
    return Comparison(
        uid,
        len(rows_a),
        len(rows_b),
        _total(only_a),
        _total(only_b),
        columns,
        keys_same=len(keys) - len(differing),
        keys_different=sum(1 for k in differing if k in by_key_a and k in by_key_b),
        keys_only_a=len(by_key_a.keys() - by_key_b.keys()),
        keys_only_b=len(by_key_b.keys() - by_key_a.keys()),
        samples=[
            KeyDifference(json.loads(k), _some(only_a.get(k, Counter())), _some(only_b.get(k, Counter())))
            for k in differing[:samples]
        ],
    )


def _inferred(rows: Sequence[Any]) -> list[str] | None:
    for row in rows:
        if isinstance(row, dict) and row:
            return [next(iter(row))]
        if isinstance(row, list) and row:
            return ["0"]
    return None


def _by_key(rows: Iterable[Any], columns: Sequence[str] | None) -> Mapping[str, Counter[str]]:
    found: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for row in rows:
        key = row if columns is None else [_column(row, column) for column in columns]
        found[_text(key[0] if columns is not None and len(key) == 1 else key)][_text(row)] += 1
    return found


def _column(row: Any, column: str) -> Any:
    if isinstance(row, dict):
        return row.get(column)
    if isinstance(row, list) and column.isdigit() and int(column) < len(row):
        return row[int(column)]
    return None


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


def _total(rows: Mapping[str, Counter[str]]) -> int:
    return sum(counter.total() for counter in rows.values())


def _some(rows: Counter[str]) -> list[Any]:
    return [json.loads(row) for row in islice(rows.elements(), SHOWN_ROWS)]
