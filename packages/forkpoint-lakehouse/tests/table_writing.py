"""One sink of a job, without the job: staging epochs and committing them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from forkpoint.checkpoint.manifest import EpochOutput
from forkpoint.contract.sink import CommitterContext, SinkContext
from forkpoint.types import type_of
from forkpoint_lakehouse.delta import _DeltaCommitter
from forkpoint_lakehouse.iceberg import _IcebergCommitter
from table_reading import read


class Row(NamedTuple):
    id: int
    epoch: int


TYPE = type_of(Row)


@dataclass
class Batch:
    """A sink's batch of rows."""

    values: list[Any]
    table: Any = None
    timestamps: Any = None
    type: Any = TYPE


@dataclass
class Writing:
    """One sink of a job, without the job."""

    kind: str
    place: Path
    root: Path
    sink: Any

    def write(self, epoch: int, *ids: int, attempt: str = "a") -> EpochOutput:
        """Stage rows of an epoch."""
        context = SinkContext("sink", "job", epoch, 0, f"{attempt}{epoch}", 1, str(self.root))
        writer = self.sink.create_writer(context)
        writer.write(Batch([Row(id, epoch) for id in ids]))
        return EpochOutput(epoch=epoch, committables=json.loads(json.dumps(writer.prepare_commit())))

    def committer(self) -> Any:
        return self.sink.create_committer(CommitterContext("sink", "job", "", "0123", str(self.root)))

    @property
    def committer_class(self) -> Any:
        return _DeltaCommitter if self.kind == "delta" else _IcebergCommitter

    def rows(self) -> list[tuple[int, int]]:
        return sorted((row["id"], row["epoch"]) for row in read(self.kind, self.place))

    def files_there(self) -> int:
        return len(list(self.place.rglob("*.parquet")))
