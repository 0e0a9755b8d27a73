"""How much a store has, as far as it can tell without reading it."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

from forkpoint.state import Changes, StoreKind, WriteBackStore, open_store

KEYS = [b"000001k%03d" % i for i in range(100)]


@pytest.mark.parametrize("kind", get_args(StoreKind))
def test_a_store_knows_about_how_many_entries_it_has(kind: StoreKind, tmp_path: Path) -> None:
    store = open_store(kind, tmp_path / "store")
    assert store.size().entries == 0
    store.apply(Changes(list(KEYS), [b"value"] * 100), 1, 0)
    entries, size = store.size()
    assert entries == 100
    assert size is None if kind == "dict" else size is not None and size >= 500
    store.close()


def test_held_changes_count_and_written_ones_replace_what_was_known(tmp_path: Path) -> None:
    store = WriteBackStore(open_store("lmdb", tmp_path / "store"))
    store.apply(Changes(KEYS[:60], [b"value"] * 60), 1, 0)
    assert store.size().entries == 60
    store.flush()
    store.apply(Changes(KEYS[60:], [b"value"] * 40), 2, 1)
    assert store.size().entries == 60
    store.flush()
    assert store.size().entries == 100
    store.clear()
    assert store.size().entries == 0
    store.close()
