"""Ledgers: a sink's record of its committed epochs, which it keeps in the external system with its output.

A commit may be repeated, and a suspended driver may resume in the middle of one. So a committer reads the ledger before it
writes. This module decides on the ledger's content; the sinks read and write it.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from urllib.parse import quote

from forkpoint.contract.sink import CommitterContext
from forkpoint.errors import JobFailed

REDIS_HASH = "forkpoint:epochs"
CASSANDRA_TABLE = "forkpoint_epochs"
OPENSEARCH_INDEX = "forkpoint-epochs"

_MAX_BYTES = 400  # of an entry's name; an id in OpenSearch has at most 512
_DIGEST_CHARACTERS = 32


def entry_name(context: CommitterContext, *, of_group: bool) -> str:
    """The name of a sink's entry: ``incarnation/job/uid``, and ``/group`` for a group's entry. A name that is too long ends in a
    digest."""
    parts = [context.incarnation, context.job, context.uid, *([context.group] if of_group else ())]
    name = "/".join(quote(part, safe="") for part in parts)
    if len(name) <= _MAX_BYTES:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:_DIGEST_CHARACTERS]
    return f"{name[: _MAX_BYTES - len(digest) - 1]}-{digest}"


def refuse_put_back(found: int, newest: int, place: str) -> None:
    """Raise JobFailed if a ledger has an epoch that the job does not know. ``place``: the ledger's entry, for the message."""
    if found > newest:
        raise JobFailed(
            f"{place} says that epoch {found} was committed, but the job's newest is {newest}. Was the state root put back to an "
            "earlier copy? Output since then would be left out: give the job another name, or delete that entry to write "
            "everything again"
        )


@dataclass(frozen=True)
class Span:
    """The versions of one epoch's rows: row ``i`` of a group has ``first + i``, which is below ``end``.

    Versions are microseconds since 1970 as long as an epoch has fewer rows than microseconds. They are newer than those of
    other writers' earlier rows, and of all earlier epochs.
    """

    epoch: int
    first: int
    end: int


def next_span(found: Span | None, epoch: int, rows: int, now_us: int) -> Span | None:
    """The span of an epoch of which a group has ``rows`` rows, given the ledger's span; None if a newer epoch has begun, which
    happens only once this epoch is written completely.

    The first commit of an epoch decides its first version. A repeated commit and other groups get the same; they may extend the
    span.
    """
    if found is None or found.epoch < epoch:
        first = now_us if found is None else max(now_us, found.end)
        return Span(epoch, first, first + rows)
    if found.epoch > epoch:
        return None
    return Span(epoch, found.first, max(found.end, found.first + rows))
