"""Coverage-guided fuzzing of the readers of saved files, with atheris: `make fuzz`, or

    python scripts/fuzz_savepoint.py [savepoint.json|snapshot|changes|part] [-max_total_time=SECONDS] [other options of libFuzzer]

For any bytes, a reader must return a result or raise SavepointCorrupt. atheris is not a dependency of the project:
pip install atheris. libFuzzer writes other inputs to the current directory.
"""

from __future__ import annotations

import json
import random
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from tempfile import TemporaryDirectory

import atheris
import pyarrow as pa

with atheris.instrument_imports(include=["forkpoint"]):
    from forkpoint.checkpoint.format import checksum
    from forkpoint.checkpoint.savepoint_manifest import SAVEPOINT, Savepoint, Versions
    from forkpoint.checkpoint.states import StateInfo
    from forkpoint.errors import SavepointCorrupt
    from forkpoint.savepoint.format.checks import checked_tables
    from forkpoint.savepoint.format.entries import EntryTarget, codec_of
    from forkpoint.savepoint.format.layers import SavedFile
    from forkpoint.savepoint.format.layout import layout_of
    from forkpoint.savepoint.format.parquet import PartWriter, errors_naming
    from forkpoint.savepoint.format.tasks import FileRef
    from forkpoint.state import Changes, read_changes, read_snapshot, state_key, write_changes, write_snapshot
    from forkpoint.state.arrow_file import _BLOCK, _TRAILER, _trailer_crc
    from forkpoint.storage.base import open_storage
    from forkpoint.types import Types

ROWS = 6
STORAGE = open_storage("memory://fuzz")
STATES = [
    StateInfo.of("op", "total", "value", Types.LONG(), Types.STRING()),
    StateInfo.of("op", "list", "list", Types.STRING(), Types.ANY(), None, 1000),
    StateInfo.of("op", "map", "map", Types.LONG(), Types.FLOAT(), Types.STRING()),
    StateInfo.of("op", "seen", "operator-list", None, Types.LIST(Types.LONG())),
]


def savepoint_json(data: bytes) -> None:
    savepoint = SAVEPOINT.parse(data, "savepoint.json")
    for operator in savepoint.operators:
        for state in operator.states:
            layout_of(state.info)


def snapshot(data: bytes) -> None:
    for content in (data, _with_checksums(data)):
        _attempt(lambda content=content: list(read_snapshot(content, 0, 0x1_0000)))  # type: ignore[misc]


def changes(data: bytes) -> None:
    for content in (data, _with_checksums(data)):
        _attempt(lambda content=content: read_changes(content))  # type: ignore[misc]


def part(data: bytes) -> None:
    """The first byte selects the state that the file claims to contain."""
    state, content = STATES[data[0] % len(STATES)] if data else STATES[0], data[1:]
    file = SavedFile(0, 8, FileRef("part", None, content, len(content), checksum(content)), ROWS)
    codec, target = codec_of(state), EntryTarget(1, state.ttl_ms is not None, 0, 1)
    with errors_naming("part"):
        for table in checked_tables(STORAGE, file, layout_of(state), 8, 2, groups=None):
            codec.to_entries(table, target)
        codec.finish(target)


def _attempt(read: Callable[[], object]) -> None:
    with suppress(SavepointCorrupt):
        read()


def _with_checksums(data: bytes) -> bytes:
    """The file with valid checksums, so that the code after the checks is fuzzed too."""
    if len(data) < _TRAILER.size:
        return data
    trailer = list(_TRAILER.unpack(data[-_TRAILER.size :]))
    blocks = min(trailer[2], 50)
    end = len(data) - _TRAILER.size - blocks * _BLOCK.size
    if end < 0:
        return data
    content, index, position, frame = data[:end], b"", 0, 0
    for block in _BLOCK.iter_unpack(data[end : -_TRAILER.size]):
        offset, length = block[3], block[4]
        frame = zlib.crc32(content[position:offset], frame)
        index += _BLOCK.pack(*block[:5], zlib.crc32(content[offset : offset + length]))
        position = offset + length
    frame = zlib.crc32(content[position:], frame)
    trailer[0], trailer[2], trailer[4:7], trailer[8] = 1, blocks, (len(data), frame, zlib.crc32(index)), b"FKPT"
    return content + index + _TRAILER.pack(*trailer[:7], _trailer_crc(_TRAILER.pack(*trailer)), trailer[8])


def _seeds() -> dict[str, list[bytes]]:
    """Valid files."""
    entries = [(state_key(group, 7, b"key"), b"value") for group in range(20)]
    savepoint = Savepoint(
        id="s",
        job="j",
        run="r",
        epoch=3,
        created_ms=1,
        versions=Versions(forkpoint="1", python="3"),
        max_parallelism=8,
        parallelism=2,
    )
    parts = []
    for number, state in enumerate(STATES):
        writer = PartWriter(layout_of(state))
        writer.write(layout_of(state).schema.empty_table())
        parts.append(bytes([number]) + writer.finish())
    return {
        "savepoint.json": [SAVEPOINT.dump(savepoint), json.dumps({"format_version": 1}).encode()],
        "snapshot": [write_snapshot(entries), write_snapshot([])],
        "changes": [write_changes(Changes([key for key, _ in entries], [None, *[b"v"] * 19]))],
        "part": parts + list(_filled()),
    }


def _filled() -> Iterator[bytes]:
    dice = random.Random(1)
    for number, state in enumerate(STATES):
        layout = layout_of(state)
        rows = [{field.name: _some(str(field.type), dice) for field in layout.schema} for _ in range(ROWS)]
        writer = PartWriter(layout)
        writer.write(pa.Table.from_pylist(rows, schema=layout.schema))
        yield bytes([number]) + writer.finish()


def _some(type: str, dice: random.Random) -> object:
    if type in ("int32", "int64"):
        return dice.randrange(8)
    return {"float": 0.5, "string": "ab", "binary": b"\xc0"}.get(type, [])


TARGETS: dict[str, Callable[[bytes], None]] = {
    "savepoint.json": savepoint_json,
    "snapshot": snapshot,
    "changes": changes,
    "part": part,
}


def main() -> None:
    name = sys.argv.pop(1) if len(sys.argv) > 1 and sys.argv[1] in TARGETS else "part"
    target = TARGETS[name]

    def one(data: bytes) -> None:
        _attempt(lambda: target(data))

    with TemporaryDirectory() as corpus:
        for number, seed in enumerate(_seeds()[name]):
            with open(f"{corpus}/{number}", "wb") as file:
                file.write(seed)
        atheris.Setup([*sys.argv, corpus], one)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
