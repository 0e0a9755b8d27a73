"""Writes rows except those that a table refuses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa

from forkpoint.connectors.database.errors import raising_errors
from forkpoint.connectors.database.statements import Row
from forkpoint.connectors.formats.jsonable import to_jsonable
from forkpoint.errors import OutputRefused

if TYPE_CHECKING:
    from sqlalchemy import Connection

_encode = msgspec.json.Encoder(enc_hook=to_jsonable).encode


@dataclass
class Refused:
    """Rows that a table has refused, as JSON, with the reasons."""

    what: str
    rows: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def write(
        self, connection: Connection, write: Callable[[Sequence[Row]], None], columns: Sequence[str], rows: Sequence[Row]
    ) -> None:
        """Write rows in order, within savepoints. Halves the rows if the table refuses some of them."""
        parts = [rows]
        while parts:
            part = parts.pop()
            try:
                with raising_errors(self.what), connection.begin_nested():
                    write(part)
            except OutputRefused as error:
                if len(part) == 1:
                    self.rows.append(_encode(dict(zip(columns, part[0], strict=True))).decode())
                    self.errors.append(str(error))
                else:
                    half = len(part) // 2
                    parts += [part[half:], part[:half]]

    def table(self) -> pa.Table:
        return pa.table({"row": pa.array(self.rows, pa.string()), "error": pa.array(self.errors, pa.string())})
