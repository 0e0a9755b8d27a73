"""The replication slot, which keeps changes on the server until the job has committed them."""

from __future__ import annotations

import hashlib
import logging
import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from forkpoint.errors import ConfigError, InputLost, JobFailed
from forkpoint_postgres_cdc.connection import Database
from forkpoint_postgres_cdc.errors import forkpoint_error, is_temporary
from forkpoint_postgres_cdc.position import Position, lsn_text

if TYPE_CHECKING:
    import psycopg

log = logging.getLogger("forkpoint.postgres")

_MAX_LENGTH = 63
DROP_S = 5.0
_NO_OBJECT, _DUPLICATE, _NOT_IN_STATE = "42704", "42710", "55000"

_STATE = """
SELECT plugin::text, database::text, (confirmed_flush_lsn - '0/0'::pg_lsn)::int8, {status}
FROM pg_replication_slots WHERE slot_name = %s
"""


def slot_name(job: str, uid: str, state_root: str) -> str:
    """The name of a source's slot: the same in all runs of the job, and unique to the job."""
    digest = hashlib.sha256(repr((state_root.rstrip("/"), job, uid)).encode()).hexdigest()[:10]
    readable = re.sub("[^a-z0-9]+", "_", f"{job}_{uid}".lower()).strip("_")
    return f"forkpoint_{readable[: _MAX_LENGTH - 22]}_{digest}"


@dataclass(frozen=True)
class Slot:
    """An existing slot. ``confirmed``: transactions whose commit record starts before it are gone."""

    plugin: str
    database: str
    confirmed: int
    status: str | None


def find_slot(connection: psycopg.Connection[Any], name: str) -> Slot | None:
    status = "wal_status" if connection.info.server_version >= 130000 else "NULL"
    row = connection.execute(_STATE.format(status=status), [name]).fetchone()
    return None if row is None else Slot(*row)


def flushed(connection: psycopg.Connection[Any]) -> int:
    """The end of the server's durable log."""
    return _query_int(connection, "SELECT (pg_current_wal_flush_lsn() - '0/0'::pg_lsn)::int8")


def inserted(connection: psycopg.Connection[Any]) -> int:
    """The end of the server's log."""
    return _query_int(connection, "SELECT (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::int8")


def _query_int(connection: psycopg.Connection[Any], query: str) -> int:
    row = connection.execute(query).fetchone()
    assert row is not None
    return int(row[0])


def open_slot(connection: psycopg.Connection[Any], name: str, position: Position | None) -> int:
    """Find or create the slot with all changes after ``position``. Returns the LSN up to which it was confirmed.

    Without a position, uses an existing slot, which an earlier start of this job created: the snapshot contains its older
    changes.
    """
    slot = find_slot(connection, name)
    if slot is None:
        if position is None:
            _create(connection, name)
        else:
            _copy(connection, name, position)
        slot = find_slot(connection, name)
        if slot is None:
            raise JobFailed(f"slot {name} was dropped as soon as it was created; make sure that nobody drops it")
    check_slot(connection, name, slot, position)
    return slot.confirmed


def _create(connection: psycopg.Connection[Any], name: str) -> None:
    import psycopg

    log.info("PostgresSource: creating slot %s; this waits for running transactions", name)
    try:
        connection.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", [name])
    except psycopg.errors.DuplicateObject:
        log.info("PostgresSource: slot %s exists already", name)


def _copy(connection: psycopg.Connection[Any], name: str, position: Position) -> None:
    """Create a restored job's slot as a copy of the slot of the job that it was restored from."""
    origin = None if position.slot == name else find_slot(connection, position.slot)
    if origin is None:
        raise InputLost(
            f"replication slot {position.slot!r} does not exist any more, so the changes after "
            f"{lsn_text(position.lsn)} are lost. Give the source a new uid to read the tables afresh"
        )
    check_slot(connection, position.slot, origin, position)
    log.info("PostgresSource: copying slot %s to %s", position.slot, name)
    connection.execute("SELECT pg_copy_logical_replication_slot(%s, %s)", [position.slot, name])


def check_slot(connection: psycopg.Connection[Any], name: str, slot: Slot, position: Position | None) -> None:
    """Raise InputLost unless the slot has all changes after ``position``."""
    here = connection.info.dbname
    if slot.plugin != "pgoutput" or slot.database != here:
        raise ConfigError(
            f"slot {name!r} is of plugin {slot.plugin!r} in database {slot.database!r}, not of pgoutput in "
            f"{here!r}; connect to that database, or drop the slot: SELECT pg_drop_replication_slot('{name}')"
        )
    if slot.status == "lost":
        raise InputLost(
            f"the server has removed the changes that slot {name!r} kept (wal_status = lost), because they exceeded "
            f"max_slot_wal_keep_size. Raise that, drop the slot (SELECT pg_drop_replication_slot('{name}')), and give the source "
            "a new uid to read the tables afresh"
        )
    if position is not None and slot.confirmed > position.lsn:
        raise InputLost(
            f"slot {name!r} only has changes after {lsn_text(slot.confirmed)}, but the job resumes at "
            f"{lsn_text(position.lsn)}: the changes between are gone. A slot keeps what its job's newest checkpoint needs, so a "
            "savepoint cannot be restored if it is older, or if its job has continued. Restore the newest savepoint of a stopped "
            "job, or give the source a new uid to read the tables afresh"
        )


def drop_slot(database: Database, name: str, uid: str | None) -> None:
    """Drop a slot that is no longer needed. Does not fail."""
    import psycopg

    until = time.monotonic() + DROP_S
    try:
        with database.connect() as connection:
            while find_slot(connection, name) is not None:
                try:
                    connection.execute("SELECT pg_drop_replication_slot(%s)", [name])
                except psycopg.errors.ObjectInUse:  # its reader has not ended yet
                    if time.monotonic() > until:
                        raise
                    time.sleep(0.05)
    except psycopg.errors.UndefinedObject:
        pass
    except psycopg.Error as error:
        if is_temporary(error):
            log.warning(
                "PostgresSource %r: slot %s could not be dropped: %s. If it exists, it keeps the server's log until you drop it: "
                "SELECT pg_drop_replication_slot('%s')",
                uid,
                name,
                forkpoint_error(error, database.place),
                name,
            )


def advance(connection: psycopg.Connection[Any], name: str, lsn: int) -> None:
    """Have the server drop transactions that end before ``lsn``."""
    import psycopg

    try:
        connection.execute("SELECT pg_replication_slot_advance(%s, %s::pg_lsn)", [name, lsn_text(lsn)])
    except psycopg.errors.ObjectNotInPrerequisiteState as error:
        log.info("PostgresSource: slot %s was not advanced to %s: %s", name, lsn_text(lsn), error)
