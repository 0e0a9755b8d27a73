"""What is read from a query's logs; no Spark runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from forkpoint.checkpoint.manifest import SplitState
from forkpoint.errors import ConfigError, SavepointCorrupt
from forkpoint.storage.base import LocalStorage
from forkpoint_spark_checkpoints.query_log import QueryLog, positions, read_log

FILE_ENTRY = 'v1\n{"path":"file:///in/1.json","timestamp":1,"batchId":0}'


class Checkpoint:
    """Log files as Spark writes them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.write("metadata", '{"id":"2f0b"}')

    def write(self, path: str, text: str) -> None:
        (self.directory / path).parent.mkdir(parents=True, exist_ok=True)
        (self.directory / path).write_text(text)

    def batch(self, number: int, *sources: str, commit: str | None = "v1\n{}", version: str = "v1") -> None:
        metadata = {"batchWatermarkMs": 1000 * number, "batchTimestampMs": 5, "conf": {"a": "b"}}
        self.write(f"offsets/{number}", "\n".join([version, json.dumps(metadata), *sources]))
        if commit is not None:
            self.write(f"commits/{number}", commit)

    @property
    def files(self) -> LocalStorage:
        return LocalStorage(str(self.directory))

    def read(self, batch: int | None = None) -> QueryLog:
        return read_log(self.files, batch)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    return Checkpoint(tmp_path)


def test_the_last_batch_committed_counts(checkpoint: Checkpoint) -> None:
    checkpoint.batch(0, '{"logOffset":0}', "-", commit='v1\n{"nextBatchWatermarkMs":1000}')
    checkpoint.batch(1, '{"logOffset":1}', "7", commit='v1\n{"nextBatchWatermarkMs":2000}')
    checkpoint.batch(2, '{"logOffset":2}', "8", commit=None)
    checkpoint.write("commits/.2.tmp", "v1")
    for number in range(3):
        checkpoint.write(f"sources/0/{number}", FILE_ENTRY)
        checkpoint.write(f"sources/0/.{number}.crc", "x")
    checkpoint.write("sources/1/0", "since 5")
    log = checkpoint.read()
    assert (log.query, log.batch, log.unfinished, log.watermark_ms, log.next_watermark_ms) == ("2f0b", 1, 2, 1000, 2000)
    assert [source.offset for source in log.sources] == ['{"logOffset":1}', "7"]
    found = positions(checkpoint.files, log, ["0", "1"], {0: "files", 1: "ticks"})
    assert found["files"].spark_log == {"0": FILE_ENTRY, "1": FILE_ENTRY}
    assert (found["ticks"].spark_offset, found["ticks"].spark_log) == ("7", {"0": "since 5"})
    at = SplitState(watermark_ms=1999, last_active_ms=5, count=0)
    assert found["ticks"].splits == {"0": at, "1": at}

    earlier = checkpoint.read(0)
    assert [source.offset for source in earlier.sources] == ['{"logOffset":0}', None]
    assert earlier.unfinished is None
    only = positions(checkpoint.files, earlier, [], {1: "ticks"})
    assert (set(only), only["ticks"].spark_offset, only["ticks"].splits) == ({"ticks"}, None, {})


def test_a_compacted_log_is_taken_from_the_last_compaction_on(checkpoint: Checkpoint) -> None:
    checkpoint.batch(10, '{"logOffset":10}')
    for name in ("8", "9.compact", "10", "11"):
        checkpoint.write(f"sources/0/{name}", name)
    log = checkpoint.read()
    assert positions(checkpoint.files, log, [], {0: "files"})["files"].spark_log == {
        "9.compact": "9.compact",
        "10": "10",
    }


def test_named_sources_and_one_that_is_out_for_a_batch(checkpoint: Checkpoint) -> None:
    checkpoint.batch(3, 'a:{"logOffset":1}', "b:{}", version="v2")
    checkpoint.batch(4, 'a:{"logOffset":2}', "c:-", version="v2", commit='v2\n{"stateUniqueIds":{"0":[["x"]]}}')
    checkpoint.write("sources/a/2", FILE_ENTRY)
    log = checkpoint.read()
    assert {source.name: source.offset for source in log.sources} == {"a": '{"logOffset":2}', "b": "{}", "c": None}
    assert (log.version, log.state_format) == ("v2", 2)
    assert positions(checkpoint.files, log, ["0"], {0: "x"})["x"].spark_log == {"2": FILE_ENTRY}


def test_what_is_no_checkpoint_is_refused(checkpoint: Checkpoint) -> None:
    with pytest.raises(ConfigError, match="no offsets/; give the query's checkpointLocation"):
        checkpoint.read()
    checkpoint.batch(0, "1", commit=None)
    with pytest.raises(ConfigError, match="has committed no batch yet"):
        checkpoint.read()
    checkpoint.batch(1, "2")
    with pytest.raises(ConfigError, match="batch 0 has not been committed; available are 1 to 1"):
        checkpoint.read(0)
    checkpoint.batch(2, "2", version="v9")
    with pytest.raises(ConfigError, match="offsets/2 has version 'v9'; forkpoint reads v1, v2"):
        checkpoint.read()
    checkpoint.write("offsets/2", 'v1\n{"batchWater')
    with pytest.raises(SavepointCorrupt, match="offsets/2 is damaged or truncated"):
        checkpoint.read()
    checkpoint.write("commits/1", "v7\n{}")
    with pytest.raises(ConfigError, match="commits/1 has version 'v7'"):
        checkpoint.read(1)


def test_offsets_without_commits_of_the_same_batches(checkpoint: Checkpoint) -> None:
    checkpoint.batch(1, "2", commit=None)
    checkpoint.write("commits/0", "v1\n{}")
    with pytest.raises(ConfigError, match="no batch is in both"):
        checkpoint.read()
