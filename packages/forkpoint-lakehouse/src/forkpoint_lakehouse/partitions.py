"""Divides rows among the partitions of a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa


def divide(rows: pa.Table, by: Sequence[str]) -> Iterator[tuple[dict[str, Any], pa.Table]]:
    """The combinations of these columns' values, with their rows in order and without the columns. A column that the rows lack is
    None."""
    present = [name for name in by if name in rows.column_names]
    if not present:
        yield dict.fromkeys(by), rows
        return
    numbered = pa.table([*(rows.column(n) for n in present), pa.array(np.arange(len(rows)))], names=[*present, "_at"])
    groups = numbered.group_by(present, use_threads=False).aggregate([("_at", "list")])
    rest = rows.drop_columns(present)
    for index in range(len(groups)):
        values = {name: groups.column(name)[index].as_py() if name in present else None for name in by}
        yield values, rest.take(groups.column("_at_list")[index].values)
