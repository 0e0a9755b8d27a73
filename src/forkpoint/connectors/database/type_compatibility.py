"""Pairs of field and column types that cannot work: the database, or its driver, refuses all values.

Databases convert many texts and numbers: PostgreSQL reads a date from 20260101, for example. So only some pairs are listed; the
database decides about all others.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from forkpoint.types import TypeInformation
from forkpoint.types.kinds.containers import OptionalType

if TYPE_CHECKING:
    from sqlalchemy import Connection

_NUMBERS = frozenset({"integer", "number"})
_TIMES = frozenset({"date", "datetime", "time"})
_NESTED = {"record", "map", "list"}
_FAMILIES = {
    **dict.fromkeys(("byte", "short", "int", "long", "big_int"), "integer"),
    **dict.fromkeys(("float", "double"), "float"),
    **dict.fromkeys(("string", "char"), "text"),
    **dict.fromkeys(("timestamp", "instant"), "datetime"),
    **dict.fromkeys(("list", "tuple_of", "set", "frozenset"), "list"),
}
"""Kinds of types that are written in the same way; any other kind is its own family."""

# Fields by family → families of columns that refuse all of their values.
_POSTGRESQL: Mapping[str, frozenset[str]] = {
    "boolean": _NUMBERS | _TIMES | {"uuid"},
    "integer": frozenset({"uuid"}),
    "float": frozenset({"boolean", "integer", "uuid"}),
    "bytes": _NUMBERS | _TIMES | {"boolean", "uuid"},
    "date": _NUMBERS | {"boolean", "time", "uuid"},
    "datetime": _NUMBERS | {"boolean", "uuid"},
    "time": _NUMBERS | {"boolean", "date", "datetime", "uuid"},
    "duration": _NUMBERS | {"boolean", "date", "datetime", "uuid"},
    **dict.fromkeys(_NESTED, _NUMBERS | _TIMES | {"boolean", "uuid"}),
}
_MYSQL: Mapping[str, frozenset[str]] = {  # in strict mode
    **dict.fromkeys(("date", "datetime", "time", "duration", "uuid"), _NUMBERS),
    **dict.fromkeys(_NESTED, _NUMBERS | _TIMES),
}
_SQLITE: Mapping[str, frozenset[str]] = {  # SQLAlchemy keeps texts in columns of times
    **dict.fromkeys(("boolean", "integer", "float", "big_dec", "bytes", "text", "duration", "uuid", *_NESTED), _TIMES),
    "date": frozenset({"time"}),
    "datetime": frozenset({"time"}),
    "time": frozenset({"date", "datetime"}),
}
_REFUSED = {"postgresql": _POSTGRESQL, "mysql": _MYSQL, "mariadb": _MYSQL, "sqlite": _SQLITE}


def refusing(connection: Connection) -> Mapping[str, frozenset[str]]:
    """The column families that refuse fields of a family, in this database."""
    from sqlalchemy import text

    name = connection.dialect.name
    if name in ("mysql", "mariadb") and "STRICT" not in str(connection.execute(text("SELECT @@sql_mode")).scalar()):
        return {}  # the server adapts values until they fit
    return _REFUSED.get(name, {})


def family(type: TypeInformation[Any]) -> str:
    """The family of a field's type."""
    inner = type.of if isinstance(type, OptionalType) else type
    return _FAMILIES.get(inner.kind, inner.kind)


def column_family(type: Any) -> str | None:
    """The family of a column's type in SQLAlchemy; None for any other type."""
    import sqlalchemy as sql

    kinds: dict[str, tuple[Any, ...]] = {
        "boolean": (sql.Boolean,),
        "integer": (sql.Integer,),
        "number": (sql.Numeric, sql.Float),
        "date": (sql.Date,),
        "datetime": (sql.DateTime,),
        "time": (sql.Time,),
        "uuid": (sql.Uuid,),
    }
    return next((name for name, classes in kinds.items() if isinstance(type, classes)), None)
