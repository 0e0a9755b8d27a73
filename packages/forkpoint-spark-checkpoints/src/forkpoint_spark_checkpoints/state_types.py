"""The types of Spark's state. Its schema allows nulls in all columns; the types are Optional only where there are nulls."""

from __future__ import annotations

import re
from collections.abc import Set
from typing import Any

from pyspark.sql import types as spark

from forkpoint.errors import TypeNotSupported
from forkpoint.spark.frames import column_type
from forkpoint.types import TypeInformation, from_description


def state_type(of: spark.DataType, nulls: Set[str], path: str) -> TypeInformation:
    """The type of a state's column: Optional only at the paths in ``nulls``, which have nulls (see ``query_state.nulls``).

    A struct becomes a record, for a NamedTuple with the same fields (or, as a value, a dataclass); with fields f0, f1, … a
    tuple. Raises TypeNotSupported, which names the column.
    """
    return from_description(_described(of, nulls, path))


def _described(of: spark.DataType, nulls: Set[str], path: str) -> Any:
    found: Any
    match of:
        case spark.StructType():
            fields = [
                {"name": field.name, "type": _described(field.dataType, nulls, f"{path}.{field.name}")} for field in of.fields
            ]
            if list(of.names) == [f"f{i}" for i in range(len(fields))]:
                found = {"kind": "record", "name": "tuple", "fields": fields, "flavor": "tuple"}
            else:
                found = {"kind": "record", "name": _class_name(path), "fields": fields, "flavor": "namedtuple"}
        case spark.ArrayType():
            found = {"kind": "list", "element": _described(of.elementType, nulls, f"{path}[]")}
        case spark.MapType():
            key = _described(of.keyType, frozenset(), path)
            found = {"kind": "map", "key": key, "value": _described(of.valueType, nulls, f"{path}[]")}
        case _:
            try:
                found = column_type(of, False, path).describe()
            except TypeNotSupported as error:
                raise TypeNotSupported(f"{error}, or select columns with a SQL expression") from error
    return {"kind": "optional", "of": found} if path in nulls else found


def _class_name(path: str) -> str:
    words = re.findall(r"[A-Za-z0-9]+", path.rpartition(".")[2])
    return "".join(word.capitalize() for word in words) or "Record"
