"""Connections to databases. A process that dies or is suspended must not keep rows locked: each connection has time limits."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from forkpoint.errors import ConfigError
from forkpoint.extras import require

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

DRIVERS = {"postgresql": "psycopg", "mysql": "pymysql", "mariadb": "pymysql"}
CONNECT_SECONDS = 10
LOCK_SECONDS = 15
IDLE_SECONDS = 60
"""How long a transaction whose client does nothing may hold its locks."""
_LONGER_THAN_IDLE = 20
READABLE = "-c TimeZone=UTC -c DateStyle=ISO -c IntervalStyle=postgres -c extra_float_digits=1"
"""What PostgreSQL's driver reads without loss, whatever a database or role has set."""
ANSWER_SECONDS = 300

_PACKET_HEADER = 5  # of MySQL's protocol, with the command
_LONGEST_CHARACTER = 4
_SHOWN = 100


def check_url(url: str, feature: str) -> str:
    """The URL with the driver that is used. Raises ConfigError for a database that is not supported, or a missing package."""
    named = str(url).partition(":")[0].partition("+")[0]
    if named in DRIVERS:
        require(DRIVERS[named], feature)  # the extra with the driver has SQLAlchemy, too
    require("sqlalchemy", feature)
    from sqlalchemy import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):  # it is not shown, as it may have a password
        raise ConfigError(
            f"{feature}: this is no URL of a database; one looks like postgresql://user:password@host/database"
        ) from None
    name, _, driver = parsed.drivername.partition("+")
    if name not in (*DRIVERS, "sqlite"):
        raise ConfigError(f"{feature}: {name} is not supported; PostgreSQL, MySQL, MariaDB and SQLite are")
    if name == "sqlite":
        if parsed.database in (None, "", ":memory:"):
            raise ConfigError(f"{feature}: a database in memory ends with its process; give sqlite:///<file>")
        return url
    if driver not in ("", DRIVERS[name]):
        raise ConfigError(f"{feature}: the driver for {name} is {DRIVERS[name]}, not {driver}; leave it out of the URL")
    return str(parsed.set(drivername=f"{name}+{DRIVERS[name]}").render_as_string(hide_password=False))


def shown(url: str) -> str:
    """The URL without the password, for messages."""
    from sqlalchemy import make_url

    return str(make_url(url).render_as_string(hide_password=True))


def create_engine(url: str, name_there: str = "forkpoint") -> Engine:
    """An engine whose connections are closed when they are given back. Nothing is connected yet. ``name_there``: of at most 63
    characters, which PostgreSQL shows for its connections."""
    import sqlalchemy

    name = sqlalchemy.make_url(url).get_backend_name()
    arguments: dict[str, Any] = {}
    if name == "postgresql":
        limits = {
            "lock_timeout": LOCK_SECONDS,
            "idle_in_transaction_session_timeout": IDLE_SECONDS,
            "statement_timeout": ANSWER_SECONDS,
        }
        settings = [f"{name}={1000 * seconds}" for name, seconds in limits.items()]
        arguments = {
            "connect_timeout": CONNECT_SECONDS,
            "keepalives_idle": 10,
            "keepalives_interval": 5,
            "keepalives_count": 3,
            "tcp_user_timeout": 30_000,
            "application_name": name_there,
            "options": READABLE + " " + " ".join(f"-c {each}" for each in settings),
        }
    elif name == "sqlite":
        arguments = {"timeout": LOCK_SECONDS, "check_same_thread": False}
    else:
        arguments = {
            "connect_timeout": CONNECT_SECONDS,
            "read_timeout": ANSWER_SECONDS,
            "write_timeout": ANSWER_SECONDS,
            "cursorclass": _bounded_cursor(),
        }
    engine = sqlalchemy.create_engine(url, poolclass=sqlalchemy.pool.NullPool, connect_args=arguments)
    if name in ("mysql", "mariadb"):
        sqlalchemy.event.listen(engine, "connect", _limit_mysql)
    return engine


@cache
def _bounded_cursor() -> Any:
    """A cursor that refuses statements beyond the server's limit: the server would close the connection, like in an outage."""
    from pymysql.constants.ER import NET_PACKET_TOO_LARGE
    from pymysql.cursors import Cursor
    from pymysql.err import DataError

    class Bounded(Cursor):  # type: ignore[misc]
        def execute(self, query: Any, args: Any = None) -> Any:
            query = self.mogrify(query, args)
            limit = self.connection.max_allowed_packet - _PACKET_HEADER
            if len(query) * _LONGEST_CHARACTER > limit:
                data = query.encode(self.connection.encoding) if isinstance(query, str) else bytes(query)
                if len(data) > limit:
                    begin = data[:_SHOWN].decode(self.connection.encoding, "replace")
                    raise DataError(NET_PACKET_TOO_LARGE, too_large(f"{begin}… has {len(data)} bytes", limit))
            return super().execute(query)

        def executemany(self, query: Any, args: Any) -> Any:
            self.max_stmt_length = min(Cursor.max_stmt_length, self.connection.max_allowed_packet // 2)
            return super().executemany(query, args)

    return Bounded


def too_large(what: str, limit: int) -> str:
    """The message for a statement or row beyond the limit of MySQL's server."""
    return (
        f"{what}, and the server takes {limit} at once (max_allowed_packet). Raise that (SET GLOBAL max_allowed_packet = …, up "
        "to 1 GB, and in its configuration), or write smaller rows"
    )


def max_packet(connection: Connection) -> int:
    """The limit of MySQL's server in bytes, read when the connection was made."""
    driver_connection: Any = connection.connection.dbapi_connection
    return int(driver_connection.max_allowed_packet)


def _limit_mysql(connection: Any, _: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT @@max_allowed_packet")
        connection.max_allowed_packet = int(cursor.fetchone()[0])
        cursor.execute("SET SESSION time_zone = '+00:00'")
        # A client that waits for an idle transaction gets the lock when the server ends that transaction.
        lock_seconds = IDLE_SECONDS + _LONGER_THAN_IDLE
        cursor.execute(f"SET SESSION innodb_lock_wait_timeout = {lock_seconds}, SESSION wait_timeout = {IDLE_SECONDS}")
        cursor.execute("SELECT VERSION()")
        if "MariaDB" in cursor.fetchone()[0]:
            cursor.execute(f"SET SESSION idle_transaction_timeout = {IDLE_SECONDS}")


def is_alive(connection: Connection) -> bool:
    return not (connection.closed or connection.invalidated)
