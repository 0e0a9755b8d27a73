"""How long a subtask on a new host takes to rebuild its store from the state root.

    python benchmarks/rebuild.py                 state root on S3 (a moto server in a process of its own)
    python benchmarks/rebuild.py --keys 4000000

Writes the history of one of four subtasks: a snapshot, or none, and the changes of the epochs since. Prints one line of JSON for
each case: the time of the rebuild, its processor time here, and the time per million keys.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

import numpy as np
from on_cluster import S3Server

from forkpoint.checkpoint.format import checksum
from forkpoint.checkpoint.manifest import MANIFEST, ChangesRef, Manifest, SnapshotRef
from forkpoint.checkpoint.paths import JobPaths
from forkpoint.checkpoint.states import StateInfo
from forkpoint.runtime.exchange.control import EpochContext
from forkpoint.runtime.tasks.committed_state import Share
from forkpoint.runtime.tasks.subtask_store import SubtaskState
from forkpoint.state import (
    Changes,
    WriteBackStore,
    key_group_range,
    open_store,
    state_key,
    write_changes,
    write_snapshot,
)
from forkpoint.storage.base import Storage, open_storage

SUBTASKS = 4
JOB = "bench"
PATHS = JobPaths(JOB)
START, STOP = key_group_range(0, SUBTASKS, 128)
STATE = StateInfo(
    sid=7, uid="counts", name="state", kind="value", key_type={"kind": "LONG"}, value_type={"kind": "LONG"}, ttl_ms=None
)


def keys_of(count: int) -> list[bytes]:
    return sorted(state_key(START + n % (STOP - START), 7, n.to_bytes(8)) for n in range(count))


def write_history(storage: Storage, keys: list[bytes], epochs: int, rows: int, *, snapshot: bool) -> None:
    """Epoch 1 starts the job; with a snapshot of epoch 1, the changes after it, else all changes from the first."""
    random = np.random.default_rng(1)
    snapshots = []
    if snapshot:
        data = write_snapshot((key, bytes(9)) for key in keys)
        path = PATHS.snapshot(1, 0, "first")
        storage.put(path, data)
        snapshots = [
            SnapshotRef(
                subtask=0,
                attempt="first",
                epoch=1,
                kg_start=START,
                kg_stop=STOP,
                path=path,
                entries=len(keys),
                bytes=len(data),
                checksum=checksum(data),
            )
        ]
    for epoch in range(1, epochs + 2):
        changes = []
        if epoch > 1:
            some = random.integers(0, len(keys), rows) if snapshot else np.arange((epoch - 2) * rows, (epoch - 1) * rows)
            chosen = sorted({keys[n % len(keys)] for n in some})
            data = write_changes(Changes(chosen, [epoch.to_bytes(9)] * len(chosen)))
            path = PATHS.changelog(epoch, 1, 0, "first")
            storage.put(path, data)
            changes = [
                ChangesRef(
                    stage=1,
                    subtask=0,
                    attempt="first",
                    kg_start=START,
                    kg_stop=STOP,
                    path=path,
                    entries=len(chosen),
                    bytes=len(data),
                    checksum=checksum(data),
                )
            ]
        manifest = Manifest(
            job=JOB,
            run="r",
            generation=1,
            epoch=epoch,
            kind="start" if epoch == 1 else "epoch",
            created_ms=0,
            processing_time_ms=0,
            parallelism=SUBTASKS,
            max_parallelism=128,
            states=[STATE],
            changes=changes,
            snapshots=snapshots,
        )
        storage.put(PATHS.manifest(epoch), MANIFEST.dump(manifest))


def rebuild(storage: Storage, epochs: int, place: Path) -> tuple[float, float, int]:
    place.mkdir()
    store = WriteBackStore(open_store("lmdb", place))
    context = EpochContext(
        generation=1,
        epoch=epochs + 2,
        committed=epochs + 1,
        processing_time_ms=0,
        drain=False,
        previous={},
        splits={},
        watermarks={},
        snapshot_subtasks=[],
    )
    began, cpu_began = time.perf_counter(), time.process_time()
    SubtaskState(store, storage, PATHS, Share(0, START, STOP)).catch_up(context)
    seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - cpu_began
    entries = sum(1 for _ in store.scan(b"\0", b"\xff" * 8))
    store.close()
    return seconds, cpu_seconds, entries


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--epochs", type=int, default=99, help="since the snapshot")
    arguments = parser.parse_args()
    keys = keys_of(arguments.keys)
    with tempfile.TemporaryDirectory(prefix="forkpoint-rebuild-") as temporary:
        server = S3Server(Path(temporary))
        try:
            for number, (name, snapshot, rows) in enumerate(
                [
                    ("a snapshot alone", True, 0),
                    ("a snapshot and changes of a tenth of its keys", True, len(keys) // 10 // arguments.epochs),
                    ("a snapshot and changes of all its keys", True, len(keys) // arguments.epochs),
                    ("changes alone", False, len(keys) // arguments.epochs + 1),
                ]
            ):
                storage = open_storage(f"s3://state/{number}")
                write_history(storage, keys, arguments.epochs, rows, snapshot=snapshot)
                seconds, cpu_seconds, entries = rebuild(storage, arguments.epochs, Path(temporary) / str(number))
                assert entries == len(keys), (entries, len(keys))
                per_million = round(seconds * 1e6 / len(keys), 2)
                print(
                    json.dumps(
                        {
                            "case": name,
                            "keys": entries,
                            "s": round(seconds, 2),
                            "cpu_s": round(cpu_seconds, 2),
                            "s_per_million": per_million,
                        }
                    )
                )
        finally:
            server.stop()


if __name__ == "__main__":
    main()
