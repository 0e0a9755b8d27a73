"""Random lives of LMDB stores, each begun by ``clear()``, and checked against a dict. A program of its own, as LMDB may end it.

    python store_lives.py SIZES LIVES    one `clear` and `apply` for each of so many sizes, then so many random lives

In one process, since the damage that dropping a database did depended on what the memory had held before.
"""

from __future__ import annotations

import random
import sys
import tempfile

import lmdb

from forkpoint.errors import StorageError
from forkpoint.state import Changes, change_columns
from forkpoint.state.lmdb_store import LmdbStore

_STEPS = ("small", "small", "small", "big", "big", "clear", "reopen", "load", "scan")


def sized(size: int) -> None:
    rng = random.Random(size)
    with tempfile.TemporaryDirectory() as directory:
        store = LmdbStore(directory)
        for _ in range(2):
            store.clear()
            keys = sorted(rng.randbytes(14) for _ in range(size))
            store.apply(Changes(keys, [b"v" * rng.randint(0, 200) for _ in keys]), 1, 0)
            assert [key for key, _ in store.scan(b"\0", b"\xff" * 15)] == keys
        store.close()


def life(seed: int) -> None:
    rng = random.Random(seed)
    width, longest, count = rng.choice([8, 14, 20, 100, 509, 600]), rng.choice([9, 300, 2500, 8000]), 20_000
    count = min(count, 8_000_000 // width, 80_000_000 // longest)
    pool = [rng.randbytes(4) + b"%0*d" % (width - 4, i) for i in range(count)]

    def some(size: int, deletes: float = 0.05) -> Changes:
        keys = [pool[i] for i in rng.sample(range(count), size)]
        return Changes(keys, [b"v" * rng.randint(0, longest) if rng.random() >= deletes else None for _ in keys]).in_order()

    with tempfile.TemporaryDirectory() as directory:
        store, version, scans = LmdbStore(directory, map_size=rng.choice([1 << 16, 1 << 22, 1 << 30])), 0, []
        model: dict[bytes, bytes | None] = {}
        for step in ("clear", *rng.choices(_STEPS, k=rng.randint(4, 20))):
            if step in ("small", "big"):
                changes = some(rng.randint(1, count // 20) if step == "small" else rng.randint(count // 2, count))
                store.apply(changes, version + 1, version)
                model.update(zip(changes.keys, changes.values, strict=True))
                version += 1
            elif step == "clear":
                store.clear()
                version, model = 0, {}
            elif step == "reopen":
                store.close()
                store = LmdbStore(directory)
            elif step == "scan":  # open at the end of the store's life
                scans.append(store.scan(b"\0", b"\xff" * 8))
                next(scans[-1], None)
            else:
                store.clear()
                changes = some(count // 2, deletes=0)
                chunks = range(0, len(changes), 5000)
                store.load((change_columns(Changes(changes.keys[i : i + 5000], changes.values[i : i + 5000])) for i in chunks), 1)
                version, model = 1, dict(zip(changes.keys, changes.values, strict=True))
        found = dict(store.scan(b"\0", b"\xff" * 601))
        assert found == {key: value for key, value in model.items() if value is not None}
        store.close()


def main(sizes: int, lives: int) -> None:
    failed = []
    for size in range(40_000, 40_000 + sizes * 1000, 1000):
        try:
            sized(size)
        except (StorageError, AssertionError) as error:
            failed.append(f"size {size}: {error!r}")
    for seed in range(lives):
        try:
            life(seed)
        except (StorageError, AssertionError) as error:
            failed.append(f"life {seed}: {error!r}")
    print(f"lmdb {lmdb.__version__}: {len(failed)} of {sizes + lives} failed", *failed, sep="\n  ")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
